package kernels

import "unsafe"

// denseGroup is how many rows of weights one call of a dense kernel takes.
const denseGroup = 8

// denseKernels are a variant's parts of matMulDense. Native kernels read weights as the file has them, all activations
// for some rows of weights before the next; the panel kernel reads F32 weights, all of them for some rows of activations
// before the next.
type denseKernels struct {
	native [len(geometries)]func(*denseArgs) // by weight type
	panel  func(*denseArgs)
	fold   func(dst *float32, stride int, acc *float32, rows int)
}

// denseArgs tells an assembly kernel to multiply denseGroup rows of weights by all rows of activations.
type denseArgs struct {
	w       *byte
	wStride int // bytes from a row of weights to the next
	a       *float32
	aStride int      // bytes from a row of activations to the next
	rows    int      // rows of activations
	cols    int      // a multiple of 16
	acc     *float32 // [rows][denseGroup]lanes: in, the sums so far; out, with these columns
}

// denseScratch is the memory of dense products in a Scratch.
type denseScratch struct {
	args  denseArgs
	acc   []lanes
	panel []float32 // [denseGroup][densePanel], at a multiple of 64
	tail  [16]float32
	out   [denseGroup]float32
}

// Up to denseFew rows of activations are multiplied by weights straight from the mapping. More take weights widened to
// F32, up to densePanel columns of a group at a time (18 KiB, which leave room in an L1 cache of 32 KiB), in passes of
// densePass rows whose densePanel columns, with the sums of densePassGroups groups, fit an L2 cache of 512 KiB.
const (
	denseFew        = 16
	densePanel      = 576
	densePass       = 128
	densePassGroups = 2
)

// matMulDenseTiles is matMulDense by assembly kernels.
func matMulDenseTiles(dst []float32, stride int, w *Matrix, a *Activations, begin, end int, s *denseScratch) {
	if s.panel == nil {
		b := aligned(nil, 4*denseGroup*densePanel)
		s.panel = unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), denseGroup*densePanel)
	}
	whole := w.Cols &^ 15
	if a.rows <= denseFew && whole > 0 {
		size := w.rowBytes()
		s.acc = sized(s.acc, a.rows*denseGroup)
		s.args = denseArgs{wStride: size, a: &a.dense[0], aStride: 4 * a.cols, rows: a.rows, cols: whole, acc: &s.acc[0][0]}
		for ; begin+denseGroup <= end; begin += denseGroup {
			clear(s.acc)
			s.args.w = &w.Data[begin*size]
			active.dense.native[w.Type](&s.args)
			s.finish(dst, stride, w, a, 0, a.rows, begin, denseGroup, s.acc)
		}
	}
	spans := (whole + densePanel - 1) / densePanel // all alike, or nearly
	span := (whole/max(spans, 1) + 31) &^ 31
	for r := 0; r < a.rows; r += densePass {
		rows := min(densePass, a.rows-r)
		size := rows * denseGroup
		s.acc = sized(s.acc, densePassGroups*size)
		for o := begin; o < end; o += densePassGroups * denseGroup {
			clear(s.acc)
			o1 := min(o+densePassGroups*denseGroup, end)
			for c := 0; c < whole; c += span {
				cols := min(span, whole-c)
				for g := o; g < o1; g += denseGroup {
					s.widen(w, g, min(denseGroup, o1-g), c, cols)
					s.args = denseArgs{
						w: (*byte)(unsafe.Pointer(&s.panel[0])), wStride: 4 * densePanel,
						a: &a.dense[r*a.cols+c], aStride: 4 * a.cols, rows: rows, cols: cols, acc: &s.acc[(g-o)/denseGroup*size][0],
					}
					active.dense.panel(&s.args)
				}
			}
			for g := o; g < o1; g += denseGroup {
				s.finish(dst, stride, w, a, r, rows, g, min(denseGroup, o1-g), s.acc[(g-o)/denseGroup*size:][:size])
			}
		}
	}
}

// widen fills the panel with cols columns from c on of outputs rows of weights from o on. What is in its other rows then
// is multiplied, too, but goes nowhere.
func (s *denseScratch) widen(w *Matrix, o, outputs, c, cols int) {
	size, elem := w.rowBytes(), w.Type.geometry().bytes
	for i := range outputs {
		widenDense(s.panel[i*densePanel:][:cols], w.Data[(o+i)*size+c*elem:], w.Type)
	}
}

// finish adds the last columns beyond a multiple of 16 to sums of rows [r, r+rows) by outputs rows of weights from o on,
// folds their lanes and stores them.
func (s *denseScratch) finish(dst []float32, stride int, w *Matrix, a *Activations, r, rows, o, outputs int, acc []lanes) {
	if c := w.Cols &^ 15; c < w.Cols {
		tail := s.tail[:w.Cols-c]
		for i := range outputs {
			widenDense(tail, w.row(o + i)[c*w.Type.geometry().bytes:], w.Type)
			for j := range rows {
				fmaLanes(&acc[j*denseGroup+i], tail, a.dense[(r+j)*a.cols+c:][:len(tail)])
			}
		}
	}
	if outputs == denseGroup {
		active.dense.fold(&dst[r*stride+o], 4*stride, &acc[0][0], rows)
		return
	}
	for j := range rows {
		active.dense.fold(&s.out[0], 0, &acc[j*denseGroup][0], 1)
		copy(dst[(r+j)*stride+o:][:outputs], s.out[:])
	}
}
