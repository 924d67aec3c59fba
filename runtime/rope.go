package runtime

import "github.com/starling-swarm/starling/kernels"

// ropeTable holds the angle per position of each rotated pair, in float64:
//
//	freq[i] = RopeBase^(−2i/RopeDim) / factor[i] / RopeScale
//
// in that order of operations, each rounded. factor is the model's rope_freqs.weight (Llama 3's scaling is stored so)
// or 1.
type ropeTable struct {
	freq []float64 // [RopeDim/2]
}

func newRopeTable(cfg *Config, factors []float32) ropeTable {
	freq := make([]float64, cfg.RopeDim/2)
	for i := range freq {
		f := kernels.Pow64(cfg.RopeBase, -float64(2*i)/float64(cfg.RopeDim))
		if factors != nil {
			f /= float64(factors[i])
		}
		freq[i] = f / cfg.RopeScale
	}
	return ropeTable{freq}
}

// fill computes cosine and sine of every pair at a position: of round(pos·freq[i]) in float64. cos and sin are [RopeDim/2].
func (t ropeTable) fill(cos, sin []float32, pos int) {
	for i, f := range t.freq {
		sin[i], cos[i] = kernels.SinCos(float64(float64(pos) * f))
	}
}
