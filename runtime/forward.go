package runtime

import (
	"context"
	"sync/atomic"

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

// buffers are the intermediate rows of one layer, reused by every layer and Run. All are [rows][…].
type buffers struct {
	hidden []float32 // residual streams of steps without Out
	rope   []float32 // cosines and sines of all rows
	x      []float32 // [Width] normed
	q      []float32 // [Heads×HeadDim]
	k, v   []float32 // [KVHeads×HeadDim]
	attn   []float32 // [Heads×HeadDim]
	gate   []float32 // [FFN]
	up     []float32 // [FFN]
	y      []float32 // [Width] what is added to the residual stream

	forms  [3]kernels.Activations // prepared rows by kernels.Form
	attend []attendBuf            // by worker
	tasks  []attendTask
}

// shape makes room for n rows.
func (b *buffers) shape(c *Config, n int) {
	q, kv := n*c.Heads*c.HeadDim, n*c.KVHeads*c.HeadDim
	b.x, b.y = sized(b.x, n*c.Width), sized(b.y, n*c.Width)
	b.q, b.attn = sized(b.q, q), sized(b.attn, q)
	b.k, b.v = sized(b.k, kv), sized(b.v, kv)
	b.gate, b.up = sized(b.gate, n*c.FFN), sized(b.up, n*c.FFN)
}

// sized returns s with length n and arbitrary contents, in its own memory where that suffices.
func sized(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}

// prepare makes x ready to be multiplied by matrices, which all take rows of cols: fill, where there is one, first
// computes x[r] in place, then x[r] is put into each form that the matrices ask for. x is [len(rows)][cols].
func (m *Model) prepare(l int, rows []row, cols int, matrices []*kernels.Matrix, x []float32, fill func(r int, x []float32)) error {
	var want [3]bool
	for _, w := range matrices {
		f := w.Type.Form()
		if !want[f] {
			m.buf.forms[f].Reset(len(rows), cols, f)
		}
		want[f] = true
	}
	return m.eachRow(l, rows, "activations", func(r int) bool {
		if fill != nil {
			fill(r, x[r*cols:(r+1)*cols])
		}
		for f := range m.buf.forms {
			if want[f] && m.buf.forms[f].PrepareRows(x, r, r+1) != nil {
				return false
			}
		}
		return true
	})
}

// product is one matrix and where its outputs go, [rows][w.Rows].
type product struct {
	w   *kernels.Matrix
	dst []float32
}

// tileOutputs is how many outputs of a matrix one task computes, for all rows.
const tileOutputs = 32

// multiply computes the products of n prepared rows, cut into tiles of outputs. The order of every sum is
// kernels.MatMul's.
func (m *Model) multiply(n int, products ...product) {
	tiles := 0
	for _, p := range products {
		tiles += (p.w.Rows + tileOutputs - 1) / tileOutputs
	}
	m.pool.do(tiles, func(_, t int) {
		for _, p := range products {
			mine := (p.w.Rows + tileOutputs - 1) / tileOutputs
			if t >= mine {
				t -= mine
				continue
			}
			first := t * tileOutputs
			kernels.MatMul(p.dst[:n*p.w.Rows], p.w.Rows, p.w, &m.buf.forms[p.w.Type.Form()], first, min(first+tileOutputs, p.w.Rows))
			return
		}
	})
}

// eachRow calls f for every row, on all threads. Where some return false, the error names the first of them.
func (m *Model) eachRow(l int, rows []row, what string, f func(r int) bool) error {
	var bad firstBad
	m.pool.do(len(rows), func(_, r int) {
		if !f(r) {
			bad.note(r)
		}
	})
	if r, found := bad.get(); found {
		return &NonFiniteError{rows[r].step, what, l, rows[r].pos}
	}
	return nil
}

// firstBad is the smallest index noted by any thread. The zero value holds none.
type firstBad struct{ plus1 atomic.Int64 }

func (b *firstBad) note(i int) {
	for {
		old := b.plus1.Load()
		if old != 0 && old <= int64(i)+1 || b.plus1.CompareAndSwap(old, int64(i)+1) {
			return
		}
	}
}

func (b *firstBad) get() (int, bool) {
	v := b.plus1.Load()
	return int(v) - 1, v != 0
}
