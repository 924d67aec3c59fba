package kernels

import (
	"fmt"
	"math"
)

// AttnBlock is the softmax block: this many positions, at absolute multiples of it, whatever the page or chunk size.
const AttnBlock = 256

// Partial is the state of attention for one query row and one query head after some blocks, ascending: the largest
// score M, the sum L of e^(score-M), and the output O, still to be divided by L. Reset it before the first block.
type Partial struct {
	M, L float32
	O    []float32
}

// Reset prepares p for a head of dim values: M = -Inf, L = 0, O = 0. O's memory is reused if it is large enough.
func (p *Partial) Reset(dim int) {
	p.M, p.L = float32(math.Inf(-1)), 0
	p.O = sized(p.O, dim)
	clear(p.O)
}

// AttendBlock computes one softmax block for query q over n >= 1 visible positions, whose keys and values, widened to
// float32, are k[i*dim:(i+1)*dim] and v[i*dim:(i+1)*dim], dim = len(q), positions ascending from a multiple of
// AttnBlock; and merges it into p, which holds the earlier blocks. scratch needs AttnBlock+dim values; its
// contents don't matter before and after.
//
//   - Score of position i: FMA(q[d], k[i][d], acc) over ascending d from +0, then one rounded product with scale.
//   - m is the largest score, found in ascending order; p_i = Exp(score_i - m).
//   - sum: 16 lanes, lane j adds p_i for i ≡ j mod 16, ascending, from +0; folded 8-4-2-1.
//   - out[d]: FMA(p_i, v[i][d], acc) over ascending i from +0.
//
// Merging, also into a fresh p: see [Partial.Merge]. Nothing depends on other query rows or heads.
func AttendBlock(p *Partial, q, k, v []float32, n int, scale float32, scratch []float32) {
	dim := len(q)
	if n < 1 || n > AttnBlock || dim == 0 || len(k) < n*dim || len(v) < n*dim || len(p.O) != dim || len(scratch) < AttnBlock+dim {
		panic(fmt.Sprintf("kernels: AttendBlock of %d positions by %d dimensions: %d keys, %d values, output %d, scratch %d",
			n, dim, len(k), len(v), len(p.O), len(scratch)))
	}
	ps, out := scratch[:n], scratch[AttnBlock:AttnBlock+dim]
	scores(ps, q, k, scale)
	m := ps[0]
	for _, s := range ps {
		if s > m {
			m = s
		}
	}
	var l lanes
	for i, s := range ps {
		e := Exp(s - m)
		ps[i] = e
		l[i%16] += e
	}
	clear(out)
	weighted(out, ps, v)
	p.Merge(m, l.fold(), out)
}

// scores sets dst[i] to the scaled product of q with key i.
func scores(dst, q, k []float32, scale float32) {
	dim := len(q)
	for i := range dst {
		row := k[i*dim : (i+1)*dim]
		acc := float32(0)
		for d, x := range q {
			acc = FMA(x, row[d], acc)
		}
		dst[i] = float32(acc * scale)
	}
}

// weighted adds p[i]·v[i] to out by FMA, for ascending i.
func weighted(out, p, v []float32) {
	dim := len(out)
	for i, x := range p {
		row := v[i*dim : (i+1)*dim]
		for d := range out {
			out[d] = FMA(x, row[d], out[d])
		}
	}
}

// Merge adds a later block (or other partial state) with maximum m, sum l and output o to p, from the right:
//
//	m' = m if m > M, else M;  a = Exp(M-m');  c = Exp(m-m')
//	L' = FMA(L, a, round(l·c));  O'[d] = FMA(O[d], a, round(o[d]·c))
//
// Into a fresh p this gives (m, l, o) with -0 turned into +0, as a is +0 and c is 1.
func (p *Partial) Merge(m, l float32, o []float32) {
	if len(o) != len(p.O) {
		panic(fmt.Sprintf("kernels: merging %d dimensions into %d", len(o), len(p.O)))
	}
	top := p.M
	if m > top {
		top = m
	}
	a, c := Exp(p.M-top), Exp(m-top)
	p.M, p.L = top, FMA(p.L, a, float32(l*c))
	for d, x := range o {
		p.O[d] = FMA(p.O[d], a, float32(x*c))
	}
}

// Finish writes the attention output, dst[d] = O[d]·round(1/L) + 0 (product rounded first), to dst[:dim].
func (p *Partial) Finish(dst []float32) {
	inv := 1 / p.L
	dst = dst[:len(p.O)]
	for d, x := range p.O {
		dst[d] = float32(x*inv) + 0
	}
}
