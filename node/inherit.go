package node

import (
	"reflect"
	"sync"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// A decoder that leaves keeps what its cache has of a session, its legacy, until the next decoder has asked for it: so nothing is computed
// again. First the heir's side, then that of the one that leaves.

// inheriting is what a session's former decoder hands on before anything is opened.
type inheriting struct {
	profile [32]byte
	given   *taking // nil: it has said nothing yet
}

// inherit asks the decoder that the session had before for what this one lacks of the prompt; nil if there is nothing to ask for.
func (d *decoding) inherit(profile [32]byte) []action {
	upto := reusable(d.open)
	if d.open.Former == "" || d.open.Former == d.self || upto-d.reused < minPrefix {
		return nil
	}
	d.heir = &inheriting{profile: profile}
	return []action{send{d.open.Former, &wire.Inherit{Head: d.head, Grant: d.open.Grant, First: uint32(d.held.First), Last: uint32(d.held.Last),
		From: uint32(d.reused), Upto: uint32(upto)}}}
}

// onLegacy takes a frame of the former decoder.
func (d *decoding) onLegacy(m wire.Message) ([]action, *wire.Refusal) {
	h := d.heir
	switch m := m.(type) {
	case *wire.Refusal:
		return d.disinherit(), nil
	case *wire.Handover:
		if h.given != nil || int(m.From) != d.reused || int(m.Upto) > reusable(d.open) {
			return nil, wire.Refuse(wire.CodeBadFrame, "a handover of positions %d to %d, asked for were %d to %d, once", m.From, m.Upto, d.reused, reusable(d.open))
		}
		if marks := d.holds(int(m.Upto)); marks[len(marks)-1].Prefix != m.Prefix {
			return nil, wire.Refuse(wire.CodePrefix, "a handover of other tokens before position %d", m.Upto)
		}
		layers := runtime.Range{First: max(d.held.Last-len(m.Digests), d.held.First), Last: d.held.Last} // newTaking counts them
		given, r := newTaking(d.seq, layers, m)
		if r != nil {
			return nil, r
		}
		if !d.profits(layers, given.upto) {
			no := wire.Refuse(wire.CodeUnknownModel, "rows of %v are of no use without those of %v", layers, d.held)
			no.Head = d.head
			return append([]action{send{d.open.Former, no}}, d.disinherit()...), nil
		}
		h.given = given
		return nil, nil
	case *wire.KVSlice:
		if h.given == nil {
			return nil, wire.Refuse(wire.CodeBadFrame, "KV of layer %d, and no handover was announced", m.Layer)
		}
		ack, r := h.given.take(m)
		if r != nil || ack == 0 {
			return nil, r
		}
		acts := []action{send{d.open.Former, &wire.KVAck{Head: d.head, Upto: ack}}}
		if h.given.done() {
			acts = append(acts, d.inherited()...)
		}
		return acts, nil
	}
	return nil, wire.Refuse(wire.CodeBadFrame, "a session's former decoder sends no frame of type %d", m.Type())
}

// upper is what a cache has more of in its last layers, which were a former decoder's that had no rows of those below: what is computed of the
// positions before upto ends with layer first. The zero value: nothing.
type upper struct{ first, upto int }

// layersAt returns the layers from first on that a step runs which begins at a position.
func (d *decoding) layersAt(first, at int) runtime.Range {
	if at < d.upper.upto {
		return runtime.Range{First: first, Last: d.upper.first}
	}
	return runtime.Range{First: first, Last: d.config.Layers}
}

// profits reports whether what a former decoder has of some layers up to a position, the last ones of those held, spares this one work. One that can run
// all layers computes the others alone then, which must take less than the route would for all of them. To one that is pushed everybody's rows it
// is nothing: they would have to come for the layers below alone.
func (d *decoding) profits(layers runtime.Range, upto int) bool {
	if layers == d.held || !d.local {
		return layers == d.held || d.held != d.whole()
	}
	return !d.quicker(d.reused, len(d.open.Tokens)-upto+(upto-d.reused)*layers.First/d.config.Layers)
}

// inherited goes on from where the former decoder was. Stages are handed what they lack, if this one has it.
func (d *decoding) inherited() []action {
	given, profile := d.heir.given, d.heir.profile
	d.heir = nil
	switch first := given.layers.First; {
	case given.layers == d.held || !d.local && first <= int(d.open.Route.DecoderFirst): // it has all layers that it runs
		d.reused = given.upto
		d.marks = d.holds(d.reused)
		if d.held == d.whole() {
			d.resume = d.marks[len(d.marks)-1]
		}
		d.note("took over %d positions of the cache of decoder %s", given.upto-given.from, d.open.Former)
	default:
		d.upper = upper{first, given.upto}
		d.note("took over %d positions of %v of the cache of decoder %s", given.upto-given.from, given.layers, d.open.Former)
	}
	return d.openRoute(profile)
}

// disinherit goes on without what the former decoder has, or with what came before.
func (d *decoding) disinherit() []action {
	profile := d.heir.profile
	d.heir = nil
	d.reused = d.seq.Truncate(d.reused)
	if d.reused < minPrefix {
		d.reused = d.seq.Truncate(0)
	}
	d.marks = upTo(d.marks, d.reused)
	return d.openRoute(profile)
}

// inheritedLocked gives the former decoder time for its next frame, if there is one to come; else what waits for the last one goes on.
func (s *decoderSession) inheritedLocked() {
	switch {
	case s.legacy == nil:
	case s.m.heir != nil && !s.m.ended:
		s.legacy.Reset(s.n.cfg.Silence)
	default:
		s.legacy.Stop()
		s.legacy = nil
		s.wantGrowthLocked()
	}
}

// disinherit goes on without a former decoder that says nothing.
func (s *decoderSession) disinherit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m.heir != nil && !s.m.ended {
		s.log.Info("the former decoder is silent", "peer", s.m.open.Former)
		s.do(s.m.disinherit())
	}
	s.inheritedLocked()
}

// legacy is what a session leaves on a decoder that leaves: a state machine without I/O or clock. Its owner serialises calls.
type legacy struct {
	grant   wire.Grant // of the session here
	layers  runtime.Range
	seq     runtime.Sequence // as far as it goes
	tokens  []int32          // that it holds
	prefix0 wire.Prefix

	heir  string    // who takes it; "": nobody yet
	head  wire.Head // of its session
	given *handover
	end   wire.Mark // of what it is given
	over  bool      // it has all
}

// bequeath returns what the session leaves, which has ended: what it has in all layers whose rows it keeps, or, where those of stages' layers
// never come, in those that this node runs. The sequence is the legacy's from then on.
func (d *decoding) bequeath() legacy {
	layers := d.held
	if own := (runtime.Range{First: int(d.open.Route.DecoderFirst), Last: d.config.Layers}); own.Len() > 0 && held(d.seq, layers) < minPrefix {
		layers = own
	}
	n := d.seq.Truncate(min(d.computed, len(d.tokens)-1, held(d.seq, layers)))
	return legacy{grant: d.open.Grant, layers: layers, seq: d.seq, tokens: d.tokens[:n], prefix0: d.prefix0}
}

// handle takes a frame of the next decoder. A refusal means that nothing changed, but that the cache may have gone back to where the asker's
// tokens end.
func (l *legacy) handle(from string, m wire.Message) ([]action, *wire.Refusal) {
	switch m := m.(type) {
	case *wire.Inherit:
		return l.onInherit(from, m)
	case *wire.KVAck:
		switch {
		case from != l.heir || m.Head != l.head:
			return nil, wire.Refuse(wire.CodeWrongPeer, "rows acknowledged by who is given none")
		case !upto(&l.given.sent, m.Upto):
			return nil, wire.Refuse(wire.CodeBadFrame, "rows acknowledged to %d, none that end there are on their way", m.Upto)
		}
		l.over = int(m.Upto) == l.given.upto
		return l.given.give(l.heir, l.head, l.end.Prefix), nil
	}
	return nil, wire.Refuse(wire.CodeBadFrame, "the former decoder gets no frame of type %d", m.Type())
}

// onInherit begins to hand on what the asker lacks. The grant, whose signature has been checked, shows that it is the client's next decoder.
func (l *legacy) onInherit(from string, m *wire.Inherit) ([]action, *wire.Refusal) {
	g, layers := &m.Grant, runtime.Range{First: int(m.First), Last: int(m.Last)}
	switch {
	case g.Client != l.grant.Client || g.Session != l.grant.Session || g.Model != l.grant.Model || m.Session != g.Session || m.Epoch.Client != g.ClientEpoch:
		return nil, wire.Refuse(wire.CodeBadGrant, "the grant is for another session")
	case g.ClientEpoch <= l.grant.ClientEpoch || l.heir != "" && g.ClientEpoch <= l.head.Epoch.Client:
		return nil, wire.Refuse(wire.CodeStaleEpoch, "epoch %v is not the session's next one", m.Epoch)
	case !reflect.DeepEqual(g.Numerics, l.grant.Numerics):
		return nil, wire.Refuse(wire.CodeProfile, "the session was computed with other numbers")
	case layers.Last != l.layers.Last:
		return nil, wire.Refuse(wire.CodeUnknownModel, "this node has rows of %v, not of %v", l.layers, layers)
	}
	layers.First = max(layers.First, l.layers.First)
	n := l.seq.Truncate(min(int(m.Upto), len(l.tokens)))
	if l.tokens = l.tokens[:n]; n <= int(m.From) {
		return nil, wire.Refuse(wire.CodeUnknownSession, "this node has nothing of session %v behind position %d", m.Session, m.From)
	}
	marks := marksOf(wire.Mark{Prefix: l.prefix0}, l.tokens)
	l.heir, l.head, l.end = from, m.Head, marks[len(marks)-1]
	l.given = newHandover(l.seq, layers, int(m.From), n)
	return l.given.give(from, l.head, l.end.Prefix), nil
}

// legacyLife is how long a legacy waits for the next decoder to ask for it, and for each of its words, beside the silence that the node
// allows its peers: the client must find that decoder, and have it reserve memory.
const legacyLife = 2 * time.Second

// bequest drives one legacy. It ends when the heir has all, or nobody wants it.
type bequest struct {
	n     *Node
	room  *room // where its KV is
	timer *time.Timer

	mu     sync.Mutex
	l      legacy
	closed bool
}

// bequeathLocked keeps the session's cache for its next decoder.
func (s *decoderSession) bequeathLocked() {
	if s.m.seq == nil || s.m.running != nil || s.bequeathed {
		return
	}
	s.keep()
	if l := s.m.bequeath(); len(l.tokens) >= minPrefix {
		s.bequeathed = s.n.addBequest(s.m.head.Session, &bequest{n: s.n, room: s.room, l: l})
	}
}

// addBequest registers a bequest, unless the node is closing.
func (n *Node) addBequest(id wire.SessionID, b *bequest) bool {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if n.sessions.closed || n.sessions.bequests[id] != nil {
		return false
	}
	b.timer = time.AfterFunc(n.cfg.Silence+legacyLife, b.close)
	n.sessions.bequests[id] = b
	return true
}

// bequest returns what a session has left here; nil if nothing.
func (n *Node) bequest(id wire.SessionID) *bequest {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	return n.sessions.bequests[id]
}

// bequestList lists all of them.
func (n *Node) bequestList() (list []*bequest) {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	for _, b := range n.sessions.bequests {
		list = append(list, b)
	}
	return list
}

// deliver takes a frame of the heir, or of who wants to be it; false if the frame is nothing of that.
func (b *bequest) deliver(from string, m wire.Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, _ := headOf(m)
	asks, ok := m.(*wire.Inherit)
	if b.closed || !ok && (from != b.l.heir || h != b.l.head) {
		return false
	}
	if _, refused := m.(*wire.Refusal); refused { // the heir goes on without it
		b.closeLocked()
		return true
	}
	acts, r := []action(nil), (*wire.Refusal)(nil)
	if ok {
		r = checkGrant(&asks.Grant, from, time.Now())
	}
	if r == nil {
		acts, r = b.l.handle(from, m)
	}
	if r != nil {
		b.n.refuse(from, h, r)
		return true
	}
	for _, a := range acts {
		if a, ok := a.(give); ok {
			b.n.links.sendKV(a.To, func(write func(wire.Message) error) error { return a.write(b.l.seq, wire.MaxSlice, write) })
		}
	}
	b.timer.Reset(b.n.cfg.Silence + legacyLife)
	if b.l.over {
		b.closeLocked()
	}
	return true
}

// peerGone gives up on an heir that can't be reached.
func (b *bequest) peerGone(peer string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if peer == b.l.heir {
		b.closeLocked()
	}
}

func (b *bequest) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closeLocked()
}

func (b *bequest) closeLocked() {
	if b.closed {
		return
	}
	b.closed = true
	b.timer.Stop()
	b.room.free(b.l.seq)
	n := b.n
	n.sessions.Lock()
	defer n.sessions.Unlock()
	delete(n.sessions.bequests, b.l.grant.Session)
	n.tellIdleLocked()
}
