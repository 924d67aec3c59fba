package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// denseMatrix returns weights of a dense type at an odd address, of the kinds that rowOf knows, with denormal and
// vanishing products, so that sums are −0, too.
func denseMatrix(r *rand.Rand, t Type, rows, cols, kind int) Matrix {
	size := rows * cols * t.geometry().bytes
	data := make([]byte, size+1)[1:]
	for i, v := range rowOf(r, rows*cols, kind) {
		if r.IntN(16) == 0 {
			v = -0x1p-149
		}
		switch t {
		case F32:
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
		case F16:
			binary.LittleEndian.PutUint16(data[2*i:], clampF16(v))
		case BF16:
			binary.LittleEndian.PutUint16(data[2*i:], uint16(math.Float32bits(v)>>16))
		}
	}
	return Matrix{Type: t, Rows: rows, Cols: cols, Data: data}
}

// TestMatMulDense compares dense products with the Go code at every number of columns up to 70 and at the borders of
// panels, at every number of rows that takes another way, for ranges that begin and end anywhere.
func TestMatMulDense(t *testing.T) {
	type shape struct{ outputs, cols, rows int }
	var shapes []shape
	for cols := 1; cols <= 70; cols++ {
		shapes = append(shapes, shape{1 + cols%11, cols, 1 + cols%5}, shape{1 + cols%19, cols, denseFew + 1 + cols%3})
	}
	for rows := 1; rows <= denseFew+7; rows++ {
		shapes = append(shapes, shape{17, 96, rows}, shape{9, 80, rows})
	}
	for outputs := 1; outputs <= 2*densePassGroups*denseGroup+3; outputs++ {
		shapes = append(shapes, shape{outputs, 48, 2}, shape{outputs, 48, denseFew + 2})
	}
	for _, cols := range []int{densePanel - 16, densePanel, densePanel + 1, densePanel + 16, 2*densePanel + 48} {
		shapes = append(shapes, shape{5, cols, 3}, shape{11, cols, denseFew + 4})
	}
	for _, rows := range []int{densePass - 1, densePass, densePass + 1, 2*densePass + 2} {
		shapes = append(shapes, shape{10, 33, rows})
	}
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(70, 70))
		var s Scratch // one for all: nothing of a product may stay
		for i, c := range shapes {
			for _, typ := range []Type{F32, F16, BF16} {
				kind := i % 3
				w := denseMatrix(r, typ, c.outputs, c.cols, kind)
				x := rowOf(r, c.rows*c.cols, 0)
				if kind == 1 {
					for i := range x {
						x[i] = float32(x[i] * 0x1p-30) // finite sums, many of them denormal or zero
					}
				}
				for i, v := range rowOf(r, 3, kind) {
					if x[i*13%len(x)] = v; kind == 2 && v > 0x1p60 {
						x[i*13%len(x)] = 0
					}
				}
				a := prepare(t, x, c.rows, c.cols, Dense)
				first := r.IntN(c.outputs)
				last := c.outputs - r.IntN(c.outputs-first)
				stride := c.outputs + r.IntN(3)
				want := canaries(c.rows * stride)
				underGeneric(func() { MatMul(want, stride, &w, a, first, last, &s) })
				got := fence(c.rows*stride, canaries(c.rows*stride))
				MatMul(got.data, stride, &w, a, first, last, &s)
				if err := sameBits(got.data, want); err != nil || !got.intact() {
					t.Fatalf("%v, %+v, outputs [%d,%d) of stride %d, kind %d: %v, intact: %t", typ, c, first, last, stride, kind, err, got.intact())
				}
			}
		}
	})
}

// TestMatMulDenseAllocates shows that products with a used Scratch allocate nothing.
func TestMatMulDenseAllocates(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 71))
	for _, rows := range []int{1, densePass + 1} {
		w := denseMatrix(r, F16, 20, 100, 0)
		a := prepare(t, rowOf(r, rows*100, 0), rows, 100, Dense)
		dst := make([]float32, rows*20)
		var s Scratch
		if n := testing.AllocsPerRun(5, func() { MatMul(dst, 20, &w, a, 0, 20, &s) }); n != 0 && Active() != Generic {
			t.Errorf("%d rows: %v allocations", rows, n)
		}
	}
}

// BenchmarkMatMulDense reports GFLOPS, and the weights' bytes as read once.
func BenchmarkMatMulDense(b *testing.B) {
	r := rand.New(rand.NewPCG(72, 72))
	for _, typ := range []Type{F32, F16, BF16} {
		for _, c := range []struct{ outputs, cols, rows int }{
			{16384, 4096, 1}, {16384, 4096, 2}, {16384, 4096, 4}, {16384, 4096, 8}, {16384, 4096, 16}, {64, 4096, 1}, {64, 4096, 128}, {1536, 576, 128}, {1024, 4096, 512},
		} {
			b.Run(fmt.Sprintf("%v/%dx%dx%d", typ, c.outputs, c.cols, c.rows), func(b *testing.B) {
				w := (&selfTestData{state: 1}).weights(typ, c.outputs, c.cols)
				a := prepare(b, normal(r, c.rows*c.cols), c.rows, c.cols, Dense)
				dst := make([]float32, c.rows*c.outputs)
				var s Scratch
				b.SetBytes(int64(len(w.Data)))
				for b.Loop() {
					for o := 0; o < c.outputs; o += 64 {
						MatMul(dst, c.outputs, &w, a, o, o+64, &s)
					}
				}
				b.ReportMetric(2*float64(c.outputs)*float64(c.cols)*float64(c.rows)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
			})
		}
	}
}
