package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/runtime/tokenizer"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// slowBackend computes the test model's shape with the fake's arithmetic and a
// delay for each row, so that a test can act in the middle of a session.
type slowBackend struct{ runtimetest.Fake }

func (b *slowBackend) Open(o runtime.Options) (runtime.Executor, error) {
	o.Path = "slow" // every node's copy is the same model
	return b.Fake.Open(o)
}

// gate stops a node's computing, so that a session is still where a test wants it when something happens to it.
type gate struct {
	mu   sync.Mutex
	from int           // steps with rows of positions from here on wait
	shut chan struct{} // closed when they may pass; nil: they may
}

// hold lets no row of a position from there on pass.
func (g *gate) hold(from int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.from, g.shut = from, make(chan struct{})
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) pass(step *runtime.Step) {
	g.mu.Lock()
	shut := g.shut
	if step.Start+step.N <= g.from {
		shut = nil
	}
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

// gated is a backend whose models compute what a gate lets pass.
type gated struct {
	runtime.Backend
	gate *gate
}

func (b gated) Open(o runtime.Options) (runtime.Executor, error) {
	e, err := b.Backend.Open(o)
	if err != nil {
		return nil, err
	}
	return gatedExecutor{e, b.gate}, nil
}

type gatedExecutor struct {
	runtime.Executor
	gate *gate
}

func (e gatedExecutor) Run(ctx context.Context, steps []*runtime.Step) error {
	for _, step := range steps {
		e.gate.pass(step)
	}
	return e.Executor.Run(ctx, steps)
}

// startGated adds a node that has a gate.
func (tn *testNet) startGated(change func(*Config)) *Node {
	tn.t.Helper()
	g := &gate{}
	n := tn.start(func(c *Config) {
		c.Backend = runtime.Engine{}
		if change != nil {
			change(c)
		}
		c.Backend = gated{c.Backend, g}
	})
	if tn.gates == nil {
		tn.gates = map[*Node]*gate{}
	}
	tn.gates[n] = g
	tn.t.Cleanup(g.release) // before the node's end, which waits for what it computes
	return n
}

// startSlow adds a node that takes delay for a row in a layer, and has a gate.
func (tn *testNet) startSlow(delay time.Duration, change func(*Config)) *Node {
	tn.t.Helper()
	cfg, err := runtime.Inspect(tn.model)
	if err != nil {
		tn.t.Fatal(err)
	}
	return tn.startGated(func(c *Config) {
		c.Backend = &slowBackend{runtimetest.Fake{Config: cfg, Tokenizer: tn.tokenizer(), Delay: delay}}
		if change != nil {
			change(c)
		}
	})
}

// closeHeld closes a node in the middle of a session that a node's gate holds up, and opens the gate.
func (tn *testNet) closeHeld(victim, held *Node) {
	go victim.Close()
	go func() {
		<-victim.ctx.Done()
		tn.gates[held].release()
	}()
}

func (tn *testNet) tokenizer() *tokenizer.Tokenizer {
	set, err := gguf.OpenSet(tn.model)
	if err != nil {
		tn.t.Fatal(err)
	}
	tok, err := runtime.LoadTokenizer(set)
	if err != nil {
		tn.t.Fatal(err)
	}
	return tok
}

// slowNet is a tracker, two decoders with all layers, stages for layers 0 and
// 1, and a client. The model has 3 layers.
type slowNet struct {
	*testNet
	id                                     artifacts.ID
	decoder, reserve, first, second, spare *Node
	client                                 *Node
	k                                      control.Constraints
}

func newSlowNet(t *testing.T) *slowNet {
	tn := newTestNet(t)
	tn.noGuess = true // or a gate would hold up rows before it
	tracker := tn.start(nil)
	s := &slowNet{testNet: tn, id: tn.publish(tracker)}
	for _, n := range []struct {
		node        **Node
		first, last int
	}{{&s.decoder, 0, 3}, {&s.reserve, 0, 3}, {&s.first, 0, 1}, {&s.second, 1, 2}, {&s.spare, 1, 2}} {
		*n.node = tn.startSlow(2*time.Millisecond, nil)
		tn.serve(*n.node, s.id, n.first, n.last)
	}
	s.client = tn.start(func(c *Config) { c.Client = true })
	eventually(t, "five offers", func() bool {
		_ = s.client.host.Refresh(context.Background())
		p, _ := s.client.planPeers(s.id)
		return len(p) == 5
	})
	s.k = control.Constraints{Shape: "across", Cuts: []int{1, 2}, Assign: []string{s.first.ID(), s.second.ID()}, Decoder: s.decoder.ID(), Chunk: 4}
	return s
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

func TestStageLostDuringPrefill(t *testing.T) {
	s := newSlowNet(t)
	ctx := testContext(t)
	want, err := s.run(ctx, s.client, s.id, s.k, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, shape := range []string{"across", "pipelined"} {
		t.Run(shape, func(t *testing.T) {
			k := s.k
			victim := s.second
			if shape == "pipelined" {
				k.Shape = shape
				victim = s.first
				k.Assign = []string{s.first.ID(), s.spare.ID()}
			}
			killed := false
			s.gates[s.decoder].hold(8)
			got, err := s.run(ctx, s.client, s.id, k, func(ev control.Event) error {
				if ev.Phase == "prefill" && !killed {
					killed = true
					victim.Close()
					s.gates[s.decoder].release()
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !killed {
				t.Fatal("the answer came before the stage could be killed")
			}
			sameAnswer(t, got, want)
			if len(got.Recovered) == 0 {
				t.Error("the account doesn't tell that a stage was lost")
			}
			if s.decoder.losses.perHour(victim.ID(), time.Now()) == 0 {
				t.Error("the decoder's next plans don't reckon with the loss")
			}
		})
	}
	s.nodes = []*Node{s.decoder, s.reserve, s.spare, s.client}
	s.mustBeIdle()
}

// A stage whose stream to the decoder breaks tells it so, where the connection lasts: the decoder need not find out by itself.
func TestStageTellsOfBrokenStream(t *testing.T) {
	s := newSlowNet(t)
	broken := false
	s.gates[s.first].hold(1) // else a seam may be on its way to the second stage, and the first one tells sooner that it is refused
	got, err := s.run(testContext(t), s.client, s.id, s.k, func(ev control.Event) error {
		switch {
		case ev.Phase != "prefill":
		case !broken:
			broken = true
			s.second.peerGone(s.decoder.ID(), errors.New("the stream broke"))
		default: // the decoder goes on
			s.gates[s.first].release()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Recovered) == 0 || !strings.Contains(got.Recovered[0], "the stream broke") {
		t.Errorf("recovered: %q, want the stage's word that a stream broke", got.Recovered)
	}
	s.mustBeIdle()
}

// TestOnlyDecoder breaks the stream of the only decoder that there is, more often than decoders are tried in vain: it is asked again each time, since it
// gets on. Where it never does, the answer fails after its second try.
func TestOnlyDecoder(t *testing.T) {
	for name, c := range map[string]struct {
		phase string
		times int
		fails bool
	}{"in decoding": {"decode", maxDecoders + 1, false}, "before a token": {"prefill", 2, true}, "once before a token": {"prefill", 1, false}} {
		t.Run(name, func(t *testing.T) {
			tn := newTestNet(t)
			x := &faults{fell: func(*fault) {}}
			decoder := tn.startSlow(time.Millisecond, func(c *Config) {
				c.wrap = func(st stream) stream {
					real := st.(*swarm.Stream)
					return &faultyStream{stream: st, node: real.LocalAddr().String(), protocol: real.Protocol(), x: x}
				}
			})
			id := tn.publish(decoder)
			tn.serve(decoder, id, 0, tn.layers())
			client := tn.start(func(c *Config) { c.Client = true })
			eventually(t, "the offer", func() bool {
				_ = client.host.Refresh(context.Background())
				p, _ := client.planPeers(id)
				return len(p) == 1
			})
			req := control.RunRequest{Model: id.String(), Tokens: turnTokens(1, 9), MaxNew: 150, Sampling: control.Sampling{Temperature: 0.8, TopP: 0.95, Seed: 11}, NoGuess: true}
			for _, end := range endTokens(tn.tokenizer()) { // the answer has its length
				req.LogitBias = append(req.LogitBias, control.LogitBias{Token: end, Ban: true})
			}
			x.begin(0, nil)
			want, err := client.run(testContext(t), req, quiet)
			if err != nil {
				t.Fatal(err)
			}
			var got *control.Account
			for tries := 1; ; tries++ {
				var list []*fault
				for range c.times {
					list = append(list, &fault{kind: "reset", role: "decoder", phase: c.phase, nth: map[string]int{"prefill": 1, "decode": 8}[c.phase]})
				}
				x.begin(0, list)
				got, err = client.run(testContext(t), req, quiet)
				n := len(x.end())
				if n == c.times {
					break
				}
				if tries == 50 {
					t.Fatalf("%d of %d faults have happened", n, c.times)
				}
				t.Logf("tokens came many at once, and %d of %d faults have happened: once more", n, c.times)
			}
			switch {
			case c.fails:
				var none *route.NoRouteError
				if !errors.As(err, &none) {
					t.Errorf("%+v, %v, want that there is no route", got, err)
				}
			case err != nil:
				t.Error(err)
			case got.Text != want.Text || !slices.Equal(got.NewTokens, want.NewTokens) || len(got.Recovered) != c.times:
				t.Errorf("%q after %q, unbroken %q", got.Text, got.Recovered, want.Text)
			}
			tn.mustBeIdle()
		})
	}
}

func TestDecoderLost(t *testing.T) {
	s := newSlowNet(t)
	ctx := testContext(t)
	want, err := s.run(ctx, s.client, s.id, s.k, nil)
	if err != nil {
		t.Fatal(err)
	}
	texts := 0
	s.gates[s.decoder].hold(len(want.PromptTokens) + 6)
	got, err := s.run(ctx, s.client, s.id, s.k, func(ev control.Event) error {
		if ev.Kind == "text" {
			if texts++; texts == 4 {
				s.closeHeld(s.decoder, s.decoder)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Text != want.Text || fmt.Sprint(got.NewTokens) != fmt.Sprint(want.NewTokens) || got.KVHash != want.KVHash {
		t.Errorf("answer %q %v, want %q %v", got.Text, got.NewTokens, want.Text, want.NewTokens)
	}
	if got.Decoder.Peer == s.decoder.ID() || !strings.HasPrefix(got.Epoch, "2.") {
		t.Errorf("the answer was finished by %s in epoch %s", got.Decoder.Peer, got.Epoch)
	}
}

func TestCancelFreesEverything(t *testing.T) {
	s := newSlowNet(t)
	for _, phase := range []string{"plan", "prefill", "text"} {
		t.Run(phase, func(t *testing.T) {
			ctx, cancel := context.WithCancel(testContext(t))
			s.gates[s.decoder].hold(map[string]int{"plan": 0, "prefill": 8, "text": 65}[phase]) // the prompt has 62 tokens
			_, err := s.run(ctx, s.client, s.id, s.k, func(ev control.Event) error {
				if ev.Kind == phase || ev.Phase == phase {
					cancel()
				}
				return nil
			})
			s.gates[s.decoder].release()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("run ended with %v", err)
			}
			s.mustBeIdle()
		})
	}
}

// TestStrangersFrames sends frames of a running session from a peer that is not
// part of it, and garbage: each gets a typed answer and nothing changes.
func TestStrangersFrames(t *testing.T) {
	s := newSlowNet(t)
	ctx := testContext(t)
	want, err := s.run(ctx, s.client, s.id, s.k, nil)
	if err != nil {
		t.Fatal(err)
	}
	stranger := s.spare
	answers := make(chan *wire.Refusal, 64)
	stranger.links.deliver = func(from string, m wire.Message) {
		if r, ok := m.(*wire.Refusal); ok {
			answers <- r
		}
	}
	expect := func(what string, code wire.Code) {
		t.Helper()
		select {
		case r := <-answers:
			if r.Code != code {
				t.Errorf("%s: %v, want %v", what, r, code)
			}
		case <-time.After(patience):
			t.Errorf("%s: no answer", what)
		}
	}
	sent := false
	s.gates[s.decoder].hold(8)
	got, err := s.run(ctx, s.client, s.id, s.k, func(ev control.Event) error {
		if ev.Phase != "prefill" || sent {
			return nil
		}
		sent = true
		defer s.gates[s.decoder].release()
		var head wire.Head
		for _, d := range s.decoder.decoderList() {
			d.mu.Lock()
			head = d.m.head
			d.mu.Unlock()
		}
		rows := make([]byte, 4*64*4)
		stranger.links.send(s.decoder.ID(), &wire.Seam{Head: head, Cut: 2, Start: 8, Count: 4, Rows: rows})
		expect("a stranger's seam", wire.CodeWrongPeer)
		stranger.links.send(s.second.ID(), &wire.Chunk{Head: head, Start: 8, Count: 4})
		expect("a stranger's chunk", wire.CodeWrongPeer)
		stranger.links.sendKV(s.decoder.ID(), func(write func(wire.Message) error) error {
			return write(&wire.KVSlice{Head: head, Count: 4, Total: 1024, Rows: rows})
		})
		expect("a stranger's KV", wire.CodeWrongPeer)
		stale := head
		stale.Epoch.Plan--
		stranger.links.send(s.second.ID(), &wire.Seam{Head: stale, Cut: 1, Start: 8, Count: 4, Rows: rows})
		expect("a seam of an old epoch", wire.CodeStaleEpoch)
		other := head
		other.Session[0]++
		stranger.links.send(s.second.ID(), &wire.Seam{Head: other, Cut: 1, Start: 8, Count: 4, Rows: rows})
		expect("a seam of another session", wire.CodeUnknownSession)
		open := &wire.StageOpen{Head: head}
		open.Grant.Client, open.Grant.Decoder = s.client.ID(), stranger.ID()
		open.Plan.Decoder = stranger.ID()
		stranger.links.send(s.second.ID(), open)
		expect("a forged grant", wire.CodeBadGrant)
		g, err := stranger.host.Open(ctx, s.second.ID(), protoStage)
		if err != nil {
			t.Error(err)
			return nil
		}
		if _, err := g.Write([]byte("GET / HTTP/1.1\r\nHost: starling\r\n\r\n")); err != nil {
			t.Error(err)
		}
		expect("garbage", wire.CodeBadFrame)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !sent {
		t.Fatal("the session was over before the frames could be sent")
	}
	sameAnswer(t, got, want)
	if len(got.Recovered) > 0 {
		t.Errorf("a stranger's frames made the session recover: %v", got.Recovered)
	}
}

// hushed swallows one type of frames.
type hushed struct {
	stream
	swallows wire.Type
}

func (s hushed) Write(b []byte) (int, error) {
	if len(b) > 4 && wire.Type(b[4]) == s.swallows {
		return len(b), nil
	}
	return s.stream.Write(b)
}

// A stage whose closing word is lost is free long before its lease ends, also where the session was over before the first ping.
func TestLostFarewell(t *testing.T) {
	tn := newTestNet(t)
	decoder := tn.startSlow(0, func(c *Config) { c.wrap = func(s stream) stream { return hushed{s, wire.TypeStageClose} } })
	id := tn.publish(decoder)
	stage := tn.startSlow(0, nil)
	tn.serve(decoder, id, 0, 3)
	tn.serve(stage, id, 0, 2)
	client := tn.start(func(c *Config) { c.Client = true })
	eventually(t, "two offers", func() bool {
		_ = client.host.Refresh(context.Background())
		p, _ := client.planPeers(id)
		return len(p) == 2
	})
	enough, texts := errors.New("enough"), 0
	var open *stageSession
	tn.gates[decoder].hold(8)
	_, err := client.run(testContext(t), control.RunRequest{Model: id.String(), Tokens: somePrompt(20), MaxNew: 100,
		Constraints: control.Constraints{Shape: "across", Cuts: []int{2}, Assign: []string{stage.ID()}, Decoder: decoder.ID(), Chunk: 8}}, func(ev control.Event) error {
		switch {
		case ev.Phase == "prefill" && open == nil:
			for _, s := range stage.stageMap() {
				open = s
			}
			tn.gates[decoder].release()
		case ev.Kind == "text":
			if texts++; texts > 2 { // the stage's rows are here: one that came later would be refused, which ends the stage, too
				return enough
			}
		}
		return nil
	})
	if !errors.Is(err, enough) || open == nil {
		t.Fatal(err)
	}
	eventually(t, "the stage to be free", func() bool { return len(stage.stageMap()) == 0 })
	open.mu.Lock()
	defer open.mu.Unlock()
	if open.absent < 2 {
		t.Errorf("free after %d pings that don't list the session: its lease has ended", open.absent)
	}
}
