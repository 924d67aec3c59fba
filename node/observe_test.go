package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/starling-swarm/starling/node/control"
)

// records keeps a node's log as JSON lines.
type records struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(b)
}

// of returns the messages about a session, each with its role.
func (r *records) of(t *testing.T, session string) (list []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range bytes.Lines(r.buf.Bytes()) {
		var rec struct{ Msg, Session, Role, Pkg string }
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if rec.Session == session && rec.Pkg == "node" {
			list = append(list, rec.Role+": "+rec.Msg)
		}
	}
	return list
}

// figure returns the value of one line of a node's metrics, "" if there is none.
func figure(t *testing.T, n *Node, name string) string {
	t.Helper()
	var b bytes.Buffer
	if err := n.metrics.Write(&b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestObserved runs a prompt over three nodes and a client: all of them log it
// under one ID, and their figures agree with the run's account.
func TestObserved(t *testing.T) {
	tn := newTestNet(t)
	logs := map[*Node]*records{}
	start := func(change func(*Config)) *Node {
		r := &records{}
		n := tn.start(func(c *Config) {
			c.Log = slog.New(slog.NewJSONHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
			if change != nil {
				change(c)
			}
		})
		logs[n] = r
		return n
	}
	whole := start(nil)
	id := tn.publish(whole)
	layers := tn.layers()
	first, second, client := start(nil), start(nil), start(func(c *Config) { c.Client = true })
	tn.serve(whole, id, 0, layers)
	tn.serve(first, id, 0, 1)
	tn.serve(second, id, 1, 2)
	ctx := testContext(t)
	eventually(t, "three offers", func() bool { _ = client.host.Refresh(ctx); p, _ := client.planPeers(id); return len(p) == 3 })
	session := ""
	a, err := tn.run(ctx, client, id, control.Constraints{Shape: "across", Cuts: []int{1, 2}, Assign: []string{first.ID(), second.ID()}, Decoder: whole.ID(), Chunk: 5},
		func(ev control.Event) error {
			session += ev.Session
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	tn.mustBeIdle()
	if a.Session == "" || a.Session != session {
		t.Fatalf("session %q with the plan, %q in the account", session, a.Session)
	}
	for n, want := range map[*Node]string{
		client: "client: run began, client: planned, client: run done",
		whole:  "decoder: session opened, decoder: session done",
		first:  "stage: stage opened, stage: stage closed",
		second: "stage: stage opened, stage: stage closed",
	} {
		if got := strings.Join(logs[n].of(t, a.Session), ", "); got != want {
			t.Errorf("a log of the session: %q, want %q", got, want)
		}
	}

	model := id.Short()
	for _, c := range []struct {
		n     *Node
		name  string
		value int
	}{
		{first, fmt.Sprintf(`starling_tokens_total{model=%q,phase="prefill",role="stage"}`, model), len(a.PromptTokens)},
		{first, fmt.Sprintf(`starling_chunk_seconds_count{model=%q,role="stage"}`, model), a.Stages[0].Chunks},
		{whole, fmt.Sprintf(`starling_tokens_total{model=%q,phase="prefill",role="decoder"}`, model), len(a.PromptTokens)},
		{whole, fmt.Sprintf(`starling_tokens_total{model=%q,phase="decode",role="decoder"}`, model), len(a.NewTokens) - 1},
		{whole, `starling_sessions_ended_total{result="done",role="decoder"}`, 1},
		{second, `starling_sessions_ended_total{result="done",role="stage"}`, 1},
		{client, `starling_sessions_ended_total{result="done",role="client"}`, 1},
		{client, `starling_sessions{role="client"}`, 0},
		{whole, fmt.Sprintf(`starling_kv_reserved_bytes{model=%q}`, model), 0},
		{whole, fmt.Sprintf(`starling_kv_limit_bytes{model=%q}`, model), int(whole.cfg.Engine.MaxKVBytes)},
		{whole, `starling_queue_length{purpose="seam"}`, 0},
	} {
		eventually(t, fmt.Sprintf("%s to be %d", c.name, c.value), func() bool { // who has sent something counts it afterwards
			got := figure(t, c.n, c.name)
			return got == fmt.Sprint(c.value) || got == fmt.Sprintf("%g", float64(c.value))
		})
	}
	atLeast := func(n *Node, name string, least int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s to be about %d", name, least), func() bool {
			var v float64
			_, err := fmt.Sscan(figure(t, n, name), &v)
			return err == nil && v >= float64(least) && v <= 1.5*float64(least)+4096
		})
	}
	atLeast(first, `starling_sent_bytes_total{purpose="seam"}`, a.Stages[0].SeamBytes)
	atLeast(second, `starling_received_bytes_total{purpose="seam"}`, a.Stages[0].SeamBytes)
	atLeast(first, `starling_sent_bytes_total{purpose="kv"}`, a.Stages[0].KVBytes)
	atLeast(whole, `starling_received_bytes_total{purpose="kv"}`, a.Stages[0].KVBytes+a.Stages[1].KVBytes)
	if figure(t, client, `starling_sent_bytes_total{purpose="session"}`) == "0" || figure(t, whole, `starling_received_bytes_total{purpose="session"}`) == "0" {
		t.Error("no bytes between client and decoder are counted")
	}

	// Where tokens walk, a stage tells them from the prompt's, though it sends the rows of both.
	b, err := client.run(ctx, control.RunRequest{Model: id.String(), Prompt: "Once more", MaxNew: 6, NoGuess: true, Fresh: true,
		Sampling:    control.Sampling{LogitBias: []control.LogitBias{{Token: 256, Ban: true}, {Token: 258, Ban: true}}},
		Constraints: control.Constraints{Shape: "pipelined", Cuts: []int{1, 2}, Assign: []string{first.ID(), second.ID()}, Decoder: whole.ID(), Chunk: 3}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for phase, want := range map[string]int{"prefill": len(a.PromptTokens) + len(b.PromptTokens), "decode": len(b.NewTokens) - 1} {
		if got := figure(t, first, fmt.Sprintf(`starling_tokens_total{model=%q,phase=%q,role="stage"}`, model, phase)); got != fmt.Sprint(want) {
			t.Errorf("a stage computed %s tokens in %s, want %d", got, phase, want)
		}
	}
}
