package node

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
)

// TestTrace compares what a traced run over two nodes shows, bit by bit, with the same layers run alone; and asks for what a trace
// doesn't give.
func TestTrace(t *testing.T) {
	tn := newTestNet(t)
	whole := tn.start(nil)
	id := tn.publish(whole)
	layers := tn.layers()
	first := tn.start(nil)
	tn.serve(whole, id, 0, layers)
	tn.serve(first, id, 0, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	eventually(t, "two offers", func() bool { _ = whole.host.Refresh(ctx); p, _ := whole.planPeers(id); return len(p) == 2 })

	q := control.RunRequest{Model: id.String(), Tokens: somePrompt(23), MaxNew: 3,
		Constraints: control.Constraints{Shape: "across", Cuts: []int{2}, Assign: []string{first.ID()}, Decode: "here", Chunk: 5}}
	q.Trace = &control.Trace{Hidden: []int{22, 0, 7}, Logits: []int{22, 24, 3}}
	a, err := whole.run(ctx, q, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.PromptTokens, q.Tokens) || a.Trace == nil || a.Trace.Cut != 2 || len(a.Stages) != 1 {
		t.Fatalf("%+v", a)
	}

	m, err := runtime.Open(runtime.Options{Path: tn.model, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	seq, err := m.NewSequence(26, m.Layers())
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	tokens := append(slices.Clone(q.Tokens), a.NewTokens[:2]...)
	step := &runtime.Step{Seq: seq, Layers: runtime.Range{First: 0, Last: 2}, N: len(tokens), Tokens: tokens}
	if err := m.Run(ctx, []*runtime.Step{step}); err != nil {
		t.Fatal(err)
	}
	rest := &runtime.Step{Seq: seq, Layers: runtime.Range{First: 2, Last: layers}, N: len(tokens), Seam: step.Out, LogitRows: []int{22, 24}}
	if err := m.Run(ctx, []*runtime.Step{rest}); err != nil {
		t.Fatal(err)
	}
	width := m.Config().Width
	for i, pos := range q.Trace.Hidden {
		if !slices.Equal(a.Trace.Hidden[i], step.Out[pos*width:(pos+1)*width]) {
			t.Errorf("hidden state at position %d: %v", pos, a.Trace.Hidden[i])
		}
	}
	for i := range rest.Logits {
		if !slices.Equal(a.Trace.Logits[i], rest.Logits[i]) {
			t.Errorf("logits at position %d: %v", q.Trace.Logits[i], a.Trace.Logits[i])
		}
	}
	if a.Trace.Logits[2] != nil {
		t.Error("logits at a position after which nothing is sampled")
	}

	for want, change := range map[string]func(q *control.RunRequest){
		`decode "here"`:         func(q *control.RunRequest) { q.Decode, q.Decoder = "any", first.ID() },
		"position 26 of logits": func(q *control.RunRequest) { q.Trace = &control.Trace{Logits: []int{26}} },
		"position -1 of hidden": func(q *control.RunRequest) { q.Trace = &control.Trace{Hidden: []int{-1}} },
		"at most 64":            func(q *control.RunRequest) { q.Trace = &control.Trace{Hidden: make([]int, 65)} },
		"give one of them":      func(q *control.RunRequest) { q.Prompt = "a" },
		"the vocabulary has":    func(q *control.RunRequest) { q.Tokens = []int32{1 << 20} },
	} {
		bad := q
		change(&bad)
		if _, err := whole.run(ctx, bad, quiet); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	tn.mustBeIdle()
}
