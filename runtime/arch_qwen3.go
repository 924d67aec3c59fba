package runtime

import (
	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archQwen3 is the family's general.architecture: the dense models of Qwen 3, from 0.6B to 32B.
const archQwen3 = "qwen3"

// readQwen3 reads and checks the header of a qwen3 model.
func readQwen3(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archQwen3}
	c := readDense(r)
	r.refuse("attention.sliding_window")
	return c, c.finishDense(set, r, nil, c.gqaNormSpecs())
}

// loadQwen3 maps a layer. Its arithmetic, by forwardLayer and gqa.mix:
//
//	x  = RMSNorm(h)·attn_norm
//	q, k, v = Wq x, Wk x, Wv x
//	each head of q = RMSNorm(head)·attn_q_norm, each of k = RMSNorm(head)·attn_k_norm
//	q and k rotated at the row's position in pairs of a head's halves
//	store k, v
//	h += Wo attention(q, stored keys and values up to and including the row's own)
//	x  = RMSNorm(h)·ffn_norm
//	h += Wdown (SiLU(Wgate x)·Wup x)
func loadQwen3(ld *loader, _ *Config, l int) (*layer, error) {
	w := &gqa{rotate: kernels.RopeHalf}
	return loadDense(ld, l, w, &layer{ffn: ffn{gated: kernels.MulSiLU}}, w.norms()...)
}
