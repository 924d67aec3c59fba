package runtime

import (
	"slices"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archQwen35 and archQwen35MoE are general.architecture of Qwen 3.5, dense and with experts.
const (
	archQwen35    = "qwen35"
	archQwen35MoE = "qwen35moe"
)

// qwen35FFNNorm is these families' name of the norm before the feed-forward block.
const qwen35FFNNorm = "post_attention_norm.weight"

// readQwen35 reads and checks the header of a qwen35 model, readQwen35MoE that of a qwen35moe.
//
// Every full_attention_interval-th layer has gated attention, the others a gated delta net; attention.recurrent_layers, where
// it is there, says so layer by layer. Of the positions that rope.dimension_sections tells apart all are equal for text.
func readQwen35(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archQwen35}
	return finishQwen35(set, r, readDense(r))
}

func readQwen35MoE(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archQwen35MoE}
	c := readAttention(r)
	c.readExperts(r)
	c.Router.Normed = true
	if c.Router.Sigmoid {
		r.fail(r.key("expert_gating_func"), "is %d: this family has softmax, %d", gatingSigmoid, gatingSoftmax)
	}
	c.SharedFFN = r.count(r.key("expert_shared_feed_forward_length"), maxWidth)
	c.SharedGated = true
	return finishQwen35(set, r, c)
}

// finishQwen35 reads what both have.
func finishQwen35(set *gguf.Set, r *reader, c Config) (Config, error) {
	c.readDrafts(r)
	c.GatedAttn = true
	c.readDelta(r)
	r.refuse("attention.sliding_window", "expert_shared_count", "expert_weights_scale", "expert_group_count", "leading_dense_block_count")
	recurrent := recurrentLayers(r, c.Layers)
	c.AttnFlops = float64(4 * c.Heads * c.HeadDim)
	for l, is := range recurrent {
		if is {
			c.Cache[l] = LayerCache{State: c.Delta.state()}
		}
	}
	return c, c.finish(set, r, nil, func(l int) []tensorSpec {
		specs := c.layerSpecs(set, l, qwen35FFNNorm)
		if recurrent[l] {
			return append(specs, c.deltaSpecs()...)
		}
		return slices.Concat(specs, c.gqaSpecs(), c.gqaNormSpecs())
	})
}

// recurrentLayers says which layers have a tail.
func recurrentLayers(r *reader, layers int) []bool {
	const each = "attention.recurrent_layers"
	list := make([]bool, layers)
	if r.has(r.key(each)) {
		said, err := r.meta.Bools(r.key(each))
		if err != nil || len(said) < layers {
			r.fail(r.key(each), "is not true or false for each of %d layers", layers)
			return list
		}
		return said[:layers]
	}
	interval := r.countOr(r.key("full_attention_interval"), maxLayers, 4)
	for l := range list {
		list[l] = l%interval != interval-1
	}
	return list
}

// loadQwen35 maps a layer. Its arithmetic, by forwardLayer, deltaNet.mix or gqa.mix, and forwardFFN or forwardExperts:
//
//	h += delta net or gated attention of RMSNorm(h)·attn_norm
//	x  = RMSNorm(h)·post_attention_norm
//	h += Wdown (SiLU(Wgate x)·Wup x)
//	 or  Σ over the chosen experts e of share[e]·(Wdown[e] (SiLU(Wgate[e] x)·Wup[e] x)), plus Sigmoid(wgate_shared·x) times
//	     the same of the shared expert
func loadQwen35(ld *loader, c *Config, l int) (*layer, error) {
	w := &layer{ffn: ffn{gated: kernels.MulSiLU}}
	var err error
	if c.Cache[l].State > 0 {
		d := &deltaNet{}
		w.mixer, err = d, d.load(ld, c, l)
	} else {
		a := &gqa{rotate: kernels.RopeHalf, gated: true}
		w.mixer, err = a, a.load(ld, l, a.norms()...)
	}
	if err != nil {
		return nil, err
	}
	return loadLayer(ld, l, qwen35FFNNorm, w)
}
