package runtime

import (
	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archLlama is the family's general.architecture: Llama 1 to 3, SmolLM and 2, Mistral and others of the same shape.
const archLlama = "llama"

// readLlama reads and checks the header of a llama model.
func readLlama(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archLlama}
	c := readDense(r)
	r.refuse("attention.sliding_window")
	return c, c.finishDense(set, r, []tensorSpec{{name: "rope_freqs.weight", cols: c.RopeDim / 2, optional: true}}, nil)
}

// loadLlama maps a layer. Its arithmetic, by forwardLayer and gqa.mix:
//
//	x  = RMSNorm(h)·attn_norm
//	q, k, v = Wq x, Wk x, Wv x;  q and k rotated in interleaved pairs at the row's position
//	store k, v
//	h += Wo attention(q, stored keys and values up to and including the row's own)
//	x  = RMSNorm(h)·ffn_norm
//	h += Wdown (SiLU(Wgate x)·Wup x)
func loadLlama(ld *loader, _ *Config, l int) (*layer, error) {
	return loadDense(ld, l, &gqa{rotate: kernels.RopeInterleaved}, &layer{ffn: ffn{gated: kernels.MulSiLU}})
}
