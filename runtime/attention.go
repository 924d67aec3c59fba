package runtime

import (
	"math"
	"slices"

	"github.com/starling-swarm/starling/kernels"
)

// attention is the current call of attend, and the memory of all calls.
//
// A unit of the work is some rows of one sequence by the query heads that share one KV head, or some of them where they are
// very many: its blocks of keys and values are read once for all of them. A prefill has many units, and each is one task.
// Decoding has few; there a unit's blocks go to different tasks, which leave the state of each block in a slot, and the slots
// are merged afterwards in the order of positions, so that the bits are those of one task.
type attention struct {
	m      *Model
	l      int
	rows   []row
	dst    []float32 // [len(rows)][Heads×Value]
	q      []float32 // [len(rows)][Heads×Key]
	window int
	scale  float32
	sinks  []float32  // [Heads], or nil
	cache  LayerCache // the layer's
	group  int        // query heads that share a KV head

	units   []attendUnit
	parts   []attendPart
	slots   []kernels.Partial
	workers []attendBuf // by worker

	whole, part, join func(worker, task int) // the pool's operations, bound once
}

// attendUnit is rows [first, last), all of one sequence and at consecutive positions, by query heads [head, head+heads), which
// share a KV head. They see something of the blocks [block, end).
type attendUnit struct {
	first, last int
	kvHead      int
	head, heads int
	block, end  int
	slot        int // of block; the next blocks follow
}

// attendPart is blocks [block, end) of a unit.
type attendPart struct{ unit, block, end int }

// attendBuf is one worker's memory.
type attendBuf struct {
	all, one kernels.Partial
	scratch  kernels.AttnScratch
	q        []float32      // [rows of a unit × its heads][Key]
	visible  []kernels.Span // of the current block
}

const (
	// unitRows is about how many query rows, positions × heads, a unit has in prefill: so many that converting a block's
	// halves is negligible, so few that their scores stay in the L2 cache.
	unitRows = 48
	// unitStep is how many query rows kernels take at once; a unit has a multiple of it where there are rows enough.
	unitStep = 6
	// partsPerThread is how many tasks a thread should find at least, so that none waits long for the last one.
	partsPerThread = 4
	// inlineFlops is what isn't worth a fork: a few microseconds.
	inlineFlops = 200_000
	// maxSlots bounds the values of slots, in all some MiB: splitting is for few rows.
	maxSlots = 4 << 20
)

func (a *attention) bind(m *Model, threads int) {
	a.m, a.workers = m, make([]attendBuf, threads)
	a.whole, a.part, a.join = a.wholeTask, a.partTask, a.joinTask
}

// attentionScale is round(1/√HeadDim), both roundings in float32.
func (c *Config) attentionScale() float32 { return 1 / float32(math.Sqrt(float64(c.HeadDim))) }

// attend computes dst[r][head] = Σ_pos softmax(q[r][head]·K[pos]·scale)·V[pos] over the stored positions up to rows[r].pos
// of a layer: all of them, or, where window is not 0, the last window ones. q is [len(rows)][Heads×Key] and dst [len(rows)][Heads×Value]
// of the layer's cache.
//
// For every row and query head by itself: pages, which are softmax blocks of 256 absolute positions, in ascending
// order through kernels.AttendBlock and Merge, then the head's sink where sinks is not nil, then Finish. Pages without a
// visible position are left out.
func (m *Model) attend(l int, rows []row, dst, q []float32, window int, scale float32, sinks []float32) {
	a := &m.buf.attention
	a.l, a.rows, a.dst, a.q, a.window, a.scale, a.sinks = l, rows, dst, q, window, scale, sinks
	a.cache = m.cfg.Cache[l]
	a.group = m.cfg.Heads / a.cache.Heads
	threads := int(m.pool.use.Load())
	flops := a.cut(2 * threads)
	switch {
	case threads == 1 || flops < inlineFlops:
		for t := range a.units {
			a.wholeTask(0, t)
		}
	case len(a.units) < partsPerThread*threads && a.split(partsPerThread*threads):
		m.pool.do(len(a.parts), a.part)
		m.pool.do(len(a.units), a.join)
	default:
		m.pool.do(len(a.units), a.whole)
	}
}

// cut makes the units, at least want of them if there are rows enough, later rows first, as they take longer; and returns
// the operations of all.
func (a *attention) cut(want int) (flops int) {
	each := a.group // query heads
	parts := (each + unitRows - 1) / unitRows
	if parts > 1 {
		each = (each/parts + unitStep - 1) / unitStep * unitStep
		parts = (a.group + each - 1) / each
	}
	step := 1 // positions
	for step*each%unitStep != 0 {
		step++
	}
	most := max(step, unitRows/each/step*step)
	for most > step && len(a.rows)/most*a.cache.Heads*parts < want {
		most = max(step, most/2/step*step)
	}
	a.units = a.units[:0]
	for last := len(a.rows); last > 0; {
		start := last - 1
		for start > 0 && a.rows[start-1].seq == a.rows[last-1].seq {
			start--
		}
		for head := 0; head < a.m.cfg.Heads; {
			kvHead := head / a.group
			heads := min(each, (kvHead+1)*a.group-head)
			for end := last; end > start; {
				first := max(start, end-most)
				from, to := windowStart(a.rows[first].pos, a.window), a.rows[end-1].pos+1
				a.units = append(a.units, attendUnit{
					first: first, last: end, kvHead: kvHead, head: head, heads: heads, block: from / pageRows, end: (to + pageRows - 1) / pageRows,
				})
				flops += 2 * (a.cache.Key + a.cache.Value) * heads * (end - first) * (to - from)
				end = first
			}
			head += heads
		}
		last = start
	}
	return flops
}

// split cuts the units into about want parts, each of whole blocks, and says whether that can be done.
func (a *attention) split(want int) bool {
	blocks, slots, values := 0, 0, 0
	for i := range a.units {
		u := &a.units[i]
		u.slot = slots
		blocks += u.end - u.block
		slots += u.end - u.block
		values += (u.end - u.block) * (u.last - u.first) * u.heads * a.cache.Value
	}
	if blocks < 2*len(a.units) || values > maxSlots {
		return false
	}
	if len(a.slots) < slots {
		a.slots = append(a.slots, make([]kernels.Partial, slots-len(a.slots))...)
	}
	size := max(1, blocks/want)
	a.parts = a.parts[:0]
	for i, u := range a.units {
		for b := u.block; b < u.end; b += size {
			a.parts = append(a.parts, attendPart{i, b, min(b+size, u.end)})
		}
	}
	return true
}

// queries returns the query rows of a unit, [rows × heads][Key].
func (a *attention) queries(u *attendUnit, buf *attendBuf) []float32 {
	each := u.heads * a.cache.Key
	row := func(r int) []float32 { return a.q[(r*a.m.cfg.Heads+u.head)*a.cache.Key:][:each] }
	if u.last-u.first == 1 {
		return row(u.first)
	}
	buf.q = sized(buf.q, (u.last-u.first)*each)
	for r := u.first; r < u.last; r++ {
		copy(buf.q[(r-u.first)*each:], row(r))
	}
	return buf.q
}

// block computes the state of one block into p.
func (a *attention) block(p *kernels.Partial, u *attendUnit, q []float32, block int, buf *attendBuf) {
	heads := u.heads
	start := block * pageRows
	buf.visible = slices.Grow(buf.visible[:0], (u.last-u.first)*heads)[:(u.last-u.first)*heads]
	for i := range buf.visible {
		pos := a.rows[u.first+i/heads].pos
		buf.visible[i] = kernels.Span{From: max(windowStart(pos, a.window)-start, 0), To: min(pos+1-start, pageRows)}
	}
	seq := a.rows[u.first].seq
	var next kernels.KVBlock
	if block+1 < u.end {
		next = seq.block(a.l, block+1, u.kvHead)
	}
	kernels.AttendBlock(p, q, seq.block(a.l, block, u.kvHead), buf.visible, a.scale, next, &buf.scratch)
}

// finish writes the outputs of a unit.
func (a *attention) finish(p *kernels.Partial, u *attendUnit, buf *attendBuf) {
	if a.sinks != nil {
		for r := range (u.last - u.first) * u.heads {
			p.Sink(r, a.sinks[u.head+r%u.heads])
		}
	}
	for r := u.first; r < u.last; r++ {
		p.Finish(a.dst[(r*a.m.cfg.Heads+u.head)*a.cache.Value:], (r-u.first)*u.heads, u.heads, &buf.scratch)
	}
}

// wholeTask computes a unit. The state after the first block is that block's: merging it into a fresh one changes no bit.
func (a *attention) wholeTask(worker, task int) {
	u, buf := &a.units[task], &a.workers[worker]
	q := a.queries(u, buf)
	a.block(&buf.all, u, q, u.block, buf)
	for b := u.block + 1; b < u.end; b++ {
		a.block(&buf.one, u, q, b, buf)
		buf.all.Merge(&buf.one, &buf.scratch)
	}
	a.finish(&buf.all, u, buf)
}

// partTask computes the slots of a part.
func (a *attention) partTask(worker, task int) {
	p, buf := &a.parts[task], &a.workers[worker]
	u := &a.units[p.unit]
	q := a.queries(u, buf)
	for b := p.block; b < p.end; b++ {
		a.block(&a.slots[u.slot+b-u.block], u, q, b, buf)
	}
}

// joinTask merges the slots of a unit.
func (a *attention) joinTask(worker, task int) {
	u, buf := &a.units[task], &a.workers[worker]
	all := &a.slots[u.slot]
	for b := u.block + 1; b < u.end; b++ {
		all.Merge(&a.slots[u.slot+b-u.block], &buf.scratch)
	}
	a.finish(all, u, buf)
}
