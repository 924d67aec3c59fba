package route

import (
	"math/bits"
	"slices"
)

// best returns the route to take, or false if there is none.
func (in *instance) best(links []Link) (route, bool) {
	var usable []int
	for i := range in.peers {
		if in.barred[i] == "" {
			usable = append(usable, i)
		}
	}
	switch q := &in.req; {
	case len(usable) <= ExactPeers:
		in.net.learn(links, usable, false)
		return in.exact(usable, exactEffort)
	case len(q.Cuts) == 0 && len(q.Assign) == 0 && len(q.Include) == 0:
		wide := swift
		switch {
		case len(usable) <= fewPeers:
			wide = thorough
		case len(usable) <= somePeers:
			wide = careful
		}
		if r, ok := in.crowd(usable, links, wide); ok {
			return r, true
		}
	}
	return in.heuristic(usable, poolSizes, links)
}

// exact returns the optimum over the usable peers, or a good route if finding it takes more than effort labels.
func (in *instance) exact(usable []int, effort int) (route, bool) {
	c := newChoice(in)
	c.search(usable, 1) // a quick plan, whose cost prunes the search proper
	c.improve(usable)
	c.effort = effort
	c.search(usable, 0)
	return c.pick()
}

// heuristic returns a good route over any number of usable peers.
func (in *instance) heuristic(usable, sizes []int, links []Link) (route, bool) {
	c := newChoice(in)
	in.net.learn(links, usable, false)
	for _, size := range sizes {
		c.search(in.pool(usable, size), poolWidth)
		if _, ok := c.pick(); ok {
			c.improve(usable)
			return c.pick()
		}
	}
	return route{}, false
}

// search offers c the routes over the peers in pool (indexes, ascending, at most 64). width bounds the labels kept
// per position and peer; 0 keeps all that may lead to the optimum.
func (c *choice) search(pool []int, width int) {
	in := c.in
	lines := in.net.among(pool)
	for _, d := range pool {
		if !in.mayDecode(d) {
			continue
		}
		for _, chunk := range in.req.chunks() {
			if in.wants(Local) {
				c.local(d, chunk)
			}
			if in.req.Shape == Local {
				continue
			}
			if in.wants(Across) && in.canDecode(d, in.model.Layers, true, true) {
				newFrontier(c, pool, lines, width, in.setting(d, chunk, Across, true)).run()
			}
			if in.wants(Pipelined) && in.canDecode(d, in.model.Layers, false, true) {
				newFrontier(c, pool, lines, width, in.setting(d, chunk, Pipelined, true)).run()
			}
			if in.wants(Pipelined) && in.canDecode(d, in.model.Layers, false, false) {
				newFrontier(c, pool, lines, width, in.setting(d, chunk, Pipelined, false)).run()
			}
		}
	}
}

func (in *instance) wants(s Shape) bool { return in.req.Shape == Any || in.req.Shape == s }

// mayDecode reports whether the request lets peer d decode.
func (in *instance) mayDecode(d int) bool {
	id := in.peers[d].ID
	if want := in.req.Decoder; want != "" && want != id {
		return false
	}
	want := in.req.assignedDecoder()
	return want == "" || want == id
}

// local offers the plan in which d does everything.
func (c *choice) local(d, chunk int) {
	in := c.in
	if len(in.req.Cuts) > 0 || len(in.req.Assign) > 1 || !in.canDecode(d, 0, true, false) {
		return
	}
	for _, id := range in.req.Include {
		if id != in.peers[d].ID {
			return
		}
	}
	s := in.setting(d, chunk, Local, false)
	c.offer(&s, route{shape: Local, dec: d, chunk: chunk})
}

// label is a partial route: the stages before position at are decided, and peer runs from there on.
type label struct {
	cost    float64 // everything additive so far: fill, and all walks of decoded tokens
	period  float64 // slowest part so far, seconds per chunk
	tail    float64 // longest KV tail so far
	floor   float64 // no completion has a shorter period
	bound   float64 // no completion costs less
	used    uint64  // peers in the route, peer included, as bits of the pool
	peer    int8    // index into the pool
	prev    int32   // label before, −1 at the first stage
	at      int16   // index into bounds
	dropped bool    // a later label beats it
}

// frontier is one search: fixed decoder, chunk and shape.
type frontier struct {
	c     *choice
	in    *instance
	set   setting
	shape Shape
	pool  []int
	width int

	ends   []int     // positions where ranges may end: all bounds, or the forced cuts
	must   uint64    // pool bits of the peers that have to be used
	dec    int       // the decoder as an index into the pool
	decBit uint64    // … as a bit
	lines  []line    // between the pool's peers, by sender and receiver
	speed  []float64 // per pool peer: FLOP/s with its queue
	rest   []rest    // per position: what the layers from there on cost at least
	fixed  float64   // seconds that every route of this search has: the head, and the decoder's part of each token
	labels []label
	open   [][][]int32 // [position][pool peer]: labels waiting
}

func newFrontier(c *choice, pool []int, lines []line, width int, s setting) *frontier {
	in := c.in
	f := &frontier{c: c, in: in, set: s, shape: Across, pool: pool, lines: lines, width: width, ends: in.bounds}
	if s.pipelined {
		f.shape = Pipelined
	}
	if len(in.req.Cuts) > 0 {
		f.ends = append([]int{0}, in.req.Cuts...)
	}
	for i, p := range pool {
		f.speed = append(f.speed, in.peers[p].PrefillFlops/(1+in.peers[p].Load))
		if p == s.dec {
			f.dec, f.decBit = i, 1<<i
		}
		if slices.Contains(in.req.Include, in.peers[p].ID) {
			f.must |= 1 << i
		}
	}
	f.rest = f.rests()
	f.fixed = in.headTime(s.dec) + in.steps*(float64(in.model.HeadBytes)/in.peers[s.dec].DecodeBytesPerSec+PassOverhead)
	if !s.pipelined {
		f.fixed = in.headTime(s.dec) + in.steps*in.decoderStep(&s, 0)
	}
	f.open = make([][][]int32, len(f.ends))
	for i := range f.open {
		f.open[i] = make([][]int32, len(pool))
	}
	return f
}

// run pushes labels from the first layer to the last.
func (f *frontier) run() {
	for i, p := range f.pool {
		if p == f.set.dec || !f.in.peers[p].Embed {
			continue
		}
		trip := f.in.net.line(f.set.dec, p).rtt / 2
		l := label{cost: trip, peer: int8(i), prev: -1, used: 1<<i | f.decBit}
		if f.set.pipelined {
			l.cost += f.in.steps * trip
		}
		f.push(l)
	}
	for at := range f.open {
		for i := range f.pool {
			for _, id := range f.open[at][i] {
				if l := f.labels[id]; !l.dropped {
					f.extend(id, l)
				}
			}
		}
	}
}

// extend gives the label's peer every possible range, and the rest to every possible successor.
func (f *frontier) extend(id int32, l label) {
	in, s := f.in, &f.set
	p := f.pool[l.peer]
	peer := &in.peers[p]
	a := f.ends[l.at]
	for end := int(l.at) + 1; end < len(f.ends); end++ {
		b := f.ends[end]
		if b > peer.Holds.Last || !in.fits(peer, a, b) {
			break
		}
		compute := in.computeTime(s, p, a, b)
		if l.cost+s.periods*compute > f.c.limit(s) {
			break
		}
		if f.finishes(l, end) {
			f.finish(id, l, b, compute)
		}
		for i, n := range f.pool {
			if l.used&(1<<i) == 0 && end+1 < len(f.ends) && f.canStart(n, end) {
				next := f.after(l, compute, b, i)
				next.peer, next.at, next.prev = int8(i), int16(end), id
				next.used |= 1 << i
				f.push(next)
			}
		}
		if len(in.req.Cuts) > 0 {
			break
		}
	}
}

// after returns l with its peer's range [.., b) done and the seam handed to pool peer n.
func (f *frontier) after(l label, compute float64, b, n int) label {
	in, s := f.in, &f.set
	p, a := f.pool[l.peer], f.ends[l.at]
	next, decoder := f.lines[int(l.peer)*len(f.pool)+n], f.lines[int(l.peer)*len(f.pool)+f.dec]
	l.cost += compute + in.hopTime(s, next) + in.handTime(s, p, a, b)
	if s.pipelined {
		l.cost += in.steps * in.walkTime(s, p, a, b, next, decoder)
	}
	l.period = max(l.period, compute, in.sendTime(s, p, a, b, next, decoder, n == f.dec), in.waitTime(s, a, b, compute, decoder))
	l.tail = max(l.tail, s.chunk*in.rowBytes(s, a, b)/decoder.rate)
	return l
}

// canStart reports whether peer n can run at least the range after position end.
func (f *frontier) canStart(n, end int) bool {
	peer := &f.in.peers[n]
	a, b := f.ends[end], f.ends[end+1]
	return peer.Holds.First <= a && b <= peer.Holds.Last && f.in.fits(peer, a, b)
}

// finishes reports whether the decoder may take over at position end, by what the request forces.
func (f *frontier) finishes(l label, end int) bool {
	in := f.in
	if len(in.req.Cuts) > 0 && end != len(f.ends)-1 {
		return false
	}
	if n := len(in.req.Assign); len(in.req.Cuts) == 0 && n > 0 && f.stages(l)+1 != n {
		return false
	}
	return f.must&^l.used == 0
}

// stages returns the number of stages in l; the decoder's bit is not one.
func (f *frontier) stages(l label) int { return bits.OnesCount64(l.used) - 1 }

// finish completes l with the decoder from layer x on, and offers the route.
func (f *frontier) finish(id int32, l label, x int, compute float64) {
	in, s := f.in, &f.set
	if !in.canDecode(s.dec, x, !s.pipelined, s.kv) {
		return
	}
	l = f.after(l, compute, x, f.dec)
	own := in.ownTime(s, x)
	period := max(l.period, own, in.inflow(s, x))
	tail := max(l.tail, s.chunk*in.rowBytes(s, 0, x)/in.peers[s.dec].Down)
	total := l.cost + own + s.periods*period + tail + in.headTime(s.dec) + in.steps*in.decoderStep(s, x)
	if total > f.c.limit(s) {
		return
	}
	r := route{shape: f.shape, dec: s.dec, chunk: int(s.chunk), kv: s.kv, ends: []int{x}}
	for i := id; i >= 0; i = f.labels[i].prev {
		r.peers = append(r.peers, f.pool[f.labels[i].peer])
		if at := f.labels[i].at; at > 0 {
			r.ends = append(r.ends, f.ends[at])
		}
	}
	slices.Reverse(r.peers)
	slices.Reverse(r.ends)
	f.c.offer(s, r)
}

// push enters a label unless it can't lead to a better route, and drops those it beats.
func (f *frontier) push(l label) {
	if !f.assigned(l) || l.at == 0 && !f.canStart(f.pool[l.peer], 0) {
		return
	}
	f.lower(&l)
	if l.bound > f.c.limit(&f.set) {
		return
	}
	list := f.open[l.at][l.peer]
	for _, id := range list {
		if old := &f.labels[id]; !old.dropped && f.beats(old, &l) {
			return
		}
	}
	kept := list[:0]
	worst := -1
	for _, id := range list {
		if old := &f.labels[id]; f.beats(&l, old) {
			old.dropped = true
			continue
		}
		kept = append(kept, id)
		if worst < 0 || f.labels[id].bound >= f.labels[kept[worst]].bound {
			worst = len(kept) - 1
		}
	}
	if f.c.effort--; f.c.effort < 0 && f.width == 0 {
		f.width = poolWidth
	}
	if f.width > 0 && len(kept) >= f.width {
		if l.bound >= f.labels[kept[worst]].bound {
			f.open[l.at][l.peer] = kept
			return
		}
		f.labels[kept[worst]].dropped = true
		kept = slices.Delete(kept, worst, worst+1)
	}
	f.labels = append(f.labels, l)
	f.open[l.at][l.peer] = append(kept, int32(len(f.labels)-1))
}

// assigned reports whether the request lets l's peer be the stage it is.
func (f *frontier) assigned(l label) bool {
	stage := f.stages(l) - 1
	assign := f.in.req.Assign
	if len(f.in.req.Cuts) == 0 && len(assign) > 0 && stage >= len(assign)-1 {
		return false
	}
	id := f.in.peers[f.pool[l.peer]].ID
	if stage < len(assign) && assign[stage] != "" {
		return assign[stage] == id
	}
	return !slices.Contains(assign, id)
}

// beats reports that whatever completes b completes a, and never for more. Both are at the same position and peer.
// A completion's period is the larger of the label's and of what follows; what follows b is at least b.floor, so a
// loses at most the difference, once per chunk, and the same goes for the tail.
func (f *frontier) beats(a, b *label) bool {
	if a.cost+f.set.periods*max(0, a.period-b.floor)+max(0, a.tail-b.tail) > b.cost {
		return false
	}
	if f.must&b.used&^a.used != 0 {
		return false // a still has to fit in a peer that b has
	}
	if len(f.in.req.Assign) > 0 {
		return a.used == b.used // the number of stages counts, and who is left
	}
	return a.used&^b.used == 0
}
