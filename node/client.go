package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/node/metrics"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/tokenizer"
	"github.com/starling-swarm/starling/swarm/wire"
)

// maxDecoders is how many decoders a client tries, one after the other, that bring its answer no further: it may be what is asked for that ends them.
const maxDecoders = 4

// shortOpening is how many tokens travel in no time: an answer to the first ping
// may be expected at once.
const shortOpening = 4096

// clientSession is the client's side of a session: it holds the tokens so far
// and the settings, which is all that another decoder needs to go on.
type clientSession struct {
	n     *Node
	log   *slog.Logger
	id    wire.SessionID
	model artifacts.ID
	card  *artifacts.Card
	tok   *tokenizer.Tokenizer
	req   control.RunRequest
	how   wire.Sampling
	began time.Time

	prompt []int32
	made   []int32
	count  uint32 // decoders used

	numerics wire.Numerics       // of the first plan, for all of the answer; req says the same from then on
	fixed    bool                // numerics is so
	asked    control.Constraints // req's in the beginning

	text     *tokenizer.Stream
	stops    *Stops
	whole    []byte
	ttft     time.Duration
	plan     route.Plan
	emit     func(control.Event) error
	deaf     error // what emit said: nobody wants the answer any more
	excluded map[string]string
	silent   map[string]bool          // decoders that were lost without a word → whether they have had another try
	failed   int                      // decoders that were lost
	vain     int                      // … of late, without a new token
	worked   bool                     // the latest decoder has computed something
	former   string                   // the latest lost one, if it leaves: it may hand on its cache; else ""
	full     map[string]*wire.Refusal // peers that have had no room since all were last asked
	queue    bool                     // all were full: wait in line
	notes    []string
	probed   probed
}

// run answers a request.
func (n *Node) run(ctx context.Context, q control.RunRequest, emit func(control.Event) error) (*control.Account, error) {
	began := time.Now()
	s, err := n.prepare(ctx, q, emit)
	if err != nil {
		return nil, err
	}
	s.began = began
	s.emit = func(ev control.Event) error {
		err := emit(ev)
		s.deaf = cmp.Or(s.deaf, err)
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	if err := n.addClient(s); err != nil {
		return nil, err
	}
	defer n.removeClient(s)
	s.log.Debug("run began", "model", s.model.Short(), "prompt", len(s.prompt), "max_new", s.req.MaxNew)
	a, err := s.answer(ctx)
	if s.plan.Decoder != "" && (len(s.made) > 0 || err == nil) {
		n.recent.add(recentAnswer{model: s.model, tokens: slices.Concat(s.prompt, s.made), decoder: s.plan.Decoder, kv: s.req.KV, seam: s.req.Seam})
	}
	n.metrics.Ended(metrics.Client, err != nil)
	if err != nil {
		s.log.Info("run failed", "error", err, "new", len(s.made))
		return nil, err
	}
	s.log.Info("run done", "reason", a.Reason, "epoch", a.Epoch, "prompt", len(s.prompt), "new", len(s.made), "first_token", s.ttft)
	return a, nil
}

// noteDeeds remembers what the peers of an answer have computed.
func (s *clientSession) noteDeeds(st *wire.SessionStats) {
	s.n.noteDeeds(s.model, s.card, int(st.Prompt), append(slices.Clone(st.Stages), st.Decoder))
}

// answer tries decoders until one has given the whole answer.
func (s *clientSession) answer(ctx context.Context) (*control.Account, error) {
	n := s.n
	for {
		made := len(s.made)
		done, err := s.attempt(ctx)
		if err == nil {
			s.noteDeeds(&done.Stats)
			return s.account(done), nil
		}
		if len(s.made) > made { // it is worth while to try on
			s.vain = 0
			for p := range s.silent {
				s.silent[p] = false
			}
		}
		var r *wire.Refusal
		errors.As(err, &r)
		switch {
		case n.ctx.Err() != nil:
			return nil, errors.New("this node is closing")
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case s.deaf != nil:
			return nil, s.deaf
		}
		if r != nil && r.Code == wire.CodeBusy && r.RetryAfter > 0 && s.plan.Decoder != "" {
			s.noteFull(r)
			continue
		}
		if s.plan.Decoder == "" && len(s.full) > 0 { // whoever could do it is busy
			if err := s.await(ctx); err != nil {
				return nil, err
			}
			continue
		}
		s.failed++
		if s.vain++; r != nil && !retryable(r.Code) || s.vain >= maxDecoders || s.plan.Decoder == "" {
			return nil, err
		}
		if leaves := r != nil && r.Code == wire.CodeLeaving; leaves && s.worked {
			s.former = s.plan.Decoder
		} else if !leaves {
			s.former = ""
			n.losses.note(s.plan.Decoder, time.Now())
		}
		n.metrics.Recovered(metrics.Decoder)
		s.log.Warn("decoder lost", "peer", s.plan.Decoder, "new", len(s.made), "error", err)
		s.excluded[s.plan.Decoder] = fmt.Sprintf("failed in this session: %v", err)
		if _, again := s.silent[s.plan.Decoder]; r != nil {
			delete(s.silent, s.plan.Decoder)
		} else if !again {
			s.silent[s.plan.Decoder] = false
		}
		s.notes = append(s.notes, fmt.Sprintf("decoder %s after %d new tokens: %v", s.plan.Decoder, len(s.made), err))
		if reason := s.complete(); reason != "" { // only the decoder's account is missing
			return s.account(&wire.Done{Reason: reason, Stats: wire.SessionStats{Epoch: s.head().Epoch, Prompt: uint32(len(s.prompt)),
				Generated: uint32(len(s.made)), Decoder: wire.StageStats{Peer: s.plan.Decoder, First: uint32(s.plan.DecoderLayers.First), Last: uint32(s.plan.DecoderLayers.Last)}}}), nil
		}
	}
}

// complete says why the answer ends where it is, "" if there is more to come.
func (s *clientSession) complete() string {
	switch n := len(s.made); {
	case n == 0 || !s.probed.done(all):
	case s.stops.Found != "":
		return wire.ReasonStop
	case s.tok.IsEOG(s.made[n-1]):
		return wire.ReasonStop
	case n == s.req.MaxNew:
		return wire.ReasonLength
	}
	return ""
}

// noteFull remembers that a peer of the plan has no room.
func (s *clientSession) noteFull(r *wire.Refusal) {
	peer := s.plan.Decoder
	for _, st := range s.plan.Stages {
		if st.Peer == r.Peer {
			peer = st.Peer
		}
	}
	s.log.Debug("peer busy", "peer", peer, "retry_after", r.RetryAfter, "error", r)
	c := *r
	c.Peer = peer
	s.full[peer] = &c
	if len(s.made) == 0 && s.failed == 0 { // nothing has been computed
		s.fixed, s.req.KV, s.req.Seam = false, s.asked.KV, s.asked.Seam
	}
}

// await lets the time pass after which one of the full peers may have room. The first time, it is the next one asked that
// lets the session wait, in line with others. The error is what it says when the request's patience is over.
func (s *clientSession) await(ctx context.Context) error {
	soonest := (*wire.Refusal)(nil)
	for _, r := range s.full {
		if soonest == nil || r.RetryAfter < soonest.RetryAfter {
			soonest = r
		}
	}
	waited := time.Since(s.began)
	after := min(max(soonest.RetryAfter, leastRetry), mostRetry)
	if !s.queue {
		after = 0
	}
	if left := s.req.Wait - waited; left <= after {
		return fmt.Errorf("%w (peer %s; it expects room in %v; waited %v of at most %v)", soonest, soonest.Peer,
			soonest.RetryAfter.Round(100*time.Millisecond), waited.Round(100*time.Millisecond), s.req.Wait)
	}
	if err := s.emit(control.Event{Kind: "progress", Phase: "wait", Text: fmt.Sprintf("peer %s is %v; it expects room in %v", soonest.Peer, soonest,
		soonest.RetryAfter.Round(100*time.Millisecond)), Done: waited.Milliseconds(), Total: s.req.Wait.Milliseconds()}); err != nil {
		return err
	}
	clear(s.full)
	s.queue = true
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryable reports whether another decoder could do what one refused: all but
// what lies in the request or the model.
func retryable(c wire.Code) bool {
	switch c {
	case wire.CodeContext, wire.CodeBadRequest, wire.CodeNonFinite:
		return false
	}
	return true
}

// prepare resolves the model, fetches its tokenizer and tokenizes the prompt.
func (n *Node) prepare(ctx context.Context, q control.RunRequest, emit func(control.Event) error) (*clientSession, error) {
	id, err := n.resolve(ctx, q.Model)
	if err != nil {
		return nil, err
	}
	m, card, err := n.header(ctx, id, emit)
	if err != nil {
		return nil, err
	}
	tok, err := n.tokenizer(m)
	if err != nil {
		return nil, err
	}
	prompt, err := encodePrompt(tok, q)
	if err != nil {
		return nil, bad(err)
	}
	settings, err := Sampling(&q.Sampling, tok)
	if err != nil {
		return nil, bad(err)
	}
	if q.PromptOnly {
		q.MaxNew, err = 0, fits(len(prompt), card.Context)
	} else {
		q.MaxNew, err = MaxNew(len(prompt), q.MaxNew, card.Context)
	}
	if err != nil {
		return nil, err
	}
	stops, err := NewStops(q.Stop)
	if err == nil && len(q.Stop) > 0 && q.Proof {
		err = errors.New("a proof is of all that was computed, which a text that ends the answer cuts: leave one of them out")
	}
	if err != nil {
		return nil, bad(err)
	}
	asked, err := askedRows(q.Probe, card, len(prompt))
	if err != nil {
		return nil, bad(err)
	}
	s := &clientSession{n: n, probed: asked, model: id, card: card, tok: tok, req: q, asked: q.Constraints, how: wireSampling(&settings, q.DRYBreakers), prompt: prompt, emit: emit,
		text: tok.NewStream(), stops: stops, excluded: map[string]string{}, silent: map[string]bool{}, full: map[string]*wire.Refusal{}}
	for p, why := range q.Excluded {
		s.excluded[p] = why
	}
	rand.Read(s.id[:])
	s.log = n.sessionLog(s.id, metrics.Client)
	return s, nil
}

// tokenizer returns a model's own: the loaded model's, or one made from the header.
func (n *Node) tokenizer(m *artifacts.Model) (*tokenizer.Tokenizer, error) {
	if s := n.served(m.ID()); s != nil {
		return s.exec.Tokenizer(), nil
	}
	set, err := gguf.OpenSet(m.Path())
	if err != nil {
		return nil, err
	}
	return runtime.LoadTokenizer(set)
}

// encodePrompt tokenizes a request's messages by the model's template, or its
// bare prompt; or takes its tokens as they are.
func encodePrompt(tok *tokenizer.Tokenizer, q control.RunRequest) ([]int32, error) {
	var tokens []int32
	switch {
	case len(q.Tokens) > 0:
		if len(q.Messages) > 0 || q.Prompt != "" {
			return nil, errors.New("a prompt's tokens and its text: give one of them")
		}
		for _, id := range q.Tokens {
			if id < 0 || int(id) >= tok.Size() {
				return nil, fmt.Errorf("token %d of the prompt, the vocabulary has %d", id, tok.Size())
			}
		}
		tokens = q.Tokens
	default:
		var err error
		if tokens, err = tokenize(tok, control.TokenizeRequest{Messages: q.Messages, Text: q.Prompt, Special: true}); err != nil {
			return nil, err
		}
	}
	if len(tokens) == 0 {
		return nil, errors.New("the prompt is empty")
	}
	return tokens, nil
}

// tokenize makes tokens of messages, by the model's template, or of a text.
func tokenize(tok *tokenizer.Tokenizer, q control.TokenizeRequest) ([]int32, error) {
	if len(q.Messages) == 0 {
		return tok.Encode(q.Text, tokenizer.EncodeOptions{AddSpecial: q.Special}), nil
	}
	if q.Text != "" {
		return nil, errors.New("a conversation and a text: give one of them")
	}
	var msgs []tokenizer.Message
	for _, m := range q.Messages {
		msgs = append(msgs, tokenizer.Message{Role: m.Role, Content: m.Content})
	}
	text, err := tok.RenderChat(msgs, true, nil)
	if err != nil {
		return nil, err
	}
	return tok.EncodeChat(text), nil
}

// attempt runs what is left of the answer on one decoder.
func (s *clientSession) attempt(ctx context.Context) (*wire.Done, error) {
	s.plan, s.worked = route.Plan{}, false
	left := s.req.MaxNew - len(s.made)
	plan, k, err := s.choose(ctx, left)
	if err != nil && s.forgive() {
		plan, k, err = s.choose(ctx, left)
	}
	if err != nil {
		if len(s.notes) > 0 {
			return nil, fmt.Errorf("%s; no other route: %w", s.notes[len(s.notes)-1], err)
		}
		return nil, err
	}
	if s.plan = plan; !s.fixed {
		if s.numerics, err = plannedNumerics(plan); err != nil {
			return nil, err
		}
		s.fixed, s.req.KV, s.req.Seam = true, plan.KV, plan.Seam
	}
	s.log.Debug("planned", "shape", plan.Shape.String(), "decoder", plan.Decoder, "stages", len(plan.Stages))
	if err := s.emit(control.Event{Kind: "plan", Session: s.id.String(), Plan: s.n.planReply(s.model, plan, k)}); err != nil {
		return nil, err
	}
	s.count++
	conn, err := s.n.openSession(ctx, plan.Decoder)
	if err != nil {
		return nil, fmt.Errorf("can't reach the decoder: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	opening := s.opening(plan, left)
	if err := writeFrame(conn, opening); err != nil {
		return nil, err
	}
	var writing sync.Mutex
	pinging, stopPing := context.WithCancel(ctx)
	defer stopPing()
	in := newInbox(left, &s.probed)
	if len(opening.Tokens) < shortOpening {
		in.heard = time.Now()
	}
	go s.routinePing(pinging, conn, &writing, in)
	go in.fill(conn)
	return s.read(in, left, func() {
		writing.Lock()
		defer writing.Unlock()
		_ = writeFrame(conn, &wire.Cancel{Head: s.head()}) // a decoder that is lost won't say more either
	})
}

func (s *clientSession) head() wire.Head {
	return wire.Head{Session: s.id, Epoch: wire.Epoch{Client: s.count}}
}

func (s *clientSession) opening(plan route.Plan, left int) *wire.SessionOpen {
	tokens := append(append([]int32{}, s.prompt...), s.made...)
	o := &wire.SessionOpen{Head: s.head(), Route: wireRoute(plan), Salt: s.n.salt, Tokens: tokens, MaxNew: uint32(left), Fresh: s.req.Fresh || planned(s.req.Constraints) && !s.req.Continued,
		Stop: endTokens(s.tok), Proof: s.req.Proof, Sampling: s.how, Logprobs: uint32(s.req.Logprobs), Times: s.req.Timeline, Guess: !s.req.NoGuess, Grow: !planned(s.req.Constraints), Probe: s.probed.asked, Former: s.former}
	if s.queue {
		o.Wait = uint32(min(max(s.req.Wait-time.Since(s.began), 0), maxLineTime).Milliseconds())
	}
	o.Grant = wire.Grant{Session: s.id, Model: s.model, Client: s.n.ID(), Decoder: plan.Decoder, ClientEpoch: s.count,
		Trust: cmp.Or(s.req.Trust, trustAny), Budget: uint32(len(tokens) + left), Numerics: s.numerics, Expires: uint64(time.Now().Add(grantLife).Unix())}
	signGrant(s.n.identity, &o.Grant)
	return o
}

// planned reports whether a request says who computes what: then they do.
func planned(k control.Constraints) bool {
	return k.Shape != "" && k.Shape != route.Local.String() || len(k.Cuts) > 0 || len(k.Assign) > 0
}

// endTokens lists the tokens that end an answer.
func endTokens(tok *tokenizer.Tokenizer) (ids []int32) {
	for id := range int32(tok.Size()) {
		if tok.IsEOG(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// routinePing tells the decoder that the client lives, and gives up on one as
// soon as it has been silent for too long. A tick that comes late because this
// machine was busy or asleep blames nobody.
func (s *clientSession) routinePing(ctx context.Context, conn sessionConn, writing *sync.Mutex, in *inbox) {
	w := newWatch()
	defer w.Stop()
	for nonce := uint64(1); ; {
		select {
		case <-ctx.Done():
			return
		case <-w.C:
		}
		late, _, pings, due := w.tick()
		if late > lateTick {
			in.excuse(due.now, late)
		}
		if pings {
			writing.Lock()
			err := writeFrame(conn, &wire.Ping{Nonce: nonce})
			writing.Unlock()
			if err != nil {
				return // read sees it too
			}
			nonce++
		}
		if silent := in.silent(due.now); due.passed(due.now.Add(s.n.cfg.Silence - silent)) {
			in.put(nil, fmt.Errorf("the decoder has been silent for %v", silent.Round(100*time.Millisecond)))
			conn.Close()
			return
		}
		w.sleep(due)
	}
}

// read takes what the decoder says until the session's end; enough tells it that no more is wanted.
func (s *clientSession) read(in *inbox, left int, enough func()) (*wire.Done, error) {
	before := len(s.made)
	for {
		m, err := in.take()
		if err != nil {
			return nil, err
		}
		_, refused := m.(*wire.Refusal)
		s.worked = s.worked || !refused
		switch m := m.(type) {
		case *wire.Progress:
			total := len(s.prompt) + len(s.made)
			if err := s.emit(control.Event{Kind: "progress", Phase: "prefill", Done: min(int64(m.Upto), int64(total)), Total: int64(total)}); err != nil {
				return nil, err
			}
		case *wire.Token:
			if s.stops.Found != "" { // it was on its way
				continue
			}
			if err := s.take(m); err != nil {
				return nil, err
			}
			if s.stops.Found != "" {
				enough()
			}
		case *wire.Rows:
			if err := s.takeRows(m); err != nil {
				return nil, err
			}
		case *wire.Done:
			return m, s.checkDone(m, len(s.made)-before, left)
		case *wire.Refusal:
			return nil, m
		default:
			return nil, wire.Refuse(wire.CodeBadFrame, "a decoder sent frame type %d to its client", m.Type())
		}
	}
}

// checkDone checks that a decoder ends an answer where answers end.
func (s *clientSession) checkDone(m *wire.Done, made, left int) error {
	switch {
	case !s.probed.done(all):
		return wire.Refuse(wire.CodeBadFrame, "the decoder ended the session before position %d of the rows asked for", s.probed.due(all))
	case s.stops.Found != "":
		m.Reason = wire.ReasonStop
		return nil
	case made > 0 && m.Reason == wire.ReasonStop && s.tok.IsEOG(s.made[len(s.made)-1]):
		return nil
	case made == left && m.Reason == wire.ReasonLength && !s.req.PromptOnly:
		return nil
	case made == 0 && m.Reason == wire.ReasonPrompt && s.req.PromptOnly:
		return nil
	}
	return wire.Refuse(wire.CodeBadFrame, "the decoder ended the answer after %d of %d tokens, for %q", made, left, m.Reason)
}

// take appends a token to the answer. It must be the next one: a decoder that
// skips or repeats positions is refused.
func (s *clientSession) take(m *wire.Token) error {
	if int64(m.Position) != int64(len(s.prompt)+len(s.made)) || int(m.ID) >= s.tok.Size() {
		return wire.Refuse(wire.CodeBadFrame, "token %d at position %d, expected position %d", m.ID, m.Position, len(s.prompt)+len(s.made))
	}
	var top []runtime.Logprob
	for _, p := range m.Top {
		if int(p.ID) >= s.tok.Size() || len(top) == s.req.Logprobs {
			return wire.Refuse(wire.CodeBadFrame, "log-probabilities of %d tokens, token %d among them", len(m.Top), p.ID)
		}
		top = append(top, runtime.Logprob(p))
	}
	if len(s.made) == 0 {
		s.ttft = time.Since(s.began)
	}
	s.made = append(s.made, m.ID)
	piece := ""
	if !s.tok.IsEOG(m.ID) {
		piece = s.text.Push(m.ID)
	}
	if s.tok.IsEOG(m.ID) || len(s.made) == s.req.MaxNew { // the answer's last one
		piece = s.stops.Push(piece+s.text.Flush()) + s.stops.Flush()
	} else {
		piece = s.stops.Push(piece)
	}
	s.whole = append(s.whole, piece...)
	ev := control.Event{Kind: "text", Text: piece, Token: m.ID}
	if s.req.Logprobs > 0 {
		ev.Logprobs = Logprobs(s.tok, runtime.Logprob{ID: m.ID, Logprob: m.Logprob}, top)
	}
	return s.emit(ev)
}

// openSession opens a session stream to a decoder; when that is this node, a
// pipe.
func (n *Node) openSession(ctx context.Context, decoder string) (sessionConn, error) {
	if decoder != n.ID() {
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		s, err := n.open(ctx, decoder, protoSession)
		if err != nil {
			return nil, err
		}
		return &meteredConn{s, n.metrics}, nil
	}
	here, there := net.Pipe()
	if !n.spawn(func() { n.serveSession(n.ID(), there) }) {
		there.Close()
	}
	return here, nil
}
