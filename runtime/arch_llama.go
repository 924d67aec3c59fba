package runtime

import (
	"slices"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archLlama is the family's general.architecture: Llama 1 to 3, SmolLM and 2, Mistral and others of the same shape.
const archLlama = "llama"

// readLlama reads and checks the header of a llama model. Biases of queries, keys and values, and of attention's output, are in
// models whose configuration has attention_bias.
func readLlama(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archLlama}
	c := readDense(r)
	r.refuse("attention.sliding_window")
	c.AttnFlops = float64(4 * c.Heads * c.HeadDim)
	factors := tensorSpec{name: "rope_freqs.weight", cols: c.RopeDim / 2, optional: true}
	return c, c.finish(set, r, []tensorSpec{factors}, func(l int) []tensorSpec {
		return slices.Concat(c.gqaSpecs(), c.layerSpecs(set, l, ffnNorm), c.foundBiasSpecs(set, l), []tensorSpec{
			{name: "attn_output.bias", cols: c.Width, optional: true},
		})
	})
}

// loadLlama maps a layer. Its arithmetic, by forwardLayer and gqa.mix, with what the model does not have, in brackets, left out:
//
//	x  = RMSNorm(h)·attn_norm
//	q, k, v = Wq x, Wk x, Wv x [+ bq, bk, bv];  q and k rotated in interleaved pairs at the row's position
//	store k, v
//	h += Wo attention(q, stored keys and values up to and including the row's own) [+ bo]
//	x  = RMSNorm(h)·ffn_norm
//	h += Wdown (SiLU(Wgate x)·Wup x)
func loadLlama(ld *loader, _ *Config, l int) (*layer, error) {
	a := &gqa{rotate: kernels.RopeInterleaved}
	vectors := a.foundBiases(ld, l)
	if name := "attn_output.bias"; ld.has(blockTensor(l, name)) {
		vectors = append(vectors, vectorTensor{name, &a.oBias})
	}
	return loadDense(ld, l, a, &layer{ffn: ffn{gated: kernels.MulSiLU}}, vectors...)
}
