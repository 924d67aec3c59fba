package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/starling-swarm/starling/runtime"
)

// BenchmarkSample chooses from a vocabulary of 49,152 tokens.
func BenchmarkSample(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	logits := make([]float32, 49152)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 4)
	}
	for _, s := range []runtime.Sampling{{}, {Temperature: 0.8, TopK: 40}, {Temperature: 0.8, TopP: 0.95}, {Temperature: 0.8, MinP: 0.05}} {
		b.Run(fmt.Sprintf("temperature=%v,k=%d,p=%v,minp=%v", s.Temperature, s.TopK, s.TopP, s.MinP), func(b *testing.B) {
			for b.Loop() {
				sample(b, logits, 0, s)
			}
		})
	}
}
