package runtime

import (
	"context"

	"github.com/starling-swarm/starling/kernels"
)

// windowRows is how many rows pass through a layer together at most. Longer steps are cut, which changes no result:
// later rows find the keys and values of earlier ones in the cache either way.
const windowRows = 512

// row is one position of one step on its way through the layers.
type row struct {
	step     int // index in the Run
	seq      *sequence
	pos      int
	h        []float32 // [Width] residual stream, changed in place
	cos, sin []float32 // [RopeDim/2] at pos
}

// Run implements Executor.
func (m *Model) Run(ctx context.Context, steps []*Step) error {
	if err := CheckSteps(&m.cfg, m.layers, steps); err != nil {
		return err
	}
	for i, s := range steps {
		if seq, ok := s.Seq.(*sequence); !ok || seq.budget != &m.budget {
			return &StepError{i, "its sequence was not made by this executor"}
		}
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	if m.closed.Load() {
		return ErrClosed
	}
	for i, s := range steps {
		if err := s.Seq.(*sequence).claim(s.Layers, s.Start, s.N); err != nil {
			releaseAll(steps[:i], false)
			return err
		}
	}
	m.pool.begin()
	err := m.forward(ctx, steps)
	m.pool.end()
	releaseAll(steps, err == nil)
	return err
}

// releaseAll ends the claims of steps; their rows stay if keep is set.
func releaseAll(steps []*Step, keep bool) {
	for _, s := range steps {
		n := 0
		if keep {
			n = s.N
		}
		s.Seq.(*sequence).release(n)
	}
}

// forward computes the steps, whose sequences are claimed. Layers go in ascending order, all steps that have a layer
// together, in the order of steps.
func (m *Model) forward(ctx context.Context, steps []*Step) error {
	all, err := m.inputs(steps)
	if err != nil {
		return err
	}
	first, last := m.layers.Last, 0
	for _, s := range steps {
		first, last = min(first, s.Layers.First), max(last, s.Layers.Last)
	}
	active := make([]row, 0, len(all))
	for l := first; l < last; l++ {
		active = active[:0]
		for i := range all {
			if steps[all[i].step].Layers.Contains(l) {
				active = append(active, all[i])
			}
		}
		for at := 0; at < len(active); at += windowRows {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := m.forwardLlama(l, active[at:min(at+windowRows, len(active))]); err != nil {
				return err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.head(steps, all)
}

// inputs makes the rows of all steps: embedding rows, or copies of the seams, in Out where that is wanted.
func (m *Model) inputs(steps []*Step) ([]row, error) {
	c := &m.cfg
	n, hidden := 0, 0
	for _, s := range steps {
		n += s.N
		if s.Layers.Last == c.Layers && !s.KeepHidden {
			s.Out = nil
			hidden += s.N
		} else {
			s.Out = sized(s.Out, s.N*c.Width)
		}
	}
	m.buf.hidden = sized(m.buf.hidden, hidden*c.Width)
	half := c.RopeDim / 2
	m.buf.rope = sized(m.buf.rope, n*c.RopeDim)
	rows := make([]row, 0, n)
	spare := m.buf.hidden
	for i, s := range steps {
		h := s.Out
		if h == nil {
			h, spare = spare[:s.N*c.Width], spare[s.N*c.Width:]
		}
		for r := range s.N {
			angles := m.buf.rope[len(rows)*c.RopeDim:][:c.RopeDim]
			rows = append(rows, row{
				step: i, seq: s.Seq.(*sequence), pos: s.Start + r, h: h[r*c.Width : (r+1)*c.Width],
				cos: angles[:half], sin: angles[half:],
			})
		}
	}
	var bad firstBad
	m.pool.do(n, func(_, i int) {
		row := &rows[i]
		s := steps[row.step]
		m.rope.fill(row.cos, row.sin, row.pos)
		if r := row.pos - s.Start; s.Layers.First == 0 {
			m.embed.Row(row.h, int(s.Tokens[r]))
		} else {
			copy(row.h, s.Seam[r*c.Width:])
		}
		if kernels.CheckFinite(row.h) >= 0 {
			bad.note(i)
		}
	})
	if i, found := bad.get(); found {
		return nil, &NonFiniteError{rows[i].step, "seam", steps[rows[i].step].Layers.First, rows[i].pos}
	}
	return rows, nil
}

// head computes the logits of the rows whose logits are wanted:
//
//	logits = W_output (RMSNorm(h)·output_norm)
func (m *Model) head(steps []*Step, all []row) error {
	c := &m.cfg
	var wanted []row
	at := 0
	for _, s := range steps {
		for _, r := range s.LogitRows {
			wanted = append(wanted, all[at+r])
		}
		at += s.N
	}
	logits := make([]float32, len(wanted)*c.Vocab)
	for at := 0; at < len(wanted); at += windowRows {
		rows := wanted[at:min(at+windowRows, len(wanted))]
		m.buf.x = sized(m.buf.x, len(rows)*c.Width)
		err := m.prepare(c.Layers, rows, c.Width, []*kernels.Matrix{&m.output}, m.buf.x, func(r int, x []float32) {
			kernels.RMSNorm(x, rows[r].h, m.outputNorm, c.Eps)
		})
		if err != nil {
			return err
		}
		out := logits[at*c.Vocab:]
		m.multiply(len(rows), product{&m.output, out})
		err = m.eachRow(c.Layers, rows, "logits", func(r int) bool {
			return kernels.CheckFinite(out[r*c.Vocab:(r+1)*c.Vocab]) < 0
		})
		if err != nil {
			return err
		}
	}
	for _, s := range steps {
		s.Logits = s.Logits[:0]
		for range s.LogitRows {
			s.Logits = append(s.Logits, logits[:c.Vocab:c.Vocab])
			logits = logits[c.Vocab:]
		}
	}
	return nil
}
