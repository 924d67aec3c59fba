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

// AttendBlock computes one softmax block for query q over the visible positions i, from <= i < n, whose keys and values,
// widened to float32, are k[i*dim:(i+1)*dim] and v[i*dim:(i+1)*dim], dim = len(q), i counting from a multiple of
// AttnBlock; and merges it into p, which holds the earlier blocks. scratch needs AttnBlock+dim values; its
// contents don't matter before and after.
//
//   - Score of position i: FMA(q[d], k[i][d], acc) over ascending d from +0, then one rounded product with scale.
//   - m is the largest score, found in ascending order; p_i = Exp(score_i - m).
//   - sum: 16 lanes, lane j adds p_i for i ≡ j mod 16, ascending, from +0; folded 8-4-2-1.
//   - out[d]: FMA(p_i, v[i][d], acc) over ascending i from +0.
//
// Merging, also into a fresh p: see [Partial.Merge]. Nothing depends on other query rows or heads.
func AttendBlock(p *Partial, q, k, v []float32, from, n int, scale float32, scratch []float32) {
	dim := len(q)
	if from < 0 || n <= from || n > AttnBlock || dim == 0 || len(k) < n*dim || len(v) < n*dim || len(p.O) != dim || len(scratch) < AttnBlock+dim {
		panic(fmt.Sprintf("kernels: AttendBlock of positions %d to %d by %d dimensions: %d keys, %d values, output %d, scratch %d",
			from, n, dim, len(k), len(v), len(p.O), len(scratch)))
	}
	ps, out := scratch[:n], scratch[AttnBlock:AttnBlock+dim]
	scores(ps[from:], q, k[from*dim:], scale)
	m := ps[from]
	for _, s := range ps[from:] {
		if s > m {
			m = s
		}
	}
	var l lanes
	for i := from; i < n; i++ {
		e := Exp(ps[i] - m)
		ps[i] = e
		l[i%16] += e
	}
	weighted(out, ps[from:], v[from*dim:])
	p.Merge(m, l.fold(), out)
}

// scores sets dst[i] to the scaled product of q with key i, four positions at a time with [FMA] written out.
func scores(dst, q, k []float32, scale float32) {
	dim := len(q)
	i := 0
	for ; i+4 <= len(dst); i += 4 {
		rows := k[i*dim : (i+4)*dim]
		k0, k1, k2, k3 := rows[:dim], rows[dim:2*dim], rows[2*dim:3*dim], rows[3*dim:]
		k0, k1, k2, k3 = k0[:len(q)], k1[:len(q)], k2[:len(q)], k3[:len(q)]
		var a0, a1, a2, a3 float32
		for d, x := range q {
			p0, p1, p2, p3 := term(x, k0[d]), term(x, k1[d]), term(x, k2[d]), term(x, k3[d])
			s0, s1, s2, s3 := p0+float64(a0), p1+float64(a1), p2+float64(a2), p3+float64(a3)
			if hard4(s0, s1, s2, s3) {
				a0, a1, a2, a3 = fmaExact4(p0, p1, p2, p3, a0, a1, a2, a3)
				continue
			}
			a0, a1, a2, a3 = float32(s0), float32(s1), float32(s2), float32(s3)
		}
		dst[i], dst[i+1], dst[i+2], dst[i+3] = float32(a0*scale), float32(a1*scale), float32(a2*scale), float32(a3*scale)
	}
	for ; i < len(dst); i++ {
		acc := float32(0)
		for d, x := range q {
			acc = FMA(x, k[i*dim+d], acc)
		}
		dst[i] = float32(acc * scale)
	}
}

// weighted sets out[d] to the chain of p[i]·v[i][d] over ascending i, four dimensions at a time with [FMA] written out.
func weighted(out, p, v []float32) {
	dim := len(out)
	d := 0
	for ; d+4 <= dim; d += 4 {
		var a0, a1, a2, a3 float32
		for i, x := range p {
			at := i*dim + d
			vs := v[at : at+4 : at+4]
			p0, p1, p2, p3 := term(x, vs[0]), term(x, vs[1]), term(x, vs[2]), term(x, vs[3])
			s0, s1, s2, s3 := p0+float64(a0), p1+float64(a1), p2+float64(a2), p3+float64(a3)
			if hard4(s0, s1, s2, s3) {
				a0, a1, a2, a3 = fmaExact4(p0, p1, p2, p3, a0, a1, a2, a3)
				continue
			}
			a0, a1, a2, a3 = float32(s0), float32(s1), float32(s2), float32(s3)
		}
		out[d], out[d+1], out[d+2], out[d+3] = a0, a1, a2, a3
	}
	for ; d < dim; d++ {
		acc := float32(0)
		for i, x := range p {
			acc = FMA(x, v[i*dim+d], acc)
		}
		out[d] = acc
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
