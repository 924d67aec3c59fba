package runtimetest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/runtime"
)

// TestExecutor checks that executors keep the contract of runtime.Executor and runtime.Sequence, and above all that
// results do not depend on how the work was cut. open returns a new executor for a layer range of always the same model,
// with the same profile (the zero Range: all layers); the model has at least 2 layers, a context of at least 300 and room
// in its KV budget for a few sequences of 300 positions. With a *testing.T every part is a subtest.
func TestExecutor(t testing.TB, open func(runtime.Range) runtime.Executor) {
	for _, part := range []struct {
		name string
		f    func(*suite)
	}{
		{"Description", (*suite).description},
		{"Chunks", (*suite).chunks},
		{"Splits", (*suite).splits},
		{"Batches", (*suite).batches},
		{"HeadOnly", (*suite).headOnly},
		{"Probes", (*suite).probes},
		{"HandOff", (*suite).handOff},
		{"Grow", (*suite).grow},
		{"Truncate", (*suite).truncate},
		{"Fork", (*suite).fork},
		{"BadSteps", (*suite).badSteps},
		{"BadGrowth", (*suite).badGrowth},
		{"BadPositions", (*suite).badPositions},
		{"NonFinite", (*suite).nonFinite},
		{"Cancel", (*suite).cancel},
		{"Reservations", (*suite).reservations},
		{"Concurrent", (*suite).concurrent},
		{"Close", (*suite).closing},
	} {
		run := func(t testing.TB) {
			s := &suite{TB: t, open: open}
			s.whole = s.executor(runtime.Range{})
			s.cfg = s.whole.Config()
			s.all = runtime.Range{First: 0, Last: s.cfg.Layers}
			part.f(s)
		}
		if tt, ok := t.(*testing.T); ok {
			tt.Run(part.name, func(t *testing.T) { run(t) })
		} else {
			run(t)
		}
	}
}

type suite struct {
	testing.TB
	open  func(runtime.Range) runtime.Executor
	whole runtime.Executor
	cfg   runtime.Config
	all   runtime.Range
}

// executor opens a range and closes it at the end.
func (s *suite) executor(r runtime.Range) runtime.Executor {
	e := s.open(r)
	s.Cleanup(func() {
		if err := e.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	return e
}

// sequence reserves a sequence and closes it at the end.
func (s *suite) sequence(e runtime.Executor, capacity int) runtime.Sequence {
	s.Helper()
	seq, err := e.NewSequence(capacity, e.Layers())
	if err != nil {
		s.Fatalf("NewSequence(%d): %v", capacity, err)
	}
	s.Cleanup(seq.Close)
	return seq
}

// run runs steps that must succeed.
func (s *suite) run(e runtime.Executor, steps ...*runtime.Step) {
	s.Helper()
	if err := e.Run(context.Background(), steps); err != nil {
		s.Fatalf("Run: %v", err)
	}
}

// tokens makes n tokens.
func (s *suite) tokens(seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 0))
	out := make([]int32, n)
	for i := range out {
		out[i] = rng.Int32N(int32(s.cfg.Vocab))
	}
	return out
}

// outcome is everything that a prompt leaves behind.
type outcome struct {
	hidden []uint32   // bits of [n][Width] after the last layer
	logits [][]uint32 // bits, of every row
	kv     [][32]byte // digest by layer
	rows   [][]byte   // by layer
}

func bits(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}

func allRows(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// add notes the results of a step that ended at the model's end.
func (o *outcome) add(step *runtime.Step) {
	o.hidden = append(o.hidden, bits(step.Out)...)
	for _, l := range step.Logits {
		o.logits = append(o.logits, bits(l))
	}
}

// addKV notes the cache rows of some layers.
func (s *suite) addKV(o *outcome, seq runtime.Sequence, r runtime.Range) {
	s.Helper()
	for l := r.First; l < r.Last; l++ {
		rows, err := seq.ExportKV(nil, l, 0, seq.Len(l))
		if err != nil {
			s.Fatalf("ExportKV of layer %d: %v", l, err)
		}
		o.rows = append(o.rows, rows)
		o.kv = append(o.kv, seq.Digest(l))
	}
}

// reference runs a prompt at once on the whole model.
func (s *suite) reference(tokens []int32) outcome {
	s.Helper()
	return s.chunked(s.whole, tokens, len(tokens))
}

// chunked runs a prompt in chunks.
func (s *suite) chunked(e runtime.Executor, tokens []int32, chunk int) (o outcome) {
	s.Helper()
	seq := s.sequence(e, len(tokens))
	for at := 0; at < len(tokens); at += chunk {
		part := tokens[at:min(at+chunk, len(tokens))]
		step := &runtime.Step{Seq: seq, Layers: s.all, Start: at, N: len(part), Tokens: part, LogitRows: allRows(len(part)), KeepHidden: true}
		s.run(e, step)
		o.add(step)
	}
	s.addKV(&o, seq, s.all)
	return o
}

// same fails the test where two outcomes differ in a bit.
func (s *suite) same(what string, got, want outcome) {
	s.Helper()
	if !slices.Equal(got.hidden, want.hidden) {
		s.Errorf("%s: hidden states differ", what)
	}
	if !slices.EqualFunc(got.logits, want.logits, slices.Equal[[]uint32]) {
		s.Errorf("%s: logits differ", what)
	}
	if !slices.Equal(got.kv, want.kv) {
		s.Errorf("%s: KV digests differ", what)
	}
	if !slices.EqualFunc(got.rows, want.rows, slices.Equal[[]byte]) {
		s.Errorf("%s: KV rows differ", what)
	}
}

// want fails the test unless err is of type E (or wraps one).
func want[E error](s *suite, what string, err error) {
	s.Helper()
	var e E
	if !errors.As(err, &e) {
		s.Errorf("%s: error %v, want a %T", what, err, e)
	}
}
