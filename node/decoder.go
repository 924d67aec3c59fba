package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/metrics"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// sessionConn is a session's stream between client and decoder: a swarm
// stream, or a pipe when both are this node.
type sessionConn interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// decoderSession drives one decoding machine.
type decoderSession struct {
	n        *Node
	log      *slog.Logger
	client   string
	model    artifacts.ID
	served   *served
	exec     runtime.Executor
	room     *room // where its KV is
	prefixes *prefixes
	kept     bool     // the cache has gone to prefixes
	growing  bool     // it wants the model to grow
	seat     *seat    // at exec's batcher
	drafter  *drafter // nil: no draft model guesses
	numerics runtime.Profile
	profile  [32]byte // its ID
	ctx      context.Context
	cancel   context.CancelFunc
	began    time.Time

	mu        sync.Mutex
	m         *decoding
	waits     waiting
	ended     bool
	losses    int       // of the machine's that have been counted
	opened    time.Time // of the current plan
	announced time.Time // the latest chunk
	route     pace      // of what the stages get done
	rows      rowSigns  // of its stages
	conn      sessionConn
	clientAt  time.Time      // when the client was last heard
	absent    map[string]int // stage → pongs in a row that didn't list the session
	times     *timing        // nil: the client doesn't ask
	firstSent time.Time      // when the first chunk went out, or the first step began
	lastSeam  time.Time      // when the last seam came
	firstTok  time.Time      // when the first token was sampled
	handoff   time.Duration  // from the last seam before it to the first token
	lastTok   time.Time
	switched  time.Duration // the longest wait for a token as this node began to decode alone

	legacy     *time.Timer // until the former decoder must say something; nil: nothing is to come
	bequeathed bool        // the cache is a bequest

	waiting  *time.Timer
	out      []wire.Message // to the client
	outReady *sync.Cond
	outDone  bool
}

// serveSession answers one client's session stream; it returns when the
// session is over and nothing of it is left on this node.
func (n *Node) serveSession(client string, conn sessionConn) {
	defer conn.Close()
	budget, _ := conn.(wire.Budget) // a pipe has none
	first, err := wire.Read(&patientReader{s: conn, budget: budget})
	if err != nil {
		if errors.Is(err, wire.ErrFormat) {
			_ = writeFrame(conn, wire.Refuse(wire.CodeBadFrame, "%v", err)) // best effort: the stream ends anyway
		} else {
			giveUp(conn, err)
		}
		return
	}
	open, ok := first.(*wire.SessionOpen)
	if !ok {
		_ = writeFrame(conn, wire.Refuse(wire.CodeBadFrame, "a session starts with its opening, not with frame type %d", first.Type())) // best effort
		return
	}
	s, r := n.admitSession(client, open, conn)
	if r != nil {
		r.Head, r.Peer = open.Head, n.ID()
		n.countRefusal(r.Code)
		n.sessionLog(open.Session, metrics.Decoder).Info("session refused", "client", client, "error", r)
		_ = writeFrame(conn, r) // best effort
		return
	}
	if !n.spawn(func() { s.listen(conn) }) {
		s.abort(wire.Refuse(wire.CodePeerLost, "the decoder is closing"))
	}
	if !n.spawn(s.enter) {
		s.abort(wire.Refuse(wire.CodePeerLost, "the decoder is closing"))
	}
	s.speak(conn)
	s.free()
}

// enter reserves the session's KV, for which it may have to wait, and begins.
func (s *decoderSession) enter() {
	open, whole := s.m.open, s.m.whole()
	held, own := s.exec.Layers(), runtime.Range{First: int(open.Route.DecoderFirst), Last: whole.Last}
	reused, marks := 0, []wire.Mark(nil)
	// Every layer held, since losing a stage may make this node run any of
	// them, and all that it may grow to, or hand to another stage; where memory
	// doesn't admit that, those held, or of the route.
	seq, err := s.room.reserve(s.ctx, time.Duration(open.Wait)*time.Millisecond, func() (runtime.Sequence, error) {
		if held, reused, marks = s.exec.Layers(), 0, nil; s.mayGrow() || s.mayHand() {
			held = whole
		}
		need := len(open.Tokens) + int(open.MaxNew)
		wanted := held
		for _, held = range s.cached(wanted) {
			w := known{client: s.client, profile: s.profile, layers: held, tokens: open.Tokens}
			if seq, n, same := s.prefixes.take(w, reusable(open), need); seq != nil {
				reused, marks = n, same
				return seq, nil
			}
		}
		held = wanted
		seq, err := s.prefixes.reserve(s.numerics, need, held)
		for _, less := range []runtime.Range{s.exec.Layers(), own} {
			if err != nil && less != held && !open.Route.DecodeLocal && len(open.Route.Stages) > 0 {
				held = less
				seq, err = s.prefixes.reserve(s.numerics, need, held)
			}
		}
		return seq, err
	})
	if err == nil && !open.Fresh {
		w := known{client: s.client, profile: s.profile, layers: held, tokens: open.Tokens}
		reused, marks = s.prefixes.load(s.ctx, w, reusable(open), reused, marks, seq)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		r := asRefusal(err)
		s.n.countRefusal(r.Code)
		s.do(s.m.fail(r))
	case s.m.ended: // the client has left meanwhile
		s.room.free(seq)
	default:
		s.log.Debug("session opened", "client", s.client, "epoch", open.Epoch.String(), "model", s.model.Short(), "prompt", len(open.Tokens),
			"max_new", open.MaxNew, "stages", len(open.Route.Stages))
		s.opened, s.firstSent, s.times = time.Now(), time.Now(), newTiming(s.m.open.Times)
		s.m.reserved(held, s.exec.Layers(), seq, reused, marks)
		s.legacy = time.AfterFunc(s.n.cfg.Silence, s.disinherit)
		s.do(s.m.start(s.profile))
		s.inheritedLocked()
	}
}

// admitSession checks a session.
func (n *Node) admitSession(client string, open *wire.SessionOpen, conn sessionConn) (*decoderSession, *wire.Refusal) {
	g := &open.Grant
	if r := checkGrant(g, n.ID(), time.Now()); r != nil {
		return nil, r
	}
	if r := n.heeds(g); r != nil {
		return nil, r
	}
	need := len(open.Tokens) + int(open.MaxNew)
	rt := &open.Route
	switch {
	case g.Client != client:
		return nil, wire.Refuse(wire.CodeBadGrant, "the grant was signed by somebody else")
	case g.Session != open.Session || open.Epoch != (wire.Epoch{Client: g.ClientEpoch}):
		return nil, wire.Refuse(wire.CodeBadGrant, "the grant is for another session")
	case len(open.Tokens) == 0:
		return nil, wire.Refuse(wire.CodeBadRequest, "a session needs at least one prompt token")
	case need > int(g.Budget):
		return nil, wire.Refuse(wire.CodeBadGrant, "%d tokens asked for, the grant allows %d", need, g.Budget)
	}
	s := n.served(artifacts.ID(g.Model))
	if s == nil || n.isBlocked(s.id.String()) {
		return nil, wire.Refuse(wire.CodeUnknownModel, "this node doesn't serve model %s", artifacts.ID(g.Model).Short())
	}
	how, err := readSampling(&open.Sampling, s.exec.Tokenizer())
	if err != nil {
		return nil, wire.Refuse(wire.CodeBadRequest, "%v", err)
	}
	cfg, held := s.exec.Config(), s.exec.Layers()
	switch {
	case s.noDecode || held.Last != cfg.Layers:
		return nil, wire.Refuse(wire.CodeUnknownModel, "this node serves %v and doesn't decode", held)
	case need > cfg.Context:
		return nil, wire.Refuse(wire.CodeContext, "%d prompt tokens and %d new ones exceed the model's context of %d", len(open.Tokens), open.MaxNew, cfg.Context)
	}
	for _, t := range open.Tokens {
		if int(t) >= cfg.Vocab {
			return nil, wire.Refuse(wire.CodeBadRequest, "token %d, the vocabulary has %d", t, cfg.Vocab)
		}
	}
	if r := checkRoute(rt, n.ID(), cfg.Layers, held); r != nil {
		return nil, r
	}
	profile, refusal := profileOf(s.exec, g.Numerics)
	if refusal != nil {
		return nil, refusal
	}
	for i := range rt.Stages {
		st := &rt.Stages[i]
		st.RangeRoot = s.root(runtime.Range{First: int(st.First), Last: int(st.Last)})
	}
	m, r := newDecoding(n.ID(), open, how, profile.ID(), cfg, func(p *wire.Plan) { signPlan(n.identity, p) })
	if r != nil {
		return nil, r
	}
	ctx, cancel := context.WithCancel(n.ctx)
	d := &decoderSession{n: n, log: n.sessionLog(open.Session, metrics.Decoder), client: client, conn: conn, clientAt: time.Now(), model: s.id, served: s, exec: s.exec, room: s.room, prefixes: s.prefixes, seat: s.batcher.sit(), numerics: profile, profile: profile.ID(), m: m,
		ctx: ctx, cancel: cancel, began: time.Now(), opened: time.Now(), absent: map[string]int{}}
	d.outReady = sync.NewCond(&d.mu)
	d.m.load = d.seat.load
	if s.draft != nil && open.Guess {
		d.m.drafts, d.drafter = true, s.draft.follow(need, how)
	}
	if r := n.addDecoder(open.Session, d); r != nil {
		cancel()
		d.seat.leave()
		d.drafter.close()
		return nil, r
	}
	if st := n.stage(open.Session); st != nil && st.client == client && st.m.head.Epoch.Compare(open.Epoch) < 0 {
		st.close() // of a decoder that the client has given up
	}
	return d, nil
}

// listen reads what the client says until it goes away, and ends the session then.
func (s *decoderSession) listen(conn sessionConn) {
	defer conn.Close() // speak may be waiting for the client to read
	defer s.abort(wire.Refuse(wire.CodeCancelled, "the client went away"))
	budget, _ := conn.(wire.Budget)
	r := &patientReader{s: conn, budget: budget}
	for {
		m, err := wire.Read(r)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.clientAt = time.Now()
		switch m := m.(type) {
		case *wire.Ping:
			s.pongLocked(m.Nonce)
		case *wire.Cancel:
			if m.Head.Session == s.m.head.Session && !s.ended {
				s.do(s.m.enough())
			}
		default: // it has no place here
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// abort ends the session at once.
func (s *decoderSession) abort(r *wire.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abortLocked(r)
}

func (s *decoderSession) abortLocked(r *wire.Refusal) {
	s.cancel()
	s.do(s.m.fail(r))
	s.outDone = true
	s.outReady.Broadcast()
}

// speak writes to the client what the machine has for it until the session ends.
func (s *decoderSession) speak(conn sessionConn) {
	for {
		s.mu.Lock()
		for len(s.out) == 0 && !s.outDone {
			s.outReady.Wait()
		}
		out, done := s.out, s.outDone
		s.out = nil
		s.mu.Unlock()
		for _, m := range out {
			if err := writeFrame(conn, m); err != nil {
				conn.Close() // listen sees it and ends the session
				done = true
				break
			}
		}
		if done {
			return
		}
	}
}

func (s *decoderSession) tellLocked(m wire.Message) {
	s.out = append(s.out, m)
	s.outReady.Broadcast()
}

// pongLocked answers a client's ping. A client that sends without reading has
// one answer waiting, not many.
func (s *decoderSession) pongLocked(nonce uint64) {
	for _, m := range s.out {
		if p, ok := m.(*wire.Pong); ok {
			p.Nonce = nonce
			return
		}
	}
	s.tellLocked(&wire.Pong{Nonce: nonce})
}

// free gives back everything that the session holds on this node.
func (s *decoderSession) free() {
	s.mu.Lock()
	s.cancel()
	s.ended = true
	if s.waiting != nil {
		s.waiting.Stop()
	}
	if s.legacy != nil {
		s.legacy.Stop()
	}
	s.do(s.m.fail(wire.Refuse(wire.CodeCancelled, "the client went away")))
	growing := s.growing
	if s.m.plan != nil {
		s.n.part(s.m.plan.Stages)
	}
	s.mu.Unlock()
	s.n.removeDecoder(s.m.head.Session, s)
	s.seat.leave()
	if growing {
		s.served.growth.leave()
	}
	s.drafter.close()
	if s.m.seq != nil {
		s.keep()
		if !s.bequeathed {
			s.room.free(s.m.seq)
		}
	}
}

// keep leaves the session's cache for the client's next one, which may begin alike. A session that failed while it verified guesses may
// have computed more than its tokens; the last token's row would be a guess's then.
func (s *decoderSession) keep() {
	if !s.kept {
		s.kept = true
		n := s.m.computed
		if s.m.open.MaxNew > 0 {
			n = min(n, len(s.m.tokens)-1)
		}
		s.prefixes.keep(s.knownLocked(n), s.m.seq)
	}
}

// knownLocked names the session's first n tokens.
func (s *decoderSession) knownLocked(n int) known {
	return known{client: s.client, profile: s.profile, layers: s.m.held, tokens: s.m.tokens[:n], marks: s.m.holds(n)}
}

// deliver takes a stage's frame. A refused frame changes nothing.
func (s *decoderSession) deliver(from string, m wire.Message) {
	came := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	acts, r := s.m.handle(from, m)
	if r != nil {
		h, _ := headOf(m)
		if _, isRefusal := m.(*wire.Refusal); !isRefusal {
			s.n.refuse(from, h, r)
		}
		if breaks(r.Code) {
			s.do(s.m.gone(from, "it sent what it mustn't: "+r.Error()))
			s.inheritedLocked()
		}
		return
	}
	if _, ok := m.(*wire.Seam); ok {
		s.lastSeam = came
	}
	if s.times != nil {
		s.timeLocked(from, m)
	}
	s.do(acts)
	s.inheritedLocked()
}

// timeLocked notes when a stage's frame came, which the machine has taken.
func (s *decoderSession) timeLocked(from string, m wire.Message) {
	switch m := m.(type) {
	case *wire.StageOpened:
		s.times.opened(from, m.Epoch, s.n.host.RTT(from))
	case *wire.Seam:
		s.times.arrived(m)
	case *wire.StageClosed:
		if i := len(s.m.stats.Stages) - 1; i >= 0 && s.m.stats.Stages[i].Peer == from {
			s.times.align(from, m.Epoch, s.m.stats.Stages[i].Times)
		}
	}
}

func (s *decoderSession) do(acts []action) {
	for _, a := range acts {
		switch a := a.(type) {
		case send:
			switch m := a.Msg.(type) {
			case *wire.StageOpen:
				s.opened = time.Now()
				s.absent[a.To] = 0
				s.route.reckon(a.To, s.n.reckon(s.served, m.Plan.Stages[m.Index], int(m.Plan.Capacity)))
			case *wire.Chunk:
				s.announced = time.Now()
			case *wire.KVAck:
				s.times.imported(a.To, m)
			}
			s.n.links.send(a.To, a.Msg)
		case give:
			s.n.links.sendKV(a.To, func(write func(wire.Message) error) error { return a.write(s.m.seq, wire.MaxSlice, write) })
		case run:
			s.n.spawn(func() { s.compute(a) })
		case draft:
			s.n.spawn(func() { s.ask(a) })
		case emit:
			if t, ok := a.Msg.(*wire.Token); ok {
				before := s.lastTok
				if s.lastTok = time.Now(); s.firstTok.IsZero() {
					s.firstTok = s.lastTok
					if !s.prefixes.rewinds() { // for an answer made again
						s.prefixes.keep(s.knownLocked(len(s.m.open.Tokens)-1), s.m.seq)
					}
					if !s.lastSeam.IsZero() {
						s.handoff = s.firstTok.Sub(s.lastSeam)
					}
				} else if at, from := t.Position, s.m.stats.Switched; from > 0 && at > from && at <= from+2 {
					s.switched = max(s.switched, s.lastTok.Sub(before))
				}
			}
			s.tellLocked(a.Msg)
		case replan:
			s.n.spawn(func() { s.replan(a.Lost) })
		case finish:
			s.finish(a)
		}
	}
	if s.losses < len(s.m.lost) {
		s.route = pace{times: s.route.times, reckoned: s.route.reckoned} // the wait for who was lost is nobody's pace
	}
	for ; s.losses < len(s.m.lost); s.losses++ {
		delete(s.route.times, s.m.lost[s.losses])
		s.n.metrics.Recovered(metrics.Stage)
		s.n.losses.note(s.m.lost[s.losses], time.Now())
		s.log.Warn("stage lost", "peer", s.m.lost[s.losses], "recovered", strings.Join(s.m.stats.Recovered, "; "))
	}
	s.waits.set(s.m.waitsFor(), time.Now())
	peer, positions := s.m.behind()
	s.route.set(s.m.work, peer, positions, time.Now())
	if s.m.ended && s.waiting == nil {
		s.waiting = time.AfterFunc(s.n.cfg.Silence, func() { // for the stages' accounts
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.ended {
				s.do(s.m.giveUpAccounts())
			}
		})
	}
}

func (s *decoderSession) finish(a finish) {
	if s.outDone {
		return
	}
	s.n.metrics.Ended(metrics.Decoder, a.Err != nil)
	if a.Err != nil {
		s.log.Info("session failed", "error", a.Err, "generated", s.m.generated)
		if s.m.leaving != nil {
			s.bequeathLocked() // before the client can ask on elsewhere
		}
		r := *a.Err
		r.Head = s.m.head
		if r.Peer == "" {
			r.Peer = s.n.ID()
		}
		s.tellLocked(&r)
	} else {
		st := s.m.account()
		st.Decoder.InputNanos, st.Decoder.RowsNanos = s.waits.nanos(waitInput), s.waits.nanos(waitRows)
		if s.times != nil {
			st.Decoder.Times = slices.Clone(s.times.chunks)
		}
		if s.firstTok.IsZero() { // none was asked for
			st.PrefillNanos = uint64(time.Since(s.firstSent))
		} else {
			st.PrefillNanos = uint64(s.firstTok.Sub(s.firstSent))
			st.HandoffNanos = uint64(s.handoff)
			st.SwitchNanos = uint64(s.switched)
			st.DecodeNanos = uint64(s.lastTok.Sub(s.firstTok))
		}
		s.log.Info("session done", "reason", a.Reason, "epoch", st.Epoch.String(), "prompt", st.Prompt, "generated", st.Generated,
			"prefill", time.Duration(st.PrefillNanos), "decode", time.Duration(st.DecodeNanos))
		if s.client != s.n.ID() { // else the client remembers
			s.n.noteDeeds(s.model, s.served.card, int(st.Prompt), st.Stages)
		}
		s.keep() // before the client can ask on
		s.tellLocked(&wire.Done{Head: s.m.head, Reason: a.Reason, Stats: st})
	}
	s.outDone = true
	s.outReady.Broadcast()
}

func (s *decoderSession) compute(a run) {
	step := a.Step
	took, err := s.seat.run(s.ctx, step, a.Whole)
	if err == nil {
		prefill := min(max(len(s.m.open.Tokens)-step.Start, 0), step.N)
		s.n.metrics.Computed(s.model.Short(), metrics.Decoder, took, prefill, step.N-prefill)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		if err == nil {
			s.times.computed(step, len(s.m.open.Tokens), took)
			s.m.timed(step.N, time.Since(s.announced))
		}
		s.do(s.m.ran(step, took, err))
	}
}

// replan looks for a route that avoids the lost peers and keeps this node as
// the decoder.
func (s *decoderSession) replan(lost []string) {
	ctx, cancel := context.WithTimeout(s.ctx, openTimeout)
	defer cancel()
	s.mu.Lock()
	tokens, budget := len(s.m.tokens), int(s.m.open.Grant.Budget)
	var former *wire.Route
	held := 0
	if s.m.hands() {
		r := s.m.open.Route
		r.Stages = s.m.plan.Stages
		former, held = &r, min(s.m.checkpoint(), tokens-1, s.m.resumes())
	}
	only := within(&s.m.open.Grant, &s.m.open.Route)
	s.mu.Unlock()
	route, err := s.n.reroute(ctx, s.model, s.numerics, tokens, max(budget-tokens, 1), only, lost, former, held)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.do(s.m.replanned(route, s.profile, err))
	}
}

// stagePeers returns the stages that the session still depends on.
func (s *decoderSession) stagePeers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stagePeersLocked()
}

func (s *decoderSession) stagePeersLocked() (peers []string) {
	if s.ended || s.m.plan == nil {
		return nil
	}
	for _, st := range s.m.plan.Stages {
		if _, waiting := s.m.closing[st.Peer]; waiting || !s.m.released && !slices.Contains(s.m.lost, st.Peer) {
			peers = append(peers, st.Peer)
		}
	}
	return peers
}

// peerGone says that a peer can't be reached.
func (s *decoderSession) peerGone(peer string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.do(s.m.gone(peer, err.Error()))
		s.inheritedLocked()
	}
}
