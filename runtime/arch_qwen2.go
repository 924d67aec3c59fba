package runtime

import (
	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archQwen2 is the family's general.architecture: Qwen 2 and 2.5, and what was distilled into them.
const archQwen2 = "qwen2"

// readQwen2 reads and checks the header of a qwen2 model.
func readQwen2(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archQwen2}
	c := readDense(r)
	r.refuse("attention.sliding_window")
	return c, c.finishDense(set, r, nil, c.gqaBiasSpecs())
}

// loadQwen2 maps a layer. Its arithmetic, by forwardLayer and gqa.mix:
//
//	x  = RMSNorm(h)·attn_norm
//	q, k, v = Wq x + bq, Wk x + bk, Wv x + bv;  q and k rotated at the row's position in pairs of a head's halves
//	store k, v
//	h += Wo attention(q, stored keys and values up to and including the row's own)
//	x  = RMSNorm(h)·ffn_norm
//	h += Wdown (SiLU(Wgate x)·Wup x)
func loadQwen2(ld *loader, _ *Config, l int) (*layer, error) {
	w := &gqa{rotate: kernels.RopeHalf}
	return loadDense(ld, l, w, &layer{ffn: ffn{gated: kernels.MulSiLU}}, w.biases()...)
}
