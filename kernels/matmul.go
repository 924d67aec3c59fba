package kernels

import "fmt"

// MatMul computes dst[r*stride+o] = Σ_k w[o][k]·a[r][k] for all rows r of a and outputs o in [first, last). Other
// elements of dst are not touched, so workers may share dst and split the outputs. The form of a must be w.Type.Form().
//
// Order of the sum, for every output by itself, starting from acc = +0:
//
//   - Quantised weights: one chain over blocks, ascending. isum is the block's exact integer dot product (for K types:
//     sum over sub-blocks of scale times dot product), imin = Σ mn·S over sub-blocks, S the sums of the activations.
//     acc = FMA(round(d_w·d_a), float(isum), acc), then
//     for Q2_K, Q4_K and Q5_K: acc = FMA(-round(dmin·d_a), float(imin), acc);
//     for Q4_1 and Q5_1: acc = FMA(m, round(d_a·float(S)), acc).
//     The weights' centres (8, 16, 4, 32) are inside isum for Q4_0, Q5_0, Q3_K and Q6_K, as are the values of codebooks.
//     For grid types d_w is the file's scale times a power of two, see gridTypes.
//   - Dense weights: lane j of 16 takes k ≡ j mod 16, ascending, by FMA(w, a, lane) from +0; then lanes j and j+8 are
//     added for j < 8, j and j+4 for j < 4, j and j+2 for j < 2, and the last two.
//
// A result never depends on the other rows, on the range of outputs, on stride or on the variant. s is the calling worker's.
func MatMul(dst []float32, stride int, w *Matrix, a *Activations, first, last int, s *Scratch) {
	if a.form != w.Type.Form() || a.cols != w.Cols || !w.Type.Supported() {
		panic(fmt.Sprintf("kernels: MatMul of %v weights with %d columns and %v activations with %d", w.Type, w.Cols, a.form, a.cols))
	}
	w.check()
	if first < 0 || first > last || last > w.Rows {
		panic(fmt.Sprintf("kernels: MatMul of outputs [%d,%d) of %d", first, last, w.Rows))
	}
	if a.rows == 0 || first == last {
		return
	}
	if stride < last || len(dst) < (a.rows-1)*stride+last {
		panic(fmt.Sprintf("kernels: MatMul of %d rows by %d outputs into %d values, stride %d", a.rows, last, len(dst), stride))
	}
	switch {
	case a.form == Dense:
		matMulDense(dst, stride, w, a, first, last, s)
	case a.inRecords:
		matMulGroups(dst, stride, w, a, first, last, s)
	default:
		matMulQuantised(dst, stride, w, a, first, last)
	}
}
