package assign

import (
	"github.com/starling-swarm/starling/route"
)

// How reluctantly volunteers move.
const (
	Gain     = 1.25 // a layer is thin below this times the worst coverage
	Patience = 3    // looks in a row that must find the same need
	Turns    = 4    // then one in so many moves at each look
)

// Move returns where the volunteer should go from what it serves, and whether that is worth a move. others are all holders and claims but its own.
func Move(m *route.Model, v Volunteer, others []Peer) (to route.Range, ok bool) {
	without := cover(m, others)
	if !without.inside(v.Serves) {
		return route.Range{}, false
	}
	now := without.clone()
	now.add(v.Serves, v.PrefillFlops)
	limit := Gain * now.worst()
	thin := now.thin(limit)
	if thin == 0 {
		return route.Range{}, false
	}
	to = without.choose(m, &v)
	if to == v.Serves || to.Len() == 0 {
		return route.Range{}, false
	}
	if !without.mayLeave(&v, to) {
		return route.Range{}, false
	}
	then := without.clone()
	then.add(to, v.PrefillFlops)
	return to, then.thin(limit) < thin
}

// MayLeave reports whether every layer that the volunteer serves and that isn't in to has a holder that stays when all leave that would.
func MayLeave(m *route.Model, v Volunteer, to route.Range, others []Peer) bool {
	c := cover(m, others)
	return c.inside(v.Serves) && c.mayLeave(&v, to)
}

func (c *coverage) mayLeave(v *Volunteer, to route.Range) bool {
	for x := v.Serves.First; x < v.Serves.Last; x++ {
		if keeper := c.first[x]; (x < to.First || x >= to.Last) && (keeper == "" || keeper >= v.ID) {
			return false
		}
	}
	return true
}

// clone copies what add changes.
func (c *coverage) clone() coverage {
	d := *c
	d.rate = append([]float64(nil), c.rate...)
	return d
}

// Watch decides when a volunteer moves. The zero Watch is ready; it isn't safe for use by several goroutines.
type Watch struct {
	seen int // looks in a row that found a need
}

// Look is to be called at even intervals, of at least the time that claims take to reach everybody. lot is in [0, 1), drawn anew for each look. Where it says ok
// the caller claims to, and leaves what it serves only when it has that.
func (w *Watch) Look(m *route.Model, v Volunteer, others []Peer, lot float64) (to route.Range, ok bool) {
	if to, ok = Move(m, v, others); !ok {
		w.seen = 0
		return route.Range{}, false
	}
	if w.seen++; w.seen < Patience || lot >= 1.0/Turns {
		return route.Range{}, false
	}
	w.seen = 0
	return to, true
}
