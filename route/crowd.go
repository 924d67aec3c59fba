package route

import (
	"cmp"
	"math"
	"slices"
)

// breadth bounds what is tried over a crowd.
type breadth struct {
	pool     int // peers, of at most 64, that a decoder's route is made of
	near     int // peers that their pools are chosen from
	decoders int // decoders tried
	paths    int // paths kept to one position and next peer
	arrivals int // paths kept to one position, before their next peer is chosen
	coarse   int // periods tried for one decoder, shape and chunk
	fine     int // … for the best of these

	chunks bool // every chunk size gets a sweep of its own, and at the end everybody in the pool is tried in every place
}

// swift is for many peers, where what is read of them takes long already.
var swift = breadth{pool: 64, near: 128, decoders: 2, paths: 2, arrivals: 4, coarse: 2, fine: 2}

// thorough is for few peers, of whom all are tried in little time, careful for more.
var (
	thorough = breadth{pool: 64, near: 64, decoders: 8, paths: 3, arrivals: 12, coarse: 7, fine: 6, chunks: true}
	careful  = breadth{pool: 64, near: 256, decoders: 4, paths: 4, arrivals: 40, coarse: 5, fine: 6, chunks: true}
)

// Up to how many usable peers are planned for thoroughly, and carefully.
const (
	fewPeers  = 32
	somePeers = 200
)

// crowd returns a good route over any number of peers, where the request forces none of them but the decoder.
func (in *instance) crowd(usable []int, links []Link, wide breadth) (route, bool) {
	c := newChoice(in)
	sweeps := c.sweeps(usable, links, wide)
	if wide.chunks {
		for _, s := range sweeps {
			for _, chunk := range in.req.chunks() {
				for _, f := range s.forms(chunk) {
					s.prepare(f)
					s.whole()
				}
			}
		}
	} else {
		c.hasten(sweeps)
	}
	r, ok := c.pick()
	if i := slices.IndexFunc(sweeps, func(s *sweep) bool { return s.pool[0] == r.dec }); ok && r.shape != Local && i >= 0 {
		s := sweeps[i]
		s.prepare(form{r.shape, r.kv, r.chunk})
		s.descend(in.pace(r)*s.set.chunk*0.97, wide.fine)
		if wide.chunks {
			c.improve(s.pool)
		}
		r, ok = c.pick()
	}
	return r, ok
}

// sweeps returns one per decoder to try, the likeliest first, each with its pool.
func (c *choice) sweeps(usable []int, links []Link, wide breadth) []*sweep {
	in := c.in
	decoders := c.decoders(usable, wide.decoders)
	in.net.learn(links, decoders, true)
	if len(decoders) > 0 && len(usable) > wide.near { // who is dear for one decoder is dear for the next, unless a link says otherwise
		near := append(in.net.known(decoders), decoders...)
		for _, h := range in.helpers(usable, decoders[0], wide.near) {
			near = append(near, h.p)
		}
		near = slices.DeleteFunc(near, func(i int) bool { return in.barred[i] != "" })
		slices.Sort(near)
		usable = slices.Compact(near)
	}
	out, pools, desk := make([]*sweep, len(decoders)), make([][]int, len(decoders)), newDesk(len(in.bounds), wide)
	var members []int
	for i, d := range decoders {
		pools[i] = in.together(d, in.helpers(usable, d, wide.near), wide.pool)
		members = append(members, pools[i]...)
	}
	in.net.learn(links, members, false)
	for i, pool := range pools {
		out[i] = newSweep(c, pool, wide, desk)
	}
	return out
}

// hasten sweeps for one decoder and a middle chunk first. What is best there is where the other ones are looked for.
func (c *choice) hasten(sweeps []*sweep) {
	all := c.in.req.chunks()
	chunk, pace := all[len(all)/2], 0.0
	for _, s := range sweeps {
		for _, f := range s.forms(chunk) {
			before := c.least()
			s.prepare(f)
			if pace == 0 {
				s.whole()
			} else if p, total := s.offer(0.97*pace*s.set.chunk, longer*pace*s.set.chunk); total < before*worthMore {
				s.descend(0.97*p, 2)
			}
			r := c.rechunk()
			if !(c.least() < before) || r.shape == Local {
				continue
			}
			if pace = c.in.pace(r); r.chunk != chunk {
				chunk = r.chunk
				s.prepare(form{f.shape, f.kv, chunk})
				s.descend(pace*s.set.chunk*0.95, 2)
			}
		}
	}
}

// worthMore is how near to the best total a decoder's must come for more tries, as a factor.
const worthMore = 1.03

// pace returns r's period in seconds per token.
func (in *instance) pace(r route) float64 { return in.price(r, nil).PeriodSeconds / float64(r.chunk) }

// rechunk offers the picked route with every chunk size, and returns the one that is picked then.
func (c *choice) rechunk() route {
	r, _ := c.pick()
	for _, chunk := range c.in.req.chunks() {
		n := r
		n.chunk = chunk
		s := c.in.setting(n.dec, n.chunk, n.shape, n.kv)
		c.offer(&s, n)
	}
	r, _ = c.pick()
	return r
}

// decoders offers c what single peers can do alone, and returns the peers that are tried as decoders of routes: the asking user's own,
// and those by whom decoding and receiving everyone's rows takes least.
func (c *choice) decoders(usable []int, most int) []int {
	in := c.in
	type candidate struct {
		d    int
		cost float64
	}
	var all []candidate
	chunk := slices.Max(in.req.chunks())
	for _, d := range usable {
		if !in.mayDecode(d) || !in.canDecode(d, in.model.Layers, false, false) {
			continue
		}
		if in.wants(Local) {
			c.local(d, chunk)
		}
		whole := in.canDecode(d, in.model.Layers, true, true)
		s := in.setting(d, chunk, Across, true)
		cost := in.headTime(d) + in.steps*in.decoderStep(&s, 0) + s.periods*max(in.inflow(&s, in.model.Layers), in.ownTime(&s, in.model.Layers))
		switch {
		case !whole && !in.wants(Pipelined), in.req.Shape == Local:
			continue
		case !whole:
			cost += in.steps * 2 * DefaultRTT
		}
		if in.peers[d].Self && in.req.PreferSelf {
			cost = 0
		}
		all = append(all, candidate{d, cost})
	}
	if r, ok := c.pick(); ok && r.shape == Local {
		for _, chunk := range in.req.chunks() {
			c.local(r.dec, chunk)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.cost, b.cost) })
	var out []int
	for _, k := range all[:min(most, len(all))] {
		out = append(out, k.d)
	}
	return out
}

// helper is a peer as a stage of some decoder's routes.
type helper struct {
	p           int
	first, last int     // the longest range that it can run, as indexes into bounds
	cost        float64 // seconds per layer that it adds to a total, its part of a hop included
}

// helpers returns what the peers cost a decoder that may run a stage at all, cheapest first and at most so many: all but the cheapest
// only as far as layers need holders.
func (in *instance) helpers(peers []int, dec, most int) []helper {
	chunk := 128
	if all := in.req.chunks(); !slices.Contains(all, chunk) {
		chunk = all[len(all)-1]
	}
	shape := Across
	if !in.canDecode(dec, in.model.Layers, true, true) {
		shape = Pipelined
	}
	s := in.setting(dec, chunk, shape, true)
	all, ways := make([]helper, 0, len(peers)), in.net.toward(dec)
	for _, p := range peers {
		a, b := in.longest(p)
		if p == dec || a == b {
			continue
		}
		first, last := in.bounds[a], in.bounds[b]
		way := ways[p]
		compute := in.computeTime(&s, p, first, last)
		busy := max(compute, in.sendTime(&s, p, first, last, way, way, false))
		cost := compute + s.periods/8*busy + in.hopTime(&s, way)
		if s.pipelined {
			cost += in.steps * in.walkTime(&s, p, first, last, way, way)
		}
		if fails := in.peers[p].FailuresPerHour; fails > 0 { // in a session that takes as long as its part
			cost += fails / 3600 * in.stageWork(&s, cost+s.periods*busy+in.steps*in.decoderStep(&s, last))
		}
		all = append(all, helper{p, a, b, cost / float64(last-first)})
	}
	return cheapest(all, most, len(in.bounds)-1)
}

// cheapest returns the cheapest helpers in order, at most so many and those that any of the spans between bounds has no other one for.
func cheapest(all []helper, most, spans int) []helper {
	order := func(a, b helper) int {
		if a.cost != b.cost {
			return cmp.Compare(a.cost, b.cost)
		}
		return cmp.Compare(a.p, b.p)
	}
	if len(all) > 2*most { // sorting all of 10,000 takes longer than the search
		costs := make([]float64, 0, 1+len(all)/8)
		for i := 0; i < len(all); i += 8 {
			costs = append(costs, all[i].cost)
		}
		slices.Sort(costs)
		limit := costs[min(len(costs)-1, most/6)] // of more than wanted, about
		best := make([]float64, spans)
		for x := range best {
			best[x] = math.Inf(1)
		}
		for i := range all {
			for x := all[i].first; x < all[i].last; x++ {
				best[x] = min(best[x], all[i].cost)
			}
		}
		kept := make([]helper, 0, 3*most)
		for i := range all {
			if all[i].cost <= limit || slices.Contains(best[all[i].first:all[i].last], all[i].cost) {
				kept = append(kept, all[i])
			}
		}
		all = kept
	}
	slices.SortFunc(all, order)
	return all
}

// together returns the decoder and at most size−1 of its helpers: the cheapest, and so that no layer has many while another has few.
func (in *instance) together(dec int, all []helper, size int) []int {
	pool := append(make([]int, 0, size), dec)
	holders := make([]int, len(in.bounds)-1)
	taken := make([]bool, len(all))
	for want := 1; want < size && len(pool) < size; want *= 2 {
		for i, k := range all {
			span := holders[k.first:k.last]
			if taken[i] || slices.Min(span) >= want {
				continue
			}
			if len(pool) == size {
				break
			}
			pool, taken[i] = append(pool, k.p), true
			for x := range span {
				span[x]++
			}
		}
	}
	return pool
}

// longest returns the longest range that peer p can run, as indexes into bounds; two equal ones if there is none.
func (in *instance) longest(p int) (a, b int) {
	a = in.begins(p)
	if b = in.within[in.peers[p].Holds.Last]; b > a && in.fits(&in.peers[p], in.bounds[a], in.bounds[b]) {
		return a, b
	}
	return a, in.far(p, a, a)
}

// begins returns the first position where peer p can run a stage, as far as its layers go.
func (in *instance) begins(p int) int {
	peer := &in.peers[p]
	a := in.within[peer.Holds.First]
	if in.bounds[a] < peer.Holds.First {
		a++
	}
	if a == 0 && !peer.Embed {
		a = 1
	}
	return a
}

// far returns the position up to which peer p can run from one on, where it can up to b, all as indexes into bounds.
func (in *instance) far(p, a, b int) int {
	peer := &in.peers[p]
	for b+1 < len(in.bounds) && in.bounds[b+1] <= peer.Holds.Last && in.fits(peer, in.bounds[a], in.bounds[b+1]) {
		b++
	}
	return b
}
