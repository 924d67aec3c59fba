package kernels

// lanes is the accumulators of a 16-lane sum: lane j takes the terms whose index is j mod 16, ascending.
type lanes [16]float32

// fold adds the lanes by the fixed tree 8-4-2-1.
func (l *lanes) fold() float32 {
	for n := 8; n > 0; n /= 2 {
		for j := 0; j < n; j++ {
			l[j] += l[j+n]
		}
	}
	return l[0]
}

// denseSpan is how many columns of a weight row are widened at a time; a multiple of 16.
const denseSpan = 256

// matMulDense is MatMul for F32, F16 and BF16 weights: sixteen lanes, as documented there.
func matMulDense(dst []float32, stride int, w *Matrix, a *Activations, first, last int, s *Scratch) {
	if active.dense.fold != nil {
		matMulDenseTiles(dst, stride, w, a, first, last, &s.dense)
		return
	}
	var span [denseSpan]float32
	var acc [rowTile]lanes
	size := w.Type.geometry().bytes
	for r0 := 0; r0 < a.rows; r0 += rowTile {
		n := min(rowTile, a.rows-r0)
		for o := first; o < last; o++ {
			row := w.row(o)
			clear(acc[:n])
			for c := 0; c < w.Cols; c += denseSpan {
				ws := span[:min(denseSpan, w.Cols-c)]
				widenDense(ws, row[c*size:], w.Type)
				for r := 0; r < n; r++ {
					at := (r0+r)*a.cols + c
					fmaLanes(&acc[r], ws, a.dense[at:at+len(ws)])
				}
			}
			for r := 0; r < n; r++ {
				dst[(r0+r)*stride+o] = acc[r].fold()
			}
		}
	}
}

// fmaLanes does lane[k%16] = FMA(x[k], y[k], lane[k%16]) for ascending k. It runs four lanes at a time, whose chains are
// independent, with [FMA] written out.
func fmaLanes(l *lanes, x, y []float32) {
	y = y[:len(x)]
	n := len(x) &^ 15
	for j := 0; j < 16 && n > 0; j += 4 {
		l0, l1, l2, l3 := l[j], l[j+1], l[j+2], l[j+3]
		for k := j; k < n; k += 16 {
			xs, ys := x[k:k+4:k+4], y[k:k+4:k+4]
			p0, p1 := term(xs[0], ys[0]), term(xs[1], ys[1])
			p2, p3 := term(xs[2], ys[2]), term(xs[3], ys[3])
			s0, s1, s2, s3 := p0+float64(l0), p1+float64(l1), p2+float64(l2), p3+float64(l3)
			if hard4(s0, s1, s2, s3) {
				l0, l1, l2, l3 = fmaExact4(p0, p1, p2, p3, l0, l1, l2, l3)
				continue
			}
			l0, l1, l2, l3 = float32(s0), float32(s1), float32(s2), float32(s3)
		}
		l[j], l[j+1], l[j+2], l[j+3] = l0, l1, l2, l3
	}
	for k := n; k < len(x); k++ {
		l[k%16] = FMA(x[k], y[k], l[k%16])
	}
}
