package kernels

import (
	"encoding/binary"
	"testing"
)

// TestReadLoop compares every length and alignment with the definition.
func TestReadLoop(t *testing.T) {
	data := make([]byte, 3*readChunk+64)
	for i := range data {
		data[i] = byte(i*i>>3 + 7*i)
	}
	want := func(b []byte) (x uint64) {
		padded := append(append([]byte{}, b...), make([]byte, 8)...)
		for i := 0; i < len(b); i += 8 {
			x ^= binary.LittleEndian.Uint64(padded[i:])
		}
		return x
	}
	eachVariant(t, func(t *testing.T) {
		for n := range 3*readChunk + 33 {
			for _, from := range []int{0, 1, 31} {
				b := data[from : from+n]
				if got := ReadLoop(b); got != want(b) {
					t.Fatalf("%d bytes from %d on: %#x, want %#x", n, from, got, want(b))
				}
			}
		}
	})
}

// TestPeaks only runs them: they return, also for no rounds. BenchmarkLimits says how fast.
func TestPeaks(t *testing.T) {
	eachVariant(t, func(t *testing.T) {
		for rounds := -1; rounds < 3; rounds++ {
			PeakInt8(rounds)
			PeakF32(rounds)
		}
	})
}

// BenchmarkLimits reports GB/s, GOPS and GFLOPS of one thread.
func BenchmarkLimits(b *testing.B) {
	memory := make([]byte, 256<<20)
	for i := range memory {
		memory[i] = byte(i)
	}
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(memory)))
		for b.Loop() {
			ReadLoop(memory)
		}
	})
	for _, p := range []struct {
		name string
		ops  float64
		run  func(rounds int)
	}{{"int8", PeakInt8Ops, PeakInt8}, {"f32", PeakF32Ops, PeakF32}} {
		b.Run(p.name, func(b *testing.B) {
			for b.Loop() {
				p.run(1000)
			}
			b.ReportMetric(p.ops*1000*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
		})
	}
}
