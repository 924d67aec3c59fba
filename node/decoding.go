package node

import (
	"hash"
	"slices"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
	"lukechampine.com/blake3"
)

// decoding is the decoder's side of a session: a state machine without I/O or
// clock. Its owner serialises calls.
//
// tokens holds the prompt and everything sampled since. Positions before
// routeEnd walk the route; from there on the decoder computes all layers itself.
// In the prefill-across shape routeEnd is the prompt's end, in the pipelined
// shape there is none, in the local one it is 0. Losing a stage moves it, and so
// does growing: getting the layers that this node lacked.
// Computing the last position gives logits, sampling them appends a token, and
// so on: prefill, decode and recovery are one loop. Where tokens walk the route,
// guesses of what follows may walk with the last one (verify).
//
//	opening ──(all stages opened)──► walking ──(computed = routeEnd)──► local
//	   ▲                                │                                 │
//	   └──────────(replanned)◄── lost ──┴──────────► finish ◄─────────────┘
//
// A stage that has opened may still have to be handed what it lacks (handover.go).
//
// Invariants, in positions: computed ≤ announced ≤ len(tokens) + len(guesses)
// while walking; for a layer of another stage KV rows held ≤ announced.
type decoding struct {
	self   string
	open   *wire.SessionOpen
	how    runtime.Sampling // open's settings
	held   runtime.Range    // layers whose rows seq keeps
	able   runtime.Range    // … and that this node can run
	config runtime.Config
	seq    runtime.Sequence // nil until reserved
	reused int              // positions that seq held when the plan was made, of an earlier session
	upper  upper            // … and more of its last layers
	marks  []wire.Mark      // ascending: of the tokens before positions at which stages may have ended, and where pages do; up to reused
	sign   func(*wire.Plan)

	head      wire.Head
	prefix0   wire.Prefix
	tokens    []int32
	generated int
	plan      *wire.Plan // nil: no stages (any more)
	local     bool       // able to run every layer: decode needs nobody
	grown     bool       // … since the plan was made; no chunk of decoded tokens follows the one under way
	routeEnd  int

	heir      *inheriting // what the former decoder hands on; nil: nothing, or nothing any more
	opened    []bool
	resume    wire.Mark   // where the plan begins, of which stages that lack it are handed what they need; position 0: nowhere in particular
	giving    []*handover // per stage: what it is being handed, nil for nothing; all nil until the stages have opened
	begins    [][]uint32  // per stage: up to where it has the cache of an earlier session
	released  bool        // the stages have been closed
	announced int
	sizes     []int       // of the prompt's chunks from there on
	prefix    wire.Prefix // of tokens[:announced]
	chunks    []*wire.Chunk
	seams     []*wire.Seam
	seamEnd   int
	rows      map[int][]byte       // by layer: the slices of one chunk so far
	pushed    []*wire.Chunk        // announced, rows not yet complete; with guesses: the stages keep them until the next frame
	tailed    int                  // where the newest of the chunks ends that bring tails, if no guess in it is wrong
	acked     []uint32             // per stage: rows of all its layers are here before
	due       [][]*wire.Chunk      // per stage: announced, and it hasn't said that it has computed them
	work      map[string]stageWork // by stage

	ngram    *ngram                                 // nil: nothing is guessed
	propose  func(tokens []int32, most int) []int32 // ngram's guess
	load     func() load                            // of the executor
	drafts   bool                                   // a draft model follows the session, too
	caughtUp bool                                   // it has read the prompt
	drafting bool                                   // it has been asked
	awaited  bool                                   // for tokens, which the next step takes along
	draft    []int32                                // what it says after
	drafted  int                                    // so many tokens
	steady   bool                                   // the caches can go back to any position of a short chunk, else only to its start
	most     int                                    // rows of a chunk with guesses
	guesses  []int32                                // announced, or being computed, behind tokens
	void     int                                    // of the latest chunk's guesses: how many have no rows, since something in them was no number
	base     int                                    // where the chunk with them begins
	tails    bool                                   // it brings tails
	baseHash wire.Prefix                            // of tokens[:base]
	plain    int                                    // the next chunk ends there, if it begins before: else stages could take it for the one that they have forgotten

	running  *runtime.Step
	computed int
	lost     []string        // peers given up on
	full     []*wire.Refusal // of those that had no room for the session
	rewind   bool            // recover as soon as the running step is back
	leaving  *wire.Refusal   // why the session ends when no step is under way any more
	ended    bool

	reason     string
	stats      wire.SessionStats
	logitsHash hash.Hash
	probed     probed
	closing    map[string]account // stages whose account is still to come
	digests    [][32]byte         // of the layers of the current route's stages, as they account for them
}

// account is one that a stage owes: for which plan, and for which layers.
type account struct {
	epoch       wire.Epoch
	first, last uint32
}

// newDecoding makes the machine for a session; reserved and start follow. A refusal says what the session asks for and can't have.
func newDecoding(self string, open *wire.SessionOpen, how runtime.Sampling, profile [32]byte, cfg runtime.Config, sign func(*wire.Plan)) (*decoding, *wire.Refusal) {
	asked, r := newProbed(open.Probe, cfg.Layers, cfg.Width, cfg.Vocab, len(open.Tokens))
	if r != nil {
		return nil, r
	}
	d := &decoding{
		self: self, open: open, how: how, config: cfg, sign: sign,
		probed: asked, tokens: slices.Clone(open.Tokens), logitsHash: blake3.New(32, nil), closing: map[string]account{}, work: map[string]stageWork{},
		prefix0: wire.NewPrefix(open.Grant.Model, profile, open.Salt),
	}
	d.head = wire.Head{Session: open.Session, Epoch: wire.Epoch{Client: open.Grant.ClientEpoch}}
	if open.Guess {
		d.steady, d.most = rewindable(cfg)
		d.ngram, d.load = newNgram(d.steady), func() load { return load{} }
		d.propose = d.ngram.guess
	}
	d.stats.Prompt = uint32(len(open.Tokens))
	d.stats.Decoder.Peer = self
	if open.MaxNew == 0 {
		d.reason = wire.ReasonPrompt
	}
	return d, nil
}

// adopt makes route the plan of a new epoch and opens its stages. The cache holds the positions before from.
func (d *decoding) adopt(r wire.Route, profile [32]byte, from int) []action {
	d.head.Epoch.Plan++
	d.reused = from
	d.stats.Epoch = d.head.Epoch
	d.stats.Decoder.First, d.stats.Decoder.Last = r.DecoderFirst, uint32(d.config.Layers)
	d.plan, d.opened, d.giving, d.released = nil, nil, nil, false
	d.digests = make([][32]byte, r.DecoderFirst)
	d.chunks, d.sizes, d.seams, d.pushed, d.rows, d.guesses, d.void = nil, nil, nil, nil, map[int][]byte{}, nil, 0
	d.announced, d.seamEnd, d.computed, d.plain, d.tailed, d.prefix = 0, 0, from, 0, 0, d.prefix0
	if len(r.Stages) == 0 {
		d.routeEnd = 0
		return append(d.announce(), d.next()...)
	}
	d.routeEnd = int(d.open.Grant.Budget)
	if r.DecodeLocal || d.grown {
		d.routeEnd = len(d.open.Tokens)
	}
	d.plan = &wire.Plan{Head: d.head, Model: d.open.Grant.Model, Profile: profile, Decoder: d.self, Stages: r.Stages,
		DecoderFirst: r.DecoderFirst, Layers: uint32(d.config.Layers), Capacity: uint32(len(d.open.Tokens)) + d.open.MaxNew, Known: uint32(len(d.tokens)),
		Window: uint32(min(len(r.Stages)+maxAhead, wire.MaxWindow)), PushKV: d.held == d.whole()}
	d.sign(d.plan)
	d.opened, d.begins = make([]bool, len(r.Stages)), make([][]uint32, len(r.Stages))
	d.acked, d.due = make([]uint32, len(r.Stages)), make([][]*wire.Chunk, len(r.Stages))
	var acts []action
	var marks []wire.Mark
	switch {
	case d.resume.Position > 0:
		marks = []wire.Mark{d.resume}
	case from > 0:
		marks = offered(d.marks)
	}
	for i, s := range r.Stages {
		d.closing[s.Peer] = account{d.head.Epoch, s.First, s.Last}
		acts = append(acts, send{s.Peer, &wire.StageOpen{Head: d.head, Grant: d.open.Grant, Plan: *d.plan, Index: uint32(i), Times: d.open.Times, Probe: d.open.Probe, Marks: marks}})
	}
	return acts
}

// chunkSize is how many positions travel together: what the route says, but no
// more than fit in one seam frame. A prompt's chunks are cut by cutPrompt.
func (d *decoding) chunkSize() int {
	return max(1, min(int(d.open.Route.Chunk), d.frameRows()))
}

func (d *decoding) frameRows() int { return wire.MaxSeamRows / (4 * d.config.Width) }

// announce tells the client that everybody is ready, once.
func (d *decoding) announce() []action {
	if d.head.Epoch.Plan > 1 {
		return nil
	}
	return []action{emit{&wire.SessionOpened{Head: d.head}}}
}

// handle takes a frame from peer from. A refusal means that nothing changed.
func (d *decoding) handle(from string, m wire.Message) ([]action, *wire.Refusal) {
	if m, ok := m.(*wire.StageClosed); ok {
		return d.onClosed(from, m)
	}
	h, ok := headOf(m)
	if !ok {
		return nil, wire.Refuse(wire.CodeBadFrame, "a decoder gets no frame of type %d", m.Type())
	}
	if r := fence(d.head, h); r != nil {
		return nil, r
	}
	if d.heir != nil && !d.ended && from == d.open.Former {
		return d.onLegacy(m)
	}
	stage := d.stageOf(from)
	if m, ok := m.(*wire.Progress); ok && stage >= 0 {
		d.did(stage, m.Upto)
		return d.next(), nil
	}
	if _, rows := m.(*wire.KVSlice); stage >= 0 && d.ended && (rows || m.Type() == wire.TypeSeam) {
		return nil, nil // it was on its way when the answer was complete
	}
	if _, ok := m.(*wire.Refusal); !ok && stage >= 0 && d.rewind && !d.released {
		return nil, nil // it works by a plan that is being replaced
	}
	if stage < 0 || d.ended || d.rewind && d.released {
		return nil, wire.Refuse(wire.CodeWrongPeer, "the plan of epoch %v expects nothing from this peer", d.head.Epoch)
	}
	switch m := m.(type) {
	case *wire.StageOpened:
		if d.opened[stage] {
			return nil, wire.Refuse(wire.CodeBadFrame, "the stage has been opened already")
		}
		d.opened[stage], d.begins[stage] = true, m.Begins
		d.moved(stage)
		if !slices.Contains(d.opened, false) {
			acts := append(d.announce(), d.handOver()...)
			return append(acts, d.ready()...), nil
		}
		return nil, nil
	case *wire.Seam:
		if stage != len(d.plan.Stages)-1 {
			return nil, wire.Refuse(wire.CodeWrongPeer, "only the last stage sends seams to the decoder")
		}
		return d.onSeam(stage, m)
	case *wire.KVSlice:
		return d.onSlice(stage, m)
	case *wire.KVAck:
		return d.onGiven(stage, m)
	case *wire.Rows:
		return d.onProbe(stage, m)
	case *wire.Refusal:
		return d.onRefusal(from, m)
	}
	return nil, wire.Refuse(wire.CodeBadFrame, "a decoder gets no frame of type %d", m.Type())
}

func (d *decoding) stageOf(peer string) int {
	if d.plan == nil {
		return -1
	}
	return slices.IndexFunc(d.plan.Stages, func(s wire.PlanStage) bool { return s.Peer == peer })
}

// did takes a stage's word that it has computed everything before a position:
// its chunks up to the first one that ends there. If none does, the stage only
// says that it is at work.
func (d *decoding) did(stage int, upto uint32) {
	d.told(stage)
	if i := slices.IndexFunc(d.due[stage], func(c *wire.Chunk) bool { return c.Start+c.Count == upto }); i >= 0 {
		d.due[stage] = d.due[stage][i+1:]
		d.moved(stage)
	}
}

func (d *decoding) onSeam(stage int, m *wire.Seam) ([]action, *wire.Refusal) {
	i := slices.IndexFunc(d.chunks, func(c *wire.Chunk) bool { return c.Start == m.Start })
	switch {
	case m.Cut != d.plan.DecoderFirst:
		return nil, wire.Refuse(wire.CodeBadFrame, "seam into layer %d, the decoder starts at %d", m.Cut, d.plan.DecoderFirst)
	case int(m.Start) != d.seamEnd || i < 0:
		return nil, wire.Refuse(wire.CodeBadFrame, "seam at position %d, expected %d", m.Start, d.seamEnd)
	case len(d.seams) >= maxAhead:
		return nil, wire.Refuse(wire.CodeBadFrame, "more than %d seams without credit", maxAhead)
	case len(m.Rows) != int(m.Count)*d.seam().Bytes(d.config.Width):
		return nil, wire.Refuse(wire.CodeBadFrame, "seam of %d rows in %d bytes, a row in %v has %d", m.Count, len(m.Rows), d.seam(), d.seam().Bytes(d.config.Width))
	}
	if r := match(d.chunks[i], m); r != nil {
		return nil, r
	}
	d.seamEnd += int(m.Count)
	d.did(stage, uint32(d.seamEnd))
	d.seams = append(d.seams, m)
	return d.next(), nil
}

// next does what can be done now.
func (d *decoding) next() []action {
	switch {
	case d.ended || d.rewind:
		return nil
	case d.reason != "" && d.running == nil && d.complete() && !d.rowsDue():
		return d.end()
	case d.leaving != nil && d.running == nil:
		return d.fail(d.leaving)
	case d.leaving != nil:
		return nil
	case d.walks():
		return d.walk()
	}
	return d.alone()
}

// goal is the position up to which everything is to be computed: the end of the
// tokens; of a complete answer the last token, which nothing follows.
func (d *decoding) goal() int {
	if d.generated > 0 && d.reason != "" {
		return len(d.tokens) - 1
	}
	return len(d.tokens)
}

// complete reports whether nothing is left to do for an answer that has its last token.
func (d *decoding) complete() bool {
	switch {
	case !d.probed.done(all):
		return false
	case d.generated > 0 && !d.open.Proof:
		return true
	case d.computed < d.goal():
		return false
	}
	return d.generated > 0 || !d.local || d.checkpoint() >= d.goal() // a prompt's cache is for the client's next session
}

// rowsDue reports whether rows are on their way that the cache for the client's next session would lack. Where the stages keep the last
// ones, since no frame tells them any more that guesses were right, nothing is waited for.
func (d *decoding) rowsDue() bool {
	n := len(d.pushed)
	return d.plan != nil && !d.released && n > 0 && d.pushed[n-1].Guessed == 0
}

// walk announces chunks to the stages and runs the decoder's own layers on the
// seams that come back.
func (d *decoding) walk() []action {
	if d.waitsForStages() {
		return nil
	}
	var acts []action
	for d.catching()+len(d.chunks) < int(d.plan.Window) {
		end := min(d.routeEnd, d.goal())
		if d.announced >= end {
			break
		}
		n, held := d.chunkSize(), d.announced < d.reused
		switch {
		case held:
			n = min(n, d.reused-d.announced)
		case len(d.sizes) > 0:
			n, d.sizes = d.sizes[0], d.sizes[1:]
		}
		if stop := d.nextStop(d.announced); stop > 0 {
			n = min(n, stop-d.announced)
		}
		if d.announced < d.upper.upto {
			n = min(n, d.upper.upto-d.announced)
		}
		part := d.tokens[d.announced:min(d.announced+n, end)]
		if n := d.plain - d.announced; n > 0 {
			part = part[:min(len(part), n)]
		}
		asks := d.guess(load{}, d.announced, len(part))
		if acts = append(acts, asks...); d.awaited {
			return acts
		}
		if len(d.guesses) > 0 {
			d.base, d.baseHash, d.tails = d.announced, d.prefix, d.bringsTails(d.announced, d.announced+len(part)+len(d.guesses))
			part = slices.Concat(part, d.guesses)
		}
		c := &wire.Chunk{Head: d.head, Start: uint32(d.announced), Count: uint32(len(part)), Guessed: uint32(len(d.guesses)), Held: held}
		for _, k := range marksOf(wire.Mark{Position: c.Start, Prefix: d.prefix}, part) {
			if k.Position%wire.PageRows == 0 && k.Position < c.Start+c.Count {
				c.Pages = append(c.Pages, k.Prefix)
			}
			d.prefix = k.Prefix
		}
		c.Prefix, c.Tails = d.prefix, !held && d.bringsTails(d.announced, d.announced+len(part))
		for i, s := range d.plan.Stages {
			to := *c
			if i == 0 {
				to.Tokens = part
			}
			acts = append(acts, send{s.Peer, &to})
			d.due[i] = append(d.due[i], c)
		}
		d.announced += len(part)
		if held {
			continue
		}
		d.chunks = append(d.chunks, c)
		if c.Guessed == 0 {
			d.expect(c)
		}
		d.leave()
	}
	if d.running != nil || len(d.seams) == 0 {
		return acts
	}
	c, seam := d.chunks[0], d.seams[0]
	d.chunks, d.seams = d.chunks[1:], d.seams[1:]
	last := d.plan.Stages[len(d.plan.Stages)-1].Peer
	acts = append(acts, send{last, &wire.SeamCredit{Head: d.head, Upto: c.Start + c.Count}})
	step := &runtime.Step{Seq: d.seq, Layers: d.layersAt(int(d.plan.DecoderFirst), int(c.Start)),
		Start: int(c.Start), N: int(c.Count), Seam: d.seam().Decode(seam.Rows, d.config.Width)}
	return append(acts, d.run(step, forgets(d.seq, d.held)))
}

// alone computes with all layers on this node, once every layer's rows have come, and what the stages have for a probe.
func (d *decoding) alone() []action {
	if d.running != nil || d.computed >= d.goal() || d.checkpoint() < d.computed || d.plan != nil && d.owed(d.plan.DecoderFirst) {
		return nil
	}
	acts := d.release()
	if d.grown && d.stats.Switched == 0 {
		d.stats.Switched = uint32(d.computed)
	}
	tokens := d.tokens[d.computed:min(d.goal(), d.computed+d.chunkSize())]
	if n := d.upper.upto - d.computed; n > 0 {
		tokens = tokens[:min(n, len(tokens))]
	}
	if d.ngram != nil && d.generated > 0 {
		asks := d.guess(d.load(), d.computed, len(tokens))
		if acts = append(acts, asks...); d.awaited {
			return acts
		}
		tokens = slices.Concat(tokens, d.guesses)
	}
	step := &runtime.Step{Seq: d.seq, Layers: d.layersAt(0, d.computed), Start: d.computed, N: len(tokens), Tokens: tokens}
	return append(acts, d.run(step, false))
}

// waitsFor says what keeps the decoder from computing.
func (d *decoding) waitsFor() wait {
	switch {
	case d.ended || d.running != nil || d.awaited:
		return waitNone
	case d.walks():
		return waitInput
	}
	return waitRows
}

// run starts step; the logits of its rows are wanted from the newest token on.
func (d *decoding) run(step *runtime.Step, whole bool) action {
	step.Probe = probeOf(&d.open.Probe, uint32(step.Layers.First), uint32(step.Layers.Last), step.Start, step.N)
	for r := range step.N {
		if pos := step.Start + r; d.samples(pos) || d.wantsLogits(pos) {
			step.LogitRows = append(step.LogitRows, r)
		}
	}
	d.running = step
	return run{Step: step, Whole: whole}
}

// release closes the stages: the decoder owes them nothing any more.
func (d *decoding) release() (acts []action) {
	if d.plan == nil || d.released {
		return nil
	}
	d.released = true
	if n := min(d.announced, len(d.tokens)); n > d.reused {
		d.marks = d.holds(n)
	}
	for _, s := range d.plan.Stages {
		if _, ok := d.closing[s.Peer]; ok {
			acts = append(acts, send{s.Peer, &wire.StageClose{Head: d.head, Proof: d.open.Proof}})
		}
	}
	return acts
}

// ran takes the result of a step, and the time that was spent on it.
func (d *decoding) ran(step *runtime.Step, took time.Duration, err error) []action {
	d.running = nil
	switch {
	case d.ended:
		return d.settle()
	case d.rewind && d.leaving != nil:
		return d.fail(d.leaving)
	case d.rewind:
		return d.recover()
	case err != nil && len(d.guesses) > 0:
		return []action{d.withoutGuesses(step)}
	case err != nil && badSeam(err) && d.plan != nil:
		return d.gone(d.plan.Stages[len(d.plan.Stages)-1].Peer, err.Error())
	case err != nil:
		return d.fail(asRefusal(err))
	}
	d.stats.Decoder.Chunks++
	d.stats.Decoder.ComputeNanos += uint64(took)
	d.computed = step.Start + step.N
	acts, sampled, r := d.found(step)
	switch {
	case r != nil:
		return d.fail(r)
	case len(sampled) > 0:
		return append(acts, d.verify(step, sampled)...)
	case d.computed < d.goal():
		acts = append(acts, emit{&wire.Progress{Head: d.head, Upto: uint32(d.computed)}})
	}
	d.stats.Decoder.Tokens += uint64(step.N)
	return append(acts, d.next()...)
}

// sample takes the next token from logits; it may be the answer's last.
func (d *decoding) sample(logits []float32) (*wire.Token, *wire.Refusal) {
	if d.open.Proof {
		d.logitsHash.Write(encodeRows(logits))
	}
	token, err := runtime.Sample(logits, d.tokens, len(d.tokens), d.how)
	if err != nil {
		return nil, asRefusal(err)
	}
	told := &wire.Token{Head: d.head, Position: uint32(len(d.tokens)), ID: token}
	if n := int(d.open.Logprobs); n > 0 {
		chosen, top := runtime.Logprobs(logits, token, n)
		told.Logprob = chosen.Logprob
		for _, p := range top {
			told.Top = append(told.Top, wire.Logprob(p))
		}
	}
	d.tokens = append(d.tokens, token)
	d.generated++
	d.stats.Generated++
	switch {
	case slices.Contains(d.open.Stop, token):
		d.reason = wire.ReasonStop
	case d.generated >= int(d.open.MaxNew):
		d.reason = wire.ReasonLength
	}
	return told, nil
}

// enough ends the answer where it is: its client wants no more of it. A step that runs is waited for.
func (d *decoding) enough() []action {
	switch {
	case d.generated == 0:
		return d.fail(wire.Refuse(wire.CodeCancelled, "the client cancelled"))
	case d.reason == "":
		d.reason = wire.ReasonCancel
	}
	return d.next()
}

// depart ends the session for a reason as soon as the step under way is done: its client goes on with another decoder.
func (d *decoding) depart(r *wire.Refusal) []action {
	if d.leaving = r; d.rewind && d.running == nil {
		return d.fail(r)
	}
	return d.next()
}

// end closes a session whose answer is complete.
func (d *decoding) end() []action {
	d.ended = true
	return append(d.release(), d.settle()...)
}
