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
func matMulDense(dst []float32, stride int, w *Matrix, a *Activations, first, last int) {
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
				switch b := row[c*size:]; w.Type {
				case F32:
					widenF32(ws, b)
				case F16:
					widenF16Bytes(ws, b)
				case BF16:
					widenBF16(ws, b)
				}
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

// fmaLanes does lane[k%16] = FMA(x[k], y[k], lane[k%16]) for ascending k.
func fmaLanes(l *lanes, x, y []float32) {
	y = y[:len(x)]
	for k := range x {
		l[k%16] = FMA(x[k], y[k], l[k%16])
	}
}
