package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/starling-swarm/starling/runtime"
)

// benchTest is one line of the table: a prompt that is read, or tokens that are decoded.
type benchTest struct {
	Prompt int `json:"prompt"` // tokens read together, or 0
	New    int `json:"new"`    // tokens decoded by each stream, or 0
	Depth  int `json:"depth"`  // tokens in the cache before
	Batch  int `json:"batch"`  // streams
}

// String is the test's name, as llama-bench would write it.
func (t benchTest) String() string {
	name := fmt.Sprintf("pp%d", t.Prompt)
	if t.New > 0 {
		name = fmt.Sprintf("tg%d", t.New)
	}
	if t.Batch > 1 {
		name += fmt.Sprintf("xB%d", t.Batch)
	}
	if t.Depth > 0 {
		name += fmt.Sprintf("@d%d", t.Depth)
	}
	return name
}

// tokens is how many tokens the test's speed counts.
func (t benchTest) tokens() int { return (t.Prompt + t.New) * t.Batch }

// bench runs tests on a loaded model.
type bench struct {
	m      runtime.Executor
	layers runtime.Range
	cfg    runtime.Config
	status *benchStatus
}

// benchWarm is how many tokens are decoded before the clock runs.
const benchWarm = 4

// run does a test repeat times, and once before to warm up, and returns tokens per second of each time.
func (b *bench) run(ctx context.Context, t benchTest, repeat int) (samples []float64, err error) {
	seqs := make([]runtime.Sequence, t.Batch)
	for i := range seqs {
		if seqs[i], err = b.m.NewSequence(t.Depth+max(t.Prompt, t.New, benchWarm), b.layers); err != nil {
			return nil, err
		}
		defer seqs[i].Close()
	}
	dice := rand.New(rand.NewPCG(1, 1))
	if t.Depth > 0 {
		b.status.show("%v: reading %d tokens", t, t.Depth)
		if err := b.deepen(ctx, seqs, t.Depth, dice); err != nil {
			return nil, err
		}
	}
	for i := range repeat + 1 {
		n := t.New
		if i == 0 {
			b.status.show("%v: warming up", t)
			n = min(n, benchWarm)
		} else {
			b.status.show("%v: %d of %d", t, i, repeat)
		}
		began := time.Now()
		if t.Prompt > 0 {
			err = b.read(ctx, seqs[0], t.Prompt, dice)
		} else {
			err = b.decode(ctx, seqs, n, dice)
		}
		took := time.Since(began)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			samples = append(samples, float64(t.tokens())/took.Seconds())
		}
		back := t.Depth
		for _, s := range seqs {
			back = min(back, s.Truncate(t.Depth))
		}
		if back < t.Depth { // layers with a tail don't go back to where they were
			for _, s := range seqs {
				s.Truncate(0)
			}
			if err := b.deepen(ctx, seqs, t.Depth, dice); err != nil {
				return nil, err
			}
		}
	}
	return samples, nil
}

// deepen brings all sequences to a depth: one reads, the others get its rows.
func (b *bench) deepen(ctx context.Context, seqs []runtime.Sequence, depth int, dice *rand.Rand) error {
	if err := b.read(ctx, seqs[0], depth, dice); err != nil {
		return err
	}
	for l := b.layers.First; l < b.layers.Last; l++ {
		rows, err := seqs[0].ExportKV(nil, l, 0, depth)
		if err != nil {
			return err
		}
		for _, s := range seqs[1:] {
			if err := s.ImportKV(l, 0, depth, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

// read lets a sequence read n random tokens, with the logits of the last one.
func (b *bench) read(ctx context.Context, s runtime.Sequence, n int, dice *rand.Rand) error {
	step := &runtime.Step{Seq: s, Layers: b.layers, Start: s.Len(b.layers.First), N: n, Tokens: make([]int32, n), LogitRows: []int{n - 1}}
	for i := range step.Tokens {
		step.Tokens[i] = dice.Int32N(int32(b.cfg.Vocab))
	}
	return b.m.Run(ctx, []*runtime.Step{step})
}

// decode lets sequences of equal length decode n random tokens each.
func (b *bench) decode(ctx context.Context, seqs []runtime.Sequence, n int, dice *rand.Rand) error {
	steps := make([]*runtime.Step, len(seqs))
	for i, s := range seqs {
		steps[i] = &runtime.Step{Seq: s, Layers: b.layers, Start: s.Len(b.layers.First), N: 1, Tokens: []int32{0}, LogitRows: []int{0}}
	}
	for range n {
		for _, s := range steps {
			s.Tokens[0] = dice.Int32N(int32(b.cfg.Vocab))
		}
		if err := b.m.Run(ctx, steps); err != nil {
			return err
		}
		for _, s := range steps {
			s.Start++
		}
	}
	return nil
}

// benchResult is a test with its figures, in tokens per second.
type benchResult struct {
	Test     string  `json:"test"`
	TPS      float64 `json:"tps"` // median
	StdDev   float64 `json:"stddev"`
	Fraction float64 `json:"limit_fraction"`
	Limit    float64 `json:"limit_tps"`
	Bound    string  `json:"bound"`
	Mean     float64 `json:"mean"`
	Min      float64 `json:"min"`
	Max      float64 `json:"max"`
	benchTest
	Samples []float64 `json:"samples"`
}

// newResult sums up the samples of a test; there is at least one.
func newResult(t benchTest, samples []float64) benchResult {
	r := benchResult{Test: t.String(), benchTest: t, Samples: samples, Min: slices.Min(samples), Max: slices.Max(samples)}
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	r.TPS = (sorted[(n-1)/2] + sorted[n/2]) / 2
	for _, x := range samples {
		r.Mean += x / float64(n)
	}
	if n > 1 {
		for _, x := range samples {
			r.StdDev += (x - r.Mean) * (x - r.Mean) / float64(n-1)
		}
		r.StdDev = math.Sqrt(r.StdDev)
	}
	return r
}

// benchStatus is a line on a terminal that says what goes on.
type benchStatus struct{ terminal bool }

func (s *benchStatus) show(format string, args ...any) {
	if s.terminal {
		fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
	}
}

func (s *benchStatus) clear() { s.show("") }
