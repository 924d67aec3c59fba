package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm"
)

// testNet is a public swarm of nodes on loopback, with real libp2p, torrents
// and files, and a tiny model that every node can compute in no time.
type testNet struct {
	t     *testing.T
	info  *swarm.Info
	model string // path of the GGUF
	nodes []*Node

	noGuess bool            // runs don't guess
	gates   map[*Node]*gate // of slow nodes
}

// patience is how long tests wait for what must happen: others may have the processor meanwhile.
const patience = 2 * time.Minute

func newTestNet(t *testing.T) *testNet {
	t.Helper()
	tn := &testNet{t: t, model: filepath.Join(t.TempDir(), "tiny.gguf")}
	if err := (runtimetest.TinyModel{}).Write(tn.model); err != nil {
		t.Fatal(err)
	}
	info, err := swarm.CreateSwarm(t.TempDir(), "test", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	tn.info = info
	return tn
}

// start adds a node; the first one is the others' bootstrap.
func (tn *testNet) start(change func(*Config)) *Node {
	tn.t.Helper()
	cfg := Config{DataDir: tn.t.TempDir(), Swarm: tn.info, Listen: []string{"/ip4/127.0.0.1/tcp/0"},
		Engine:  runtime.Options{Threads: 1, MaxKVBytes: 64 << 20},
		Tracker: len(tn.nodes) == 0, Silence: 30 * time.Second} // where nobody is lost, nobody may seem to be
	if os.Getenv("STARLING_TEST_LOG") != "" {
		name := fmt.Sprint(len(tn.nodes))
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
	}
	if len(tn.nodes) > 0 {
		cfg.Bootstrap = tn.nodes[0].Addrs()
	}
	if change != nil {
		change(&cfg)
	}
	n, err := Start(context.Background(), cfg)
	if err != nil {
		tn.t.Fatal(err)
	}
	tn.nodes = append(tn.nodes, n)
	tn.t.Cleanup(func() { n.Close() })
	return n
}

func quiet(control.Event) error { return nil }

// serve makes n serve layers [first, last) of the test model.
func (tn *testNet) serve(n *Node, id artifacts.ID, first, last int) {
	tn.t.Helper()
	ctx := testContext(tn.t)
	eventually(tn.t, "the model's offer", func() bool {
		_ = n.host.Refresh(ctx)
		_, held := n.store.Get(id)
		return held || len(n.holders(id)) > 0
	})
	if _, err := n.serve(ctx, id, &control.Layers{First: first, Last: last - 1}, false, "", quiet); err != nil {
		tn.t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}

// publish makes n publish the test model.
func (tn *testNet) publish(n *Node) artifacts.ID {
	tn.t.Helper()
	m, err := n.publish(context.Background(), tn.model, "", quiet)
	if err != nil {
		tn.t.Fatal(err)
	}
	return m.ID()
}

func (tn *testNet) layers() int {
	c, err := runtime.Inspect(tn.model)
	if err != nil {
		tn.t.Fatal(err)
	}
	return c.Layers
}

// run asks n for an answer and returns the account.
func (tn *testNet) run(ctx context.Context, n *Node, id artifacts.ID, k control.Constraints, emit func(control.Event) error) (*control.Account, error) {
	if emit == nil {
		emit = quiet
	}
	return n.run(ctx, control.RunRequest{Model: id.String(), Prompt: "The quick brown fox jumps over the lazy dog. Again and again.", MaxNew: 12,
		Sampling: control.Sampling{Temperature: 0.7, TopP: 0.9, Seed: 5}, Proof: true, NoGuess: tn.noGuess, Constraints: k}, emit)
}

func TestPrefillAcrossDecodeLocalAndPipelined(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	layers := tn.layers()
	if layers < 3 {
		t.Fatalf("the tiny model has %d layers, the test needs 3", layers)
	}
	whole, first, second, last, client := tn.start(nil), tn.start(nil), tn.start(nil), tn.start(nil), tn.start(func(c *Config) { c.Client = true })
	tn.serve(whole, id, 0, layers)
	tn.serve(first, id, 0, 1)
	tn.serve(second, id, 1, layers-1)
	tn.serve(last, id, layers-1, layers)
	ctx := testContext(t)
	eventually(t, "four offers", func() bool { _ = client.host.Refresh(ctx); p, _ := client.planPeers(id); return len(p) == 4 })

	cuts := []int{1, layers - 1}
	assign := []string{first.ID(), second.ID()}
	want, err := tn.run(ctx, client, id, control.Constraints{Shape: "local", Decoder: whole.ID()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.NewTokens) == 0 || want.LogitsHash == "" || want.KVHash == "" {
		t.Fatalf("the local run's account is empty: %+v", want)
	}
	for _, c := range []struct {
		name string
		k    control.Constraints
	}{
		{"across", control.Constraints{Shape: "across", Cuts: cuts, Assign: assign, Decoder: whole.ID(), Chunk: 5}},
		{"across, head only", control.Constraints{Shape: "across", Cuts: []int{1, layers - 1, layers}, Assign: []string{first.ID(), second.ID(), last.ID()}, Decoder: whole.ID(), Chunk: 7}},
		{"pipelined", control.Constraints{Shape: "pipelined", Cuts: cuts, Assign: assign, Decoder: last.ID(), Chunk: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			got, err := tn.run(ctx, client, id, c.k, nil)
			if err != nil {
				t.Fatal(err)
			}
			sameAnswer(t, got, want)
			checkTimes(t, got, time.Since(began))
			if len(got.Stages) != len(c.k.Assign) {
				t.Errorf("%d stages accounted for themselves, want %d", len(got.Stages), len(c.k.Assign))
			}
			if len(got.Recovered) > 0 {
				t.Errorf("an unbroken run recovered from %v", got.Recovered)
			}
		})
	}
	tn.mustBeIdle()
}

// checkTimes checks that what an account says of a run's time fits into what it took.
func checkTimes(t *testing.T, a *control.Account, took time.Duration) {
	t.Helper()
	if a.Handoff <= 0 || a.Handoff >= a.Prefill {
		t.Errorf("hand-off took %v of a prefill of %v", a.Handoff, a.Prefill)
	}
	for _, p := range append(a.Stages, a.Decoder) {
		if waited := p.WaitInput + p.WaitCredit + p.WaitRows; p.WaitInput <= 0 || waited+p.Compute > took {
			t.Errorf("%s computed for %v and waited for %v, %v and %v in a run of %v", p.Peer, p.Compute, p.WaitInput, p.WaitCredit, p.WaitRows, took)
		}
	}
	if a.Prefill+a.Decode > took {
		t.Errorf("%v of prefill and %v of decoding in a run of %v", a.Prefill, a.Decode, took)
	}
}

func sameAnswer(t *testing.T, got, want *control.Account) {
	t.Helper()
	if got.Text != want.Text || fmt.Sprint(got.NewTokens) != fmt.Sprint(want.NewTokens) {
		t.Errorf("answer %q %v, want %q %v", got.Text, got.NewTokens, want.Text, want.NewTokens)
	}
	if got.LogitsHash != want.LogitsHash {
		t.Errorf("logits hash %s, want %s", got.LogitsHash, want.LogitsHash)
	}
	if got.KVHash != want.KVHash {
		t.Errorf("KV hash %s, want %s", got.KVHash, want.KVHash)
	}
}

// mustBeIdle waits until no node holds a session or KV. How soon that is, the kill schedule reports.
func (tn *testNet) mustBeIdle() {
	tn.t.Helper()
	busy := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if busy = tn.held(); busy == "" {
			return
		}
	}
	tn.t.Fatal(busy)
}

// held says what nodes hold of sessions.
func (tn *testNet) held() (busy string) {
	for i, n := range tn.nodes {
		if v := n.sessionViews(); len(v) > 0 {
			busy += fmt.Sprintf("node %d holds %+v; ", i, v)
		}
		for _, s := range n.servedList() {
			s.prefixes.clear() // what ended sessions leave is nobody's
			if s.exec.FreeKVBytes() != n.cfg.Engine.MaxKVBytes {
				busy += fmt.Sprintf("node %d has %d of %d KV bytes free; ", i, s.exec.FreeKVBytes(), n.cfg.Engine.MaxKVBytes)
			}
		}
	}
	return busy
}
