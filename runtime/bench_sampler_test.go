package runtime_test

import (
	"math/rand/v2"
	"testing"

	"github.com/starling-swarm/starling/runtime"
)

// BenchmarkSample chooses from a vocabulary of 150,000 tokens after 1,000 others.
func BenchmarkSample(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	logits := make([]float32, 150_000)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 3)
	}
	for range 20 { // the likely ones stand out
		logits[r.IntN(len(logits))] = 12 + float32(r.ExpFloat64()*3)
	}
	history := make([]int32, 1000)
	for i := range history {
		history[i] = int32(r.IntN(len(logits)))
	}
	penalties, dry, typical, xtc := runtime.LlamaCpp(), runtime.LlamaCpp(), runtime.LlamaCpp(), runtime.LlamaCpp()
	penalties.RepetitionPenalty = 1.1
	dry.DRY.Multiplier = 0.8
	typical.TypicalP, typical.TopK = 0.95, 0
	xtc.XTCProbability = 0.5
	for _, c := range []struct {
		name string
		s    runtime.Sampling
	}{
		{"greedy", runtime.Greedy()},
		{"llama.cpp", runtime.LlamaCpp()},
		{"temperature", runtime.Sampling{Temperature: 0.8}},
		{"top-k", runtime.Sampling{Temperature: 0.8, TopK: 40}},
		{"top-p", runtime.Sampling{Temperature: 0.8, TopP: 0.95}},
		{"min-p", runtime.Sampling{Temperature: 0.8, MinP: 0.05}},
		{"penalties", penalties},
		{"dry", dry},
		{"typical", typical},
		{"xtc", xtc},
	} {
		b.Run(c.name, func(b *testing.B) {
			at := 0
			for b.Loop() {
				if _, err := runtime.Sample(logits, history, at, c.s); err != nil {
					b.Fatal(err)
				}
				at++
			}
		})
	}
	b.Run("logprobs", func(b *testing.B) {
		for b.Loop() {
			runtime.Logprobs(logits, 3, 20)
		}
	})
}
