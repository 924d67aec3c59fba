package runtime

import (
	"cmp"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archPhi3 is the family's general.architecture: Phi 3, 3.5 and 4, and their mini models.
const archPhi3 = "phi3"

// readPhi3 reads and checks the header of a phi3 model. A window, where there is one, is every layer's; llama.cpp leaves it out,
// the makers' code doesn't. Models for long contexts have two sets of rope factors (LongRope).
func readPhi3(set *gguf.Set) (Config, error) {
	r := &reader{meta: set.Meta(), arch: archPhi3}
	c := readDense(r)
	if n := phi3Window(r, &c); n > 0 && n < c.Context {
		for l := range c.Cache {
			c.Cache[l].Window = n
		}
	}
	var whole []tensorSpec
	_, long := set.Tensor(ropeFactorsLong)
	_, short := set.Tensor(ropeFactorsShort)
	if long || short {
		whole = []tensorSpec{{name: ropeFactorsLong, cols: c.RopeDim / 2}, {name: ropeFactorsShort, cols: c.RopeDim / 2}}
		c.LongRope.Original = r.count(r.key("rope.scaling.original_context_length"), maxContext)
		c.LongRope.Amplitude = r.positive(r.key("rope.scaling.attn_factor"), 1e6, 0)
	} else {
		r.refuse("rope.scaling.attn_factor")
		if key := r.key("rope.scaling.type"); r.text(key, "") == "longrope" {
			r.fail(key, "is longrope, without tensors %s and %s", ropeFactorsLong, ropeFactorsShort)
		}
	}
	c.AttnFlops = float64(4 * c.Heads * c.HeadDim)
	return c, c.finish(set, r, whole, func(int) []tensorSpec {
		q := c.Heads * c.HeadDim
		return []tensorSpec{
			{name: "attn_norm.weight", cols: c.Width},
			{name: "attn_qkv.weight", rows: q + 2*c.KVHeads*c.HeadDim, cols: c.Width},
			{name: "attn_output.weight", rows: c.Width, cols: q},
			{name: ffnNorm, cols: c.Width},
			{name: "ffn_up.weight", rows: 2 * c.FFN, cols: c.Width},
			{name: "ffn_down.weight", rows: c.Width, cols: c.FFN},
		}
	})
}

// phi3Window reads the window of all layers; 0 where they see everything. Files of Phi 3 from before August 2024 don't have it, and
// llama.cpp knows the models by their sizes.
func phi3Window(r *reader, c *Config) int {
	key := r.key("attention.sliding_window")
	if !r.has(key) && (c.Layers == 32 || c.Layers == 40) {
		switch c.Context {
		case 4096:
			return 2047
		case 131072:
			return 0
		}
	}
	n, err := r.meta.Uint(key)
	if err == nil && n > maxContext {
		r.fail(key, "is %d, more than %d", n, maxContext)
	}
	r.err = cmp.Or(r.err, err)
	return int(min(n, maxContext))
}

// loadPhi3 maps a layer. Its arithmetic, by forwardLayer and gqa.mix, where Wq, Wk and Wv are rows of attn_qkv, in this order, and
// Wgate and Wup of ffn_up:
//
//	x  = RMSNorm(h)·attn_norm
//	q, k, v = Wq x, Wk x, Wv x;  q and k rotated at the row's position in pairs of the halves of a head's first RopeDim elements
//	store k, v
//	h += Wo attention(q, stored keys and values up to and including the row's own, or the window's)
//	x  = RMSNorm(h)·ffn_norm
//	h += Wdown (SiLU(Wgate x)·Wup x)
func loadPhi3(ld *loader, c *Config, l int) (*layer, error) {
	a := &gqa{rotate: kernels.RopeHalf}
	w := &layer{mixer: a, ffn: ffn{gated: kernels.MulSiLU}}
	f := &w.ffn
	if err := ld.vectors(l, vectorTensor{"attn_norm.weight", &w.attnNorm}, vectorTensor{ffnNorm, &w.ffnNorm}); err != nil {
		return nil, err
	}
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	if err := ld.parts(blockTensor(l, "attn_qkv.weight"), part{q, &a.q}, part{kv, &a.k}, part{kv, &a.v}); err != nil {
		return nil, err
	}
	if err := ld.parts(blockTensor(l, "ffn_up.weight"), part{c.FFN, &f.gate}, part{c.FFN, &f.up}); err != nil {
		return nil, err
	}
	err := ld.layerMatrices(l, matrixTensor{"attn_output.weight", &a.o}, matrixTensor{"ffn_down.weight", &f.down})
	a.qkv, a.out = []*weight{a.q, a.k, a.v}, []*weight{a.o}
	f.inputs, f.last = []*weight{f.gate, f.up}, []*weight{f.down}
	return w, err
}
