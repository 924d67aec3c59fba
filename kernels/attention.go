package kernels

import (
	"fmt"
	"math"
)

// AttnBlock is the softmax block: this many positions, at absolute multiples of it, whatever the page or chunk size.
const AttnBlock = 256

// Span is a range of positions of a block, From <= i < To; empty unless From < To.
type Span struct{ From, To int }

// Partial is the state of attention for some query rows (each one query head at one position) after some blocks: for
// each row the largest score M, the sum L of e^(score-M), and the output O, still to be divided by L. A row that has
// met no visible position has L = 0, M = -Inf, O = +0.
//
// [AttendBlock] makes that of one block. Where a score was NaN or +Inf, L and O are NaN and M is not specified; otherwise
// no zero in it is negative.
type Partial struct {
	rows, dim int
	m, l      []float32 // [rows], with room for a multiple of 8
	o         []float32 // [rows][dim]
}

// reset makes p the state of rows heads of dim values that have met nothing. Memory is reused if it is large enough.
func (p *Partial) reset(rows, dim int) {
	p.rows, p.dim = rows, dim
	padded := (rows + 7) &^ 7
	p.m, p.l, p.o = sized(p.m, padded), sized(p.l, padded), sized(p.o, rows*dim)
	for i := range p.m {
		p.m[i] = float32(math.Inf(-1))
	}
	clear(p.l)
	clear(p.o)
}

// row returns M, L and O of a row; O is p's own memory.
func (p *Partial) row(r int) (m, l float32, o []float32) {
	return p.m[r], p.l[r], p.o[r*p.dim : (r+1)*p.dim]
}

// AttnScratch is one worker's memory for [AttendBlock] and the methods of [Partial]. The zero value is ready; it grows
// as needed.
type AttnScratch struct {
	scores  []float32 // [rows][attnStride]
	panel   []float32
	half    []uint16  // [AttnBlock][KVTile] of a Latent block
	full    []float32 // or these
	product attnProductArgs
	softmax attnSoftmaxArgs
	merge   attnMergeArgs
	finish  attnFinishArgs
}

// attnStride is the distance of two rows of scores: a multiple of 2^k would have them share a few cache sets.
const attnStride = AttnBlock + KVTile

// AttendBlock computes one softmax block for query rows q, [rows][Key], all of one KV head, whose keys and values of the
// block are kv. Row r sees the positions visible[r] and gives row r of p, which becomes the state after this block
// alone, whatever it was before. next, which may be zero, is the block that the caller comes to next: a hint.
//
//   - Score of position i: FMA(q[d], k[i][d], acc) over ascending d from +0, plus 0; then one rounded product with
//     scale, which must be above 0.
//   - M: the largest score, plus 0. p_i = Exp(score_i - M).
//   - L: 16 lanes, lane j adds p_i for i ≡ j mod 16, ascending, from +0; folded 8-4-2-1.
//   - O[d]: FMA(p_i, v[i][d], acc) over ascending i from +0, plus 0.
//
// i runs over the visible positions. Nothing depends on other rows: a variant may let a row run over positions that
// only others see with p_i = +0, which changes at most the sign of a zero, and only if v is finite. So values from
// the first position that any row sees to the last must be finite; others, and keys, may be anything.
func AttendBlock(p *Partial, q []float32, kv KVBlock, visible []Span, scale float32, next KVBlock, s *AttnScratch) {
	rows := len(visible)
	kv.check()
	if len(q) < rows*kv.Key || !(scale > 0) {
		panic(fmt.Sprintf("kernels: AttendBlock of %d rows of %d dimensions: %d query values, scale %v", rows, kv.Key, len(q), scale))
	}
	all := Span{AttnBlock, 0}
	for _, v := range visible {
		if v.From < v.To {
			if v.From < 0 || v.To > AttnBlock {
				panic(fmt.Sprintf("kernels: AttendBlock of positions %d to %d", v.From, v.To))
			}
			all = Span{min(all.From, v.From), max(all.To, v.To)}
		}
	}
	p.reset(rows, kv.Value)
	if all.From >= all.To {
		return
	}
	s.scores = sized(s.scores, rows*attnStride)
	first, last := all.From/KVTile, (all.To+KVTile-1)/KVTile
	s.products(attnProduct{
		dst: s.scores[first*KVTile:], dstStride: attnStride, a: q, aStride: kv.Key, rows: rows, n: kv.Key,
		b: kv.keys(first), bStride: KVTile, bNext: KVTile * kv.Key, lanes: (last - first) * KVTile,
		ahead: kv.values(all.From),
	})
	s.weigh(p, visible, first*KVTile, last*KVTile, scale)
	if next.Key == 0 {
		next = kv
	}
	if kv.Latent {
		s.latentOutputs(p, kv, all)
	} else {
		s.products(attnProduct{
			dst: p.o, dstStride: kv.Value, a: s.scores[all.From:], aStride: attnStride, rows: rows, n: all.To - all.From,
			b: kv.values(all.From), bStride: kv.Value, bNext: KVTile, lanes: kv.Value,
			ahead: next.keys(0),
		})
	}
	for r, v := range visible {
		if v.From >= v.To {
			clear(p.o[r*kv.Value : (r+1)*kv.Value])
		}
	}
}

// latentOutputs is the product of weights and values of a Latent block: sixteen dimensions of all positions at a time are
// taken out of the tiles of keys, a row of them for each position.
func (s *AttnScratch) latentOutputs(p *Partial, kv KVBlock, all Span) {
	first, last := all.From/KVTile, (all.To+KVTile-1)/KVTile
	for d := 0; d < kv.Value; d += KVTile {
		lanes := min(KVTile, kv.Value-d)
		var b stored
		if kv.Full != nil {
			s.full = sized(s.full, AttnBlock*KVTile)
			for tile := first; tile < last; tile++ {
				transpose(s.full[tile*KVTile*KVTile:], kv.Full[(tile*kv.Key+d)*KVTile:], lanes)
			}
			b = stored{full: s.full[all.From*KVTile:]}
		} else {
			s.half = sized(s.half, AttnBlock*KVTile)
			for tile := first; tile < last; tile++ {
				to, from := s.half[tile*KVTile*KVTile:], kv.Half[(tile*kv.Key+d)*KVTile:]
				if lanes == KVTile {
					transposeHalves((*[KVTile * KVTile]uint16)(to), (*[KVTile * KVTile]uint16)(from))
				} else {
					transpose(to, from, lanes)
				}
			}
			b = stored{half: s.half[all.From*KVTile:]}
		}
		s.products(attnProduct{
			dst: p.o[d:], dstStride: p.dim, a: s.scores[all.From:], aStride: attnStride, rows: p.rows, n: all.To - all.From,
			b: b, bStride: KVTile, bNext: KVTile, lanes: lanes, ahead: b,
		})
	}
}

// transpose turns a tile of n dimensions, [n][16 positions], to rows of 16 of which the first n are set.
func transpose[E uint16 | float32](dst, src []E, n int) {
	for d := range n {
		for i, x := range src[d*KVTile : (d+1)*KVTile] {
			dst[i*KVTile+d] = x
		}
	}
}

// transposeHalves is transpose of 16 dimensions, four by four: a word of memory holds four of either.
func transposeHalves(dst, src *[KVTile * KVTile]uint16) {
	const even, low = 0x0000ffff0000ffff, 0x00000000ffffffff
	for d := 0; d < KVTile; d += 4 {
		for i := 0; i < KVTile; i += 4 {
			a, b := load4(src[d*KVTile+i:]), load4(src[(d+1)*KVTile+i:])
			x, y := load4(src[(d+2)*KVTile+i:]), load4(src[(d+3)*KVTile+i:])
			ab0, ab1 := a&even|b&even<<16, a>>16&even|b&^even // positions 0 and 2, 1 and 3, of the first two dimensions
			xy0, xy1 := x&even|y&even<<16, x>>16&even|y&^even
			store4(dst[i*KVTile+d:], ab0&low|xy0<<32)
			store4(dst[(i+1)*KVTile+d:], ab1&low|xy1<<32)
			store4(dst[(i+2)*KVTile+d:], ab0>>32|xy0&^low)
			store4(dst[(i+3)*KVTile+d:], ab1>>32|xy1&^low)
		}
	}
}

// load4 and store4 move four halves at once.
func load4(x []uint16) uint64 {
	_ = x[3]
	return uint64(x[0]) | uint64(x[1])<<16 | uint64(x[2])<<32 | uint64(x[3])<<48
}

func store4(x []uint16, v uint64) {
	_ = x[3]
	x[0], x[1], x[2], x[3] = uint16(v), uint16(v>>16), uint16(v>>32), uint16(v>>48)
}

// weigh turns the raw scores of positions [first, last), multiples of 16, to weights, and sets M and L. Weights of
// positions that a row doesn't see are +0, unless it sees none.
func (s *AttnScratch) weigh(p *Partial, visible []Span, first, last int, scale float32) {
	if kernel := active.attnSoftmax; kernel != nil {
		s.softmax = attnSoftmaxArgs{
			s: &s.scores[0], visible: &visible[0], rows: len(visible), first: first, last: last, scale: scale,
			m: &p.m[0], l: &p.l[0],
		}
		kernel(&s.softmax)
		return
	}
	for r, v := range visible {
		if v.From >= v.To {
			continue
		}
		row := s.scores[r*attnStride:][:AttnBlock]
		clear(row[first:v.From])
		clear(row[v.To:last])
		ps := row[v.From:v.To]
		for i, x := range ps {
			ps[i] = float32(x * scale)
		}
		m := ps[0]
		for _, x := range ps {
			if x > m {
				m = x
			}
		}
		m += 0
		var l lanes
		for i, x := range ps {
			e := Exp(x - m)
			ps[i] = e
			l[(v.From+i)%16] += e
		}
		p.m[r], p.l[r] = m, l.fold()
	}
}

// Merge adds the state b of a later block to p, from the right; both have the same shape. For each row that b has seen
// something of (L != 0), with m, l, o of b:
//
//	M' = m if m > M, else M;  a = Exp(M-M');  c = Exp(m-M')
//	L' = FMA(L, a, round(l·c));  O'[d] = FMA(O[d], a, round(o[d]·c))
func (p *Partial) Merge(b *Partial, s *AttnScratch) {
	if b.rows != p.rows || b.dim != p.dim {
		panic(fmt.Sprintf("kernels: merging %d rows of %d dimensions into %d of %d", b.rows, b.dim, p.rows, p.dim))
	}
	if p.rows == 0 || p.dim == 0 {
		return
	}
	if kernel := active.attnMerge; kernel != nil && p.dim%8 == 0 {
		s.merge = attnMergeArgs{m: &p.m[0], l: &p.l[0], o: &p.o[0], bm: &b.m[0], bl: &b.l[0], bo: &b.o[0], rows: p.rows, dim: p.dim}
		kernel(&s.merge)
		return
	}
	for r := range p.rows {
		m, l, o := b.row(r)
		if l == 0 {
			continue
		}
		top := p.m[r]
		if m > top {
			top = m
		}
		a, c := Exp(p.m[r]-top), Exp(m-top)
		p.m[r], p.l[r] = top, FMA(p.l[r], a, float32(l*c))
		mine := p.o[r*p.dim : (r+1)*p.dim]
		for d, x := range o {
			mine[d] = FMA(mine[d], a, float32(x*c))
		}
	}
}

// Sink merges a position into row r that has a score but no value, after all blocks: with M' = max(M, score),
// L' = FMA(L, Exp(M−M'), Exp(score−M')) and O'[d] = round(O[d]·Exp(M−M')) + 0.
func (p *Partial) Sink(r int, score float32) {
	top := max(p.m[r], score)
	a := Exp(p.m[r] - top)
	p.m[r], p.l[r] = top, FMA(p.l[r], a, Exp(score-top))
	o := p.o[r*p.dim : (r+1)*p.dim]
	for d := range o {
		o[d] = float32(o[d]*a) + 0
	}
}

// Finish writes the attention output of rows [first, first+n), O[d]·round(1/L) + 0 (product rounded first), to dst,
// [n][dim]. Each of them must have met a visible position.
func (p *Partial) Finish(dst []float32, first, n int, s *AttnScratch) {
	o, l := p.o[first*p.dim:(first+n)*p.dim], p.l[first:first+n]
	dst = dst[:len(o)]
	if len(o) == 0 {
		return
	}
	if kernel := active.attnFinish; kernel != nil && p.dim%8 == 0 {
		s.finish = attnFinishArgs{dst: &dst[0], o: &o[0], l: &l[0], rows: n, dim: p.dim}
		kernel(&s.finish)
		return
	}
	for r, sum := range l {
		inv := 1 / sum
		for d := r * p.dim; d < (r+1)*p.dim; d++ {
			dst[d] = float32(o[d]*inv) + 0
		}
	}
}
