package route

import (
	"math"
	"slices"
)

// improve offers changed copies of the picked route until none is better: over all usable peers, not only a pool's.
func (c *choice) improve(usable []int) {
	for range 4 * ExactPeers { // each round gains or ends; the limit is for totals that creep
		before := c.least()
		r, ok := c.pick()
		if !ok {
			return
		}
		try := func(n route) {
			if c.in.allows(&n) && c.in.obeys(n) {
				s := c.in.setting(n.dec, n.chunk, n.shape, n.kv)
				c.offer(&s, n)
			}
		}
		c.in.rearranged(r, try)
		for _, p := range usable {
			c.in.with(r, p, try)
		}
		if !(c.least() < before*(1-epsilon)) {
			return
		}
	}
}

// obeys reports whether r is what the request forces.
func (in *instance) obeys(r route) bool {
	q := &in.req
	all := append(slices.Clone(r.peers), r.dec)
	if !in.wants(r.shape) || !in.mayDecode(r.dec) || len(q.Cuts) > 0 && !slices.Equal(q.Cuts, r.ends) {
		return false
	}
	if len(q.Assign) > 0 && (len(q.Cuts) == 0 && len(q.Assign) != len(all) || len(q.Assign) > len(all)) {
		return false
	}
	for i, id := range q.Assign {
		if id != "" && in.peers[all[i]].ID != id {
			return false
		}
	}
	for _, id := range q.Include {
		if !slices.Contains(all, in.net.index(id)) {
			return false
		}
	}
	return true
}

// rearranged yields r with one cut moved, one stage dropped, or another chunk. Not all are feasible.
func (in *instance) rearranged(r route, yield func(route)) {
	for _, chunk := range in.req.chunks() {
		n := r
		n.chunk = chunk
		yield(n)
	}
	for i := range r.ends {
		a, _ := r.span(i)
		after := in.model.Layers
		if i+1 < len(r.ends) {
			after = r.ends[i+1] - 1
		}
		for _, b := range in.bounds {
			if b > a && b <= after && b != r.ends[i] {
				n := r
				n.ends = slices.Clone(r.ends)
				n.ends[i] = b
				yield(n)
			}
		}
		for _, end := range []int{i - 1, i} { // the predecessor takes the range, or the successor does
			if end < 0 {
				continue
			}
			n := r
			n.peers = slices.Delete(slices.Clone(r.peers), i, i+1)
			n.ends = slices.Delete(slices.Clone(r.ends), end, end+1)
			if len(n.peers) == 0 {
				n.shape, n.kv = Local, false
			}
			yield(n)
		}
	}
}

// with yields r changed to use peer p, which it doesn't use yet: in place of a stage or of the decoder, or taking
// the first or the second part of a range. Not all are feasible.
func (in *instance) with(r route, p int, yield func(route)) {
	if p == r.dec || slices.Contains(r.peers, p) {
		return
	}
	n := r
	n.dec = p
	yield(n)
	for i := range r.peers {
		if a, b := r.span(i); in.canRun(p, a, b) {
			n := r
			n.peers = slices.Clone(r.peers)
			n.peers[i] = p
			yield(n)
		}
	}
	for i := 0; i <= len(r.peers); i++ {
		a, last := r.start(), in.model.Layers
		if i < len(r.peers) {
			a, last = r.span(i)
		}
		for _, b := range in.bounds {
			if b > a && b <= last {
				in.split(r, i, a, b, last, p, yield)
			}
		}
	}
}

// split yields r with range i = [a, last) cut at b, and p on one side of it. The decoder may be left with nothing.
func (in *instance) split(r route, i, a, b, last, p int, yield func(route)) {
	stage := i < len(r.peers)
	if stage && b == last {
		return
	}
	n := r
	if r.shape == Local {
		n.shape, n.kv = Across, true
	}
	if in.canRun(p, a, b) {
		n.ends = slices.Insert(slices.Clone(r.ends), i, b)
		n.peers = slices.Insert(slices.Clone(r.peers), i, p)
		yield(n)
	}
	if stage && in.canRun(p, b, last) {
		n.ends = slices.Insert(slices.Clone(r.ends), i, b)
		n.peers = slices.Insert(slices.Clone(r.peers), i+1, p)
		yield(n)
	}
}

// cheapestWith returns the cheapest allowed change of r that uses p, and its total; +Inf if there is none.
func (in *instance) cheapestWith(r route, p int) (best route, total float64) {
	total = math.Inf(1)
	in.with(r, p, func(n route) {
		if !in.allows(&n) || !in.obeys(n) {
			return
		}
		if t := in.total(n); t < total {
			best, total = n, t
		}
	})
	return best, total
}
