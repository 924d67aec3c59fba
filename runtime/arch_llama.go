package runtime

import (
	"fmt"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// archLlama is the family's general.architecture: Llama 1 to 3, SmolLM and 2, Mistral and others of the same shape.
const archLlama = "llama"

// Bounds on a header's sizes: several times the largest known, small enough that no product of two overflows.
const (
	maxLayers  = 4096
	maxWidth   = 1 << 20
	maxHeads   = 4096
	maxHeadDim = 4096
	maxContext = 1 << 28
)

// readLlama reads and checks the header of a llama model. Defaults are those of llama.cpp.
func readLlama(set *gguf.Set) (Config, error) {
	meta := set.Meta()
	r := &reader{meta: meta}
	c := Config{
		Arch: archLlama, Name: r.text("general.name", ""),
		Layers:  r.count("llama.block_count", maxLayers),
		Width:   r.count("llama.embedding_length", maxWidth),
		FFN:     r.count("llama.feed_forward_length", maxWidth),
		Heads:   r.count("llama.attention.head_count", maxHeads),
		Context: r.count("llama.context_length", maxContext),
	}
	c.KVHeads = r.countOr("llama.attention.head_count_kv", maxHeads, c.Heads)
	c.HeadDim = r.countOr("llama.attention.key_length", maxHeadDim, min(max(c.Width/c.Heads, 1), maxHeadDim))
	c.RopeDim = r.countOr("llama.rope.dimension_count", maxHeadDim, c.HeadDim)
	c.RopeBase = r.positive("llama.rope.freq_base", 1e12, 10000)
	c.RopeScale = ropeScale(r)
	c.Eps = float32(r.positive("llama.attention.layer_norm_rms_epsilon", 1, 0))
	if value := r.countOr("llama.attention.value_length", maxHeadDim, c.HeadDim); value != c.HeadDim {
		r.fail("llama.attention.value_length", "is %d where key_length is %d: not supported", value, c.HeadDim)
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		r.fail("llama.attention.head_count_kv", "is %d, which does not divide head_count %d", c.KVHeads, c.Heads)
	case c.RopeDim > c.HeadDim || c.RopeDim%2 != 0:
		r.fail("llama.rope.dimension_count", "is %d, not an even number up to the head's %d", c.RopeDim, c.HeadDim)
	}
	refuseLlamaVariants(r)
	if r.err != nil {
		return Config{}, r.err
	}
	embed, ok := set.Tensor("token_embd.weight")
	if !ok {
		return Config{}, fmt.Errorf("runtime: %s: tensor token_embd.weight is missing: the file is incomplete", meta.Path)
	}
	if rows := embed.Rows(); rows > 1<<26 {
		return Config{}, fmt.Errorf("runtime: %s: tensor token_embd.weight has %d rows, more than any vocabulary", meta.Path, rows)
	}
	c.Vocab = int(embed.Rows())
	_, untied := set.Tensor("output.weight")
	c.Tied = !untied
	if err := checkTensors(set, archLlama, llamaTensors(&c)); err != nil {
		return Config{}, err
	}
	c.llamaCosts(set)
	return c, nil
}

// ropeScale reads the divisor of positions: 1, or the factor of linear scaling.
func ropeScale(r *reader) float64 {
	const factor = "llama.rope.scaling.factor"
	switch kind := r.text("llama.rope.scaling.type", "linear"); kind {
	case "none":
		return 1
	case "linear":
		return r.positive(factor, 1e6, r.positive("llama.rope.scale_linear", 1e6, 1))
	default:
		r.fail("llama.rope.scaling.type", "is %s: not supported (supported: none, linear, and Llama 3's rope_freqs.weight)", quote(kind))
		return 1
	}
}

// refuseLlamaVariants refuses keys that change the arithmetic in ways that forwardLlama does not have.
func refuseLlamaVariants(r *reader) {
	if n, err := r.meta.UintOr("llama.expert_count", 0); err != nil || n > 0 {
		r.fail("llama.expert_count", "is %d: mixture-of-experts models are not supported", n)
	}
	for _, key := range []string{
		"llama.attention.sliding_window", "llama.attention.scale", "llama.attention.clamp_kqv", "llama.attention.max_alibi_bias",
		"llama.attn_logit_softcapping", "llama.final_logit_softcapping", "llama.logit_scale", "llama.residual_scale",
		"llama.embedding_scale", "llama.attention.causal", "llama.use_parallel_residual",
	} {
		if r.has(key) {
			r.fail(key, "is set: a variant of the model that is not supported")
		}
	}
}

// llamaTensors lists what a llama file holds.
func llamaTensors(c *Config) []tensorSpec {
	specs := []tensorSpec{
		{name: "token_embd.weight", rows: c.Vocab, cols: c.Width},
		{name: "output_norm.weight", cols: c.Width},
		{name: "output.weight", rows: c.Vocab, cols: c.Width, optional: true},
		{name: "rope_freqs.weight", cols: c.RopeDim / 2, optional: true},
	}
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	for l := range c.Layers {
		for _, s := range []tensorSpec{
			{name: "attn_norm", cols: c.Width},
			{name: "attn_q", rows: q, cols: c.Width},
			{name: "attn_k", rows: kv, cols: c.Width},
			{name: "attn_v", rows: kv, cols: c.Width},
			{name: "attn_output", rows: c.Width, cols: q},
			{name: "ffn_norm", cols: c.Width},
			{name: "ffn_gate", rows: c.FFN, cols: c.Width},
			{name: "ffn_up", rows: c.FFN, cols: c.Width},
			{name: "ffn_down", rows: c.Width, cols: c.FFN},
		} {
			s.name = blockTensor(l, s.name)
			specs = append(specs, s)
		}
	}
	return specs
}

// blockTensor is GGUF's name of a layer's weight.
func blockTensor(layer int, name string) string { return fmt.Sprintf("blk.%d.%s.weight", layer, name) }

// llamaCosts fills in bytes and operations.
func (c *Config) llamaCosts(set *gguf.Set) {
	size := func(name string) int64 {
		if t, ok := set.Tensor(name); ok {
			return t.Size
		}
		return 0
	}
	c.LayerBytes = make([]int64, c.Layers)
	for l := range c.LayerBytes {
		for _, name := range []string{"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"} {
			c.LayerBytes[l] += size(blockTensor(l, name))
		}
	}
	c.EmbedBytes = size("token_embd.weight")
	c.HeadBytes = size("output_norm.weight") + size("output.weight")
	if c.Tied {
		c.HeadBytes += c.EmbedBytes
	}
	weights := int64(c.Width) * int64(c.HeadDim*(2*c.Heads+2*c.KVHeads)+3*c.FFN)
	c.LayerFlops = float64(2 * weights)
	c.AttnFlops = float64(4 * c.Heads * c.HeadDim)
	c.HeadFlops = float64(2 * int64(c.Width) * int64(c.Vocab))
}

// llamaLayer is one layer's weights.
type llamaLayer struct {
	attnNorm, ffnNorm []float32 // [Width]
	q, k, v           *weight   // Heads×HeadDim, KVHeads×HeadDim (twice) outputs of Width
	o                 *weight   // Width outputs of Heads×HeadDim
	gate, up          *weight   // FFN outputs of Width
	down              *weight   // Width outputs of FFN
}

// loadLlamaLayer maps a layer's weights.
func loadLlamaLayer(ld *loader, l int) (w llamaLayer, err error) {
	for _, v := range []struct {
		name string
		to   *[]float32
	}{{"attn_norm", &w.attnNorm}, {"ffn_norm", &w.ffnNorm}} {
		if *v.to, err = ld.vector(blockTensor(l, v.name)); err != nil {
			return w, err
		}
	}
	for _, m := range []struct {
		name string
		to   **weight
	}{
		{"attn_q", &w.q}, {"attn_k", &w.k}, {"attn_v", &w.v}, {"attn_output", &w.o},
		{"ffn_gate", &w.gate}, {"ffn_up", &w.up}, {"ffn_down", &w.down},
	} {
		if *m.to, err = ld.matrix(blockTensor(l, m.name)); err != nil {
			return w, err
		}
	}
	return w, nil
}

// forwardLlama takes rows through layer l: each row's h is replaced by the layer's output, and its K and V are stored.
//
//	x  = RMSNorm(h)·attn_norm
//	q, k, v = Wq x, Wk x, Wv x;  q and k rotated in interleaved pairs at the row's position
//	store k, v
//	h += Wo attention(q, stored keys and values up to and including the row's own)
//	x  = RMSNorm(h)·ffn_norm
//	h += Wdown (SiLU(Wgate x)·Wup x)
//
// Each line is element-wise or one kernel call per row and output; so nothing depends on which rows come together.
func (m *Model) forwardLlama(l int, rows []row) error {
	c, w, b := &m.cfg, m.llamaLayer(l), &m.buf
	b.shape(c, len(rows))

	err := m.prepare(l, rows, c.Width, []*weight{w.q, w.k, w.v}, b.x, func(p *pass, r int, x []float32) {
		kernels.RMSNorm(x, p.rows[r].h, p.m.llamaLayer(p.l).attnNorm, p.m.cfg.Eps)
	})
	if err != nil {
		return err
	}
	if err := m.multiply(len(rows), product{w: w.q, dst: b.q}, product{w: w.k, dst: b.k}, product{w: w.v, dst: b.v}); err != nil {
		return err
	}

	err = m.eachRow(l, rows, "KV row", func(p *pass, r int) bool {
		c, b, row := &p.m.cfg, &p.m.buf, &p.rows[r]
		qDim, kvDim := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
		q, k, v := b.q[r*qDim:(r+1)*qDim], b.k[r*kvDim:(r+1)*kvDim], b.v[r*kvDim:(r+1)*kvDim]
		kernels.RopeInterleaved(q, c.Heads, c.HeadDim, c.RopeDim, row.cos, row.sin)
		kernels.RopeInterleaved(k, c.KVHeads, c.HeadDim, c.RopeDim, row.cos, row.sin)
		if kernels.CheckFinite(k) >= 0 || kernels.CheckFinite(v) >= 0 {
			return false
		}
		row.seq.store(p.l, row.pos, k, v)
		return true
	})
	if err != nil {
		return err
	}
	m.attend(l, rows, b.attn, b.q, 0, c.attentionScale())

	err = m.prepare(l, rows, c.Heads*c.HeadDim, []*weight{w.o}, b.attn, nil)
	if err != nil {
		return err
	}
	if err := m.multiply(len(rows), product{w: w.o, dst: b.y}); err != nil {
		return err
	}

	err = m.prepare(l, rows, c.Width, []*weight{w.gate, w.up}, b.x, func(p *pass, r int, x []float32) {
		h, width := p.rows[r].h, p.m.cfg.Width
		kernels.Add(h, h, p.m.buf.y[r*width:(r+1)*width])
		kernels.RMSNorm(x, h, p.m.llamaLayer(p.l).ffnNorm, p.m.cfg.Eps)
	})
	if err != nil {
		return err
	}
	if err := m.multiply(len(rows), product{w: w.gate, dst: b.gate}, product{w: w.up, dst: b.up}); err != nil {
		return err
	}

	err = m.prepare(l, rows, c.FFN, []*weight{w.down}, b.gate, func(p *pass, r int, x []float32) {
		kernels.MulSiLU(x, x, p.m.buf.up[r*len(x):(r+1)*len(x)])
	})
	if err != nil {
		return err
	}
	if err := m.multiply(len(rows), product{w: w.down, dst: b.y}); err != nil {
		return err
	}

	return m.eachRow(l, rows, "hidden state", func(p *pass, r int) bool {
		h, width := p.rows[r].h, p.m.cfg.Width
		kernels.Add(h, h, p.m.buf.y[r*width:(r+1)*width])
		return kernels.CheckFinite(h) < 0
	})
}

// llamaLayer returns the weights of layer l of the model.
func (m *Model) llamaLayer(l int) *llamaLayer { return &m.layer[l-m.layers.First] }
