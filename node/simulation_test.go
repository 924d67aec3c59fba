package node

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
	"lukechampine.com/blake3"
)

// simulation runs one session's machines without network or clock: frames wait
// in one queue for each (from, to, kind), finished steps wait beside them, and
// a seeded generator picks what happens next. Order within a queue holds, as on
// a stream; nothing else does.
type simulation struct {
	t       *testing.T
	rng     *rand.Rand
	backend runtime.Backend
	setup   simSetup
	d       *decoding
	dec     runtime.Executor
	stages  map[string]*staging
	execs   map[string]runtime.Executor
	caches  map[string]*prefixes // of the stages
	own     *prefixes            // the decoder's
	queues  map[simQueue][]wire.Message
	pending []func()
	dead    map[string]bool
	deaf    func(q simQueue, m wire.Message) bool // true: the frame is lost, silently
	asleep  map[string]bool                       // stages that compute nothing
	drafter *drafter                              // nil: no draft model
	spare   []string                              // peers that replan may use, in order

	tokens  []int32
	told    []wire.Token
	rows    map[uint32][]byte // of the probe, by boundary
	done    *finish
	drafted int      // tokens of the draft model
	handed  int      // positions, of all stages that were handed some
	ran     []simRun // what stages have computed
	refused []*wire.Refusal
	onFrame func(q simQueue, m wire.Message) // sees every frame before it is delivered
	profile [32]byte
}

// simRun is a step that a stage has run.
type simRun struct {
	stage    string
	start, n int
}

type simQueue struct {
	from, to string
	kv       bool
}

// simDecoder is the decoder, simFormer the one that the session had before.
const simDecoder, simFormer = "D", "F"

// newSimulation sets up a session over stages ending at cuts, decoded by a
// node that holds all layers (local) or its own alone.
func newSimulation(t *testing.T, seed uint64, prompt []int32, maxNew, chunk int, cuts []int, local bool) *simulation {
	return simSetup{prompt: prompt, maxNew: maxNew, chunk: chunk, last: 1 + int(seed)%chunk, cuts: cuts, local: local, whole: local, how: simSampling}.start(t, seed)
}

// simSetup is a session and the swarm that it runs in.
type simSetup struct {
	prompt        []int32
	maxNew, chunk int
	last          int // tokens of the last chunks; 0: as many as of others
	cuts          []int
	local         bool // decode alone
	whole         bool // the decoder holds all layers
	rows          bool // … or the rows of all, at least
	guess         bool
	tails         bool // caches that can only go back to where a chunk began
	stopAt        int  // see runtimetest.Fake
	logprobs      int
	how           runtime.Sampling
	probe         wire.Probe
	fail          func(layer, pos int, h []float32) error // see runtimetest.Fake
	model         string                                  // a GGUF file that the real engine runs; "": a fake
	numerics      wire.Numerics
	caches        *simCaches
	client        string // whose caches they are
	former        *legacy
	spares        int            // layers that the decoder holds beside the route's
	session       wire.SessionID // zero where it doesn't matter
	decoder       string         // what it is called where its stages keep caches; "": simDecoder
}

// makers is makers by the decoder's name.
func (u simSetup) makers(p *wire.Plan, index int) string {
	named := *p
	named.Decoder = cmp.Or(u.decoder, p.Decoder)
	return makers(&named, index)
}

// sequence reserves one of the session's profile.
func (u simSetup) sequence(t testing.TB, e runtime.Executor, capacity int, layers runtime.Range) runtime.Sequence {
	t.Helper()
	p, r := profileOf(e, u.numerics)
	if r != nil {
		t.Fatal(r)
	}
	seq, err := e.NewSequenceFor(p, capacity, layers)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// simCaches are what the peers of a simulation have from one session to the next.
type simCaches struct {
	backend runtime.Backend
	peers   map[string]*prefixes // by peer and layers
	disk    *spill               // nil: there is none

	fromDisk int // positions
}

// of returns a peer's, which it has for some layers.
func (s *simulation) cachesOf(peer string, layers runtime.Range) *prefixes {
	c, key := s.setup.caches, fmt.Sprint(peer, layers)
	if c == nil {
		return &prefixes{exec: s.setup.open(s.t, s.backend, layers)}
	}
	if c.peers[key] == nil {
		c.peers[key] = &prefixes{exec: s.setup.open(s.t, c.backend, layers), limit: 1 << 62, disk: c.disk, count: func(place string, rows int) {
			if place == "disk" {
				c.fromDisk += rows
			}
		}}
	}
	return c.peers[key]
}

// backend opens what the session's peers run.
func (u simSetup) backend() runtime.Backend {
	if u.model != "" {
		return runtime.Engine{}
	}
	f := &runtimetest.Fake{StopAt: u.stopAt, Fail: u.fail, Config: runtimetest.FakeConfig()}
	f.Config.Context = len(u.prompt) + u.maxNew // every answer of full length ends with the context
	if u.tails {
		f.Config.Cache[3].State = 1
	}
	return f
}

func (u simSetup) open(t testing.TB, b runtime.Backend, r runtime.Range) runtime.Executor {
	t.Helper()
	e, err := b.Open(runtime.Options{Path: cmp.Or(u.model, "sim"), Layers: r, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func (u simSetup) start(t *testing.T, seed uint64) *simulation {
	prompt, maxNew, chunk, cuts, local := u.prompt, u.maxNew, u.chunk, u.cuts, u.local
	s := &simulation{t: t, rng: rand.New(rand.NewPCG(seed, 1)), backend: u.backend(), setup: u, stages: map[string]*staging{},
		execs: map[string]runtime.Executor{}, caches: map[string]*prefixes{}, queues: map[simQueue][]wire.Message{}, dead: map[string]bool{}, rows: map[uint32][]byte{}}
	route := wire.Route{Chunk: uint32(chunk), LastChunk: uint32(cmp.Or(u.last, chunk)), DecodeLocal: local}
	first := 0
	for i, c := range cuts {
		route.Stages = append(route.Stages, wire.PlanStage{Peer: fmt.Sprintf("S%d", i), First: uint32(first), Last: uint32(c)})
		first = c
	}
	route.DecoderFirst = uint32(first)
	s.own = s.cachesOf(simDecoder, runtime.Range{})
	if !u.whole {
		s.own = s.cachesOf(simDecoder, runtime.Range{First: first - u.spares, Last: s.own.exec.Config().Layers})
	}
	s.dec = s.own.exec
	held := s.dec.Layers()
	epoch, former := uint32(1), ""
	if u.former != nil {
		epoch, former = 2, simFormer
	}
	open := &wire.SessionOpen{Head: wire.Head{Session: u.session, Epoch: wire.Epoch{Client: epoch}}, Former: former, Route: route, Tokens: prompt, MaxNew: uint32(maxNew), Proof: true,
		Guess: u.guess, Stop: []int32{s.dec.Tokenizer().EOS()}, Logprobs: uint32(u.logprobs), Probe: u.probe}
	open.Grant = wire.Grant{Session: u.session, ClientEpoch: epoch, Budget: uint32(len(prompt) + maxNew), Decoder: simDecoder, Numerics: u.numerics}
	keeps := held
	if u.rows {
		keeps.First = 0
	}
	copy(open.Salt[:], u.client)
	profile, bad := profileOf(s.dec, u.numerics)
	if bad != nil {
		t.Fatal(bad)
	}
	s.profile = profile.ID()
	seq, reused, marks := s.own.take(known{client: u.client, profile: s.profile, layers: keeps, tokens: prompt}, len(prompt)-1, len(prompt)+maxNew)
	if seq == nil {
		seq = u.sequence(t, s.dec, len(prompt)+maxNew, keeps)
	}
	reused, marks = s.own.load(t.Context(), known{client: u.client, profile: s.profile, layers: held, tokens: prompt}, len(prompt)-1, reused, marks, seq)
	var refusal *wire.Refusal
	if s.d, refusal = newDecoding(simDecoder, open, u.how, s.profile, s.dec.Config(), func(*wire.Plan) {}); refusal != nil {
		t.Fatal(refusal)
	}
	s.d.reserved(keeps, held, seq, reused, marks)
	s.decoderDo(s.d.start(s.profile))
	return s
}

func (s *simulation) send(from, to string, kv bool, m wire.Message) {
	if from == simDecoder && s.dead[to] { // the link can't be opened
		s.pending = append(s.pending, func() { s.decoderDo(s.d.gone(to, "can't reach it")) })
		return
	}
	if !s.dead[from] && !s.dead[to] {
		q := simQueue{from, to, kv}
		if s.deaf == nil || !s.deaf(q, m) {
			s.queues[q] = append(s.queues[q], m)
		}
	}
}

// sliceBytes is odd on purpose: rows straddle slices.
func (s *simulation) sliceBytes() int {
	if s.setup.model != "" {
		return 5000
	}
	return 40
}

// writes sends KV.
func (s *simulation) writes(from, to string) func(wire.Message) error {
	return func(m wire.Message) error {
		if slice, ok := m.(*wire.KVSlice); ok {
			slice.Rows = slices.Clone(slice.Rows) // the writer uses the memory again
		}
		s.send(from, to, true, m)
		return nil
	}
}

func (s *simulation) decoderDo(acts []action) {
	for _, a := range acts {
		switch a := a.(type) {
		case give:
			s.handed += a.Last - a.First
			if err := a.write(s.d.seq, s.sliceBytes(), s.writes(simDecoder, a.To)); err != nil {
				s.t.Fatal(err)
			}
		case send:
			s.send(simDecoder, a.To, false, a.Msg)
		case run:
			s.pending = append(s.pending, func() {
				err := s.dec.Run(context.Background(), []*runtime.Step{a.Step})
				s.d.timed(a.Step.N, time.Millisecond)
				s.decoderDo(s.d.ran(a.Step, time.Millisecond, err))
			})
		case draft:
			s.pending = append(s.pending, func() {
				list, err := s.drafter.ahead(s.t.Context(), a.Tokens, a.N)
				s.drafted += len(list)
				s.decoderDo(s.d.haveDraft(len(a.Tokens), list, time.Millisecond, err))
			})
		case emit:
			switch m := a.Msg.(type) {
			case *wire.Token:
				s.tokens = append(s.tokens, m.ID)
				s.told = append(s.told, *m)
			case *wire.Rows:
				s.rows[m.Layer] = append(s.rows[m.Layer], m.Rows...)
			}
		case replan:
			s.pending = append(s.pending, func() { s.replan(a.Lost) })
		case finish:
			if s.done != nil {
				s.t.Fatal("the session finished twice")
			}
			s.done = &a
			if d := s.d; d.seq != nil {
				n := min(d.computed, len(d.tokens)-1)
				s.own.keep(known{client: s.setup.client, layers: d.held, tokens: d.tokens[:n], marks: d.holds(n)}, d.seq)
			}
		}
	}
}

// replan puts spare peers in the places of those that were lost.
func (s *simulation) replan(lost []string) {
	r := s.d.open.Route
	r.Stages = slices.Clone(r.Stages)
	for i := range r.Stages {
		if !slices.Contains(lost, r.Stages[i].Peer) {
			continue
		}
		if len(s.spare) == 0 {
			s.decoderDo(s.d.replanned(wire.Route{}, s.profile, fmt.Errorf("nobody is left")))
			return
		}
		r.Stages[i].Peer, s.spare = s.spare[0], s.spare[1:]
	}
	s.decoderDo(s.d.replanned(r, s.profile, nil))
}

func (s *simulation) stageDo(name string, st *staging, acts []action) {
	for _, a := range acts {
		switch a := a.(type) {
		case send:
			s.send(name, a.To, false, a.Msg)
		case pushKV:
			for _, p := range a.Parts {
				rows, err := st.seq.ExportKV(nil, p.layer, p.start, p.start+p.count)
				if err != nil {
					s.t.Fatal(err)
				}
				m := wire.KVSlice{Head: a.Head, Layer: uint32(p.layer), Start: uint32(p.start), Count: uint32(p.count), Prefix: a.Prefix}
				_ = inSlices(m, rows, s.sliceBytes(), s.writes(name, a.To)) // it writes to a queue
			}
		case run:
			s.pending = append(s.pending, func() {
				if s.dead[name] || s.asleep[name] || s.stages[name] != st {
					return
				}
				err := s.execs[name].Run(context.Background(), []*runtime.Step{a.Step})
				s.ran = append(s.ran, simRun{name, a.Step.Start, a.Step.N})
				s.stageDo(name, st, st.ran(a.Step, time.Millisecond, err))
			})
		case finish:
			r := *a.Err
			r.Head = st.head
			s.send(name, simDecoder, false, &r)
			delete(s.stages, name)
		}
	}
}

func (s *simulation) refuse(from, to string, m wire.Message, r *wire.Refusal) {
	s.refused = append(s.refused, r)
	if _, ok := m.(*wire.Refusal); ok {
		return
	}
	c := *r
	c.Head, _ = headOf(m)
	s.send(from, to, false, &c)
}

func (s *simulation) deliver(q simQueue, m wire.Message) {
	if q.to == simDecoder {
		acts, r := s.d.handle(q.from, m)
		if r != nil {
			s.refuse(simDecoder, q.from, m, r)
			return
		}
		s.decoderDo(acts)
		return
	}
	if q.to == simFormer {
		s.formerDo(q, m)
		return
	}
	st := s.stages[q.to]
	switch m := m.(type) {
	case *wire.StageOpen:
		if err := m.Plan.Check(); err != nil {
			s.t.Fatal(err)
		}
		if st != nil && st.goBack(m) {
			next := newStaging(m, s.execs[q.to].Config().Width, st.seq)
			next.follows(st, m)
			s.stages[q.to] = next
			s.send(q.to, q.from, false, &wire.StageOpened{Head: m.Head, Begins: positions(next.begins)})
			return
		}
		ps := m.Plan.Stages[m.Index]
		p := s.cachesOf(q.to, runtime.Range{First: int(ps.First), Last: int(ps.Last)})
		e, capacity := p.exec, int(m.Plan.Capacity)
		w := known{client: s.setup.client, profile: m.Plan.Profile, makers: s.setup.makers(&m.Plan, int(m.Index)), session: m.Session, layers: e.Layers(), marks: m.Marks}
		seq, at, marks := p.take(w, capacity, capacity)
		if seq == nil {
			seq = s.setup.sequence(s.t, e, capacity, e.Layers())
		}
		if seq.Profile().ID() != m.Plan.Profile {
			s.t.Fatal("the plan has another profile than the grant")
		}
		_, marks = p.load(s.t.Context(), w, capacity, at, marks, seq)
		begins := sorted(append(p.begins(w), reachable(seq, marks)...))
		s.execs[q.to], s.caches[q.to] = e, p
		st = newStaging(m, e.Config().Width, seq)
		st.earlier(begins, func(n int) runtime.Sequence {
			st.seq.Close()
			for _, k := range begins {
				if int(k.Position) == n {
					w.marks = []wire.Mark{k}
				}
			}
			seq, _, _ := p.take(w, n, capacity)
			return seq
		})
		s.stages[q.to] = st
		s.send(q.to, q.from, false, &wire.StageOpened{Head: m.Head, Begins: positions(begins)})
		return
	case *wire.StageClose:
		if st != nil && st.admit(q.from, simDecoder, m.Head) == nil {
			if !st.mixed {
				s.caches[q.to].keep(known{client: s.setup.client, makers: s.setup.makers(st.plan, st.index), session: st.head.Session, layers: st.layers, marks: st.holds()}, st.seq)
			}
			s.send(q.to, q.from, false, &wire.StageClosed{Head: st.head, Stats: st.account(m.Proof)})
			delete(s.stages, q.to)
		}
		return
	case *wire.Refusal:
		return
	}
	if st == nil && !wantsAnswer(m) {
		return
	}
	if st == nil {
		s.refuse(q.to, q.from, m, wire.Refuse(wire.CodeUnknownSession, "none"))
		return
	}
	acts, r := st.handle(q.from, m)
	if r != nil {
		s.refuse(q.to, q.from, m, r)
		return
	}
	s.stageDo(q.to, st, acts)
}

// formerDo hands a frame to what the former decoder has left.
func (s *simulation) formerDo(q simQueue, m wire.Message) {
	if _, ok := m.(*wire.Refusal); ok {
		return
	}
	acts, r := s.setup.former.handle(q.from, m)
	if r != nil {
		s.refuse(q.to, q.from, m, r)
	}
	for _, a := range acts {
		if err := a.(give).write(s.setup.former.seq, s.sliceBytes(), s.writes(simFormer, q.from)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// kill ends a stage: its frames and those to it are lost, and the decoder hears of it.
func (s *simulation) kill(name string) {
	s.dead[name] = true
	for q := range s.queues {
		if q.from == name || q.to == name {
			delete(s.queues, q)
		}
	}
	delete(s.stages, name)
	s.decoderDo(s.d.gone(name, "killed"))
}

// step lets one thing happen; it reports false when nothing is left to do.
func (s *simulation) step() bool {
	var queues []simQueue
	for q := range s.queues {
		queues = append(queues, q)
	}
	slices.SortFunc(queues, func(a, b simQueue) int { return slices.Compare([]byte(fmt.Sprint(a)), []byte(fmt.Sprint(b))) })
	n := len(queues) + len(s.pending)
	if n == 0 {
		return false
	}
	i := s.rng.IntN(n)
	if i >= len(queues) {
		i -= len(queues)
		f := s.pending[i]
		s.pending = slices.Delete(s.pending, i, i+1)
		f()
		return true
	}
	q := queues[i]
	m := s.queues[q][0]
	if s.queues[q] = s.queues[q][1:]; len(s.queues[q]) == 0 {
		delete(s.queues, q)
	}
	if s.onFrame != nil {
		s.onFrame(q, m)
	}
	s.deliver(q, m)
	return true
}

func (s *simulation) run() {
	s.t.Helper()
	s.drain()
	if s.done == nil {
		s.t.Fatalf("the session stalled: computed %d, announced %d, tokens %d, refusals %v", s.d.computed, s.d.announced, len(s.d.tokens), s.refused)
	}
}

// drain lets things happen until nothing is left to do.
func (s *simulation) drain() {
	s.t.Helper()
	for i := 0; s.step(); i++ {
		if i > 200000 {
			s.t.Fatal("the session does not end")
		}
	}
}

// simSampling are the sessions' settings.
var simSampling = runtime.Sampling{Seed: 7, Temperature: 0.8, TopP: 1}

// alone is the unbroken single-process run that every session must equal.
func alone(t *testing.T, prompt []int32, maxNew int) (tokens []int32, logits, kv [32]byte) {
	t.Helper()
	told, logits, kv := simSetup{prompt: prompt, maxNew: maxNew, how: simSampling}.alone(t)
	for _, m := range told {
		tokens = append(tokens, m.ID)
	}
	return tokens, logits, kv
}

func (u simSetup) alone(t testing.TB) (told []wire.Token, logits, kv [32]byte) {
	t.Helper()
	prompt, maxNew := u.prompt, u.maxNew
	e := u.open(t, u.backend(), runtime.Range{})
	seq := u.sequence(t, e, len(prompt)+maxNew, e.Layers())
	all := slices.Clone(prompt)
	lh, kh := blake3.New(32, nil), blake3.New(32, nil)
	for pos := 0; pos == 0 || len(told) < maxNew; {
		step := &runtime.Step{Seq: seq, Layers: e.Layers(), Start: pos, N: len(all) - pos, Tokens: all[pos:], LogitRows: []int{len(all) - pos - 1}}
		if err := e.Run(context.Background(), []*runtime.Step{step}); err != nil {
			t.Fatal(err)
		}
		if pos = len(all); maxNew == 0 {
			break
		}
		lh.Write(encodeRows(step.Logits[0]))
		tok, err := runtime.Sample(step.Logits[0], all, pos, u.how)
		if err != nil {
			t.Fatal(err)
		}
		m := wire.Token{Position: uint32(pos), ID: tok}
		if u.logprobs > 0 {
			chosen, top := runtime.Logprobs(step.Logits[0], tok, u.logprobs)
			m.Logprob = chosen.Logprob
			for _, p := range top {
				m.Top = append(m.Top, wire.Logprob(p))
			}
		}
		if all, told = append(all, tok), append(told, m); tok == e.Tokenizer().EOS() {
			break
		}
	}
	for l := range e.Layers().Last {
		h := seq.Digest(l)
		kh.Write(h[:])
	}
	copy(logits[:], lh.Sum(nil))
	copy(kv[:], kh.Sum(nil))
	return told, logits, kv
}

func (s *simulation) mustEqual() {
	s.t.Helper()
	if s.done.Err != nil {
		s.t.Fatalf("session failed: %v", s.done.Err)
	}
	told, logits, kv := s.setup.alone(s.t)
	s.mustTell(told)
	st := s.d.account()
	if st.LogitsHash != logits {
		s.t.Errorf("logits differ from the run alone")
	}
	if st.KVHash != kv {
		s.t.Errorf("KV differs from the run alone: %x, alone %x", st.KVHash[:4], kv[:4])
	}
}

// mustTell fails unless the client was told these tokens.
func (s *simulation) mustTell(want []wire.Token) {
	s.t.Helper()
	for i := range s.told {
		s.told[i].Head = wire.Head{}
	}
	if !reflect.DeepEqual(s.told, want) {
		s.t.Errorf("told %v, alone %v", s.told, want)
	}
}

func somePrompt(n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32('a' + i%26)
	}
	return p
}
