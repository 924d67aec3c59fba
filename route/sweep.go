package route

import (
	"math"
	"slices"
)

// Of many peers there are too many routes for labels that weigh every cost against every other one. But one number orders most of it:
// the period, the slowest part's seconds per chunk. Within a given period each peer has a longest range from each position, and the
// cheapest route is a shortest path over (position, peer). Sweeping the period finds every route worth having. Paths know who is in them,
// so that nobody is used twice.

// path is a route's beginning: everything before position at is decided, and peer runs from there on.
type path struct {
	cost   float64 // seconds so far, without periods
	period float64 // slowest part so far
	tail   float64 // longest KV tail so far
	used   uint64  // as bits of the pool
	prev   int32   // the path before; −1: none
	at     int16   // index into bounds
	peer   int8    // index into the pool
}

// arrival is a path whose last peer has its range and no successor yet.
type arrival struct {
	path
	pass  float64 // seconds of a decoded token in the last range
	rows  float64 // … until its rows are with the decoder
	worth float64 // what arrivals at one position are compared by
}

// sweep is one decoder's search over a pool for one chunk size and shape.
type sweep struct {
	c     *choice
	in    *instance
	wide  breadth
	pool  []int // the decoder first
	lines [][]line

	form     form
	set      setting
	fixed    float64   // seconds that every route of this search has
	rest     []float64 // by position: seconds that the layers from there on add to a route, at least
	limit    float64   // routes above this total are of no use
	short    float64   // periods below this one are left to another try
	shortest float64   // no period is shorter: everybody computes all the time
	take     []taking  // by position
	each     []rates   // by pool peer
	from     [][]int8  // by position: pool peers that can begin there

	found    []answer
	paths    []path
	open     [][]int32   // by position and peer, cheapest first
	dear     []float64   // … from what cost on nothing is kept there
	arrivals [][]arrival // by position, cheapest first
}

// rates are what a pool peer adds to a chunk's time.
type rates struct {
	flop, weight float64 // seconds per FLOP of a token, per byte of weights
	row, sent    float64 // seconds per byte of a token's rows to the decoder, and on its uplink
	hop          float64 // seconds to another peer, at least: of a chunk, and of the decoded tokens that walk
}

// answer is what was found for a period: the same as for any shorter one that the route keeps to.
type answer struct{ least, most, total float64 }

// taking is what the decoder costs that takes over at a position.
type taking struct {
	ok     bool
	own    float64 // seconds per chunk that it computes
	period float64 // … or receives, whichever is longer
	tail   float64 // seconds of the last rows on its downlink
	steps  float64 // seconds of all decoded tokens
}

// form is what a sweep is made for, beside its decoder.
type form struct {
	shape Shape
	kv    bool
	chunk int
}

// forms returns the shapes that the decoder allows, with chunks of a size.
func (s *sweep) forms(chunk int) []form {
	in, d, last := s.in, s.pool[0], s.in.model.Layers
	var out []form
	if in.wants(Across) && in.canDecode(d, last, true, true) {
		out = append(out, form{Across, true, chunk})
	}
	for _, kv := range []bool{true, false} {
		if in.wants(Pipelined) && in.canDecode(d, last, false, kv) {
			out = append(out, form{Pipelined, kv, chunk})
		}
	}
	return out
}

// prepare fills in what depends on the form.
func (s *sweep) prepare(f form) {
	in, d, last := s.in, s.pool[0], s.in.model.Layers
	s.set, s.form = in.setting(d, f.chunk, f.shape, f.kv), f
	s.fixed = in.headTime(d)
	if !s.set.pipelined {
		s.fixed += in.steps * in.decoderStep(&s.set, 0)
	}
	speed := 0.0
	for _, p := range s.pool {
		speed += in.peers[p].PrefillFlops / (1 + in.peers[p].Load)
	}
	s.each, s.found = s.each[:0], s.found[:0]
	for i, p := range s.pool {
		peer := &in.peers[p]
		q := 1 + peer.Load
		e := rates{q * s.set.chunk / peer.PrefillFlops, q / peer.DecodeBytesPerSec, s.set.chunk / s.lines[i][0].rate, s.set.chunk / peer.Up, math.Inf(1)}
		for k, way := range s.lines[i] {
			if k != i {
				hop := in.hopTime(&s.set, way)
				if s.set.pipelined {
					hop += in.steps * (way.rtt/2 + float64(in.model.SeamBytes)/way.rate)
				}
				e.hop = min(e.hop, hop)
			}
		}
		s.each = append(s.each, e)
	}
	s.shortest = s.set.chunk * in.flops[last] / speed * (1 - epsilon)
	s.rest = make([]float64, len(in.bounds))
	s.take = make([]taking, len(in.bounds))
	s.from = make([][]int8, len(in.bounds))
	if s.arrivals == nil {
		s.open, s.dear = make([][]int32, len(in.bounds)*len(s.pool)), make([]float64, len(in.bounds)*len(s.pool))
		ids := make([]int32, len(s.open)*(s.wide.paths+1))
		for i := range s.open {
			s.open[i], ids = ids[:0:s.wide.paths+1], ids[s.wide.paths+1:]
		}
		s.arrivals = make([][]arrival, len(in.bounds))
		for i := range s.arrivals {
			s.arrivals[i] = make([]arrival, 0, s.wide.arrivals+1)
		}
	}
	for i, x := range in.bounds {
		own := in.ownTime(&s.set, x)
		s.take[i] = taking{
			ok:     i > 0 && in.canDecode(d, x, !s.set.pipelined, f.kv),
			own:    own,
			period: max(own, in.inflow(&s.set, x)),
			tail:   s.set.chunk * in.rowBytes(&s.set, 0, x) / in.peers[d].Down,
			steps:  s.steps(x),
		}
		for k, p := range s.pool[1:] {
			if x < last && in.canRun(p, x, in.bounds[i+1]) {
				s.from[i] = append(s.from[i], int8(k+1))
			}
		}
	}
}

// span is what pool peer k adds as the owner of [a, b).
type span struct {
	compute float64 // seconds per chunk
	busy    float64 // … or to send or to wait, whichever is longest
	rows    float64 // … on the way to the decoder
	pass    float64 // seconds of a decoded token that walks
	row     float64 // … until its rows are with the decoder
}

func (s *sweep) span(k int8, a, b int) span {
	in, set, e, seam := s.in, &s.set, &s.each[k], float64(s.in.model.SeamBytes)
	v := span{compute: e.flop*(in.flops[b]-in.flops[a]) + e.weight*(in.weight[b]-in.weight[a]) + PassOverhead}
	v.busy = max(v.compute, seam*e.sent)
	kv := 0.0
	if set.kv {
		kv = in.rowBytes(set, a, b)
		v.rows = kv * e.row
		v.busy = max(v.busy, v.rows, (seam+kv)*e.sent, (v.compute+v.rows+s.lines[k][0].rtt)/2)
	}
	if set.pipelined {
		v.pass, v.row = e.weight*(in.weight[b]-in.weight[a]+in.read[b]-in.read[a])+PassOverhead, in.tokenBytes(set, a, b)*e.row/set.chunk
	}
	return v
}

// look fills in rest, as if peers could be used again, and returns whether any route is left within the period and the limit.
func (s *sweep) look(period float64) bool {
	in := s.in
	for at := len(in.bounds) - 1; at >= 0; at-- {
		least, take := math.Inf(1), &s.take[at]
		if take.ok && take.period <= period {
			least = take.own + take.steps
		}
		for _, k := range s.from[at] {
			a, peer := in.bounds[at], &in.peers[s.pool[k]]
			for end := at + 1; end < len(in.bounds); end++ {
				b := in.bounds[end]
				if b > peer.Holds.Last || !in.fits(peer, a, b) {
					break
				}
				v := s.span(k, a, b)
				if v.busy > period {
					break
				}
				least = min(least, v.compute+in.steps*v.pass+s.each[k].hop+s.rest[end])
			}
		}
		s.rest[at] = least
	}
	return s.bound(0, 0, 0) <= s.limit
}

// bound returns the least total of a route that costs so much up to a position, and has had such a period.
func (s *sweep) bound(cost, period float64, at int) float64 {
	return cost + s.set.periods*max(period, s.short) + s.fixed + s.rest[at]
}

// whole sweeps all periods that may be of use.
func (s *sweep) whole() {
	if math.IsInf(s.offer(math.Inf(1)), 1) || s.set.periods <= 0 {
		return
	}
	s.between(s.shortest, (s.c.limit(&s.set)-s.fixed-s.rest[0])/s.set.periods, s.wide.coarse)
}

// around sweeps periods of a number of seconds per token, give or take a factor.
func (s *sweep) around(pace, factor float64, tries int) {
	if s.set.periods <= 0 {
		s.offer(math.Inf(1))
		return
	}
	period := pace * s.set.chunk
	s.between(period/factor, period*factor, tries)
}

// between looks for the best period from a to b seconds by golden section, with so many tries, and offers what it finds.
func (s *sweep) between(a, b float64, tries int) {
	const golden = 0.618
	try := func(at float64) float64 { return s.offer(math.Exp(at)) }
	a, b = math.Log(a), math.Log(b)
	x, y := b-golden*(b-a), a+golden*(b-a)
	fx, fy := try(x), try(y)
	for range tries - 2 {
		if fx <= fy {
			b, y, fy = y, x, fx
			x = b - golden*(b-a)
			fx = try(x)
		} else {
			a, x, fx = x, y, fy
			y = a + golden*(b-a)
			fy = try(y)
		}
	}
}

// offer offers the cheapest route within a period, and returns its total; +Inf: there is none that is of use.
func (s *sweep) offer(period float64) float64 {
	for _, old := range s.found {
		if old.least <= period && period <= old.most {
			return old.total
		}
	}
	r, total := s.below(period)
	least := period
	if !math.IsInf(total, 1) {
		s.c.offer(&s.set, r)
		least = s.in.price(r, nil).PeriodSeconds
	}
	s.found = append(s.found, answer{least, period, total})
	return total
}

// below returns the cheapest route found whose parts all take at most so many seconds per chunk, and its total; +Inf: none.
func (s *sweep) below(period float64) (route, float64) {
	in := s.in
	s.limit = s.c.limit(&s.set)
	s.short = s.shortest
	if !math.IsInf(period, 1) {
		s.short = max(s.short, period*assumed)
	}
	if !s.look(period) {
		return route{}, math.Inf(1)
	}
	s.paths = s.paths[:0]
	for i := range s.open {
		s.open[i], s.dear[i] = s.open[i][:0], math.Inf(1)
	}
	for i := range s.arrivals {
		s.arrivals[i] = s.arrivals[i][:0]
	}
	for _, k := range s.from[0] {
		trip := s.lines[0][k].rtt / 2
		p := path{cost: trip, used: 1 | 1<<k, prev: -1, peer: k}
		if s.set.pipelined {
			p.cost += in.steps * trip
		}
		s.keep(p)
	}
	total, end, last := math.Inf(1), 0, int32(-1)
	for at := range in.bounds {
		for i := range s.arrivals[at] {
			v := &s.arrivals[at][i]
			if t := s.finish(v, at, period); t < total {
				total, end, last = t, in.bounds[at], v.prev
			}
			for _, n := range s.from[at] {
				if v.used&(1<<n) == 0 {
					s.hand(v, at, n, period)
				}
			}
		}
		for _, k := range s.from[at] {
			for _, id := range s.open[at*len(s.pool)+int(k)] {
				s.extend(id, at, period)
			}
		}
	}
	if last < 0 {
		return route{}, total
	}
	r := route{shape: s.form.shape, dec: s.pool[0], chunk: s.form.chunk, kv: s.form.kv, ends: []int{end}}
	for i := last; i >= 0; i = s.paths[i].prev {
		r.peers = append(r.peers, s.pool[s.paths[i].peer])
		if at := s.paths[i].at; at > 0 {
			r.ends = append(r.ends, in.bounds[at])
		}
	}
	slices.Reverse(r.peers)
	slices.Reverse(r.ends)
	return r, total
}

// extend gives a path's peer every range from its position on that it can run within the period.
func (s *sweep) extend(id int32, at int, period float64) {
	in, l := s.in, s.paths[id]
	a, peer := in.bounds[at], &in.peers[s.pool[l.peer]]
	for end := at + 1; end < len(in.bounds); end++ {
		b := in.bounds[end]
		if b > peer.Holds.Last || !in.fits(peer, a, b) {
			return
		}
		v := s.span(l.peer, a, b)
		if v.busy > period {
			return
		}
		cost, longest, tail := l.cost+v.compute, max(l.period, v.busy), max(l.tail, v.rows)
		if s.bound(cost+in.steps*v.pass+s.each[l.peer].hop, longest, end) > s.limit {
			continue
		}
		worth := cost + tail + in.steps*max(v.pass, v.row)
		if list := s.arrivals[end]; len(list) < s.wide.arrivals || worth < list[s.wide.arrivals-1].worth {
			s.arrive(arrival{path{cost, longest, tail, l.used, id, l.at, l.peer}, v.pass, v.row, worth}, end)
		}
	}
}

// arrive enters an arrival unless as many cheaper ones are there, or one of the same peers.
func (s *sweep) arrive(v arrival, at int) {
	list := s.arrivals[at]
	i := len(list)
	for i > 0 && list[i-1].worth > v.worth {
		i--
	}
	if i == s.wide.arrivals {
		return
	}
	for k := range list[:i] {
		if list[k].peer == v.peer && list[k].used&^v.used == 0 {
			return
		}
	}
	for k := i; k < len(list); k++ {
		if list[k].peer == v.peer && v.used&^list[k].used == 0 {
			list = slices.Delete(list, k, k+1)
			break
		}
	}
	if len(list) == s.wide.arrivals {
		list = list[:s.wide.arrivals-1]
	}
	s.arrivals[at] = slices.Insert(list, i, v)
}

// finish returns the total of an arrival where the decoder takes over; +Inf where it can't within the period.
func (s *sweep) finish(v *arrival, at int, period float64) float64 {
	in, set, take := s.in, &s.set, &s.take[at]
	way, a := s.lines[v.peer][0], in.bounds[s.paths[v.prev].at]
	send := set.chunk * (float64(in.model.SeamBytes) + in.rowBytes(set, a, in.bounds[at])) / way.rate
	if !take.ok || max(take.period, send) > period {
		return math.Inf(1)
	}
	return v.cost + s.hop(v, way) + take.own + set.periods*max(v.period, send, take.period) + max(v.tail, take.tail) + s.fixed + take.steps
}

// hop returns the seconds that the way to the next peer adds to an arrival, and where decoded tokens walk their time at its last peer.
func (s *sweep) hop(v *arrival, way line) float64 {
	t := s.in.hopTime(&s.set, way)
	if s.set.pipelined {
		t += s.in.steps * max(v.pass+way.rtt/2+float64(s.in.model.SeamBytes)/way.rate, v.rows)
	}
	return t
}

// steps returns the decoder's seconds of all decoded tokens, as far as they depend on its own range, from layer x on.
func (s *sweep) steps(x int) float64 {
	if !s.set.pipelined {
		return 0
	}
	return s.in.steps * s.in.decoderStep(&s.set, x)
}

// hand makes an arrival the path of pool peer n.
func (s *sweep) hand(v *arrival, at int, n int8, period float64) {
	way := s.lines[v.peer][n]
	cost := v.cost + s.hop(v, way)
	if cost+v.tail >= s.dear[at*len(s.pool)+int(n)] {
		return
	}
	longest := max(v.period, s.set.chunk*float64(s.in.model.SeamBytes)/way.rate)
	if longest > period || s.bound(cost, longest, at) > s.limit {
		return
	}
	s.keep(path{cost, longest, v.tail, v.used | 1<<n, v.prev, int16(at), n})
}

// keep enters a path unless as many cheaper ones lead to the same position and peer, or one by fewer peers.
func (s *sweep) keep(p path) {
	place := int(p.at)*len(s.pool) + int(p.peer)
	list, worth := s.open[place], p.cost+p.tail
	i := 0
	for ; i < len(list); i++ {
		old := &s.paths[list[i]]
		if old.cost+old.tail > worth {
			break
		}
		if old.used&^p.used == 0 {
			return
		}
	}
	if i == s.wide.paths {
		return
	}
	list = slices.Insert(list, i, int32(len(s.paths)))
	s.paths = append(s.paths, p)
	list = list[:min(len(list), s.wide.paths)]
	if s.open[place] = list; len(list) == s.wide.paths {
		last := &s.paths[list[len(list)-1]]
		s.dear[place] = last.cost + last.tail
	}
}
