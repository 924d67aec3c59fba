package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// recurrent opens a model whose layers 0 and 2 of 3 are gated delta nets.
func recurrent(t testing.TB, arch string) *runtime.Model {
	return open(t, runtime.Options{Path: tiny(t, runtimetest.TinyModel{Arch: arch, Seed: 3, Type: kernels.Q8_0}), Threads: 2})
}

// someTokens are n tokens without a pattern.
func someTokens(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i * 101 % 257)
	}
	return tokens
}

// states are the digests of all layers.
func states(m *runtime.Model, s runtime.Sequence) (d []string) {
	for l := range m.Config().Layers {
		d = append(d, fmt.Sprintf("%x", s.Digest(l)))
	}
	return d
}

// TestRecurrentBatches takes 1, 15, 16 and 17 sequences through chunks of 1, 7 and 64 positions, and asks for the bits of one
// sequence read at once. Rows of several sequences are beside each other then, and of more than one part of a Run.
func TestRecurrentBatches(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	m := recurrent(t, "qwen35moe")
	tokens := someTokens(70)
	one := sequenceOf(t, m, len(tokens))
	run(t, m, &runtime.Step{Seq: one, Layers: m.Layers(), N: len(tokens), Tokens: tokens})
	want := states(m, one)
	for _, c := range [][2]int{{1, 1}, {15, 64}, {16, 64}, {17, 7}} {
		seqs := make([]runtime.Sequence, c[0])
		for i := range seqs {
			seqs[i] = sequenceOf(t, m, len(tokens))
		}
		for at := 0; at < len(tokens); at += c[1] {
			n := min(c[1], len(tokens)-at)
			var steps []*runtime.Step
			for _, s := range seqs {
				steps = append(steps, &runtime.Step{Seq: s, Layers: m.Layers(), Start: at, N: n, Tokens: tokens[at : at+n]})
			}
			run(t, m, steps...)
		}
		for i, s := range seqs {
			if got := states(m, s); !slices.Equal(got, want) {
				t.Fatalf("sequence %d of %d in chunks of %d: other states", i, c[0], c[1])
			}
			s.Close()
		}
	}
}

// TestTails hands a sequence over at the ends of its last two Runs, and asks for an error in between.
func TestTails(t *testing.T) {
	m := recurrent(t, "qwen35")
	c := m.Config()
	tokens := someTokens(40)
	from := sequenceOf(t, m, 40)
	if from.RowBytes(0) != 0 || from.TailBytes(0) != 4*c.Cache[0].State || from.TailBytes(1) != 0 || from.TailBytes(3) != 0 {
		t.Fatalf("rows of %d bytes and a tail of %d, in layer 1 %d", from.RowBytes(0), from.TailBytes(0), from.TailBytes(1))
	}
	free := m.FreeKVBytes()
	again := sequenceOf(t, m, 40)
	want := int64(256*c.KVRowBytes(1, runtime.KVF16)) + 2*2*int64(from.TailBytes(0))
	if got := free - m.FreeKVBytes(); got != want {
		t.Errorf("%d bytes reserved, want %d: rows of one layer, two tails of the others", got, want)
	}
	empty, err := from.ExportKV(nil, 0, 0, 0)
	if err != nil || !bytes.Equal(empty, make([]byte, from.TailBytes(0))) {
		t.Errorf("the state before the first position is not zero: %v", err)
	}
	at := 0
	for _, n := range []int{10, 20, 5} {
		run(t, m, &runtime.Step{Seq: from, Layers: m.Layers(), Start: at, N: n, Tokens: tokens[at : at+n]})
		at += n
	}
	held := states(m, from)
	var tail *runtime.TailError
	for _, last := range []int{10, 29, 34} {
		if _, err := from.ExportKV(nil, 0, 0, last); !errors.As(err, &tail) || tail.Layer != 0 || tail.Pos != last || tail.Held != 35 {
			t.Errorf("the state at position %d: %v", last, err)
		}
	}
	oneLine(t, tail)
	for _, last := range []int{30, 35} {
		again.Truncate(0)
		for l := range c.Layers {
			data, err := from.ExportKV(nil, l, 0, last)
			if err != nil {
				t.Fatal(err)
			}
			if again.TailBytes(l) > 0 {
				if err := again.ImportKV(l, 0, last, data[1:]); err == nil {
					t.Error("a broken state was imported")
				}
				bad := slices.Clone(data)
				copy(bad[len(bad)-4:], []byte{0, 0, 0xc0, 0x7f})
				var nan *runtime.NonFiniteError
				if err := again.ImportKV(l, 0, last, bad); !errors.As(err, &nan) || nan.Layer != l || nan.Pos != last {
					t.Errorf("a NaN in a state: %v", err)
				}
			}
			if err := again.ImportKV(l, 0, last, data); err != nil {
				t.Fatal(err)
			}
		}
		if last < at {
			run(t, m, &runtime.Step{Seq: again, Layers: m.Layers(), Start: last, N: at - last, Tokens: tokens[last:at]})
		}
		if !slices.Equal(states(m, again), held) {
			t.Errorf("handed over at %d: other states", last)
		}
	}
}

// TestTailsGoBack truncates to positions that are kept and to others, lets Runs fail, and goes on from there to the same state.
func TestTailsGoBack(t *testing.T) {
	m := recurrent(t, "qwen35moe")
	tokens := someTokens(40)
	read := func(s runtime.Sequence, ends ...int) {
		t.Helper()
		for _, end := range ends {
			at := s.Len(0)
			run(t, m, &runtime.Step{Seq: s, Layers: m.Layers(), Start: at, N: end - at, Tokens: tokens[at:end]})
		}
	}
	whole := sequenceOf(t, m, 40)
	read(whole, 40)
	want := states(m, whole)
	for _, c := range []struct{ to, reached int }{{40, 40}, {31, 30}, {30, 30}, {29, 0}, {10, 0}, {-1, 0}} {
		s := sequenceOf(t, m, 40)
		read(s, 10, 30, 35)
		if got := s.Truncate(c.to); got != c.reached || s.Len(0) != min(got, 35) || s.Len(1) != min(got, 35) {
			t.Fatalf("Truncate(%d) went to %d, want %d; %d and %d positions are held", c.to, got, c.reached, s.Len(0), s.Len(1))
		}
		read(s, 40)
		if !slices.Equal(states(m, s), want) {
			t.Errorf("after Truncate(%d): other states", c.to)
		}
	}

	s := sequenceOf(t, m, 40)
	read(s, 20)
	before := states(m, s)
	seam := make([]float32, 3*m.Config().Width)
	seam[len(seam)-1] = float32(math.Inf(1))
	broken := &runtime.Step{Seq: s, Layers: runtime.Range{First: 2, Last: 3}, Start: 20, N: 3, Seam: seam}
	if err := m.Run(context.Background(), []*runtime.Step{broken}); err == nil {
		t.Fatal("an infinite seam was accepted")
	}
	late := &lateCancel{Context: context.Background(), left: 3}
	if err := m.Run(late, []*runtime.Step{{Seq: s, Layers: m.Layers(), Start: 20, N: 3, Tokens: tokens[:3]}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a Run cancelled between layers: %v", err)
	}
	if !slices.Equal(states(m, s), before) {
		t.Error("failed Runs changed the state")
	}
	if got := s.Truncate(19); got != 0 {
		t.Errorf("after failed Runs Truncate(19) went to %d", got)
	}
	read(s, 40)
	if !slices.Equal(states(m, s), want) {
		t.Error("after failed Runs: other states")
	}
}

// lateCancel is a context that is cancelled when it has been asked so many times.
type lateCancel struct {
	context.Context
	left int
}

func (c *lateCancel) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}
