package route

import (
	"math"
	"slices"
)

// guess returns a period that good routes may have: as if each peer could run any part of the model, the fastest ones share the work, as many as pay.
func (s *sweep) guess() float64 {
	in, all := s.in, &s.sums[len(s.sums)-1]
	layers := float64(in.model.Layers)
	var each []float64 // seconds per layer and chunk
	for i := range s.pool[1:] {
		e := &s.each[i+1]
		each = append(each, max(e.flop*all.flops+e.weight*all.weight, all.rows*e.sent, all.rows*e.row)/layers)
	}
	slices.Sort(each)
	best, period, speed := math.Inf(1), math.Inf(1), 0.0
	for i, t := range each {
		speed += 1 / t
		p := layers/speed + PassOverhead
		if total := s.set.periods*p + float64(i+1)*(p+s.each[i+1].hop); total < best {
			best, period = total, p
		}
	}
	return period
}

// longer is how much longer than what doesn't count periods may be.
const longer = 1.4

// offer offers the cheapest route that it finds where shorter periods don't count and longer ones aren't allowed, and returns its period and
// its total with that; +Inf: there is none that is of use.
func (s *sweep) offer(short, most float64) (period, total float64) {
	r, total := s.below(short, most)
	if math.IsInf(total, 1) {
		return total, total
	}
	return s.c.offer(&s.set, r), total
}

// whole looks for the best period of all.
func (s *sweep) whole() {
	if s.wide.chunks {
		s.offer(0, math.Inf(1))
	}
	s.descend(s.guess(), s.wide.coarse)
}

// descend offers routes of so many periods, the given one first: shorter ones while that is better, longer ones while there is no route.
func (s *sweep) descend(short float64, tries int) {
	if s.set.periods <= 0 {
		s.offer(0, math.Inf(1))
		return
	}
	for range tries + 40 { // most of those without a route take little time
		p, total := s.offer(short, short*longer)
		switch tries--; {
		case math.IsInf(total, 1):
			short *= longer
			if tries++; s.set.periods*short+s.fixed > s.c.limit(&s.set) {
				return
			}
		case p <= short*1.02:
			short *= 0.88
		default:
			short = min(p*0.96, short*0.95)
		}
		if tries == 0 {
			return
		}
	}
}
