package kernels

import (
	"fmt"
	"math"
)

// Activations holds rows of activations prepared in one [Form] for [MatMul]. The zero value is ready for Prepare.
// Buffers grow and never shrink; a value may be reused for any shape. Concurrent readers are fine; so are concurrent
// PrepareRows on disjoint rows between Reset and the first MatMul.
//
// Quantisation, per block of 32 or 256 columns, all steps in float32:
//
//	amax = max |x|
//	amax < 2^-100:  all q = 0, d = 0
//	otherwise:      id = round(127/amax), q = nearest-even(round(x·id)), d = round(amax/127)
//
// so that q is within ±127. Per 32 columns the exact sum S of the q is kept, and for Q8x32 round(d·float(S)).
type Activations struct {
	rows, cols int
	form       Form
	dense      []float32  // Dense: a copy of the rows
	blocks     []actBlock // otherwise: cols/32 a row
	records    []byte     // or, for assembly kernels (inRecords): see record32
	inRecords  bool
}

// Prepare quantises (or, for Dense, copies) rows rows of cols values from x[:rows*cols]. It fails if cols isn't a
// multiple of the form's block, or on NaN or infinity, naming row and column; a is then unusable until the next Prepare.
func (a *Activations) Prepare(x []float32, rows, cols int, form Form) error {
	a.Reset(rows, cols, form)
	return a.PrepareRows(x, 0, rows)
}

// Reset sets the shape and form, and makes room, so that PrepareRows may be called for disjoint row ranges by several
// workers. All rows must be prepared before MatMul.
func (a *Activations) Reset(rows, cols int, form Form) {
	if rows < 0 || cols <= 0 || form > Q8x256 {
		panic(fmt.Sprintf("kernels: activations of %d rows by %d columns, %v", rows, cols, form))
	}
	a.rows, a.cols, a.form = rows, cols, form
	a.inRecords = form != Dense && active.variant != Generic
	switch {
	case form == Dense:
		a.dense = sized(a.dense, rows*cols)
	case a.inRecords:
		a.records = aligned(a.records, superblocks(cols)*rows*form.record())
	default:
		a.blocks = sized(a.blocks, rows*(cols/32))
	}
}

// sized returns a slice of n elements, s's memory if it is large enough. The contents are arbitrary.
func sized[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}

// PrepareRows prepares rows [first, last) out of x, which holds all the rows that Reset was told of. Errors are those
// of Prepare.
func (a *Activations) PrepareRows(x []float32, first, last int) error {
	if first < 0 || first > last || last > a.rows || len(x) < last*a.cols {
		panic(fmt.Sprintf("kernels: preparing rows [%d,%d) of %d by %d out of %d values", first, last, a.rows, a.cols, len(x)))
	}
	for r := first; r < last; r++ {
		if err := a.PrepareRow(x[r*a.cols:(r+1)*a.cols], r); err != nil {
			return err
		}
	}
	return nil
}

// PrepareRow prepares one row, of any memory. Errors are those of Prepare.
func (a *Activations) PrepareRow(row []float32, r int) error {
	if r < 0 || r >= a.rows || len(row) != a.cols {
		panic(fmt.Sprintf("kernels: preparing row %d of %d by %d from %d values", r, a.rows, a.cols, len(row)))
	}
	size := a.form.block()
	if a.cols%size != 0 {
		return fmt.Errorf("activations of %d columns as %v: want a multiple of %d", a.cols, a.form, size)
	}
	if a.form == Dense {
		if i := CheckFinite(row); i >= 0 {
			return nonFinite(row[i], r, i)
		}
		copy(a.dense[r*a.cols:], row)
		return nil
	}
	if a.inRecords {
		if i := a.quantiseRecords(r, row); i >= 0 {
			return nonFinite(row[i], r, i)
		}
		return nil
	}
	blocks := a.blocks[r*(a.cols/32) : (r+1)*(a.cols/32)]
	for c := 0; c < a.cols; c += size {
		xs := row[c : c+size]
		amax := float32(0)
		for i, v := range xs {
			b := math.Float32bits(v) & 0x7fffffff
			if b >= 0x7f800000 {
				return nonFinite(v, r, c+i)
			}
			amax = max(amax, math.Float32frombits(b))
		}
		d, id := quantScale(amax)
		for i := 0; i < size; i += 32 {
			blocks[(c+i)/32].quantise((*[32]float32)(xs[i:]), d, id)
		}
	}
	return nil
}

func nonFinite(v float32, row, col int) error {
	return fmt.Errorf("activation in row %d, column %d is %v", row, col, v)
}

// quantScale returns the scale d and its inverse id for a block whose largest magnitude is amax.
func quantScale(amax float32) (d, id float32) {
	if amax < 0x1p-100 {
		return 0, 0
	}
	return amax / 127, 127 / amax
}

// quantise fills one group of 32 with scale d and inverse scale id.
func (p *actBlock) quantise(x *[32]float32, d, id float32) {
	// For |y| <= 2^22, y + 1.5·2^23 rounds y to the nearest even integer, which is then in the low bits.
	const magic = 0x1.8p23
	var q [32]int64
	sum := int64(0)
	for i, v := range x {
		y := float32(v*id) + magic
		q[i] = int64(int32(math.Float32bits(y)) - 0x4b400000)
		sum += q[i]
	}
	p.pack(&q)
	p.sum = int32(sum)
	p.d = d
	p.dsum = float32(d * float32(sum))
}
