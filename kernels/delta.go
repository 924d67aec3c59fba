package kernels

import (
	"fmt"
	"unsafe"
)

// The parts of a gated delta net (Yang et al. 2024, arXiv:2412.06464) that nothing else has: its recurrent step, and the norm
// of its queries and keys.

// deltaArgs are the arguments of a variant's DeltaStep. Their offsets are known to the assembly.
type deltaArgs struct {
	o, m, q, k, v *float32
	dk, dv        int // dv is a multiple of 8
	stride        int // bytes of a row of m
	decay, beta   float32
}

// DeltaStep takes the state m of one value head, [len(k)][len(v)], one position further and reads it. q is as long as k, o
// as v; o may be v. For each element j of the value by itself:
//
//	u[j]    = FMA(k[i], round(decay·m[i][j]), u) over ascending i from +0
//	δ[j]    = round(beta·(v[j] − u[j])), the difference rounded first
//	m[i][j] = FMA(k[i], δ[j], round(decay·m[i][j]))
//	o[j]    = FMA(q[i], m[i][j], o) over ascending i from +0, of the new m
func DeltaStep(o, m, q, k, v []float32, decay, beta float32) {
	dk, dv := len(k), len(v)
	if len(q) != dk || len(o) != dv || len(m) != dk*dv || dk == 0 {
		panic(fmt.Sprintf("kernels: DeltaStep of %d queries, %d keys, %d values and a state of %d into %d", len(q), dk, dv, len(m), len(o)))
	}
	n := 0
	if active.delta != nil && dv >= 8 {
		n = dv &^ 7
		active.delta(&deltaArgs{o: &o[0], m: &m[0], q: &q[0], k: &k[0], v: &v[0], dk: dk, dv: n, stride: dv * int(unsafe.Sizeof(m[0])), decay: decay, beta: beta})
	}
	for ; n+4 <= dv; n += 4 {
		deltaFour(o[n:], m[n:], q, k, v[n:], dv, decay, beta)
	}
	for j := n; j < dv; j++ {
		u, out := float32(0), float32(0)
		for i, x := range k {
			u = FMA(x, float32(decay*m[i*dv+j]), u)
		}
		delta := float32(beta * (v[j] - u))
		for i, x := range k {
			at := &m[i*dv+j]
			*at = FMA(x, delta, float32(decay**at))
			out = FMA(q[i], *at, out)
		}
		o[j] = out
	}
}

// deltaFour is DeltaStep of the first four elements of the value, whose chains are independent, with [FMA] written out.
func deltaFour(o, m, q, k, v []float32, dv int, decay, beta float32) {
	var u0, u1, u2, u3 float32
	for i, x := range k {
		row := m[i*dv:][:4:4]
		p0, p1 := term(x, float32(decay*row[0])), term(x, float32(decay*row[1]))
		p2, p3 := term(x, float32(decay*row[2])), term(x, float32(decay*row[3]))
		u0, u1, u2, u3 = sum4(p0, p1, p2, p3, u0, u1, u2, u3)
	}
	d0, d1 := float32(beta*(v[0]-u0)), float32(beta*(v[1]-u1))
	d2, d3 := float32(beta*(v[2]-u2)), float32(beta*(v[3]-u3))
	var o0, o1, o2, o3 float32
	for i, x := range k {
		row := m[i*dv:][:4:4]
		m0, m1, m2, m3 := sum4(term(x, d0), term(x, d1), term(x, d2), term(x, d3),
			float32(decay*row[0]), float32(decay*row[1]), float32(decay*row[2]), float32(decay*row[3]))
		row[0], row[1], row[2], row[3] = m0, m1, m2, m3
		y := q[i]
		o0, o1, o2, o3 = sum4(term(y, m0), term(y, m1), term(y, m2), term(y, m3), o0, o1, o2, o3)
	}
	o[0], o[1], o[2], o[3] = o0, o1, o2, o3
}

// sum4 rounds each p+z once to float32, p being an exact product.
func sum4(p0, p1, p2, p3 float64, z0, z1, z2, z3 float32) (r0, r1, r2, r3 float32) {
	s0, s1, s2, s3 := p0+float64(z0), p1+float64(z1), p2+float64(z2), p3+float64(z3)
	if hard4(s0, s1, s2, s3) {
		return fmaExact4(p0, p1, p2, p3, z0, z1, z2, z3)
	}
	return float32(s0), float32(s1), float32(s2), float32(s3)
}

// L2Norm sets dst[i] = round(x[i]·scale) with scale = round(1/sqrt(round(sum+eps))) and the sum of squares as in [RMSNorm].
// dst may be x.
func L2Norm(dst, x []float32, eps float32) {
	Scale(dst, x, 1/sqrt(sumSquares(x)+eps))
}
