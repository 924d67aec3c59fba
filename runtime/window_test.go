package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// windowed opens a model whose layer 1 of 3 sees all positions; the others see the last so many.
func windowed(t testing.TB, window int) *runtime.Model {
	return open(t, runtime.Options{Threads: 2, Path: tiny(t, runtimetest.TinyModel{Arch: "gemma3", Seed: 3, Type: kernels.Q8_0, Meta: map[string]gguf.Value{
		"gemma3.attention.sliding_window": gguf.ValueOf(uint32(window)), "gemma3.context_length": gguf.ValueOf(uint32(1 << 16)),
	}})})
}

// TestWindowMemory reads a long text in Runs of several lengths, and asks for the same states as of one Run, a reservation that does
// not grow with the text, and never more pages than that.
func TestWindowMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	const length = 3300
	for _, window := range []int{1, 2, 5, 128, 255, 256, 257, 300, 512} {
		m := windowed(t, window)
		c := m.Config()
		most := c.Cache[0].Positions(1<<16) / 256
		if c.Cache[0].Window != window || c.Cache[1].Window != 0 || most != c.Cache[0].Positions(1<<15)/256 || most*256 > 2*window+4*256+512 {
			t.Fatalf("window %d: %+v, %d pages", window, c.Cache, most)
		}
		tokens := someTokens(length)
		free := m.FreeKVBytes()
		one := sequenceOf(t, m, length)
		row := int64(c.KVRowBytes(0, runtime.KVF16))
		if got, want := free-m.FreeKVBytes(), row*256*int64(2*min(most, 13)+13); got != want {
			t.Errorf("window %d: %d bytes reserved, want %d", window, got, want)
		}
		run(t, m, &runtime.Step{Seq: one, Layers: m.Layers(), N: length, Tokens: tokens})
		want := states(m, one)
		check := func(s runtime.Sequence) {
			t.Helper()
			for _, l := range []int{0, 2} {
				if n := runtime.PagesOf(s, l); n > most {
					t.Fatalf("window %d: %d pages of layer %d at position %d, reserved are %d", window, n, l, s.Len(l), most)
				}
			}
		}
		check(one)
		for _, lengths := range [][]int{{512}, {700, 3, 40}, {1, 1, 1, 600}, {2000, 1}, {257}, {100}} {
			s := sequenceOf(t, m, length)
			for at, i := 0, 0; at < length; i++ {
				n := min(lengths[i%len(lengths)], length-at)
				run(t, m, &runtime.Step{Seq: s, Layers: m.Layers(), Start: at, N: n, Tokens: tokens[at : at+n]})
				at += n
				check(s)
			}
			if !slices.Equal(states(m, s), want) {
				t.Errorf("window %d, Runs of %v: other states", window, lengths)
			}
			s.Close()
		}
	}
}

// TestWindowsGoAnyway lets random Runs, failed Runs, truncations and hand-overs follow each other, and asks for the states of one
// Run, for pages within the reservation, and for every position that Truncate and ExportKV promise.
func TestWindowsGoAnyway(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	const length = 2600
	tokens := someTokens(length)
	for _, window := range []int{3, 200, 300} {
		m := windowed(t, window)
		most, free := m.Config().Cache[0].Positions(length)/256, m.FreeKVBytes()
		whole := map[int][]string{}
		want := func(n int) []string { // states after n positions
			if whole[n] == nil {
				s := sequenceOf(t, m, length)
				defer s.Close()
				if n > 0 {
					run(t, m, &runtime.Step{Seq: s, Layers: m.Layers(), N: n, Tokens: tokens[:n]})
				}
				whole[n] = states(m, s)
			}
			return whole[n]
		}
		for seed := range uint64(6) {
			r := rand.New(rand.NewPCG(seed, uint64(window)))
			s := sequenceOf(t, m, length)
			before := 0 // where the last Run or import began
			var history []string
			for s.Len(0) < length {
				at := s.Len(0)
				n := min(1+r.IntN(40), length-at)
				if r.IntN(4) == 0 {
					n = min(1+r.IntN(1400), length-at)
				}
				switch what := r.IntN(9); {
				case what == 0: // a broken seam, which the last layer notices after the others have run
					seam := make([]float32, n*m.Config().Width)
					seam[len(seam)-1] = float32(math.Inf(1))
					err := m.Run(context.Background(), []*runtime.Step{{Seq: s, Layers: runtime.Range{First: 2, Last: 3}, Start: at, N: n, Seam: seam}})
					late := &lateCancel{Context: context.Background(), left: 2 + r.IntN(8)}
					lateErr := m.Run(late, []*runtime.Step{{Seq: s, Layers: m.Layers(), Start: at, N: n, Tokens: tokens[:n]}})
					if err == nil || lateErr != nil && !errors.Is(lateErr, context.Canceled) {
						t.Fatalf("%v, %v", err, lateErr)
					}
					if lateErr == nil { // with other tokens
						if got := s.Truncate(at); got != at {
							t.Fatalf("Truncate to %d, before the last Run, went to %d", at, got)
						}
					}
					before = at
					history = append(history, fmt.Sprintf("failed %d", n))
				case what == 1: // to the position before the last Run, which must be there, or another one
					to := before
					if r.IntN(2) == 0 {
						to = r.IntN(at + 1)
					}
					got := s.Truncate(to)
					if got > to || to == before && got != to {
						t.Fatalf("window %d, seed %d: %v: Truncate(%d) of %d went to %d", window, seed, history, to, at, got)
					}
					before = got
					history = append(history, fmt.Sprintf("cut %d→%d", to, got))
				case what == 2: // handed over, at the end or where the last Run began, and from 0 or in two pieces
					last := at
					if r.IntN(2) == 0 {
						last = before
					}
					to := sequenceOf(t, m, length)
					for l := range m.Config().Layers {
						data, err := s.ExportKV(nil, l, 0, last)
						if err == nil && len(data) != s.KVBytes(l, 0, last) {
							err = fmt.Errorf("%d bytes, KVBytes says %d", len(data), s.KVBytes(l, 0, last))
						}
						if err == nil {
							err = to.ImportKV(l, 0, last, data)
						}
						if err != nil {
							t.Fatalf("window %d, seed %d: %v: hand-over of layer %d at %d of %d: %v", window, seed, history, l, last, at, err)
						}
					}
					s.Close()
					s, before = to, 0
					history = append(history, fmt.Sprintf("over at %d", last))
				case what == 3: // forked, and one of both goes on
					to := before
					if r.IntN(2) == 0 {
						to = at
					}
					f, err := s.Fork(to, length)
					if err != nil || f.Len(0) != to {
						t.Fatalf("window %d, seed %d: %v: fork at %d of %d: %v", window, seed, history, to, at, err)
					}
					if r.IntN(2) == 0 {
						s, f, before = f, s, to
					}
					f.Truncate(r.IntN(at + 1))
					f.Close()
					history = append(history, fmt.Sprintf("forked at %d", to))
				default:
					run(t, m, &runtime.Step{Seq: s, Layers: m.Layers(), Start: at, N: n, Tokens: tokens[at : at+n]})
					before = at
					history = append(history, fmt.Sprintf("ran %d", n))
				}
				for _, l := range []int{0, 2} {
					if n := runtime.PagesOf(s, l); n > most {
						t.Fatalf("window %d, seed %d: %v: %d pages, reserved are %d", window, seed, history, n, most)
					}
				}
				if r.IntN(10) == 0 && !slices.Equal(states(m, s), want(s.Len(0))) {
					t.Fatalf("window %d, seed %d: %v: other states", window, seed, history)
				}
			}
			if !slices.Equal(states(m, s), want(length)) {
				t.Errorf("window %d, seed %d: %v: other states", window, seed, history)
			}
			s.Close()
		}
		if now := m.FreeKVBytes(); now != free {
			t.Errorf("window %d: %d bytes free at the end, %d at the start", window, now, free)
		}
	}
}
