package runtime

import (
	"slices"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archGptOss is the family's general.architecture: OpenAI's gpt-oss, 20B and 120B.
const archGptOss = "gpt-oss"

// readGptOss reads and checks the header of a gpt-oss model. Every second layer, the first among them, has a window. All rotate
// by the same frequencies, whose YaRN bounds are not rounded to whole pairs: so the makers' code has it, and no key says so.
func readGptOss(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archGptOss}
	c := readAttention(r)
	c.Yarn.Exact = true
	c.readWindows(r, 2)
	c.readExperts(r)
	c.Router.Normed = true
	if c.Router.Sigmoid {
		r.fail(r.key("expert_gating_func"), "is %d: this family has softmax, %d", gatingSigmoid, gatingSoftmax)
	}
	r.refuse("rope.freq_base_swa", "expert_shared_count", "expert_shared_feed_forward_length", "expert_weights_scale",
		"expert_group_count", "leading_dense_block_count", yarnLogMultiplier)
	c.AttnFlops = float64(4 * c.Heads * c.HeadDim)
	return c, c.finish(set, r, nil, func(l int) []tensorSpec {
		return slices.Concat(c.gqaSpecs(), c.gqaBiasSpecs(), c.layerSpecs(set, l, postAttentionNorm), []tensorSpec{
			{name: "attn_output.bias", cols: c.Width},
			{name: "attn_sinks.weight", cols: c.Heads},
			{name: "ffn_gate_inp.bias", cols: c.Experts},
			{name: "ffn_gate_exps.bias", rows: c.Experts, cols: c.ExpertFFN},
			{name: "ffn_up_exps.bias", rows: c.Experts, cols: c.ExpertFFN},
			{name: "ffn_down_exps.bias", rows: c.Experts, cols: c.Width},
		})
	})
}

// loadGptOss maps a layer. Its arithmetic, by forwardLayer, gqa.mix and forwardExperts:
//
//	x  = RMSNorm(h)·attn_norm
//	q, k, v = Wq x + bq, Wk x + bk, Wv x + bv;  q and k rotated at the row's position in pairs of a head's halves
//	store k, v
//	h += Wo attention(q, stored keys and values up to and including the row's own, or the window's; the head's sink) + bo
//	x  = RMSNorm(h)·post_attention_norm
//	p  = softmax(Wrouter x + brouter); the UsedExperts largest are chosen, and divided by their sum
//	h += Σ over the chosen experts e of p[e]·(Wdown[e] ClampedSwiGLU(Wgate[e] x + bgate[e], Wup[e] x + bup[e]) + bdown[e])
func loadGptOss(ld *loader, c *Config, l int) (*layer, error) {
	a := &gqa{rotate: kernels.RopeHalf}
	err := a.load(ld, l, append(a.biases(), vectorTensor{"attn_output.bias", &a.oBias}, vectorTensor{"attn_sinks.weight", &a.sinks})...)
	if err != nil {
		return nil, err
	}
	w, err := loadLayer(ld, l, postAttentionNorm, &layer{mixer: a, ffn: ffn{gated: kernels.MulClampedSwiGLU}})
	if err != nil {
		return nil, err
	}
	if err := ld.vectors(l, vectorTensor{"ffn_gate_inp.bias", &w.ffn.routerBias}); err != nil {
		return nil, err
	}
	for _, b := range []struct {
		name string
		of   func(x *expert) *[]float32
	}{
		{"ffn_gate_exps.bias", func(x *expert) *[]float32 { return &x.gateBias }},
		{"ffn_up_exps.bias", func(x *expert) *[]float32 { return &x.upBias }},
		{"ffn_down_exps.bias", func(x *expert) *[]float32 { return &x.downBias }},
	} {
		rows, err := ld.rows(blockTensor(l, b.name))
		if err != nil {
			return nil, err
		}
		for e := range w.ffn.experts {
			*b.of(&w.ffn.experts[e]) = rows[e]
		}
	}
	return w, nil
}
