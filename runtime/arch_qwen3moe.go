package runtime

import (
	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archQwen3MoE is the family's general.architecture: the mixture-of-experts models of Qwen 3, 30B-A3B and 235B-A22B.
const archQwen3MoE = "qwen3moe"

// readQwen3MoE reads and checks the header of a qwen3moe model.
func readQwen3MoE(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archQwen3MoE}
	c := readAttention(r)
	c.readExperts(r)
	c.Router.Normed = true
	if c.Router.Sigmoid {
		r.fail(r.key("expert_gating_func"), "is %d: this family has softmax, %d", gatingSigmoid, gatingSoftmax)
	}
	r.refuse("attention.sliding_window", "expert_shared_count", "expert_shared_feed_forward_length", "expert_weights_scale",
		"expert_group_count", "leading_dense_block_count", yarnLogMultiplier)
	return c, c.finishDense(set, r, nil, c.gqaNormSpecs())
}

// loadQwen3MoE maps a layer. Its arithmetic is loadQwen3's up to the feed-forward block, which is forwardExperts':
//
//	x  = RMSNorm(h)·ffn_norm
//	p  = softmax(Wrouter x); the UsedExperts largest are chosen, and divided by their sum
//	h += Σ over the chosen experts e of p[e]·(Wdown[e] (SiLU(Wgate[e] x)·Wup[e] x))
func loadQwen3MoE(ld *loader, _ *Config, l int) (*layer, error) {
	w := &gqa{rotate: kernels.RopeHalf}
	return loadDense(ld, l, w, &layer{ffn: ffn{gated: kernels.MulSiLU}}, w.norms()...)
}
