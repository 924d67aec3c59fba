package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

// newTestRoom has room for two sequences of 256 positions of the made-up model.
func newTestRoom(t *testing.T) (r *room, enter func(ctx context.Context, wait time.Duration, pages int) (runtime.Sequence, error)) {
	t.Helper()
	fake := &runtimetest.Fake{}
	probe, err := fake.Open(runtime.Options{Path: "sim"})
	if err != nil {
		t.Fatal(err)
	}
	all := probe.FreeKVBytes()
	if _, err := probe.NewSequence(1, probe.Layers()); err != nil {
		t.Fatal(err)
	}
	page := all - probe.FreeKVBytes()
	e, err := fake.Open(runtime.Options{Path: "sim", MaxKVBytes: 2 * page})
	if err != nil {
		t.Fatal(err)
	}
	r = &room{limit: 2 * page, left: func(need int64) time.Duration { return time.Duration(need/page) * time.Second }}
	return r, func(ctx context.Context, wait time.Duration, pages int) (runtime.Sequence, error) {
		return r.reserve(ctx, wait, func() (runtime.Sequence, error) { return e.NewSequence(256*pages, e.Layers()) })
	}
}

func TestRoom(t *testing.T) {
	r, enter := newTestRoom(t)
	ctx := t.Context()
	busy := func(err error, after time.Duration) {
		t.Helper()
		var refusal *wire.Refusal
		if !errors.As(err, &refusal) || refusal.Code != wire.CodeBusy || refusal.RetryAfter != after {
			t.Errorf("%v, want busy for %v", err, after)
		}
	}
	first, err := enter(ctx, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = enter(ctx, time.Hour, 3) // never, whoever leaves
	busy(err, 0)
	_, err = enter(ctx, 0, 2)
	busy(err, time.Second)
	_, err = enter(ctx, 20*time.Millisecond, 2) // nobody leaves
	busy(err, time.Second)
	if r.waiting() > 0 {
		t.Error("who has gone is still in line")
	}

	// One that needs all waits; then nobody gets past it, although there would be room, but for as long as it waits only.
	leaving, leave := context.WithCancel(ctx)
	got := make(chan error)
	go func() { _, err := enter(leaving, time.Hour, 2); got <- err }()
	eventually(t, "one in line", func() bool { return r.waiting() == 1 })
	_, err = enter(ctx, 0, 1)
	busy(err, leastRetry)
	second := make(chan runtime.Sequence)
	go func() {
		seq, err := enter(ctx, time.Hour, 1)
		if err != nil {
			t.Error(err)
		}
		second <- seq
	}()
	eventually(t, "two in line", func() bool { return r.waiting() == 2 })
	leave()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	both := []runtime.Sequence{first, <-second}

	// In line they come in as they came.
	order := make(chan int, 3)
	for i := range 3 {
		go func() {
			seq, err := enter(ctx, time.Hour, 1+i%2)
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			r.free(seq)
		}()
		eventually(t, "one more in line", func() bool { return r.waiting() == i+1 })
	}
	for _, seq := range both {
		r.free(seq)
	}
	for i := range 3 {
		if got := <-order; got != i && i != 1 { // 0 leaves while 1 enters, and 2 after that
			t.Errorf("%d came in as number %d", got, i)
		}
	}
	eventually(t, "an empty line", func() bool { return r.waiting() == 0 })
}

// A line has an end.
func TestFullLine(t *testing.T) {
	r, enter := newTestRoom(t)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := enter(ctx, 0, 2); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range maxLine {
		wg.Go(func() { _, _ = enter(ctx, time.Hour, 1) }) // they get nothing
	}
	eventually(t, "a full line", func() bool { return r.waiting() == maxLine })
	if _, err := enter(ctx, time.Hour, 1); err == nil || ctx.Err() != nil {
		t.Errorf("%v, want a refusal at once", err)
	}
	cancel()
	wg.Wait()
	if r.waiting() > 0 {
		t.Error("who has gone is still in line")
	}
}

func TestFreeAfter(t *testing.T) {
	list := []ending{{9 * time.Second, 10}, {time.Second, 3}, {4 * time.Second, 5}}
	for need, want := range map[int64]time.Duration{1: time.Second, 3: time.Second, 4: 4 * time.Second, 8: 4 * time.Second, 18: 9 * time.Second, 19: unknownRetry} {
		if got := freeAfter(list, need); got != want {
			t.Errorf("%d bytes after %v, want %v", need, got, want)
		}
	}
	if got := remaining(3*time.Second, 6, 4); got != 2*time.Second {
		t.Errorf("remaining %v", got)
	}
}

// crowd is a decoder with all 3 layers and stages for the first two and the last, whose KV has room for some sessions of one page.
func crowd(t *testing.T, sessions int64) (s *slowNet, page int64) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	s = &slowNet{testNet: tn, id: tn.publish(tracker)}
	cfg, err := runtime.Inspect(tn.model)
	if err != nil {
		t.Fatal(err)
	}
	page = 256 * int64(cfg.KVRowBytes(0, runtime.KVF16))
	start := func(first, last int, bytes int64) *Node {
		n := tn.startSlow(2*time.Millisecond, func(c *Config) { c.Engine.MaxKVBytes = bytes })
		tn.serve(n, s.id, first, last)
		return n
	}
	s.decoder = start(0, 3, sessions*3*page)
	s.first = start(0, 2, sessions*2*page)
	s.reserve = start(2, 3, 64*page)
	s.client = tn.start(func(c *Config) { c.Client = true })
	eventually(t, "three offers", func() bool {
		_ = s.client.host.Refresh(context.Background())
		p, _ := s.client.planPeers(s.id)
		return len(p) == 3
	})
	return s, page
}

func (s *slowNet) ask(ctx context.Context, wait time.Duration, k control.Constraints, emit func(control.Event) error) (*control.Account, error) {
	return s.client.run(ctx, control.RunRequest{Model: s.id.String(), Tokens: somePrompt(20), MaxNew: 20, Proof: true, Wait: wait, Constraints: k}, emit)
}

// Three times as many sessions as have room: the excess hears "busy", from whom and for how long, and nobody else is disturbed;
// with patience all get their answer, the same one. Nothing is left behind.
func TestOverload(t *testing.T) {
	s, _ := crowd(t, 2)
	ctx := testContext(t)
	k := control.Constraints{Shape: "local", Decoder: s.decoder.ID()}
	want, err := s.ask(ctx, 0, k, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, wait := range []time.Duration{0, 2 * patience} {
		s.mustBeIdle() // the memory of the session before may come back after its answer
		s.gates[s.decoder].hold(0)
		var mu sync.Mutex
		var wg sync.WaitGroup
		var answered, refused, waited int
		for range 6 {
			wg.Go(func() {
				got, err := s.ask(ctx, wait, k, func(ev control.Event) error {
					if ev.Phase == "wait" {
						mu.Lock()
						waited++
						mu.Unlock()
					}
					return nil
				})
				mu.Lock()
				defer mu.Unlock()
				var r *wire.Refusal
				switch {
				case err == nil:
					answered++
					sameAnswer(t, got, want)
				case errors.As(err, &r) && r.Code == wire.CodeBusy && r.Peer == s.decoder.ID() && r.RetryAfter > 0 && !strings.Contains(err.Error(), "\n"):
					refused++
				default:
					t.Errorf("%v", err)
				}
			})
		}
		room := s.decoder.servedList()[0].room
		eventually(t, "four sessions that have no room", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return refused == 4 || room.waiting() == 4
		})
		s.gates[s.decoder].release()
		wg.Wait()
		switch {
		case wait == 0 && (answered != 2 || refused != 4):
			t.Errorf("%d sessions were answered and %d refused, want 2 and 4", answered, refused)
		case wait > 0 && (answered != 6 || waited == 0):
			t.Errorf("with patience %d sessions were answered, want 6; they were told %d times that they wait", answered, waited)
		}
	}
	s.mustBeIdle()
	for _, part := range []string{"clientSession", "decoderSession", "(*Node).serveSession", "(*inbox)"} {
		noGoroutines(t, part)
	}
}

// occupy reserves KV for ten positions of some layers of a model, as soon as the sessions before have given theirs back, which
// they do after their answers, and keep some.
func occupy(t *testing.T, s *served, layers runtime.Range) (seq runtime.Sequence) {
	t.Helper()
	eventually(t, "room for ten positions", func() bool {
		s.prefixes.clear()
		var err error
		seq, err = s.exec.NewSequence(10, layers)
		return err == nil
	})
	return seq
}

// A stage without room: where the decoder can do without it, it does; where not, the client hears which peer is busy, before
// any chunk, and everything reserved elsewhere is free again.
func TestBusyStage(t *testing.T) {
	s, _ := crowd(t, 1)
	ctx := testContext(t)
	want, err := s.ask(ctx, 0, control.Constraints{Shape: "local", Decoder: s.decoder.ID()}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s.mustBeIdle()
	model := s.first.servedList()[0]
	other := occupy(t, model, model.exec.Layers())
	across := control.Constraints{Shape: "across", Cuts: []int{2}, Assign: []string{s.first.ID()}, Decoder: s.decoder.ID(), Chunk: 4}
	got, err := s.ask(ctx, 0, across, quiet)
	if err != nil {
		t.Fatal(err)
	}
	sameAnswer(t, got, want)
	if len(got.Recovered) == 0 || !strings.Contains(got.Recovered[0], "busy") {
		t.Errorf("recovered from %v, want a busy stage", got.Recovered)
	}

	// The only other peer that could be the stage has no room either.
	occupy(t, s.decoder.servedList()[0], runtime.Range{First: 0, Last: 3})
	pipelined := control.Constraints{Shape: "pipelined", Cuts: []int{2}, Assign: []string{s.first.ID()}, Decoder: s.reserve.ID(), Chunk: 4}
	_, err = s.ask(ctx, 0, pipelined, func(ev control.Event) error {
		if ev.Phase == "prefill" {
			t.Error("a chunk was computed")
		}
		return nil
	})
	var r *wire.Refusal
	if !errors.As(err, &r) || r.Code != wire.CodeBusy || r.Peer != s.first.ID() && r.Peer != s.decoder.ID() || r.RetryAfter == 0 {
		t.Errorf("%v, want a busy stage", err)
	}
	last := s.reserve.servedList()[0]
	eventually(t, "all KV to be free", func() bool { last.prefixes.clear(); return last.exec.FreeKVBytes() == last.kvLimit })

	freed := false
	got, err = s.ask(ctx, 2*patience, pipelined, func(ev control.Event) error {
		if ev.Phase == "wait" && !freed {
			freed = true
			model.room.free(other)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sameAnswer(t, got, want)
	if !freed {
		t.Error("nobody was told that the stage is busy")
	}
}
