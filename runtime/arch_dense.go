package runtime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// Bounds on a header's sizes: several times the largest known, small enough that no product of two overflows.
const (
	maxLayers  = 4096
	maxWidth   = 1 << 20
	maxHeads   = 4096
	maxHeadDim = 4096
	maxContext = 1 << 28
)

// readDense reads and checks what the headers of dense transformers have in common.
func readDense(r *reader) Config {
	c := readAttention(r)
	c.readFFN(r)
	r.refuse(yarnLogMultiplier)
	return c
}

// readFFN reads what there is to know of a feed-forward block without experts.
func (c *Config) readFFN(r *reader) {
	c.FFN = r.count(r.key("feed_forward_length"), maxWidth)
	if n, err := r.meta.UintOr(r.key("expert_count"), 0); err != nil || n > 0 {
		r.fail(r.key("expert_count"), "is %d: the family's mixture-of-experts models are not supported", n)
	}
}

// yarnLogMultiplier is a key that most families don't have.
const yarnLogMultiplier = "rope.scaling.yarn_log_multiplier"

// partlyRotated are families that may rotate a part of each head. How much is in all their files.
var partlyRotated = []string{archGLM4MoE, archPhi3, archQwen35, archQwen35MoE}

// neverTied are families whose head has a matrix of its own in all models.
var neverTied = []string{archGLM4MoE, archGptOss}

// readAttention reads and checks what the headers of transformers have in common but for the feed-forward block. Defaults
// are those of llama.cpp.
func readAttention(r *reader) Config {
	c := readSizes(r)
	c.KVHeads = r.countOr(r.key("attention.head_count_kv"), maxHeads, c.Heads)
	c.HeadDim = r.countOr(r.key("attention.key_length"), maxHeadDim, min(max(c.Width/c.Heads, 1), maxHeadDim))
	if slices.Contains(partlyRotated, r.arch) {
		c.RopeDim = r.count(r.key("rope.dimension_count"), maxHeadDim)
	} else {
		c.RopeDim = r.countOr(r.key("rope.dimension_count"), maxHeadDim, c.HeadDim)
	}
	c.AttnScale = c.attentionScale()
	c.Cache = slices.Repeat([]LayerCache{{Heads: c.KVHeads, Key: c.HeadDim, Value: c.HeadDim}}, c.Layers)
	if value := r.countOr(r.key("attention.value_length"), maxHeadDim, c.HeadDim); value != c.HeadDim {
		r.fail(r.key("attention.value_length"), "is %d where key_length is %d: not supported", value, c.HeadDim)
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		r.fail(r.key("attention.head_count_kv"), "is %d, which does not divide head_count %d", c.KVHeads, c.Heads)
	case c.RopeDim > c.HeadDim || c.RopeDim%2 != 0:
		r.fail(r.key("rope.dimension_count"), "is %d, not an even number up to the head's %d", c.RopeDim, c.HeadDim)
	}
	return c
}

// readSizes reads what the headers of all families have, and refuses what none has here. Defaults are those of llama.cpp.
func readSizes(r *reader) Config {
	c := Config{
		Arch: r.arch, Name: r.text("general.name", ""),
		Layers:  r.count(r.key("block_count"), maxLayers),
		Width:   r.count(r.key("embedding_length"), maxWidth),
		Heads:   r.count(r.key("attention.head_count"), maxHeads),
		Context: r.count(r.key("context_length"), maxContext),
	}
	base := 0.0 // there is none
	if r.arch == archLlama {
		base = 10000 // Llama 1 and 2, whose files don't say it
	}
	c.RopeBase = r.positive(r.key("rope.freq_base"), 1e12, base)
	c.RopeScale, c.Yarn = ropeScaling(r)
	if c.Yarn.Original > 0 && c.RopeBase <= 1 {
		r.fail(r.key("rope.freq_base"), "is %v: YaRN needs a base above 1", c.RopeBase)
	}
	c.Eps = float32(r.positive(r.key("attention.layer_norm_rms_epsilon"), 1, 0))
	c.EmbedScale = 1
	r.refuse("attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias", "attn_logit_softcapping",
		"final_logit_softcapping", "router_logit_softcapping", "logit_scale", "residual_scale", "embedding_scale", "attention.output_scale",
		"attention.value_scale", "attention.shared_kv_layers", "swiglu_clamp_exp", "swiglu_clamp_shexp", "attention.causal",
		"use_parallel_residual")
	if r.arch != archMistral3 {
		r.refuse("attention.temperature_scale", "attention.temperature_length")
	}
	return c
}

// readDrafts takes the layers that only guess further tokens (multi-token prediction) off Layers: they are not run.
func (c *Config) readDrafts(r *reader) {
	key := r.key("nextn_predict_layers")
	n, err := r.meta.UintOr(key, 0)
	if err != nil || n >= uint64(c.Layers) {
		r.fail(key, "is not a number of layers below block_count, %d", c.Layers)
		return
	}
	c.Drafts = int(n)
	c.Layers -= c.Drafts
	c.Cache = c.Cache[:min(c.Layers, len(c.Cache))]
}

// ropeScaling reads the divisor of positions, and whose it is.
func ropeScaling(r *reader) (scale float64, y Yarn) {
	kind := r.text(r.key("rope.scaling.type"), "linear")
	if r.arch == archPhi3 && (kind == "linear" || kind == "longrope") && !r.has(r.key("rope.scaling.factor")) {
		return 1, y // readPhi3 has the rest
	}
	if kind != "yarn" {
		r.refuse("rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor")
	}
	factor, said := r.has(r.key("rope.scaling.factor")), r.has(r.key("rope.scaling.type"))
	if !said && factor && r.has(r.key("rope.scaling.original_context_length")) {
		r.fail(r.key("rope.scaling.type"), "is missing, where original_context_length says that it is not linear")
	}
	switch kind {
	case "none":
		return 1, y
	case "linear":
		if older := r.key("rope.scale_linear"); !factor && r.has(older) {
			return r.positive(older, 1e6, 0), y
		}
		if !factor && !said {
			return 1, y
		}
		return r.positive(r.key("rope.scaling.factor"), 1e6, 0), y
	case "yarn":
		return readYarn(r)
	default:
		r.fail(r.key("rope.scaling.type"), "is %s: not supported (supported: none, linear, yarn, and Llama 3's rope_freqs.weight)", quote(kind))
		return 1, y
	}
}

// readYarn reads the keys of YaRN. Defaults, and the amplitude 1 + 0.1·ln(factor) times the file's own factor, are
// llama.cpp's and the paper's.
func readYarn(r *reader) (scale float64, y Yarn) {
	r.only(1, "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor")
	scale = r.positive(r.key("rope.scaling.factor"), 1e6, 0)
	y = Yarn{
		Original: r.count(r.key("rope.scaling.original_context_length"), maxContext),
		BetaFast: r.positive(r.key("rope.scaling.yarn_beta_fast"), 1e6, 32),
		BetaSlow: r.positive(r.key("rope.scaling.yarn_beta_slow"), 1e6, 1),
	}
	switch {
	case r.err != nil:
		return 1, Yarn{}
	case scale < 1:
		r.fail(r.key("rope.scaling.factor"), "is %v: YaRN stretches by 1 or more", scale)
	case y.BetaFast < y.BetaSlow:
		r.fail(r.key("rope.scaling.yarn_beta_fast"), "is %v, below yarn_beta_slow's %v", y.BetaFast, y.BetaSlow)
	}
	y.Amplitude = float64(r.positive(r.key("rope.scaling.attn_factor"), 1e6, 1) * (1 + float64(0.1*kernels.Log64(scale))))
	return scale, y
}

// finish compares the tensor table with the family's tensors and fills in what follows from it. whole are tensors of the
// model that not every family has; layer gives those of layer l, without blk.N. It is not called for a header with an error.
func (c *Config) finish(set *gguf.Set, r *reader, whole []tensorSpec, layer func(l int) []tensorSpec) error {
	if r.err != nil {
		return r.err
	}
	path := set.Meta().Path
	embed, ok := set.Tensor("token_embd.weight")
	if !ok {
		return fmt.Errorf("runtime: %s: tensor token_embd.weight is missing: the file is incomplete", path)
	}
	if rows := embed.Rows(); rows > 1<<26 {
		return fmt.Errorf("runtime: %s: tensor token_embd.weight has %d rows, more than any vocabulary", path, rows)
	}
	c.Vocab = int(embed.Rows())
	_, untied := set.Tensor("output.weight")
	c.Tied = !untied
	specs := append([]tensorSpec{
		{name: "token_embd.weight", rows: c.Vocab, cols: c.Width},
		{name: "output_norm.weight", cols: c.Width},
		{name: "output.weight", rows: c.Vocab, cols: c.Width, optional: !slices.Contains(neverTied, c.Arch)},
	}, whole...)
	layers := make([][]tensorSpec, c.Layers)
	for l := range layers {
		layers[l] = layer(l)
		for _, s := range layers[l] {
			s.name = blockTensor(l, s.name)
			specs = append(specs, s)
		}
	}
	if err := checkTensors(set, c.Arch, specs, Range{c.Layers, c.Layers + c.Drafts}); err != nil {
		return err
	}
	c.costs(set, layers)
	return nil
}

// finishDense is finish for families whose layers are alike and have grouped attention. extra are tensors of each layer
// beyond what all of them have.
func (c *Config) finishDense(set *gguf.Set, r *reader, whole, extra []tensorSpec) error {
	c.AttnFlops = float64(4 * c.Heads * c.HeadDim)
	return c.finish(set, r, whole, func(l int) []tensorSpec {
		return slices.Concat(c.gqaSpecs(), c.layerSpecs(set, l, ffnNorm), extra)
	})
}

// layerSpecs are the tensors of layer l that all families have, its feed-forward block included. ffnNorm is the name of the
// norm before that.
func (c *Config) layerSpecs(set *gguf.Set, l int, ffnNorm string) []tensorSpec {
	return append(c.ffnSpecs(set, l), tensorSpec{name: "attn_norm.weight", cols: c.Width}, tensorSpec{name: ffnNorm, cols: c.Width})
}

// costs fills in bytes and operations of a model whose layers have these tensors.
func (c *Config) costs(set *gguf.Set, layers [][]tensorSpec) {
	size := func(name string) int64 {
		if t, ok := set.Tensor(name); ok {
			return t.Size
		}
		return 0
	}
	c.LayerBytes, c.LayerFlops = make([]int64, c.Layers), make([]float64, c.Layers)
	for l, specs := range layers {
		weights := int64(0)
		for _, s := range specs {
			n, bytes := int64(s.rows)*int64(s.cols), size(blockTensor(l, s.name))
			switch {
			case s.expert:
				n *= int64(c.UsedExperts)
				c.ExpertBytes += bytes
			case strings.HasSuffix(s.name, ".bias"):
				n = 0
			case s.count > 0:
				n *= int64(s.count)
			}
			weights += n
			c.LayerBytes[l] += bytes
		}
		c.LayerFlops[l] = float64(2 * weights)
	}
	c.EmbedBytes = size("token_embd.weight")
	c.HeadBytes = size("output_norm.weight") + size("output.weight")
	if c.Tied {
		c.HeadBytes += c.EmbedBytes
	}
	c.HeadFlops = float64(2 * int64(c.Width) * int64(c.Vocab))
}

// blockTensor is GGUF's name of a layer's tensor.
func blockTensor(layer int, name string) string { return fmt.Sprintf("blk.%d.%s", layer, name) }
