package runtime

import (
	"slices"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archGLM4MoE is the family's general.architecture: GLM 4.5, 4.6 and their Air models.
const archGLM4MoE = "glm4moe"

// readGLM4MoE reads and checks the header of a glm4moe model. Its routers are sigmoids, where no key says so, too. Biases of
// queries, keys and values, and norms of their heads, are in some models.
func readGLM4MoE(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archGLM4MoE}
	c := readAttention(r)
	c.readDrafts(r)
	r.refuse("attention.sliding_window", "rope.dimension_sections", yarnLogMultiplier)
	c.readExperts(r)
	if gating := r.key("expert_gating_func"); !r.has(gating) {
		c.Router.Sigmoid = true
	} else if !c.Router.Sigmoid {
		r.fail(gating, "is %d: this family has sigmoid, %d", gatingSoftmax, gatingSigmoid)
	}
	c.readSharedExperts(r)
	c.AttnFlops = float64(4 * c.Heads * c.HeadDim)
	return c, c.finish(set, r, nil, func(l int) []tensorSpec {
		specs := slices.Concat(c.gqaSpecs(), c.layerSpecs(set, l, postAttentionNorm), c.foundBiasSpecs(set, l))
		if _, ok := set.Tensor(blockTensor(l, "attn_q_norm.weight")); ok {
			specs = append(specs, c.gqaNormSpecs()...)
		}
		return specs
	})
}

// loadGLM4MoE maps a layer. Its arithmetic, by forwardLayer and gqa.mix, with what the model does not have, in brackets, left
// out; y of a layer below leading_dense_block_count is that of one block, of others by forwardExperts:
//
//	x  = RMSNorm(h)·attn_norm
//	q, k, v = Wq x, Wk x, Wv x [+ bq, bk, bv]
//	[each head of q = RMSNorm(head)·attn_q_norm, each of k = RMSNorm(head)·attn_k_norm]
//	q and k rotated at the row's position in pairs of the halves of a head's first RopeDim elements
//	store k, v
//	h += Wo attention(q, stored keys and values up to and including the row's own)
//	x  = RMSNorm(h)·post_attention_norm
//	h += Wdown (SiLU(Wgate x)·Wup x)
//	 or  Σ over the chosen experts e of share[e]·(Wdown[e] (SiLU(Wgate[e] x)·Wup[e] x)), plus the same of the shared expert
func loadGLM4MoE(ld *loader, _ *Config, l int) (*layer, error) {
	a := &gqa{rotate: kernels.RopeHalf}
	vectors := a.foundBiases(ld, l)
	if ld.has(blockTensor(l, "attn_q_norm.weight")) {
		vectors = append(vectors, a.norms()...)
	}
	if err := a.load(ld, l, vectors...); err != nil {
		return nil, err
	}
	return loadLayer(ld, l, postAttentionNorm, &layer{mixer: a, ffn: ffn{gated: kernels.MulSiLU}})
}
