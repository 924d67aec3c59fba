package route

import (
	"math"
	"slices"
)

// Of many peers there are too many routes for labels that weigh every cost against every other one. But one number orders most of it:
// the period, the slowest part's seconds per chunk. Where shorter periods than a given one don't count, and much longer ones aren't
// allowed, each peer has a longest range from each position, and the cheapest route is a shortest path over (position, peer). A few such
// periods find what is worth having. Paths know who is in them, so that nobody is used twice.

// path is a route's beginning: everything before position at is decided, and peer runs from there on.
type path struct {
	cost   float64 // seconds so far, without periods
	period float64 // slowest part so far
	tail   float64 // longest KV tail so far
	worth  float64 // what paths at one place are compared by: the three as they are in a total
	used   uint64  // as bits of the pool
	prev   int32   // the path before; −1: none
	at     int16   // index into bounds
	peer   int8    // index into the pool
}

// arrival is a path whose last peer has its range and no successor yet.
type arrival struct {
	path
	pass float64 // seconds of a decoded token in the last range
	row  float64 // … until its rows are with the decoder
}

// sweep is one decoder's search over a pool, for one form of routes at a time.
type sweep struct {
	c     *choice
	in    *instance
	wide  breadth
	pool  []int     // the decoder first
	lines []line    // between them, by sender and receiver
	from  [][]reach // by position: who can begin there
	near  []line    // by pool peer: no line to another one is better

	form     form
	set      setting
	seam     float64   // bytes of a chunk's
	fixed    float64   // seconds that every route of this form has
	shortest float64   // no period is shorter: everybody computes all the time
	sums     []sums    // by position
	take     []taking  // by position
	each     []rates   // by pool peer
	rest     []float64 // by position: seconds that the layers from there on add to a route, at least

	limit float64 // routes above this total are of no use
	short float64 // shorter periods don't count: they are left to another try
	*desk
}

// desk is what sweeps write on, one after another. A place is a position and a peer.
type desk struct {
	spans    []span // all that may be, by place
	paths    []path
	open     []int32     // by place, as many as may be kept at each; the cheapest first
	kept     []int8      // … how many are
	dear     []float64   // … at what worth nothing more is
	arrivals [][]arrival // by position, cheapest first
}

// newDesk returns one for pools of as many peers as may be in one.
func newDesk(bounds int, wide breadth) *desk {
	places := bounds * wide.pool
	d := &desk{
		spans: make([]span, 0, places), paths: make([]path, 0, places),
		open: make([]int32, places*wide.paths), kept: make([]int8, places), dear: make([]float64, places), arrivals: make([][]arrival, bounds),
	}
	all := make([]arrival, bounds*wide.arrivals)
	for i := range d.arrivals {
		d.arrivals[i], all = all[:0:wide.arrivals], all[wide.arrivals:]
	}
	return d
}

// clear forgets all paths; the next ones are of so many places.
func (d *desk) clear(places int) {
	d.paths = d.paths[:0]
	clear(d.kept[:places])
	for i := range d.dear[:places] {
		d.dear[i] = math.Inf(1)
	}
	for i := range d.arrivals {
		d.arrivals[i] = d.arrivals[i][:0]
	}
}

// reach is how far a pool peer can run from a position on.
type reach struct {
	peer  int8
	end   int16   // index into bounds
	spans int32   // where its spans begin
	found int16   // how many there are
	rest  float64 // seconds that the layers from there on add to a route that begins with one of them, at least
}

// sums are of the layers before a position; rows and token are what goes to the decoder of a prompt token and of a decoded one.
type sums struct{ flops, weight, read, rows, token float64 }

// rates are what a pool peer adds to a chunk's time.
type rates struct {
	flop, weight float64 // seconds per FLOP of a token, per byte of weights
	q            float64 // as many times as long it takes for what else it does
	memory       float64 // bytes of weights above which it waits for its disk
	row, sent    float64 // seconds per byte of a token's rows to the decoder, and on its uplink
	rtt          float64 // to the decoder
	risk         float64 // seconds that its losses are expected to add, as a stage
	hop          float64 // seconds to another peer, at least: of a chunk, and of the decoded tokens that walk; the risk is part of it
}

// taking is what the decoder costs that takes over at a position.
type taking struct {
	ok     bool
	own    float64 // seconds per chunk that it computes
	period float64 // … or receives, whichever is longer
	tail   float64 // seconds of the last rows on its downlink
	steps  float64 // seconds of all decoded tokens, as far as they depend on its own range
}

// span is what a pool peer adds as the owner of the layers up to a position.
type span struct {
	compute float64 // seconds per chunk
	hand    float64 // seconds until it has the rows that the decoder holds
	busy    float64 // … or to send or to wait, whichever is longest
	rows    float64 // … on the way to the decoder
	pass    float64 // seconds of a decoded token that walks
	row     float64 // … until its rows are with the decoder
}

// form is what a sweep is made for, beside its decoder.
type form struct {
	shape Shape
	kv    bool
	chunk int
}

// newSweep expects a pool of at most 64, the decoder first, whose ways are learnt, and a desk that sweeps of one choice share.
func newSweep(c *choice, pool []int, wide breadth, desk *desk) *sweep {
	in := c.in
	s := &sweep{c: c, in: in, wide: wide, pool: pool, lines: in.net.among(pool), desk: desk}
	n := len(pool)
	s.near = make([]line, n)
	for i := range pool {
		rtt, rate := math.Inf(1), 0.0
		for k, l := range s.lines[i*n : (i+1)*n] {
			if k == i {
				continue
			}
			if l.rtt < rtt {
				rtt = l.rtt
			}
			if l.rate > rate {
				rate = l.rate
			}
		}
		s.near[i] = line{rtt, rate}
	}
	s.from = make([][]reach, len(in.bounds))
	all := make([]reach, (len(in.bounds)-1)*n)
	for at := range s.from[:len(in.bounds)-1] {
		s.from[at], all = all[:0:n], all[n:]
	}
	for k, p := range pool[1:] {
		at, far := in.begins(p), 0
		for ; at < len(in.bounds)-1 && in.bounds[at] < in.peers[p].Holds.Last; at++ {
			if far = in.far(p, at, max(far, at)); far > at {
				s.from[at] = append(s.from[at], reach{peer: int8(k + 1), end: int16(far)})
			}
		}
	}
	s.rest, s.sums, s.take = make([]float64, len(in.bounds)), make([]sums, len(in.bounds)), make([]taking, len(in.bounds))
	return s
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
	s.seam = s.set.chunk * float64(in.model.SeamBytes)
	s.fixed = in.headTime(d)
	if !s.set.pipelined {
		s.fixed += in.steps * in.decoderStep(&s.set, 0)
	}
	s.each = s.each[:0]
	speed := 0.0
	for i, p := range s.pool {
		peer := &in.peers[p]
		q := 1 + peer.Load
		speed += peer.PrefillFlops / q
		way := s.lines[i*len(s.pool)]
		e := rates{
			flop: q * s.set.chunk / peer.PrefillFlops, weight: q / peer.DecodeBytesPerSec, q: q, memory: math.Inf(1),
			row: s.set.chunk / way.rate, sent: s.set.chunk / peer.Up, rtt: way.rtt, hop: in.hopTime(&s.set, s.near[i]),
		}
		if peer.MemoryBytes > 0 {
			e.memory = float64(peer.MemoryBytes)
		}
		if s.set.pipelined {
			e.hop += in.steps * (s.near[i].rtt/2 + in.stepSeam()/s.near[i].rate)
		}
		s.each = append(s.each, e)
	}
	s.shortest = s.set.chunk * in.flops[last] / speed * (1 - epsilon)
	for i, x := range in.bounds {
		own := in.ownTime(&s.set, x)
		s.sums[i] = sums{in.flops[x], in.weight[x], in.read[x], in.rowBytes(&s.set, 0, x), in.tokenBytes(&s.set, 0, x)}
		s.take[i] = taking{
			ok:     i > 0 && in.canDecode(d, x, !s.set.pipelined, f.kv),
			own:    own,
			period: max(own, in.inflow(&s.set, x)),
			tail:   s.set.chunk * s.sums[i].rows / in.peers[d].Down,
		}
		if s.set.pipelined {
			s.take[i].steps = in.steps * in.decoderStep(&s.set, x)
		}
	}
	s.reckon()
}

// reckon fills in what losses add. How long a session will take isn't known yet: about as long as the best so far, or as layers that can be
// divided at will.
func (s *sweep) reckon() {
	in := s.in
	if !slices.ContainsFunc(s.pool, func(p int) bool { return in.peers[p].FailuresPerHour > 0 }) {
		return
	}
	seconds := min(s.c.least(), s.fixed+(s.set.periods+4)*s.guess())
	s.fixed += in.risk(&s.set, nil, seconds)
	work := in.stageWork(&s.set, seconds) / 3600
	for i, p := range s.pool {
		e := &s.each[i]
		e.risk = in.peers[p].FailuresPerHour * work
		e.hop += e.risk
	}
}

// look lists the spans within a period, fills in rest as if peers could be used again, and returns whether any route is left within the limit.
func (s *sweep) look(period float64) bool {
	s.spans = s.spans[:0]
	for at := len(s.from) - 1; at >= 0; at-- {
		least, take, a := math.Inf(1), &s.take[at], &s.sums[at]
		if take.ok && take.period <= period {
			least = take.own + take.steps
		}
		for i := range s.from[at] {
			r := &s.from[at][i]
			e := &s.each[r.peer]
			r.spans, r.rest = int32(len(s.spans)), math.Inf(1)
			for end := at + 1; end <= int(r.end); end++ {
				b := &s.sums[end]
				weight, kv := b.weight-a.weight, b.rows-a.rows
				flops, missed := b.flops-a.flops, 0.0
				if weight > e.memory {
					missed = e.q * s.in.peers[s.pool[r.peer]].missTime(weight)
				}
				v := span{compute: e.flop*flops + e.weight*weight + missed + PassOverhead, rows: kv * e.row}
				v.busy = max(v.compute, v.rows, (float64(s.in.model.SeamBytes)+kv)*e.sent)
				if kv > 0 {
					v.busy = max(v.busy, (v.compute+v.rows+e.rtt)/2)
				}
				if v.busy > period {
					break
				}
				if s.set.pipelined {
					v.pass = e.weight*(weight+b.read-a.read) + missed + s.in.guesses*e.flop*flops/s.set.chunk + PassOverhead
					v.row = (b.token - a.token) * e.row / s.set.chunk
				}
				if s.in.req.HeldTokens > 0 {
					v.hand = s.in.handTime(&s.set, s.pool[r.peer], s.in.bounds[at], s.in.bounds[end])
				}
				s.spans = append(s.spans, v)
				r.rest = min(r.rest, v.hand+v.compute+s.in.steps*v.pass+e.hop+s.rest[end])
			}
			r.found = int16(len(s.spans) - int(r.spans))
			least = min(least, r.rest)
		}
		s.rest[at] = least
	}
	return s.bound(0, 0, s.rest[0]) <= s.limit
}

// bound returns the least total of a route that costs so much up to a position, has had such a period, and where the rest adds at least so much.
func (s *sweep) bound(cost, period, rest float64) float64 {
	return cost + s.set.periods*max(period, s.short) + s.fixed + rest
}

// below returns the cheapest route found whose parts all take at most so many seconds per chunk, where less than short doesn't count,
// and its total with that; +Inf: none within the limit.
func (s *sweep) below(short, period float64) (route, float64) {
	in := s.in
	s.limit, s.short = s.c.limit(&s.set), max(short, s.shortest)
	if !s.look(period) {
		return route{}, math.Inf(1)
	}
	s.clear(len(in.bounds) * len(s.pool))
	for _, r := range s.from[0] {
		trip := s.lines[r.peer].rtt / 2
		p := path{cost: trip, used: 1 | 1<<r.peer, prev: -1, peer: r.peer}
		if s.set.pipelined {
			p.cost += in.steps * trip
		}
		s.keep(p)
	}
	total, end, last := math.Inf(1), 0, int32(-1)
	for at := range s.from {
		list := s.arrivals[at]
		for i := range list {
			if t := s.finish(&list[i], at, period); t < total {
				total, end, last = t, in.bounds[at], list[i].prev
			}
		}
		for i := range s.from[at] {
			r := &s.from[at][i]
			place := at*len(s.pool) + int(r.peer)
			dear := &s.dear[place]
			for k := range list {
				v := &list[k]
				if v.worth >= *dear {
					break
				}
				if v.used&(1<<r.peer) == 0 {
					s.hand(v, at, r, period)
				}
			}
			for _, id := range s.open[place*s.wide.paths:][:s.kept[place]] {
				s.extend(id, at, r)
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

// extend gives a path's peer every range from its position on that it may run.
func (s *sweep) extend(id int32, at int, r *reach) {
	l, hop := &s.paths[id], s.each[r.peer].hop
	for i := range s.spans[r.spans : r.spans+int32(r.found)] {
		v := &s.spans[int(r.spans)+i]
		end := at + 1 + i
		cost, longest, tail := l.cost+v.hand+v.compute, max(l.period, v.busy), max(l.tail, v.rows)
		if s.bound(cost+s.in.steps*v.pass+hop, longest, s.rest[end]) > s.limit {
			continue
		}
		worth := cost + tail + s.in.steps*max(v.pass, v.row) + s.set.periods*max(longest, s.short)
		if list := s.arrivals[end]; len(list) < s.wide.arrivals || worth < list[s.wide.arrivals-1].worth {
			s.arrive(arrival{path{cost, longest, tail, worth, l.used, id, l.at, l.peer}, v.pass, v.row}, end)
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
	for k := range list[:i] {
		if list[k].peer == v.peer && list[k].used&^v.used == 0 {
			return
		}
	}
	for k := i; k < len(list); k++ {
		if list[k].peer == v.peer && v.used&^list[k].used == 0 {
			copy(list[i+1:k+1], list[i:k])
			list[i] = v
			return
		}
	}
	if i == s.wide.arrivals {
		return
	}
	if len(list) < s.wide.arrivals {
		list = list[:len(list)+1]
		s.arrivals[at] = list
	}
	copy(list[i+1:], list[i:])
	list[i] = v
}

// finish returns the total of an arrival where the decoder takes over; +Inf where it can't within the period.
func (s *sweep) finish(v *arrival, at int, period float64) float64 {
	take := &s.take[at]
	if !take.ok || take.period > period {
		return math.Inf(1)
	}
	way := s.lines[int(v.peer)*len(s.pool)]
	send := (s.seam + s.set.chunk*(s.sums[at].rows-s.sums[s.paths[v.prev].at].rows)) / way.rate
	if send > period {
		return math.Inf(1)
	}
	return v.cost + s.hop(v, way) + take.own + s.set.periods*max(v.period, send, take.period, s.short) + max(v.tail, take.tail) + s.fixed + take.steps
}

// hop returns the seconds that the way to the next peer adds to an arrival, with the risk, and where decoded tokens walk their time at its last peer.
func (s *sweep) hop(v *arrival, way line) float64 {
	t := way.rtt/2 + s.seam/way.rate + s.each[v.peer].risk
	if s.set.pipelined {
		t += s.in.steps * max(v.pass+way.rtt/2+s.in.stepSeam()/way.rate, v.row)
	}
	return t
}

// hand makes an arrival the path of a pool peer that goes on from there.
func (s *sweep) hand(v *arrival, at int, r *reach, period float64) {
	n := r.peer
	way := s.lines[int(v.peer)*len(s.pool)+int(n)]
	cost, longest := v.cost+s.hop(v, way), max(v.period, s.seam/way.rate)
	paced := cost + s.set.periods*max(longest, s.short)
	worth := paced + v.tail
	if worth >= s.dear[at*len(s.pool)+int(n)] || longest > period || paced+s.fixed+r.rest > s.limit {
		return
	}
	s.keep(path{cost, longest, v.tail, worth, v.used | 1<<n, v.prev, int16(at), n})
}

// keep enters a path unless as many cheaper ones lead to the same position and peer, or one by fewer peers.
func (s *sweep) keep(p path) {
	place := int(p.at)*len(s.pool) + int(p.peer)
	n := int(s.kept[place])
	list := s.open[place*s.wide.paths:][:s.wide.paths]
	i := 0
	for ; i < n; i++ {
		old := &s.paths[list[i]]
		if old.worth > p.worth {
			break
		}
		if old.used&^p.used == 0 {
			return
		}
	}
	if i == s.wide.paths {
		return
	}
	for k := min(n, len(list)-1); k > i; k-- {
		list[k] = list[k-1]
	}
	list[i] = int32(len(s.paths))
	s.paths = append(s.paths, p)
	if n = min(n+1, len(list)); n == len(list) {
		s.dear[place] = s.paths[list[n-1]].worth
	}
	s.kept[place] = int8(n)
}
