package runtime

import (
	"context"
	"time"
)

// Speed is what this machine does with a loaded layer range, as measured. It predicts; it promises nothing.
type Speed struct {
	PrefillFlops      float64 // operations per second (as Config counts them) with many rows in a layer
	DecodeBytesPerSec float64 // bytes of weights per second with a single row
}

const (
	measureRows = 32                     // rows that stand for a prefill
	measureFor  = 600 * time.Millisecond // how long each of the two is repeated
)

// Measure times single layers of m, each in turn so that weights come from memory as in real use: a few rows at once for
// prefill, one row for decoding, at positions near 0 (attention is not part of it). Where m is a head alone, it times the
// head. It takes below 2 s unless a single layer does longer, and keeps other Runs waiting only layer by layer. Needs KV
// memory for 32 positions (*CapacityError).
func Measure(ctx context.Context, m *Model) (Speed, error) {
	seq, err := m.NewSequence(min(measureRows, m.cfg.Context))
	if err != nil {
		return Speed{}, err
	}
	defer seq.Close()
	var speed Speed
	rows := seq.Capacity()
	layers, seconds, err := m.repeat(ctx, seq, rows)
	if err != nil {
		return Speed{}, err
	}
	speed.PrefillFlops = float64(rows) * m.cfg.unitFlops(m.layers) * layers / seconds
	if layers, seconds, err = m.repeat(ctx, seq, 1); err != nil {
		return Speed{}, err
	}
	speed.DecodeBytesPerSec = m.unitBytes() * layers / seconds
	return speed, nil
}

// repeat runs n rows through the layers in turn, again and again, and returns how many layers that were and the time.
// The first round warms up: it does not count.
func (m *Model) repeat(ctx context.Context, seq Sequence, n int) (layers, seconds float64, err error) {
	seam := make([]float32, n*m.cfg.Width)
	for i := range seam {
		seam[i] = float32(i%7) - 3
	}
	step := &Step{Seq: seq, N: n, Tokens: make([]int32, n), Seam: seam}
	if m.layers.Len() == 0 {
		for r := range n {
			step.LogitRows = append(step.LogitRows, r)
		}
	}
	var total time.Duration
	for i := 0; ; i++ {
		l := m.layers.First
		if m.layers.Len() > 0 {
			l += i % m.layers.Len()
			step.Layers = Range{l, l + 1}
		} else {
			step.Layers = m.layers
		}
		step.Tokens, step.Seam = nil, seam
		if l == 0 {
			step.Tokens, step.Seam = make([]int32, n), nil
		}
		start := time.Now()
		if err := m.Run(ctx, []*Step{step}); err != nil {
			return 0, 0, err
		}
		took := time.Since(start)
		seq.Truncate(0)
		if i > 0 {
			layers++
			total += took
		}
		if i > 0 && total > measureFor {
			return layers, total.Seconds(), nil
		}
	}
}

// unitFlops is what repeat computes per row and layer.
func (c *Config) unitFlops(r Range) float64 {
	if r.Len() == 0 {
		return c.HeadFlops
	}
	return c.LayerFlops
}

// unitBytes is what repeat reads per layer, on average.
func (m *Model) unitBytes() float64 {
	if m.layers.Len() == 0 {
		return float64(m.cfg.HeadBytes)
	}
	var sum int64
	for _, b := range m.cfg.LayerBytes[m.layers.First:m.layers.Last] {
		sum += b
	}
	return float64(sum) / float64(m.layers.Len())
}
