package node

import (
	"slices"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// Where sessions begin whose peers have the caches of earlier ones. First the decoder's side, then a stage's.

// reserved takes the KV of layers held, of which this node can run those that are able, too. It holds the first so many positions, as an
// earlier session left them, and marks are those tokens'.
func (d *decoding) reserved(held, able runtime.Range, seq runtime.Sequence, reused int, marks []wire.Mark) {
	d.held, d.seq, d.reused, d.marks = held, seq, reused, marks
	d.able = runtime.Range{First: max(held.First, able.First), Last: d.config.Layers}
	d.local = d.able == d.whole()
}

// whole is all layers.
func (d *decoding) whole() runtime.Range { return runtime.Range{First: 0, Last: d.config.Layers} }

// start opens the proposed route, or computes at once if it has no stages. A former decoder is asked for its cache before.
func (d *decoding) start(profile [32]byte) []action {
	if d.ended { // the client left before anything was opened
		return nil
	}
	if acts := d.inherit(profile); acts != nil {
		return acts
	}
	return d.openRoute(profile)
}

// openRoute does so when the cache has what it can have.
func (d *decoding) openRoute(profile [32]byte) []action {
	r := d.open.Route
	if !d.worthWalking(d.reused) || d.local && d.upper.upto > 0 {
		r.Stages, r.DecoderFirst = nil, 0
	}
	d.stats.Reused = uint32(d.reused)
	return d.adopt(r, profile, d.reused)
}

// reusable returns how many tokens of a prompt may be in the cache already: not the last one, whose logits are wanted, and nothing
// that a probe asks for.
func reusable(open *wire.SessionOpen) int {
	n := len(open.Tokens)
	if open.MaxNew > 0 {
		n--
	}
	if p := &open.Probe; p.First < p.Last {
		n = min(n, int(p.First))
	}
	return n
}

// minWalk is how many tokens a route is worth the trouble for, at least.
const minWalk = 128

// worthWalking reports whether the route, begun at position from, computes what the decoder's cache lacks of the prompt sooner than the
// decoder alone: with peers that are all like this one, by a quarter at least, since links take time, too.
func (d *decoding) worthWalking(from int) bool {
	if d.reused == 0 || !d.local || len(d.open.Route.Stages) == 0 {
		return true
	}
	return d.quicker(from, len(d.open.Tokens)-d.reused)
}

// quicker reports whether the route, begun at position from, is so much sooner at the prompt's end than the decoder alone, which has so many tokens
// to compute.
func (d *decoding) quicker(from, alone int) bool {
	stages := len(d.open.Route.Stages)
	route := len(d.open.Tokens) - from + stages*d.chunkSize() // the first chunk passes the stages one by one
	return alone >= minWalk && 4*route < 3*(stages+1)*alone
}

// begin says where the route begins: after the tokens that all stages and the decoder hold. The decoder gets nothing of what it holds.
func (d *decoding) begin() {
	from := wire.Mark{Prefix: d.prefix0}
	for _, k := range d.marks {
		lacks := func(have []uint32) bool { return !slices.Contains(have, k.Position) }
		if int(k.Position) <= d.reused && !slices.ContainsFunc(d.begins, lacks) {
			from = k
		}
	}
	d.announced, d.prefix, d.seamEnd = int(from.Position), from.Prefix, d.reused
	r := &d.open.Route
	most := min(int(r.Chunk), d.frameRows())
	cut := func(from, to int) []int {
		return cutPrompt(d.config, from, to, most, int(r.LastChunk), d.chunkEnds(most))
	}
	at := max(d.reused, d.upper.upto)
	d.sizes = append(cut(d.reused, at), cut(at, min(d.routeEnd, len(d.tokens)))...)
	if !d.worthWalking(d.announced) {
		d.routeEnd, d.stats.Decoder.First = d.reused, 0
	}
}

// holds names the first n tokens: ascending, where pages end and where routes ended, and at n.
func (d *decoding) holds(n int) []wire.Mark {
	marks, from := slices.Clone(upTo(d.marks, n)), wire.Mark{Prefix: d.prefix0}
	if len(marks) > 0 {
		from = marks[len(marks)-1]
	}
	return append(marks, marksOf(from, d.tokens[from.Position:n])...)
}

// catching returns how many chunks are under way of which the decoder gets nothing.
func (d *decoding) catching() (n int) {
	for _, c := range d.due[len(d.due)-1] {
		if c.Held {
			n++
		}
	}
	return n
}

// earlier says that seq holds the tokens before the last of begins, and that fork gives one which ends at another of them.
func (s *staging) earlier(begins []wire.Mark, fork func(n int) runtime.Sequence) {
	s.begins, s.fork = begins, fork
}

// mayBegin reports whether the first chunk may begin at a position.
func (s *staging) mayBegin(at uint32) bool {
	return !s.begun && (at == 0 || slices.ContainsFunc(s.begins, func(k wire.Mark) bool { return k.Position == at }))
}

// begin goes to where the first chunk begins; false if the cache is gone.
func (s *staging) begin(at uint32) bool {
	s.begun, s.announced, s.computed = true, at, at
	s.mixed = s.mixed || at > 0 && s.head.Epoch.Client > 1 // what begins is perhaps of the session's former decoder
	if len(s.seams) == 0 {
		s.seamEnd = at
	}
	for _, k := range s.begins {
		if k.Position <= at {
			s.marks = append(s.marks, k)
			s.tip = k
		}
	}
	n := int(at)
	if held(s.seq, s.layers) > n {
		s.seq.Truncate(n)
	}
	if held(s.seq, s.layers) == n {
		return true
	}
	seq := s.fork(n)
	if seq != nil {
		s.seq = seq
	}
	return seq != nil
}

// follow notes what tokens end at a position, all that were noted beyond it being others.
func (s *staging) follow(end wire.Mark) {
	for n := len(s.marks); n > 0 && s.marks[n-1].Position >= end.Position; n-- {
		s.marks = s.marks[:n-1]
	}
	s.tip = end
}

// note notes a chunk's tokens.
func (s *staging) note(c *wire.Chunk) {
	if n := len(s.marks); s.tip.Position%wire.PageRows == 0 && s.tip.Position > 0 && (n == 0 || s.marks[n-1].Position < s.tip.Position) {
		s.marks = append(s.marks, s.tip)
	}
	page := c.Start / wire.PageRows
	for _, h := range c.Pages {
		page++
		s.marks = append(s.marks, wire.Mark{Position: page * wire.PageRows, Prefix: h})
	}
	s.tip = wire.Mark{Position: c.Start + c.Count, Prefix: c.Prefix}
}

// holds names the tokens that the cache holds: ascending, the last mark at their end.
func (s *staging) holds() (marks []wire.Mark) {
	n := uint32(held(s.seq, s.layers))
	for _, k := range s.marks {
		if k.Position <= n && k.Position < s.tip.Position {
			marks = append(marks, k)
		}
	}
	if s.begun && s.tip.Position > 0 && s.tip.Position <= n {
		marks = append(marks, s.tip)
	}
	return marks
}

// cached returns the layers of whose rows a cache of an earlier session is of use to one that wants those of some, best first. A plan may say
// for one turn of a conversation that rows are pushed, and not for the next; what need not be computed again counts for more.
func (s *decoderSession) cached(wanted runtime.Range) []runtime.Range {
	own, whole := s.exec.Layers(), s.m.whole()
	switch {
	case s.m.open.Fresh:
		return nil
	case own == whole || s.mayGrow():
		return []runtime.Range{wanted}
	case wanted == own:
		return []runtime.Range{own, whole}
	}
	return []runtime.Range{wanted, own}
}
