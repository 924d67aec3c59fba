package assign

import (
	"cmp"
	"math"
	"slices"

	"github.com/starling-swarm/starling/route"
)

// Volunteer is the node that decides.
type Volunteer struct {
	ID           string
	Serves       route.Range // empty: nothing yet
	PrefillFlops float64     // FLOP/s; 0: not measured
	Budget       int64       // bytes of weights that it may hold, the embedding's and the head's among them
	OnDisk       []bool      // by layer; nil: none
	// Order ranks windows that are as good as each other, the least first. nil: by their first layers.
	Order func(route.Range) uint64
}

// Choose returns the layers to hold among others: those of the volunteer are not in others. Empty: its budget has room for no layer.
func Choose(m *route.Model, v Volunteer, others []Peer) route.Range {
	c := cover(m, others)
	return c.choose(m, &v)
}

func (c *coverage) choose(m *route.Model, v *Volunteer) route.Range {
	type candidate struct {
		route.Range
		level []float64 // sorted coverages in steps of Gain
		worst []float64 // and as they are
		disk  int64
		order uint64
	}
	var best *candidate
	for _, w := range windows(m, v.Budget) {
		k := &candidate{Range: w, worst: slices.Clone(c.rate[w.First:w.Last])}
		slices.Sort(k.worst)
		for _, r := range k.worst {
			k.level = append(k.level, math.Floor(math.Log(r)/math.Log(Gain))) // nobody's layers have −Inf
		}
		for x := w.First; x < min(w.Last, len(v.OnDisk)); x++ {
			if v.OnDisk[x] {
				k.disk += m.LayerWeightBytes[x]
			}
		}
		if v.Order != nil {
			k.order = v.Order(w)
		}
		if best == nil || cmp.Or(compareWorst(k.level, best.level), cmp.Compare(best.disk, k.disk), compareWorst(k.worst, best.worst), cmp.Compare(k.order, best.order)) < 0 {
			best = k
		}
	}
	if best == nil {
		return route.Range{}
	}
	return best.Range
}

// compareWorst compares sorted coverages; of two that are alike as far as the shorter goes, the longer comes first.
func compareWorst(a, b []float64) int {
	n := min(len(a), len(b))
	return cmp.Or(slices.Compare(a[:n], b[:n]), cmp.Compare(len(b), len(a)))
}

// windows returns the ranges between legal cuts that fit into so many bytes and are part of no other such range, ascending.
func windows(m *route.Model, budget int64) (out []route.Range) {
	bounds := slices.Concat([]int{0}, m.Cuts, []int{m.Layers})
	last, j := 0, 0 // what fits from one bound on, fits from the next on
	for i, a := range bounds[:len(bounds)-1] {
		for j = max(i, j); j+1 < len(bounds) && Bytes(m, route.Range{First: a, Last: bounds[j+1]}) <= budget; j++ {
		}
		if end := bounds[j]; end > max(a, last) {
			out, last = append(out, route.Range{First: a, Last: end}), end
		}
	}
	return out
}

// Bytes returns the bytes of weights that a holder of r has, with the embedding where it begins the model and the head where it ends it.
func Bytes(m *route.Model, r route.Range) (n int64) {
	for _, b := range m.LayerWeightBytes[r.First:r.Last] {
		n += b
	}
	if r.First == 0 {
		n += m.EmbedBytes
	}
	if r.Last == m.Layers {
		n += m.HeadBytes
	}
	return n
}
