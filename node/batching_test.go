package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// newFakeBatcher opens a made-up model of 6 layers; it is closed, and must leave no goroutine, at the test's end.
func newFakeBatcher(t *testing.T, fake *runtimetest.Fake) *batcher {
	t.Helper()
	e, err := fake.Open(runtime.Options{Path: "sim"})
	if err != nil {
		t.Fatal(err)
	}
	b := newBatcher(e)
	t.Cleanup(func() {
		b.close()
		noGoroutines(t, "node.(*batcher)")
	})
	return b
}

func (b *batcher) sequence(t *testing.T, capacity int) runtime.Sequence {
	t.Helper()
	seq, err := b.exec.NewSequence(capacity, b.exec.Layers())
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// noGoroutines waits until no goroutine is in a function whose name has that in it.
func noGoroutines(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the end of goroutines in "+name, func() bool {
		return !strings.Contains(goroutines(), name)
	})
}

// prompt is a step of n rows from position 0 on through the model.
func prompt(seq runtime.Sequence, layers runtime.Range, n int) *runtime.Step {
	return &runtime.Step{Seq: seq, Layers: layers, N: n, Tokens: somePrompt(n)}
}

// Sessions of all kinds at once, in steps of all sizes, get the bits that each gets alone: rows, hidden states, logits.
func TestStepsInAnyCompany(t *testing.T) {
	b := newFakeBatcher(t, &runtimetest.Fake{})
	layers := b.exec.Layers()
	alone, err := (&runtimetest.Fake{}).Open(runtime.Options{Path: "sim"})
	if err != nil {
		t.Fatal(err)
	}
	// plays a session: a prompt in chunks, then tokens; through two ranges of layers, as a stage and a decoder would.
	play := func(seed uint64, seq runtime.Sequence, run func(*runtime.Step) error) (sum []float32, err error) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cut := rng.IntN(layers.Last)
		for pos := 0; pos < 300; {
			n := 1
			if rng.IntN(2) == 0 {
				n = 1 + rng.IntN(290)
			}
			tokens := make([]int32, n)
			for i := range tokens {
				tokens[i] = int32(rng.IntN(256))
			}
			step := &runtime.Step{Seq: seq, Start: pos, N: n, Tokens: tokens, Layers: runtime.Range{First: 0, Last: layers.Last}}
			if cut > 0 {
				step.Layers.Last = cut
				if err := run(step); err != nil {
					return nil, err
				}
				sum = append(sum, step.Out...)
				step = &runtime.Step{Seq: seq, Start: pos, N: n, Seam: step.Out, Layers: runtime.Range{First: cut, Last: layers.Last}}
			}
			step.KeepHidden = rng.IntN(2) == 0
			for l := cut; l <= layers.Last; l++ {
				if rng.IntN(3) == 0 {
					step.Probe = append(step.Probe, l)
				}
			}
			for r := range n {
				if rng.IntN(100) == 0 || r == n-1 {
					step.LogitRows = append(step.LogitRows, r)
				}
			}
			if err := run(step); err != nil {
				return nil, err
			}
			if step.KeepHidden != (step.Out != nil) || len(step.Logits) != len(step.LogitRows) {
				return nil, fmt.Errorf("step %+v", step)
			}
			sum = append(sum, step.Out...)
			if len(step.Probed) != len(step.Probe) {
				return nil, fmt.Errorf("step %+v", step)
			}
			for _, rows := range step.Probed {
				sum = append(sum, rows...)
			}
			for _, l := range step.Logits {
				sum = append(sum, l...)
			}
			pos += n
		}
		return sum, nil
	}
	var wg sync.WaitGroup
	for i := range uint64(12) {
		wg.Go(func() {
			seat := b.sit()
			defer seat.leave()
			seq := b.sequence(t, 600)
			defer seq.Close()
			got, err := play(i, seq, func(s *runtime.Step) error {
				_, err := seat.run(t.Context(), s, i%4 == 0)
				return err
			})
			if err != nil {
				t.Error(err)
				return
			}
			ref, err := alone.NewSequence(600, layers)
			if err != nil {
				t.Error(err)
				return
			}
			defer ref.Close()
			want, err := play(i, ref, func(s *runtime.Step) error { return alone.Run(t.Context(), []*runtime.Step{s}) })
			if err != nil {
				t.Error(err)
				return
			}
			if !slices.Equal(got, want) {
				t.Errorf("session %d: other numbers than alone", i)
			}
			for l := range layers.Last {
				if seq.Digest(l) != ref.Digest(l) {
					t.Errorf("session %d: other rows than alone in layer %d", i, l)
				}
			}
		})
	}
	wg.Wait()
}

// A step that fails, in whatever way, fails alone: with its own error, and the others' results.
func TestFailuresStayAlone(t *testing.T) {
	b := newFakeBatcher(t, &runtimetest.Fake{Delay: 50 * time.Microsecond})
	layers := b.exec.Layers()
	width := b.exec.Config().Width
	bad := map[string]func(s *runtime.Step){
		"no number": func(s *runtime.Step) {
			s.Tokens, s.Seam, s.Layers.First = nil, make([]float32, s.N*width), 2
			s.Seam[0] = float32(math.NaN())
		},
		"senseless": func(s *runtime.Step) { s.Tokens[0] = 1 << 20 },
		"position":  func(s *runtime.Step) { s.Start = 7 },
		"closed":    func(s *runtime.Step) { s.Seq.Close() },
		"":          func(s *runtime.Step) {},
	}
	for range 5 {
		var wg sync.WaitGroup
		for name, change := range bad {
			for _, n := range []int{1, 20} {
				wg.Go(func() {
					seat := b.sit()
					defer seat.leave()
					seq := b.sequence(t, 100)
					defer seq.Close()
					step := prompt(seq, layers, n)
					change(step)
					_, err := seat.run(t.Context(), step, false)
					var nan *runtime.NonFiniteError
					var senseless *runtime.StepError
					var position *runtime.PositionError
					ok := map[string]bool{"no number": errors.As(err, &nan) && nan.Step == 0, "senseless": errors.As(err, &senseless) && senseless.Step == 0,
						"position": errors.As(err, &position), "closed": errors.Is(err, runtime.ErrClosed), "": err == nil}
					if !ok[name] {
						t.Errorf("%q: %v", name, err)
					}
					if name == "" && seq.Len(0) != n {
						t.Errorf("%d rows, want %d", seq.Len(0), n)
					}
				})
			}
		}
		wg.Wait()
	}
}

// The end of a session takes its step out of the queue at once; ends a round that is nobody else's within a layer; and leaves
// the others of its round alone.
func TestCancel(t *testing.T) {
	entered, pass := make(chan struct{}), make(chan struct{}) // a round says that it enters a layer, and waits until it may
	b := newFakeBatcher(t, &runtimetest.Fake{Fail: func(layer, pos int, _ []float32) error {
		if pos == 0 {
			entered <- struct{}{}
			<-pass
		}
		return nil
	}})
	layers := b.exec.Layers()
	start := func(ctx context.Context, n int) <-chan error {
		seat, seq := b.sit(), b.sequence(t, 100)
		c := make(chan error, 1)
		go func() {
			_, err := seat.run(ctx, prompt(seq, layers, n), false)
			c <- err
			seat.leave()
			seq.Close()
		}()
		return c
	}
	queued := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprint(n, " steps"), func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.rounds.queue) == n })
	}
	givenUp := func() {
		t.Helper()
		eventually(t, "a step of the round to be given up", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.ContainsFunc(b.running, func(p piece) bool { return p.w.gone != nil })
		})
	}
	// ends lets rounds go on until a step ends, and returns how many layers they entered meanwhile.
	ends := func(step <-chan error) (layers int, err error) {
		for {
			select {
			case err := <-step:
				return layers, err
			case pass <- struct{}{}:
			case <-entered:
				layers++
			}
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	first := start(ctx, 20)
	<-entered
	waits, leave := context.WithCancel(t.Context())
	second := start(waits, 20)
	queued(2)
	leave()
	if err := <-second; !errors.Is(err, context.Canceled) { // while the round is where it was
		t.Errorf("a step that waited: %v", err)
	}
	cancel()
	givenUp()
	if entered, err := ends(first); !errors.Is(err, context.Canceled) || entered > 1 {
		t.Errorf("a step that was alone: %v after %d more layers of %d", err, entered, layers.Len()-1)
	}

	busy := start(t.Context(), 20) // so that the next two come together
	<-entered
	ctx, cancel = context.WithCancel(t.Context())
	first, second = start(ctx, 1), start(t.Context(), 1)
	queued(3)
	for range layers.Len() - 1 {
		pass <- struct{}{}
		<-entered
	}
	pass <- struct{}{}
	if err := <-busy; err != nil {
		t.Fatal(err)
	}
	<-entered
	cancel()
	givenUp()
	if _, err := ends(second); err != nil {
		t.Errorf("the company of a step that was cancelled: %v", err)
	}
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("a step in company: %v", err)
	}
	eventually(t, "all KV to be free", func() bool { return b.exec.FreeKVBytes() == 1<<30 })
}

// Closing ends what waits and what is being computed.
func TestCloseEndsSteps(t *testing.T) {
	b := newFakeBatcher(t, &runtimetest.Fake{Delay: time.Hour})
	errs := make(chan error)
	for i := range 10 {
		seq := b.sequence(t, 100)
		go func() {
			_, err := b.sit().run(context.Background(), prompt(seq, b.exec.Layers(), 1+10*i), false)
			errs <- err
		}()
	}
	eventually(t, "ten steps", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.rounds.queue) == 10 })
	b.close()
	for range 10 {
		if err := <-errs; err == nil {
			t.Error("a step was computed by a closed model")
		}
	}
	if _, err := b.sit().run(t.Context(), &runtime.Step{}, false); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("a step after the end: %v", err)
	}
}

// TestManySessions runs mixed sessions at once on the same peers, of all shapes, prompts and chunk sizes, with the real engine:
// each has the bits that it has alone, and afterwards no node holds anything.
func TestManySessions(t *testing.T) {
	tn := newTestNet(t)
	whole := tn.start(nil)
	id := tn.publish(whole)
	layers := tn.layers()
	first, last, client := tn.start(nil), tn.start(nil), tn.start(func(c *Config) { c.Client = true })
	tn.serve(whole, id, 0, layers)
	tn.serve(first, id, 0, layers-1)
	tn.serve(last, id, layers-1, layers)
	ctx := testContext(t)
	eventually(t, "three offers", func() bool { _ = client.host.Refresh(ctx); p, _ := client.planPeers(id); return len(p) == 3 })
	requests := make([]control.RunRequest, 8)
	for i := range requests {
		k := []control.Constraints{
			{Shape: "local", Decoder: whole.ID()},
			{Shape: "across", Cuts: []int{layers - 1}, Assign: []string{first.ID()}, Decoder: whole.ID(), Chunk: 7},
			{Shape: "pipelined", Cuts: []int{layers - 1}, Assign: []string{first.ID()}, Decoder: last.ID(), Chunk: 50},
			{Shape: "local", Decoder: whole.ID(), Chunk: 11},
		}[i%4]
		requests[i] = control.RunRequest{Model: id.String(), Tokens: somePrompt(1 + 37*i), MaxNew: 30 - i, Sampling: control.Sampling{Temperature: 0.7, Seed: uint64(i)}, Proof: true, Constraints: k}
	}
	want := make([]*control.Account, len(requests))
	for i, q := range requests {
		var err error
		if want[i], err = client.run(ctx, q, quiet); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i, q := range requests {
		wg.Go(func() {
			got, err := client.run(ctx, q, quiet)
			if err != nil {
				t.Errorf("session %d: %v", i, err)
				return
			}
			sameAnswer(t, got, want[i])
			if len(got.Recovered) > 0 {
				t.Errorf("session %d recovered from %v", i, got.Recovered)
			}
		})
	}
	wg.Wait()
	tn.mustBeIdle()
}
