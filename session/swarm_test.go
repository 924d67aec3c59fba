package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/session"
	"github.com/starling-swarm/starling/swarm"
)

// patience is how long tests wait for what must happen: others may have the processor meanwhile.
const patience = 2 * time.Minute

// TestMain fails if goroutines of any test outlive its nodes.
func TestMain(m *testing.M) {
	before := goruntime.NumGoroutine()
	code := m.Run()
	const allowed = 3 // libp2p lets a few finish on their own
	now := 0
	for end := time.Now().Add(patience); code == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now = goruntime.NumGoroutine(); now <= before+allowed {
			os.Exit(0)
		}
	}
	if code == 0 {
		buf := make([]byte, 1<<20)
		fmt.Printf("%d goroutines before, %d after:\n%s", before, now, buf[:goruntime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

// testSwarm is a swarm on loopback whose first node has published a model; its last one is a client that sees all offers.
type testSwarm struct {
	model  string // path
	id     string
	peers  []string // of the nodes that serve ranges, in the order asked for
	nodes  []*control.Client
	client *control.Client
	engine *runtime.Model // the model in this process, whole

	start func(change func(*node.Config)) (*node.Node, *control.Client) // adds a node
}

// newSwarm starts a tracker, a node for each range (last layer excluded) and a client.
func newSwarm(t testing.TB, model string, ranges ...runtime.Range) *testSwarm {
	t.Helper()
	return newSwarmOf(t, model, func(*node.Config) {}, ranges...)
}

// newSwarmOf is newSwarm with a say in what the nodes with ranges are.
func newSwarmOf(t testing.TB, model string, change func(*node.Config), ranges ...runtime.Range) *testSwarm {
	t.Helper()
	s := &testSwarm{model: model}
	info, err := swarm.CreateSwarm(t.TempDir(), "test", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	var bootstrap []string
	s.start = func(change func(*node.Config)) (*node.Node, *control.Client) {
		t.Helper()
		cfg := node.Config{DataDir: t.TempDir(), Swarm: info, Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Bootstrap: bootstrap,
			Engine: runtime.Options{Threads: 1, MaxKVBytes: 64 << 20}, Silence: 30 * time.Second} // where nobody is lost, nobody may seem to be
		change(&cfg)
		n, err := node.Start(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		c := control.InProcess(n.Control())
		t.Cleanup(func() {
			c.Close()
			n.Close()
		})
		s.nodes = append(s.nodes, c)
		return n, c
	}
	tracker, c := s.start(func(c *node.Config) { c.Tracker = true })
	bootstrap = tracker.Addrs()
	published, err := c.Publish(t.Context(), control.PublishRequest{Path: model}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.id = published.ID
	for _, r := range ranges {
		n, c := s.start(change)
		eventually(t, "the model's offer", func() bool {
			_, err := c.Serve(t.Context(), control.ServeRequest{Model: s.id, Layers: &control.Layers{First: r.First, Last: r.Last - 1}}, nil)
			return err == nil
		})
		s.peers = append(s.peers, n.ID())
	}
	_, s.client = s.start(func(c *node.Config) { c.Client = true })
	eventually(t, "all offers", func() bool {
		peers, err := s.client.Peers(t.Context())
		serving := 0
		for _, p := range peers {
			if slices.Contains(s.peers, p.Peer) && p.Layers.Last >= p.Layers.First {
				serving++
			}
		}
		return err == nil && serving == len(ranges)
	})
	if s.engine, err = runtime.Open(runtime.Options{Path: model, Threads: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.engine.Close() })
	return s
}

// tiny writes a model of 4 layers with random weights.
func tiny(t testing.TB, arch string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), arch+".gguf")
	if err := (runtimetest.TinyModel{Arch: arch, Layers: 4}).Write(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// golden returns the path of a published model with reference outputs.
func golden(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "golden", name, "model.gguf")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the golden models are not beside the repository: %v", err)
	}
	return path
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}

// mustBeIdle waits until no node has a session.
func (s *testSwarm) mustBeIdle(t *testing.T) {
	t.Helper()
	eventually(t, "all sessions to end", func() bool {
		for _, c := range s.nodes {
			if st, err := c.Status(t.Context()); err != nil || len(st.Sessions) > 0 {
				return false
			}
		}
		return true
	})
}

// numbers is what the engine makes of tokens: hidden states by boundary, and logits, [position][…] each.
type numbers struct{ hidden, logits [][]float32 }

func (s *testSwarm) numbers(t *testing.T, tokens []int32) numbers {
	t.Helper()
	seq, err := s.engine.NewSequence(len(tokens), s.engine.Layers())
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	step := &runtime.Step{Seq: seq, Layers: s.engine.Layers(), N: len(tokens), Tokens: tokens}
	for l := range s.engine.Config().Layers + 1 {
		step.Probe = append(step.Probe, l)
	}
	for r := range tokens {
		step.LogitRows = append(step.LogitRows, r)
	}
	if err := s.engine.Run(t.Context(), []*runtime.Step{step}); err != nil {
		t.Fatal(err)
	}
	return numbers{step.Probed, step.Logits}
}

// answer is what the engine says after tokens, computed from the first one on.
func (s *testSwarm) answer(t *testing.T, tokens []int32, q session.Request) (made []int32) {
	t.Helper()
	how, err := node.Sampling(&q.Sampling, s.engine.Tokenizer())
	if err != nil {
		t.Fatal(err)
	}
	seq, err := s.engine.NewSequence(len(tokens)+q.MaxNew, s.engine.Layers())
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	all := slices.Clone(tokens)
	for at := 0; len(made) < q.MaxNew; {
		step := &runtime.Step{Seq: seq, Layers: s.engine.Layers(), Start: at, N: len(all) - at, Tokens: all[at:], LogitRows: []int{len(all) - at - 1}}
		if err := s.engine.Run(t.Context(), []*runtime.Step{step}); err != nil {
			t.Fatal(err)
		}
		at = len(all)
		id, err := runtime.Sample(step.Logits[0], all, at, how)
		if err != nil {
			t.Fatal(err)
		}
		all, made = append(all, id), append(made, id)
		if s.engine.Tokenizer().IsEOG(id) {
			break
		}
	}
	return made
}

// someTokens are n tokens without a pattern.
func someTokens(seed, n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32((i*i*31 + i*7 + seed*101) % 250)
	}
	return list
}
