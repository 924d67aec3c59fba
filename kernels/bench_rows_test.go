package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkPrepare measures the quantisation of rows.
func BenchmarkPrepare(b *testing.B) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, form := range []Form{Q8x32, Q8x256} {
		for _, cols := range []int{768, 4096} {
			b.Run(fmt.Sprintf("%v/%d", form, cols), func(b *testing.B) {
				const rows = 16
				x := normal(r, rows*cols)
				var a Activations
				a.Reset(rows, cols, form)
				b.SetBytes(4 * rows * int64(cols))
				for b.Loop() {
					if err := a.PrepareRows(x, 0, rows); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkRows measures the other kernels on rows.
func BenchmarkRows(b *testing.B) {
	const n = 4096
	r := rand.New(rand.NewPCG(3, 3))
	x, y, dst, half := normal(r, n), normal(r, n), make([]float32, n), make([]uint16, n)
	cos, sin := normal(r, 32), normal(r, 32)
	for _, op := range []struct {
		name string
		run  func()
	}{
		{"RMSNorm", func() { RMSNorm(dst, x, y, 1e-5) }},
		{"Add", func() { Add(dst, x, y) }},
		{"MulSiLU", func() { MulSiLU(dst, x, y) }},
		{"MulGELU", func() { MulGELU(dst, x, y) }},
		{"RopeInterleaved", func() { RopeInterleaved(dst, n/64, 64, 64, cos, sin) }},
		{"RopeHalf", func() { RopeHalf(dst, n/64, 64, 64, cos, sin) }},
		{"CheckFinite", func() { CheckFinite(x) }},
		{"widenF16", func() { widenF16(dst, half) }},
		{"clampF16s", func() { clampF16s(half, x) }},
		{"ArgMax", func() { ArgMax(x) }},
	} {
		b.Run(op.name, func(b *testing.B) {
			b.SetBytes(4 * n)
			b.ReportAllocs()
			for b.Loop() {
				op.run()
			}
		})
	}
}
