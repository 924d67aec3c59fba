package runtime

import (
	"sync/atomic"

	"github.com/starling-swarm/starling/kernels"
)

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

	forms   [3]kernels.Activations // prepared rows by kernels.Form
	scratch []kernels.Scratch      // by worker

	attention attention
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
	m.pool.do(tiles, func(worker, t int) {
		for _, p := range products {
			mine := (p.w.Rows + tileOutputs - 1) / tileOutputs
			if t >= mine {
				t -= mine
				continue
			}
			first := t * tileOutputs
			kernels.MatMul(p.dst[:n*p.w.Rows], p.w.Rows, p.w, &m.buf.forms[p.w.Type.Form()], first, min(first+tileOutputs, p.w.Rows), &m.buf.scratch[worker])
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
