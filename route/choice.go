package route

import (
	"cmp"
	"math"
	"slices"
)

// class ranks plans by what a loss costs; a lower one wins within [RobustMargin].
type class int

const (
	needsNobody  class = iota // local
	decodesAlone              // across: after prefill the decoder depends on nobody
	keepsCache                // pipelined with everyone's cache at the decoder
	replays                   // pipelined without: losing a stage means replaying the prompt
	classes
)

func (s *setting) class() class {
	switch {
	case !s.pipelined && !s.kv:
		return needsNobody
	case !s.pipelined:
		return decodesAlone
	case s.kv:
		return keepsCache
	}
	return replays
}

// found is the cheapest route of one slot.
type found struct {
	route route
	total float64 // +Inf: none yet
}

// choice collects the cheapest route per preference slot: whether the user's own machine decodes, and the class.
type choice struct {
	in    *instance
	slots [2][classes]found // [1]: the user's own machine, where that is preferred

	effort int // labels that may still be entered at no limit of width
}

func newChoice(in *instance) *choice {
	c := &choice{in: in}
	for i := range c.slots {
		for k := range c.slots[i] {
			c.slots[i][k].total = math.Inf(1)
		}
	}
	return c
}

// slot returns where routes of this setting compete.
func (c *choice) slot(s *setting) *found {
	own := 0
	if c.in.req.PreferSelf && c.in.peers[s.dec].Self {
		own = 1
	}
	return &c.slots[own][s.class()]
}

// epsilon is the relative difference below which two totals are equal: sums in another order differ that much.
const epsilon = 1e-9

// limit returns the total above which a route of this setting can neither win its slot nor be picked.
func (c *choice) limit(s *setting) float64 {
	allow := 1 + epsilon
	if c.slot(s) == &c.slots[1][s.class()] {
		allow *= 1 + SelfMargin
	}
	if s.class() != replays {
		allow *= 1 + RobustMargin
	}
	return min(c.slot(s).total*(1+epsilon), c.least()*allow)
}

// least returns the cheapest total of all.
func (c *choice) least() float64 {
	best := math.Inf(1)
	for i := range c.slots {
		for k := range c.slots[i] {
			best = min(best, c.slots[i][k].total)
		}
	}
	return best
}

// offer enters a feasible route, and returns its period.
func (c *choice) offer(s *setting, r route) (period float64) {
	cost := c.in.price(r, nil)
	total := cost.TotalSeconds
	f := c.slot(s)
	if total < f.total*(1-epsilon) || total <= f.total*(1+epsilon) && c.in.compare(r, f.route) < 0 {
		r.peers, r.ends = slices.Clone(r.peers), slices.Clone(r.ends)
		*f = found{r, total}
	}
	return cost.PeriodSeconds
}

// compare orders routes of equal cost: fewer stages, then peers by ID (indexes are in ID order), then larger chunks,
// then earlier cuts.
func (in *instance) compare(a, b route) int {
	return cmp.Or(
		cmp.Compare(len(a.peers), len(b.peers)),
		cmp.Compare(a.dec, b.dec),
		slices.Compare(a.peers, b.peers),
		cmp.Compare(b.chunk, a.chunk),
		slices.Compare(a.ends, b.ends),
	)
}

// pick applies the preferences; false if nothing was found.
func (c *choice) pick() (route, bool) {
	least := c.least()
	if math.IsInf(least, 1) {
		return route{}, false
	}
	cheapest := func(k class, own bool) found {
		f := c.slots[1][k]
		if g := c.slots[0][k]; !own && (g.total < f.total*(1-epsilon) || g.total <= f.total*(1+epsilon) && c.in.compare(g.route, f.route) < 0) {
			return g
		}
		return f
	}
	within := func(own bool) (route, bool) {
		best := math.Inf(1)
		for k := range classes {
			best = min(best, cheapest(k, own).total)
		}
		if math.IsInf(best, 1) || own && best > least*(1+SelfMargin) {
			return route{}, false
		}
		for k := range classes {
			if f := cheapest(k, own); f.total <= best*(1+RobustMargin) {
				return f.route, true
			}
		}
		return route{}, false
	}
	if r, ok := within(true); ok {
		return r, true
	}
	return within(false)
}
