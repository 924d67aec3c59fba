package node

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

// grow lets the decoder's executor have all layers.
func (s *simulation) grow() {
	s.t.Helper()
	if err := s.dec.Grow(context.Background(), s.d.whole()); err != nil {
		s.t.Fatal(err)
	}
	s.decoderDo(s.d.grew())
}

// growSetups are pipelined sessions whose decoder has the rows of all layers.
func growSetups() map[string]simSetup {
	all := map[string]simSetup{}
	for name, u := range guessSetups() {
		if !u.whole {
			u.rows = true
			all[name] = u
		}
	}
	return all
}

// TestGrowth lets a decoder get the layers that it lacks at any moment of a session: tokens, logits and KV are those of a run alone, and
// every frame has its place. Behind the prompt at most two more tokens walk the route.
func TestGrowth(t *testing.T) {
	for name, u := range growSetups() {
		t.Run(name, func(t *testing.T) {
			switched, guessed, total := 0, 0, len(u.prompt)+u.maxNew
			for seed := range uint64(40) {
				s := guessing(t, u, seed)
				if seed%2 == 0 {
					s = u.start(t, seed)
				}
				for i := 0; i < int(seed)*9 && s.step(); i++ {
				}
				had := len(s.d.tokens)
				s.grow()
				s.grow() // once more changes nothing
				for s.d.stats.Switched == 0 && s.step() {
				}
				walked := s.d.stats.Guessed
				s.run()
				guessed += int(s.d.stats.Guessed - walked)
				s.mustEqual()
				if len(s.refused) > 0 {
					t.Errorf("frames of an honest session were refused: %v", s.refused)
				}
				if len(s.stages) > 0 {
					t.Errorf("%d stages were left open", len(s.stages))
				}
				at := int(s.d.stats.Switched)
				if at > 0 {
					switched++
				}
				if latest := max(had+maxGuessed+1, len(u.prompt)); at > latest || at == 0 && latest < len(s.d.tokens)-1 && latest < total-1 {
					t.Errorf("switched at position %d of %d, grown with %d tokens", at, len(s.d.tokens), had)
				}
			}
			if (switched < 5 || guessed == 0) && u.maxNew > 2 {
				t.Errorf("%d sessions switched, and guessed %d tokens from there on", switched, guessed)
			}
		})
	}
}

// A decoder that has no room for the rows of all layers stays on its route.
func TestGrowthWithoutRows(t *testing.T) {
	for name, u := range growSetups() {
		u.rows = false
		s := u.start(t, 1)
		s.grow()
		s.run()
		s.mustEqual()
		if s.d.stats.Switched > 0 || s.d.local {
			t.Errorf("%s: switched at position %d", name, s.d.stats.Switched)
		}
	}
}

// TestGrowthAndLosses loses a stage before and after the decoder has grown, at any moment.
func TestGrowthAndLosses(t *testing.T) {
	u := simSetup{prompt: somePrompt(23), maxNew: 12, chunk: 4, cuts: []int{2, 3, 5}, how: simSampling, rows: true}
	for _, tails := range []bool{false, true} {
		u.tails = tails
		for _, victim := range []string{"S0", "S1", "S2"} {
			for when := 1; when < 240; when += 7 {
				for _, gap := range []int{-20, -3, 0, 3, 20} {
					s := guessing(t, u, uint64(when))
					s.spare = []string{"T0", "T1", "T2"}
					steps := func(n int) {
						for i := 0; i < n && s.step(); i++ {
						}
					}
					steps(when)
					kill := func() {
						if s.done == nil {
							s.kill(victim)
						}
					}
					if gap < 0 {
						kill()
						steps(-gap)
						s.grow()
					} else {
						s.grow()
						steps(gap)
						kill()
					}
					s.run()
					if s.done.Err != nil {
						t.Fatalf("%s lost at %d, %d before it had grown: %v", victim, when, -gap, s.done.Err)
					}
					told, _, _ := u.alone(t)
					s.mustTell(told)
				}
			}
		}
	}
}

// A stage that doesn't send its last rows is the one that the session waits for.
func TestGrowthWaitsForRows(t *testing.T) {
	u := simSetup{prompt: somePrompt(23), maxNew: 12, chunk: 4, cuts: []int{2, 4}, how: simSampling, rows: true}
	for seed := range uint64(20) {
		s := u.start(t, seed)
		for len(s.d.tokens) < len(u.prompt)+3 {
			s.step()
		}
		s.grow()
		s.deaf = func(q simQueue, _ wire.Message) bool { return q.from == "S1" && q.kv }
		s.queues = withoutRowsOf(s.queues, "S1")
		s.drain()
		if s.done != nil {
			continue // they had come before
		}
		if p, _ := s.d.behind(); p != "S1" {
			t.Fatalf("the session waits for %q", p)
		}
		s.deaf = nil
		s.decoderDo(s.d.gone("S1", "it got nothing done"))
		s.run()
		told, _, _ := u.alone(t)
		s.mustTell(told)
	}
}

func withoutRowsOf(queues map[simQueue][]wire.Message, peer string) map[simQueue][]wire.Message {
	for q := range queues {
		if q.from == peer && q.kv {
			delete(queues, q)
		}
	}
	return queues
}

func TestParseGrowth(t *testing.T) {
	for _, g := range []Growth{GrowOwn, GrowAny, GrowNo} {
		if got, err := ParseGrowth(g.String()); err != nil || got != g {
			t.Errorf("%v parses to %v, %v", g, got, err)
		}
	}
	if _, err := ParseGrowth("perhaps"); err == nil {
		t.Error("an unknown growth parses")
	}
}

// pausing computes with the real engine and sleeps before each Run, so that a test can act in the middle of a session. If from is not 0,
// models grow when a session has come to that position, and before it goes on from 8 positions later.
type pausing struct {
	runtime.Engine
	pause time.Duration
	from  int
}

func (b pausing) Open(o runtime.Options) (runtime.Executor, error) {
	e, err := b.Engine.Open(o)
	return &pausingExecutor{Executor: e, pausing: b, reached: make(chan struct{}), grown: make(chan struct{})}, err
}

type pausingExecutor struct {
	runtime.Executor
	pausing
	once           [2]sync.Once
	reached, grown chan struct{}
}

func (e *pausingExecutor) Grow(ctx context.Context, to runtime.Range) error {
	defer e.once[1].Do(func() { close(e.grown) })
	if e.from > 0 {
		select {
		case <-e.reached:
		case <-ctx.Done():
		}
	}
	return e.Executor.Grow(ctx, to)
}

func (e *pausingExecutor) Run(ctx context.Context, steps []*runtime.Step) error {
	time.Sleep(e.pause)
	switch at := steps[0].Start; {
	case e.from > 0 && at >= e.from+8:
		<-e.grown
	case e.from > 0 && at >= e.from:
		e.once[0].Do(func() { close(e.reached) })
	}
	return e.Executor.Run(ctx, steps)
}

// growNet is a tracker that has published a model of 8 layers, or a tiny one of 4, two nodes with one half each, and what an answer is where nothing is cut.
type growNet struct {
	*testNet
	id                   artifacts.ID
	tracker, first, last *Node
	client               *Node
	want                 *control.Account
}

func newGrowNet(t *testing.T, model string, change func(*Config)) *growNet {
	tn, layers := newTestNet(t), 8
	if tn.model = model; model == "" {
		tn.model, layers = filepath.Join(t.TempDir(), "grow.gguf"), 4
		if err := (runtimetest.TinyModel{Layers: layers}).Write(tn.model); err != nil {
			t.Fatal(err)
		}
	}
	g := &growNet{testNet: tn, tracker: tn.start(nil)}
	g.id = tn.publish(g.tracker)
	whole := tn.start(nil)
	tn.serve(whole, g.id, 0, layers)
	var err error
	if g.want, err = g.ask(t, whole, nil); err != nil {
		t.Fatal(err)
	}
	whole.Close()
	tn.nodes = tn.nodes[:1]
	const pause = 5 * time.Millisecond
	g.first = tn.start(func(c *Config) { c.Backend = pausing{pause: pause} })
	g.last = tn.start(func(c *Config) { c.Backend = pausing{pause: pause}; change(c) })
	tn.serve(g.first, g.id, 0, layers/2)
	tn.serve(g.last, g.id, layers/2, layers)
	g.client = tn.start(func(c *Config) { c.Client = true })
	for _, n := range []*Node{g.client, g.last} {
		eventually(t, "the two offers", func() bool {
			_ = n.host.Refresh(t.Context())
			p, _ := n.planPeers(g.id)
			return len(p) == 2
		})
	}
	return g
}

// ask asks n for an answer, which has some 30 tokens.
func (g *growNet) ask(t *testing.T, n *Node, emit func(control.Event) error) (*control.Account, error) {
	if emit == nil {
		emit = quiet
	}
	return n.run(testContext(t), control.RunRequest{Model: g.id.String(), Prompt: strings.Repeat("The quick brown fox. ", 4), MaxNew: 120,
		Sampling: control.Sampling{Temperature: 0.7, TopP: 0.9, Seed: 5}, Proof: true, NoGuess: true, Fresh: true}, emit)
}

// mustStayPipelined asks for an answer from first to last over the route, after which nothing is left.
func (g *growNet) mustStayPipelined(t *testing.T, asker *Node) {
	t.Helper()
	got, err := g.ask(t, asker, nil)
	if err != nil {
		t.Fatal(err)
	}
	sameAnswer(t, got, g.want)
	if got.Switched > 0 || len(got.Stages) != 1 || got.Stages[0].Tokens < len(got.PromptTokens)+len(got.NewTokens)-1 {
		t.Errorf("switched at position %d, stages %+v", got.Switched, got.Stages)
	}
	if r := g.last.served(g.id).exec.Layers(); r.First == 0 {
		t.Errorf("the decoder has %v", r)
	}
	g.mustBeIdle()
	eventually(t, "the growth's end", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:goruntime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("(*Node).grow(")) && !bytes.Contains(stacks, []byte("(*Torrents).fetch("))
	})
}

// TestGrow begins sessions over peers and ends them at one, which gets what it lacks by torrent meanwhile, with the bytes of a session at
// one peer; as everybody may or for the decoder's own runs alone.
func TestGrow(t *testing.T) {
	for name, c := range map[string]struct {
		policy Growth
		model  string
		lacks  string
	}{
		"any":        {GrowAny, "", ""},
		"own":        {GrowOwn, "", "layers 0–1 (2)"},
		"own, tails": {GrowOwn, recurrent(t), "layers 0–3 (4)"},
	} {
		policy := c.policy
		t.Run(name, func(t *testing.T) {
			const from = 90
			g := newGrowNet(t, c.model, func(c *Config) {
				c.Grow, c.Backend = policy, pausing{pause: 5 * time.Millisecond, from: from}
			})
			asker := g.client
			if policy == GrowOwn {
				asker = g.last
			}
			var explain string
			got, err := g.ask(t, asker, func(ev control.Event) error {
				if ev.Plan != nil {
					explain = ev.Plan.Explain
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			sameAnswer(t, got, g.want)
			if at := got.Switched; at < from || at > from+9 || got.Switch <= 0 {
				t.Errorf("switched at position %d, which took %v", at, got.Switch)
			}
			if len(got.Stages) != 1 || got.Stages[0].Tokens != got.Switched || len(got.Recovered) > 0 {
				t.Errorf("stages %+v, recovered %v", got.Stages, got.Recovered)
			}
			t.Logf("switched at position %d of %d, waited %v", got.Switched, len(got.PromptTokens)+len(got.NewTokens), got.Switch)
			if says := strings.Contains(explain, "the decoder grows: it fetches "+c.lacks); says != (policy == GrowOwn) {
				t.Errorf("the plan says %q", explain)
			}
			m, _ := g.last.store.Get(g.id)
			if m.HeldBytes() != m.TotalBytes() || g.last.served(g.id).exec.Layers().First != 0 {
				t.Errorf("the decoder has %d of %d bytes, %v", m.HeldBytes(), m.TotalBytes(), g.last.served(g.id).exec.Layers())
			}
			g.mustBeIdle()

			first := map[Growth]int{GrowAny: 0, GrowOwn: g.first.served(g.id).exec.Layers().Last}[policy]
			eventually(t, "the offer", func() bool {
				_ = g.client.host.Refresh(t.Context())
				for _, o := range g.client.host.Offers() {
					if o.Peer == g.last.ID() {
						return o.First == first
					}
				}
				return false
			})
			again, err := g.ask(t, asker, nil) // it has all it needs
			if err != nil {
				t.Fatal(err)
			}
			sameAnswer(t, again, g.want)
			if len(again.Stages) > 0 {
				t.Errorf("the next session has stages: %+v", again.Stages)
			}
			if policy == GrowOwn { // planned by who doesn't know
				stranger, err := g.ask(t, g.client, nil)
				if err != nil {
					t.Fatal(err)
				}
				sameAnswer(t, stranger, g.want)
				if stranger.Switched != len(stranger.PromptTokens) {
					t.Errorf("a session with a decoder that has grown switched at position %d", stranger.Switched)
				}
			}
		})
	}
}

// TestGrowNot lets each part of growing fail: the session stays on its route, and nothing is left of it.
func TestGrowNot(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"not allowed":         func(c *Config) { c.Grow = GrowNo },
		"not one's own":       func(c *Config) { c.Grow = GrowOwn },
		"no memory":           func(c *Config) { c.Engine.MaxKVBytes = 1 << 50 },
		"no memory for rows":  func(c *Config) { c.Engine.MaxKVBytes = 200 << 10 },
		"loading fails":       func(c *Config) { c.Backend = ungrowing{c.Backend} },
		"nobody sends pieces": nil,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrowNet(t, "", func(c *Config) {
				c.Grow = GrowAny
				if change != nil {
					change(c)
				}
			})
			if change == nil {
				g.first.torrents.Drop(g.id)
				g.tracker.torrents.Drop(g.id)
			}
			g.mustStayPipelined(t, g.client)
			if g.last.cfg.Grow != GrowOwn {
				g.mustStayPipelined(t, g.last)
			}
		})
	}
}

// ungrowing is a backend whose models stay as they are.
type ungrowing struct{ runtime.Backend }

func (b ungrowing) Open(o runtime.Options) (runtime.Executor, error) {
	e, err := b.Backend.Open(o)
	return ungrowingExecutor{e}, err
}

type ungrowingExecutor struct{ runtime.Executor }

func (ungrowingExecutor) Grow(context.Context, runtime.Range) error {
	return errors.New("a tensor is damaged")
}
