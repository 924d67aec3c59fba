package kernels

const (
	// spanBlocks is how many groups of 32 columns are turned into terms at a time; a multiple of 8.
	spanBlocks = 64
	// chains is how many outputs are summed side by side. Each keeps its own order; together they hide latency.
	chains = 4
	// rowTile is how many activation rows meet one weight row before the next one is read: enough to reuse the weights
	// from cache, few enough for the activations to stay there. It can't change results.
	rowTile = 8
)

// terms are the exact products of consecutive FMA steps of one output: for each of them, float64 holds x·y of
// acc = FMA(x, y, acc) without rounding.
type terms [2 * spanBlocks]float64

// termsOf fills t with the terms of a span of blocks, in the order that MatMul documents, and returns their number.
// w starts at the span's first weight block; a has the span's activations.
type termsOf func(t *terms, w []byte, a []actBlock) int

// termsFor returns the function that multiplies weights of a quantised type.
func termsFor(t Type) termsOf {
	switch t {
	case Q4_0:
		return termsQ4_0
	case Q4_1:
		return termsQ4_1
	case Q5_0:
		return termsQ5_0
	case Q5_1:
		return termsQ5_1
	case Q8_0:
		return termsQ8_0
	case Q2_K:
		return termsQ2_K
	case Q3_K:
		return termsQ3_K
	case Q4_K:
		return termsQ4_K
	case Q5_K:
		return termsQ5_K
	case Q6_K:
		return termsQ6_K
	case IQ4_NL:
		return termsIQ4_NL
	case IQ4_XS:
		return termsIQ4_XS
	case MXFP4:
		return termsMXFP4
	case IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M:
		return termsGrid(t)
	}
	panic("kernels: no product with " + t.String())
}

// matMulQuantised is MatMul for quantised weights: integer dot products become terms, span by span, and the chains of
// four outputs at a time go on over them.
func matMulQuantised(dst []float32, stride int, w *Matrix, a *Activations, first, last int) {
	var ts [chains]terms
	fill := termsFor(w.Type)
	n := a.cols / 32
	elems, bytes := w.Type.Block()
	spanBytes := 32 * spanBlocks / elems * bytes
	for r0 := 0; r0 < a.rows; r0 += rowTile {
		r1 := min(r0+rowTile, a.rows)
		for o := first; o < last; o += chains {
			o1 := min(o+chains, last)
			for r := r0; r < r1; r++ {
				var acc [chains]float32
				row := a.blocks[r*n : (r+1)*n]
				for span := 0; span*spanBlocks < n; span++ {
					blocks := row[span*spanBlocks : min((span+1)*spanBlocks, n)]
					count := 0
					for i := o; i < o1; i++ {
						count = fill(&ts[i-o], w.row(i)[span*spanBytes:], blocks)
					}
					sumChains(&acc, &ts, count)
				}
				copy(dst[r*stride+o:r*stride+o1], acc[:])
			}
		}
	}
}

// sumChains does acc[i] = FMA step over ts[i][:n], ascending, for each i, with [FMA] written out.
func sumChains(acc *[chains]float32, ts *[chains]terms, n int) {
	a0, a1, a2, a3 := acc[0], acc[1], acc[2], acc[3]
	t0, t1, t2, t3 := ts[0][:n], ts[1][:n], ts[2][:n], ts[3][:n]
	for i, p0 := range t0 {
		p1, p2, p3 := t1[i], t2[i], t3[i]
		s0, s1, s2, s3 := p0+float64(a0), p1+float64(a1), p2+float64(a2), p3+float64(a3)
		if hard4(s0, s1, s2, s3) {
			a0, a1, a2, a3 = fmaExact4(p0, p1, p2, p3, a0, a1, a2, a3)
			continue
		}
		a0, a1, a2, a3 = float32(s0), float32(s1), float32(s2), float32(s3)
	}
	acc[0], acc[1], acc[2], acc[3] = a0, a1, a2, a3
}
