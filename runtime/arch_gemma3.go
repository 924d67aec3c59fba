package runtime

import (
	"math"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archGemma3 is the family's general.architecture: the text models of Gemma 3, from 270M to 27B.
const archGemma3 = "gemma3"

// layers27B is how many layers Gemma 3 27B has, and no other: the header has no key for the one thing that is different
// there. llama.cpp tells by the same.
const layers27B = 62

// readGemma3 reads and checks the header of a gemma3 model.
//
// The embedding is multiplied by round(√Width). Scores are multiplied by 1/√HeadDim, in the 27B model by 1/√(Width/Heads).
// Of every sliding_window_pattern layers (6) all but the last see the last sliding_window positions only, and rotate by
// frequencies of their own, from base rope.freq_base_swa (10000); rope.freq_base and linear scaling are for the others.
func readGemma3(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archGemma3}
	c := readDense(r)
	c.EmbedScale = float32(math.Sqrt(float64(c.Width)))
	if c.Layers == layers27B {
		c.AttnScale = 1 / float32(math.Sqrt(float64(c.Width/c.Heads)))
	}
	c.readWindows(r, 6)
	c.LocalRopeBase = r.positive(r.key("rope.freq_base_swa"), 1e12, 10000)
	return c, c.finishDense(set, r, nil, append(c.gqaNormSpecs(),
		tensorSpec{name: "post_attention_norm.weight", cols: c.Width}, tensorSpec{name: "post_ffw_norm.weight", cols: c.Width}))
}

// readWindows reads which layers have a window. Where the header doesn't say, they are all but the last of every so many layers.
func (c *Config) readWindows(r *reader, period int) {
	const pattern = "attention.sliding_window_pattern"
	size := r.count(r.key("attention.sliding_window"), maxContext)
	if each, err := r.meta.Bools(r.key(pattern)); err == nil {
		if len(each) != c.Layers {
			r.fail(r.key(pattern), "has %d entries for %d layers", len(each), c.Layers)
			return
		}
		for l, local := range each {
			if local {
				c.Cache[l].Window = size
			}
		}
		return
	}
	period = r.countOr(r.key(pattern), maxLayers, period)
	for l := range c.Cache {
		if l%period != period-1 {
			c.Cache[l].Window = size
		}
	}
}

// loadGemma3 maps a layer. Its arithmetic, by forwardLayer and gqa.mix, on a residual stream that begins as round(embedding·√Width):
//
//	x  = RMSNorm(h)·attn_norm
//	q, k, v = Wq x, Wk x, Wv x
//	each head of q = RMSNorm(head)·attn_q_norm, each of k = RMSNorm(head)·attn_k_norm
//	q and k rotated at the row's position in pairs of a head's halves, by the angles of the layer's kind
//	store k, v
//	y  = Wo attention(q, stored keys and values up to and including the row's own, or the window's)
//	h += RMSNorm(y)·post_attention_norm
//	x  = RMSNorm(h)·ffn_norm
//	y  = Wdown (GELU(Wgate x)·Wup x)
//	h += RMSNorm(y)·post_ffw_norm
//
// Norm weights are as GGUF has them, with Gemma's 1 added.
func loadGemma3(ld *loader, c *Config, l int) (*layer, error) {
	w := &layer{ffn: ffn{gated: kernels.MulGELU}}
	if err := ld.vectors(l, vectorTensor{"post_attention_norm.weight", &w.attnPost}, vectorTensor{"post_ffw_norm.weight", &w.ffnPost}); err != nil {
		return nil, err
	}
	a := &gqa{rotate: kernels.RopeHalf, local: c.Cache[l].Window > 0}
	return loadDense(ld, l, a, w, a.norms()...)
}
