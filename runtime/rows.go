package runtime

import (
	"cmp"
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
	gated  []float32 // [Heads][2×HeadDim] queries and gates as they come
	// attnGate is [Heads×HeadDim], of what is attended to.
	attnGate []float32
	gate     []float32 // [FFN]
	up       []float32 // [FFN]
	y        []float32 // [Width] what is added to the residual stream
	shared   []float32 // [Width] of the shared expert
	shares   []float32 // [1] before its sigmoid: what the shared expert is multiplied by

	seams               []byte    // [4×Width]
	logits              []float32 // [Vocab]
	all, active, wanted []row     // rows of the Run, of the layer, of the head

	forms   [3]kernels.Activations // prepared rows by kernels.Form
	scratch []kernels.Scratch      // by worker

	attention attention
	latent    latentBuffers
	delta     deltaBuffers
	routing   routing
}

// sized returns s with length n and arbitrary contents, in its own memory where that suffices.
func sized[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}

// pass is the current operation on rows of one layer. Operations get it instead of capturing variables: a function
// literal that captures nothing costs no memory, and decoding must not allocate per token.
type pass struct {
	m     *Model
	l     int    // the layer; the model's layer count for the head
	layer *layer // l's weights; not for the head
	rows  []row

	// Of prepare.
	x    []float32 // [len(rows)][cols]
	cols int
	want [3]bool // forms
	fill func(p *pass, r int, x []float32)
	// Of eachRow; of the head, [len(rows)][Vocab].
	each   func(p *pass, r int) bool
	logits []float32
	// Of inputs.
	steps []*Step

	bad   firstBad
	grain int // rows per task

	// Of multiply.
	products []product
}

// operations are the pool's operations over the pass, bound once.
type operations struct {
	prepare, each, multiply, input, expertInput, expertGate, delta func(worker, task int)
}

func (m *Model) bindOperations() {
	m.pass.m = m
	m.ops = operations{m.prepareTask, m.eachTask, m.multiplyTask, m.inputTask, m.expertInputTask, m.expertGateTask, m.deltaTask}
}

// grainElems is how many elements of rows a task takes at least, where a row-wise step is cut: some microseconds, so that
// a step of decoding stays on its thread.
const grainElems = 8192

// forkRows runs a bound operation over tasks of rows, each of cols elements, and returns the first bad row.
func (m *Model) forkRows(n, cols int, op func(worker, task int)) (int, bool) {
	m.pass.bad.reset()
	m.pass.grain = max(1, grainElems/cols)
	m.pool.do((n+m.pass.grain-1)/m.pass.grain, op)
	return m.pass.bad.get()
}

// span returns the rows of a task.
func (p *pass) span(task, n int) (first, last int) {
	return task * p.grain, min((task+1)*p.grain, n)
}

// prepare makes x ready to be multiplied by matrices, which all take rows of cols: fill, where there is one, first
// computes x[r] in place, then x[r] is put into each form that the matrices ask for. x is [len(rows)][cols].
func (m *Model) prepare(l int, rows []row, cols int, matrices []*weight, x []float32, fill func(p *pass, r int, x []float32)) error {
	p := &m.pass
	p.l, p.rows, p.x, p.cols, p.fill = l, rows, x, cols, fill
	p.want = [3]bool{}
	for _, w := range matrices {
		f := w.Type.Form()
		if !p.want[f] {
			m.buf.forms[f].Reset(len(rows), cols, f)
		}
		p.want[f] = true
	}
	if r, found := m.forkRows(len(rows), cols, m.ops.prepare); found {
		return &NonFiniteError{rows[r].step, "activations", l, rows[r].pos}
	}
	return nil
}

func (m *Model) prepareTask(_, task int) {
	p := &m.pass
	for r, last := p.span(task, len(p.rows)); r < last; r++ {
		if p.fill != nil {
			p.fill(p, r, p.x[r*p.cols:(r+1)*p.cols])
		}
		for f := range m.buf.forms {
			if p.want[f] && m.buf.forms[f].PrepareRows(p.x, r, r+1) != nil {
				p.bad.note(r)
			}
		}
	}
}

// eachRow calls f for every row, on all threads. Where some return false, the error names the first of them.
func (m *Model) eachRow(l int, rows []row, what string, f func(p *pass, r int) bool) error {
	p := &m.pass
	p.l, p.rows, p.each = l, rows, f
	if r, found := m.forkRows(len(rows), m.cfg.Width, m.ops.each); found {
		return &NonFiniteError{rows[r].step, what, l, rows[r].pos}
	}
	return nil
}

func (m *Model) eachTask(_, task int) {
	p := &m.pass
	for r, last := p.span(task, len(p.rows)); r < last; r++ {
		if !p.each(p, r) {
			p.bad.note(r)
		}
	}
}

// product is one matrix, what it multiplies and where its outputs go, [n][w.Rows].
type product struct {
	w   *weight
	dst []float32
	// stride is from a row of outputs to the next where it is not w.Rows.
	stride int
	a      *kernels.Activations // nil: the rows that prepare has made ready
	n      int                  // rows of a; set by multiply where a is nil

	tile, tiles int // rows of w per task, tasks; set by multiply
}

// Sizes of tasks in multiply, in nanoseconds of a core that reads 15 GB/s and multiplies a row of activations with
// weights from its cache four times as fast. They need not be right: a wrong factor of two costs nothing.
const (
	tileTime   = 40_000 // so long that claiming is free, so short that the last one doesn't keep the others waiting
	inlineTime = 4_000  // what isn't worth a fork
)

// groupRows is how many rows of a matrix kernels packs and multiplies together (kernels.Matrix.Groups).
const groupRows = 16

// reuseRows is how many rows of a matrix kernels.MatMul takes through all activations before it reads those again; in
// prefill a tile has no fewer, where that leaves all threads busy.
const reuseRows = 4 * groupRows

// multiply computes the products of n prepared rows, or of those that a product brings. They are cut into tiles of whole
// groups of rows, which threads claim as they get ready. The order of every sum is kernels.MatMul's. It fails with *WeightError if a matrix is damaged.
func (m *Model) multiply(n int, products ...product) error {
	p := &m.pass
	p.products = append(p.products[:0], products...)
	total, work := 0, 0
	for i := range p.products {
		q := &p.products[i]
		if q.a == nil {
			q.a, q.n = &m.buf.forms[q.w.Type.Form()], n
		}
		group := max(1, q.w.workOf(groupRows, q.n))
		q.tile = max(1, tileTime/group) * groupRows
		if q.n >= 8 {
			q.tile = max(q.tile, reuseRows)
		}
		work += group * ((q.w.Rows + groupRows - 1) / groupRows)
		total += q.cut(q.tile)
	}
	for small := false; total < 4*m.pool.threads && !small; {
		total, small = 0, true
		for i := range p.products {
			q := &p.products[i]
			tile := max(q.tile/2/groupRows, 1) * groupRows
			small = small && tile == q.tile
			total += q.cut(tile)
		}
	}
	p.bad.reset()
	if work < inlineTime {
		for t := range total {
			m.multiplyTask(0, t)
		}
	} else {
		m.pool.do(total, m.ops.multiply)
	}
	if t, found := p.bad.get(); found {
		q, first, last := p.tileOf(t)
		return &WeightError{Tensor: q.w.name, Err: q.w.CheckScales(first, last)}
	}
	return nil
}

// cut sets the rows per task and returns the tasks.
func (q *product) cut(tile int) int {
	q.tile, q.tiles = tile, (q.w.Rows+tile-1)/tile
	return q.tiles
}

// tileOf returns what task t multiplies.
func (p *pass) tileOf(t int) (q *product, first, last int) {
	for i := range p.products {
		q = &p.products[i]
		if t < q.tiles {
			return q, t * q.tile, min((t+1)*q.tile, q.w.Rows)
		}
		t -= q.tiles
	}
	panic("runtime: a tile beyond all products")
}

func (m *Model) multiplyTask(worker, t int) {
	p := &m.pass
	q, first, last := p.tileOf(t)
	step := last - first
	if !q.w.trusted() { // looked at and multiplied group by group, so that memory is waited for once
		step = min(step, reuseRows)
		if q.n < 8 {
			step = groupRows
		}
	}
	w, stride := &q.w.Matrix, cmp.Or(q.stride, q.w.Rows)
	for ; first < last; first += step {
		end := min(first+step, last)
		if !q.w.sound(first, end) {
			p.bad.note(t)
			return
		}
		kernels.MatMul(q.dst[:(q.n-1)*stride+w.Rows], stride, w, q.a, first, end, &m.buf.scratch[worker])
	}
}

// firstBad is the smallest index noted by any thread. The zero value holds none.
type firstBad struct{ plus1 atomic.Int64 }

func (b *firstBad) reset() { b.plus1.Store(0) }

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
