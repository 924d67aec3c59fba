package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkMatMul reports GOPS (a multiplication and an addition are two) of products of every type, by one worker.
func BenchmarkMatMul(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, typ := range allTypes {
		for _, c := range []struct{ outputs, cols, rows int }{{4096, 4096, 1}, {4096, 4096, 4}, {1536, 768, 128}, {4096, 4096, 512}} {
			for _, packed := range []bool{false, true} {
				if typ.Form() == Dense && packed {
					continue
				}
				b.Run(fmt.Sprintf("%v/%dx%dx%d/packed=%v", typ, c.outputs, c.cols, c.rows, packed), func(b *testing.B) {
					w := (&selfTestData{state: 1}).weights(typ, c.outputs, c.cols)
					if packed {
						p := make([]byte, w.PackedBytes())
						w.PackGroups(p, 0, w.Groups())
						w.UsePacked(p)
					}
					a := prepare(b, normal(r, c.rows*c.cols), c.rows, c.cols, typ.Form())
					dst := make([]float32, c.rows*c.outputs)
					var s Scratch
					b.SetBytes(int64(len(w.Data)))
					for b.Loop() {
						MatMul(dst, c.outputs, &w, a, 0, c.outputs, &s)
					}
					b.ReportMetric(2*float64(c.outputs)*float64(c.cols)*float64(c.rows)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOPS")
				})
			}
		}
	}
}
