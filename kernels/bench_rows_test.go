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
