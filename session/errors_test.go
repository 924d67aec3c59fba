package session_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/session"
)

// held computes with the real engine, but nothing is opened, or run, before a gate lets it. A nil gate is open.
type held struct {
	runtime.Engine
	open, run chan struct{}
}

func (b held) Open(o runtime.Options) (runtime.Executor, error) {
	if b.open != nil {
		<-b.open
	}
	e, err := b.Engine.Open(o)
	return heldExecutor{e, b.run}, err
}

type heldExecutor struct {
	runtime.Executor
	run chan struct{}
}

func (e heldExecutor) Run(ctx context.Context, steps []*runtime.Step) error {
	if e.run != nil {
		select {
		case <-e.run:
		case <-ctx.Done():
		}
	}
	return e.Executor.Run(ctx, steps)
}

// failed returns the error of an answer that must fail, with a kind.
func failed(t *testing.T, s *session.Session, q session.Request) *session.Error {
	t.Helper()
	var last error
	for _, last = range s.Generate(t.Context(), q) {
	}
	return kindOf(t, last)
}

func kindOf(t *testing.T, err error) *session.Error {
	t.Helper()
	var e *session.Error
	if !errors.As(err, &e) || e.Error() == "" {
		t.Fatalf("error %v (%T) has no kind", err, err)
	}
	return e
}

// TestErrorKinds provokes every kind of error that a client may act on, and checks the numbers that come with it.
func TestErrorKinds(t *testing.T) {
	model := tiny(t, "llama")
	cfg, err := runtime.Inspect(model)
	if err != nil {
		t.Fatal(err)
	}
	run := make(chan struct{})
	s := newSwarmOf(t, model, func(c *node.Config) {
		c.Backend = held{run: run}
		c.Engine.MaxKVBytes = int64(256 * 4 * cfg.KVRowBytes(0, runtime.KVF16)) // a page of each layer: one session
	}, runtime.Range{First: 0, Last: 4})

	_, err = session.Open(t.Context(), s.client, session.Options{Model: "tinny"})
	if e := kindOf(t, err); e.Kind != session.UnknownModel || !slices.Equal(e.Near, []string{"tiny"}) {
		t.Errorf("an unknown model: %+v", e)
	}
	_, err = session.Open(t.Context(), s.client, session.Options{Model: "nothing of the kind"})
	if e := kindOf(t, err); e.Kind != session.UnknownModel || len(e.Near) > 0 {
		t.Errorf("a model like none: %+v", e)
	}
	_, err = session.Open(t.Context(), s.client, session.Options{Model: "00000000000000000000000000000000000000000000000000000000000000ff"})
	if e := kindOf(t, err); e.Kind != session.UnknownModel {
		t.Errorf("the ID of no model: %+v", e)
	}

	ss, err := session.Open(t.Context(), s.client, session.Options{Model: s.id}) // without patience
	if err != nil {
		t.Fatal(err)
	}
	if e := kindOf(t, ss.Append(make([]int32, cfg.Context+1)...)); e.Kind != session.TooLong || e.Tokens != cfg.Context+1 || e.Context != cfg.Context {
		t.Errorf("a history beyond the context: %+v", e)
	}
	if err := ss.Append(make([]int32, cfg.Context)...); err != nil {
		t.Fatal(err)
	}
	if e := failed(t, ss, session.Request{}); e.Kind != session.TooLong || e.Tokens != cfg.Context || e.Context != cfg.Context {
		t.Errorf("an answer beyond the context: %+v", e)
	}
	if err := ss.Rewind(20); err != nil {
		t.Fatal(err)
	}
	for _, q := range []session.Request{{MaxNew: -1}, {Sampling: session.Sampling{TopP: 2}}, {Stop: []string{""}}, {Stop: []string{"x"}, Proof: true}} {
		if e := failed(t, ss, q); e.Kind != session.BadRequest {
			t.Errorf("%+v: %+v", q, e)
		}
	}
	far := s.open(t, session.Constraints{Shape: "pipelined", Cuts: []int{2}}, 1, 2, 3)
	if e := failed(t, far, session.Request{}); e.Kind != session.BadRequest {
		t.Errorf("stages of which there are none: %+v", e)
	}

	first := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := ss.Fork()
	go func() {
		var err error
		for _, err = range other.Generate(ctx, session.Request{MaxNew: 4}) {
		}
		first <- err
	}()
	eventually(t, "the first session", func() bool { st, err := s.nodes[1].Status(ctx); return err == nil && len(st.Sessions) > 0 })
	if e := failed(t, ss, session.Request{MaxNew: 4}); e.Kind != session.Busy || e.RetryAfter <= 0 || e.Peer != s.peers[0] {
		t.Errorf("no room: %+v", e)
	}
	close(run)
	if err := <-first; err != nil {
		t.Errorf("the session that had room: %v", err)
	}
	s.mustBeIdle(t)
}

// TestLoading asks for a model that nobody serves, and a node that is still loading it.
func TestLoading(t *testing.T) {
	s := newSwarm(t, tiny(t, "llama"))
	if e := failed(t, s.open(t, session.Constraints{}, 1, 2, 3), session.Request{}); e.Kind != session.NoRoute {
		t.Errorf("before anybody serves the model: %+v", e)
	}
	open := make(chan struct{})
	_, c := s.start(func(c *node.Config) { c.Backend = held{open: open} })
	served := make(chan error, 1)
	eventually(t, "the model's offer", func() bool {
		_, err := c.Model(t.Context(), control.ModelRequest{Model: s.id}, nil)
		return err == nil
	})
	loading := make(chan struct{})
	go func() {
		_, err := c.Serve(context.Background(), control.ServeRequest{Model: s.id}, func(ev control.Event) {
			if ev.Phase == "load" {
				close(loading)
			}
		})
		served <- err
	}()
	<-loading
	ss, err := session.Open(t.Context(), c, session.Options{Model: s.id})
	if err != nil {
		t.Fatal(err)
	}
	if err := ss.Append(1, 2, 3); err != nil {
		t.Fatal(err)
	}
	if e := failed(t, ss, session.Request{}); e.Kind != session.Loading {
		t.Errorf("while the model is being loaded: %+v", e)
	}
	close(open)
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if made := generate(t, ss, session.Request{MaxNew: 3}); len(made) == 0 {
		t.Error("no answer after the model was loaded")
	}
	eventually(t, "the session's end", func() bool {
		st, err := c.Status(context.Background())
		return err == nil && len(st.Sessions) == 0
	})
}

// TestManyAtOnce has sessions of one client answer at once; some are ended by their context, some leave the loop: the others don't notice.
func TestManyAtOnce(t *testing.T) {
	s := newSwarm(t, tiny(t, "llama"), runtime.Range{First: 0, Last: 4}, runtime.Range{First: 0, Last: 2})
	const many = 16
	type outcome struct {
		made []int32
		err  error
		a    *session.Account
	}
	got, sessions := make([]outcome, many), make([]*session.Session, many)
	q := func(i int) session.Request {
		return session.Request{MaxNew: 24, Sampling: session.Sampling{Temperature: 0.9, Seed: uint64(i)}}
	}
	done := make(chan int)
	for i := range many {
		k := session.Constraints{}
		if i%2 == 1 {
			k = session.Constraints{Decoder: s.peers[0], Shape: "across", Cuts: []int{2}, Assign: s.peers[1:2]}
		}
		sessions[i] = s.open(t, k, someTokens(i, 30+3*i)...)
	}
	for i := range many {
		go func() {
			defer func() { done <- i }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for token, err := range sessions[i].Generate(ctx, q(i)) {
				if got[i].err = err; err != nil {
					return
				}
				got[i].made = append(got[i].made, token.ID)
				switch {
				case i%4 == 2 && len(got[i].made) == 5:
					cancel()
				case i%4 == 3 && len(got[i].made) == 5:
					return
				}
			}
			got[i].a = sessions[i].Account()
		}()
	}
	for range many {
		<-done
	}
	for i, g := range got {
		want := s.answer(t, someTokens(i, 30+3*i), q(i))
		switch {
		case len(g.made) > len(want) || !slices.Equal(g.made, want[:len(g.made)]):
			t.Errorf("session %d made %v, want %v", i, g.made, want)
		case i%4 == 2 && g.err != nil && !errors.Is(g.err, context.Canceled): // its last word may have been here already
			t.Errorf("session %d: %v", i, g.err)
		case i%4 < 2 && (g.err != nil || len(g.made) != len(want) || g.a == nil || g.a.Decoder.Peer == "" || len(g.a.PromptTokens) != 30+3*i):
			t.Errorf("session %d: %v, %d of %d tokens, %+v", i, g.err, len(g.made), len(want), g.a)
		}
	}
	s.mustBeIdle(t)
}
