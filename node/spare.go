package node

import (
	"cmp"
	"slices"

	"github.com/starling-swarm/starling/artifacts"
)

// How spare disk is spent. Copies are counted without this node's own.
const (
	spareEnough = 4 // of a portion that has so many copies no more are made
	spareMargin = 2 // so many fewer copies must a portion have than one that makes room for it, or one fewer if it has but one
)

// portion is part of a model's bytes, by which copies are counted (artifacts.Card.Portion).
type portion struct {
	model artifacts.ID
	index int
}

// spareModel is what is known of a model that spare disk may go to. Its slices are by portion.
type spareModel struct {
	id     artifacts.ID
	header int64   // bytes that come with any portion but the last, which has them
	bytes  []int64 // in whole pieces
	others []int   // peers that hold it, this node excluded
	held   []bool  // here, for whatever reason
	spare  []bool  // here for the swarm's sake, or on its way
}

// used returns the bytes of spare copies, without those of portions that go, and with one that comes.
func (m *spareModel) used(gone []portion, come *portion) (n int64) {
	any, rest := false, len(m.bytes)-1
	for p := range m.bytes {
		id := portion{m.id, p}
		if (!m.spare[p] || slices.Contains(gone, id)) && (come == nil || *come != id) {
			continue
		}
		any, n = true, n+m.bytes[p]
		if p == rest {
			n -= m.header // counted below
		}
	}
	if any {
		n += m.header
	}
	return n
}

func spareUsed(models []spareModel, gone []portion, come *portion) (n int64) {
	for i := range models {
		n += models[i].used(gone, come)
	}
	return n
}

// nextSpare returns what to do next with a budget of bytes: spare copies to give up, the most common first, and a portion to fetch
// in their place or in free room, the rarest of those that somebody has. Where there are several, order says which, differently on each node, so that
// not all take the same. Portions for which skip holds are not fetched.
func nextSpare(models []spareModel, budget int64, order func(portion) uint64, skip func(portion) bool) (drop []portion, fetch *portion) {
	type counted struct {
		portion
		others int
	}
	var mine, wanted []counted
	for _, m := range models {
		for p := range m.bytes {
			c := counted{portion{m.id, p}, m.others[p]}
			switch {
			case m.spare[p] && m.held[p]:
				mine = append(mine, c)
			case !m.held[p] && c.others > 0 && c.others < spareEnough && !skip(c.portion):
				wanted = append(wanted, c)
			}
		}
	}
	byOrder := func(a, b counted) int { return cmp.Compare(order(a.portion), order(b.portion)) }
	slices.SortFunc(mine, func(a, b counted) int { return cmp.Or(b.others-a.others, byOrder(a, b)) })
	slices.SortFunc(wanted, func(a, b counted) int { return cmp.Or(a.others-b.others, byOrder(a, b)) })
	for _, c := range mine { // the budget has shrunk
		if spareUsed(models, drop, nil) <= budget {
			break
		}
		drop = append(drop, c.portion)
	}
	if len(drop) > 0 {
		return drop, nil
	}
	for _, w := range wanted {
		margin := spareMargin
		if w.others == 1 {
			margin = 1 // the only copy counts double
		}
		for i := 0; ; i++ {
			if spareUsed(models, drop, &w.portion) <= budget {
				return drop, &w.portion
			}
			if i == len(mine) || mine[i].others < w.others+margin {
				break
			}
			drop = append(drop, mine[i].portion)
		}
		drop = nil
	}
	return nil, nil
}
