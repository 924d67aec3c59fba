package runtime

import (
	"context"
	"slices"
	"time"
)

// Speed is what this machine does with a loaded layer range, as measured. It predicts; it promises nothing.
type Speed struct {
	PrefillFlops      float64 // operations per second (as Config counts them) of each further row in a layer, beside many
	DecodeBytesPerSec float64 // bytes of weights per second with a single row
}

const (
	measureRows = 32                     // rows that stand for a prefill
	measureFor  = 600 * time.Millisecond // how long each of the two is repeated,
	measureMost = 10000                  // and how often at most
)

// Measure times single layers of e, each in turn so that weights come from memory as in real use: a few rows at once for
// prefill, one row for decoding, at positions near 0 (attention is hardly part of it). Where e is a head alone, it times
// the head. It takes below 2 s unless a single layer does longer, and keeps other Runs waiting only layer by layer. It
// needs KV memory for 33 positions (*CapacityError).
func Measure(ctx context.Context, e Executor) (Speed, error) {
	c, layers := e.Config(), e.Layers()
	n := min(measureRows, c.Context)
	seq, err := e.NewSequence(min(n+1, c.Context), layers)
	if err != nil {
		return Speed{}, err
	}
	defer seq.Close()
	flops, bytes := c.HeadFlops, float64(c.HeadBytes)
	if layers.Len() > 0 {
		flops, bytes = 0, 0
		for l := layers.First; l < layers.Last; l++ {
			flops += c.LayerFlops[l] / float64(layers.Len())
			bytes += float64(c.LayerBytes[l]) / float64(layers.Len())
		}
	}
	many, err := perSecond(ctx, e, seq, n)
	if err != nil {
		return Speed{}, err
	}
	one, err := perSecond(ctx, e, seq, 1)
	if err != nil {
		return Speed{}, err
	}
	// A pass over the weights costs what one row does; further rows add the rest, of which noise mustn't leave nothing.
	further := max(1/many-1/one, 0.5/many)
	return Speed{PrefillFlops: flops * float64(max(n-1, 1)) / further, DecodeBytesPerSec: bytes * one}, nil
}

// perSecond runs n rows through the layers in turn, again and again, and returns how many layers (or heads) a second
// that makes, by the time that a tenth of them stayed within: other programs only ever make one longer, and a mean would
// take a machine that compiles something meanwhile for one of a fifth of its speed, which then gets a fifth of the layers.
// The first one warms up and does not count. A layer keeps its first row, so that its page is made once.
func perSecond(ctx context.Context, e Executor, seq Sequence, n int) (float64, error) {
	c, layers := e.Config(), e.Layers()
	seam, tokens := make([]float32, n*c.Width), make([]int32, n)
	for i := range seam {
		seam[i] = float32(i%7) - 3
	}
	var total time.Duration
	var times []time.Duration
	for i := range measureMost {
		step := &Step{Seq: seq, Layers: layers, N: n}
		if layers.Len() > 0 {
			l := layers.First + i%layers.Len()
			step.Layers = Range{l, l + 1}
		} else {
			for r := range n {
				step.LogitRows = append(step.LogitRows, r)
			}
		}
		if step.Layers.First == 0 {
			step.Tokens = tokens
		} else {
			step.Seam = seam
		}
		step.Start = seq.Len(step.Layers.First)
		start := time.Now()
		if err := e.Run(ctx, []*Step{step}); err != nil {
			return 0, err
		}
		if i > 0 {
			times = append(times, time.Since(start))
			total += times[i-1]
		}
		seq.Truncate(min(1, seq.Capacity()-n))
		if total > measureFor {
			break
		}
	}
	slices.Sort(times)
	return 1 / max(times[len(times)/10], time.Nanosecond).Seconds(), nil
}
