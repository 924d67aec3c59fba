package assign

import (
	"cmp"
	"slices"

	"github.com/starling-swarm/starling/route"
)

// Peer is what is known of one holder of the model.
type Peer struct {
	ID           string
	Holds        route.Range // layers that it computes or, Joining, will compute
	Joining      bool        // it has claimed them and doesn't serve yet
	PrefillFlops float64     // FLOP/s; 0: not measured
}

// coverage is who covers each layer, and how well.
type coverage struct {
	rate  []float64 // by layer: tokens/s of prefill
	first []string  // by layer: lowest ID of those that serve it; "": nobody
	flops []float64 // entry x: FLOPs per token of the layers before x
}

// cover adds up what peers do for m. A peer may be there several times, such as with a claim beside what it serves. Ranges beyond the model count for nothing: they are
// strangers' words.
func cover(m *route.Model, peers []Peer) coverage {
	c := coverage{rate: make([]float64, m.Layers), first: make([]string, m.Layers), flops: make([]float64, m.Layers+1)}
	for x := range m.Layers {
		c.flops[x+1] = c.flops[x] + m.LayerFlops[x]
	}
	// Sums in one order are the same bits whatever order peers come in.
	peers = slices.Clone(peers)
	slices.SortFunc(peers, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Holds.First, b.Holds.First), cmp.Compare(a.Holds.Last, b.Holds.Last), cmp.Compare(a.PrefillFlops, b.PrefillFlops))
	})
	for _, p := range peers {
		c.add(p.Holds, p.PrefillFlops)
		if p.Joining || !c.inside(p.Holds) {
			continue
		}
		for x := p.Holds.First; x < p.Holds.Last; x++ {
			if c.first[x] == "" {
				c.first[x] = p.ID
			}
		}
	}
	return c
}

func (c *coverage) inside(r route.Range) bool {
	return r.First >= 0 && r.First < r.Last && r.Last <= len(c.rate)
}

// add counts a holder of r.
func (c *coverage) add(r route.Range, flops float64) {
	if !c.inside(r) {
		return
	}
	rate := c.speed(r, flops)
	for x := r.First; x < r.Last; x++ {
		c.rate[x] += rate
	}
}

// speed returns the tokens/s that a holder of r prefills.
func (c *coverage) speed(r route.Range, flops float64) float64 {
	if !(flops > 0) {
		flops = route.DefaultPrefillFlops
	}
	return min(flops, maxFlops) / max(c.flops[r.Last]-c.flops[r.First], 1)
}

// maxFlops is the most that a peer is believed to do, in FLOP/s: what it says it does would else let all others leave.
const maxFlops = 1e16

// worst returns the lowest coverage.
func (c *coverage) worst() float64 { return slices.Min(c.rate) }

// thin returns how many layers have a coverage below what limit of them is wanted; 0: none at all.
func (c *coverage) thin(limit float64) (n int) {
	for _, r := range c.rate {
		if r < limit || r == 0 {
			n++
		}
	}
	return n
}

// Coverage returns the tokens a second that peers prefill of each layer. Length m.Layers.
func Coverage(m *route.Model, peers []Peer) []float64 { return cover(m, peers).rate }
