package runtime

import (
	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archDeepSeek2 is the family's general.architecture: DeepSeek V2 Lite, V3 and R1, and others of the same shape.
const archDeepSeek2 = "deepseek2"

// DeepSeek V2 and V2.5, and V3 and R1, and no others, have so many layers and experts. Files that were converted before late in
// 2025 do not say that their experts are in groups, as the models' configurations do: n_group, topk_group.
const (
	v2Layers, v2Experts    = 60, 160
	v2Groups, v2UsedGroups = 8, 3
	v3Layers, v3Experts    = 61, 256
	v3Groups, v3UsedGroups = 8, 4
)

// readDeepSeek2 reads and checks the header of a deepseek2 model.
//
// With YaRN and a yarn_log_multiplier m, which converters make of a tenth of the configuration's mscale_all_dim, the cosines and
// sines stay as they are, and scores are multiplied by (1 + m·ln(factor))².
//
// Files of llama.cpp from before April 2025 have attn_kv_b, and sizes of heads before anything is absorbed.
func readDeepSeek2(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archDeepSeek2}
	c := readSizes(r)
	c.readDrafts(r)
	_, joint := set.Tensor(blockTensor(0, jointKV))
	c.RopeDim = r.count(r.key("rope.dimension_count"), maxHeadDim)
	c.Latent.Rank = r.count(r.key("attention.kv_lora_rank"), maxHeadDim)
	c.Latent.QRank = r.countOr(r.key("attention.q_lora_rank"), maxWidth, 0)
	if joint {
		c.Latent.Value = r.count(r.key("attention.value_length"), maxHeadDim)
		c.HeadDim = r.count(r.key("attention.key_length"), maxHeadDim)
	} else {
		c.Latent.Value = r.count(r.key("attention.value_length_mla"), maxHeadDim)
		c.HeadDim = r.count(r.key("attention.key_length_mla"), maxHeadDim)
	}
	c.Latent.Nope = c.HeadDim - c.RopeDim
	c.KVHeads = 1
	c.AttnScale = c.attentionScale()
	if key := r.key(yarnLogMultiplier); c.Yarn.Original > 0 && r.has(key) {
		c.Yarn.Amplitude = 1
		m := 1 + float64(r.positive(key, 10, 0)*kernels.Log64(c.RopeScale))
		c.AttnScale = float32(c.AttnScale * float32(m*m))
	}
	key, value := c.Latent.Rank+c.RopeDim, c.Latent.Rank
	switch heads := r.countOr(r.key("attention.head_count_kv"), maxHeads, 1); {
	case !joint && heads != 1:
		r.fail(r.key("attention.head_count_kv"), "is %d: latent attention has 1", heads)
	case joint && heads != c.Heads:
		r.fail(r.key("attention.head_count_kv"), "is %d, not the %d of a file with attn_kv_b", heads, c.Heads)
	case c.RopeDim%2 != 0 || c.Latent.Nope < 1:
		r.fail(r.key("rope.dimension_count"), "is %d, not an even number below the head's %d", c.RopeDim, c.HeadDim)
	case joint:
	case r.countOr(r.key("attention.key_length"), 2*maxHeadDim, key) != key:
		r.fail(r.key("attention.key_length"), "is not kv_lora_rank and rope.dimension_count together, %d", key)
	case r.countOr(r.key("attention.value_length"), maxHeadDim, value) != value:
		r.fail(r.key("attention.value_length"), "is not kv_lora_rank, %d", value)
	}
	r.refuse("rope.scaling.attn_factor", "attention.sliding_window")
	c.readExperts(r)
	c.readSharedExperts(r)
	if !r.has(r.key("expert_group_count")) {
		switch {
		case c.Layers == v2Layers && c.Experts == v2Experts && !c.Router.Sigmoid:
			c.Router.Groups, c.Router.UsedGroups = v2Groups, v2UsedGroups
		case c.Layers == v3Layers && c.Experts == v3Experts && c.Router.Sigmoid:
			c.Router.Groups, c.Router.UsedGroups = v3Groups, v3UsedGroups
		}
	}
	c.Cache = c.cacheOfLatents()
	c.AttnFlops = float64(2 * c.Heads * (key + value))
	return c, c.finish(set, r, nil, func(l int) []tensorSpec { return append(c.mlaSpecs(set, l), c.layerSpecs(set, l, ffnNorm)...) })
}

// loadDeepSeek2 maps a layer. Its arithmetic, by forwardLayer and mla.mix; y of a layer below leading_dense_block_count is
// that of one block, of others by forwardExperts:
//
//	h += latent attention(RMSNorm(h)·attn_norm)
//	x  = RMSNorm(h)·ffn_norm
//	h += Wdown (SiLU(Wgate x)·Wup x)
//	 or  Σ over the chosen experts e of share[e]·(Wdown[e] (SiLU(Wgate[e] x)·Wup[e] x)), plus the same of the shared expert
func loadDeepSeek2(ld *loader, c *Config, l int) (*layer, error) {
	a := &mla{}
	if err := a.load(ld, c, l); err != nil {
		return nil, err
	}
	return loadLayer(ld, l, ffnNorm, &layer{mixer: a, ffn: ffn{gated: kernels.MulSiLU}})
}
