package runtime

import (
	"fmt"

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
	c.FFN = r.count(r.key("feed_forward_length"), maxWidth)
	if n, err := r.meta.UintOr(r.key("expert_count"), 0); err != nil || n > 0 {
		r.fail(r.key("expert_count"), "is %d: the family's mixture-of-experts models are not supported", n)
	}
	return c
}

// readAttention reads and checks what the headers of transformers have in common but for the feed-forward block. Defaults
// are those of llama.cpp.
func readAttention(r *reader) Config {
	c := Config{
		Arch: r.arch, Name: r.text("general.name", ""),
		Layers:  r.count(r.key("block_count"), maxLayers),
		Width:   r.count(r.key("embedding_length"), maxWidth),
		Heads:   r.count(r.key("attention.head_count"), maxHeads),
		Context: r.count(r.key("context_length"), maxContext),
	}
	c.KVHeads = r.countOr(r.key("attention.head_count_kv"), maxHeads, c.Heads)
	c.HeadDim = r.countOr(r.key("attention.key_length"), maxHeadDim, min(max(c.Width/c.Heads, 1), maxHeadDim))
	c.RopeDim = r.countOr(r.key("rope.dimension_count"), maxHeadDim, c.HeadDim)
	c.RopeBase = r.positive(r.key("rope.freq_base"), 1e12, 10000)
	c.RopeScale, c.Yarn = ropeScaling(r)
	c.Eps = float32(r.positive(r.key("attention.layer_norm_rms_epsilon"), 1, 0))
	c.EmbedScale, c.AttnScale = 1, c.attentionScale()
	if value := r.countOr(r.key("attention.value_length"), maxHeadDim, c.HeadDim); value != c.HeadDim {
		r.fail(r.key("attention.value_length"), "is %d where key_length is %d: not supported", value, c.HeadDim)
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		r.fail(r.key("attention.head_count_kv"), "is %d, which does not divide head_count %d", c.KVHeads, c.Heads)
	case c.Yarn.Original > 0 && c.RopeBase <= 1:
		r.fail(r.key("rope.freq_base"), "is %v: YaRN needs a base above 1", c.RopeBase)
	case c.RopeDim > c.HeadDim || c.RopeDim%2 != 0:
		r.fail(r.key("rope.dimension_count"), "is %d, not an even number up to the head's %d", c.RopeDim, c.HeadDim)
	}
	r.refuse("attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias", "attn_logit_softcapping",
		"final_logit_softcapping", "logit_scale", "residual_scale", "embedding_scale", "attention.causal",
		"use_parallel_residual")
	return c
}

// ropeScaling reads the divisor of positions, and whose it is.
func ropeScaling(r *reader) (scale float64, y Yarn) {
	kind := r.text(r.key("rope.scaling.type"), "linear")
	if kind != "yarn" {
		r.refuse("rope.scaling.attn_factor")
	}
	switch kind {
	case "none":
		return 1, y
	case "linear":
		return r.positive(r.key("rope.scaling.factor"), 1e6, r.positive(r.key("rope.scale_linear"), 1e6, 1)), y
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
	r.refuse("rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_ext_factor")
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

// finishDense compares the tensor table with the family's tensors and fills in what follows from it. whole are tensors
// of the model that not every family has; layer are those of each layer, without blk.N, beyond what all have.
func (c *Config) finishDense(set *gguf.Set, r *reader, whole, layer []tensorSpec) error {
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
		{name: "output.weight", rows: c.Vocab, cols: c.Width, optional: true},
	}, whole...)
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	layer = append([]tensorSpec{
		{name: "attn_norm.weight", cols: c.Width},
		{name: "attn_q.weight", rows: q, cols: c.Width},
		{name: "attn_k.weight", rows: kv, cols: c.Width},
		{name: "attn_v.weight", rows: kv, cols: c.Width},
		{name: "attn_output.weight", rows: c.Width, cols: q},
		{name: "ffn_norm.weight", cols: c.Width},
	}, layer...)
	if c.Experts > 0 {
		_, fused := set.Tensor(blockTensor(0, "ffn_gate_up_exps.weight"))
		layer = append(layer, c.expertSpecs(fused)...)
	} else {
		layer = append(layer, tensorSpec{name: "ffn_gate.weight", rows: c.FFN, cols: c.Width},
			tensorSpec{name: "ffn_up.weight", rows: c.FFN, cols: c.Width},
			tensorSpec{name: "ffn_down.weight", rows: c.Width, cols: c.FFN})
	}
	for l := range c.Layers {
		for _, s := range layer {
			s.name = blockTensor(l, s.name)
			specs = append(specs, s)
		}
	}
	if err := checkTensors(set, c.Arch, specs); err != nil {
		return err
	}
	c.costs(set, layer)
	return nil
}

// costs fills in bytes and operations of a model whose layers have these tensors.
func (c *Config) costs(set *gguf.Set, layer []tensorSpec) {
	size := func(name string) int64 {
		if t, ok := set.Tensor(name); ok {
			return t.Size
		}
		return 0
	}
	weights := int64(0)
	for _, s := range layer {
		n := int64(s.rows) * int64(s.cols)
		if s.experts > 0 {
			n *= int64(c.UsedExperts)
		}
		weights += n
	}
	c.LayerBytes = make([]int64, c.Layers)
	for l := range c.LayerBytes {
		for _, s := range layer {
			n := size(blockTensor(l, s.name))
			c.LayerBytes[l] += n
			if s.experts > 0 {
				c.ExpertBytes += n
			}
		}
	}
	c.EmbedBytes = size("token_embd.weight")
	c.HeadBytes = size("output_norm.weight") + size("output.weight")
	if c.Tied {
		c.HeadBytes += c.EmbedBytes
	}
	c.LayerFlops = float64(2 * weights)
	c.AttnFlops = float64(4 * c.Heads * c.HeadDim)
	c.HeadFlops = float64(2 * int64(c.Width) * int64(c.Vocab))
}

// blockTensor is GGUF's name of a layer's tensor.
func blockTensor(layer int, name string) string { return fmt.Sprintf("blk.%d.%s", layer, name) }

// dense is one layer of a dense transformer: weights, and what the family makes of them. nil vectors are not there.
type dense struct {
	attnNorm, ffnNorm   []float32 // [Width]
	q, k, v             *weight   // Heads×HeadDim, KVHeads×HeadDim (twice) outputs of Width
	qBias, kBias, vBias []float32 // [outputs]
	qNorm, kNorm        []float32 // [HeadDim], of each head
	o                   *weight   // Width outputs of Heads×HeadDim
	gate, up            *weight   // FFN outputs of Width
	down                *weight   // Width outputs of FFN
	router              *weight   // Experts outputs of Width; where it is there, experts stand for gate, up and down
	experts             []expert  // [Experts]
	attnPost, ffnPost   []float32 // [Width], norms of what is added to the residual stream

	rotate func(x []float32, heads, headDim, ropeDim int, cos, sin []float32) // pairs of a head's elements, in place
	local  bool                                                               // by the angles of layers with a window
	window int                                                                // positions attended to, the row's own included; 0: all
	gated  func(dst, gate, up []float32)                                      // activation of gate, times up
}

// vectorTensor is a layer's vector, named without blk.N, and where it goes.
type vectorTensor struct {
	name string
	to   *[]float32
}

// matrixTensor is a layer's matrix, named likewise.
type matrixTensor struct {
	name string
	to   **weight
}

// loadDense maps the tensors that all families have, and vectors that the family has beyond those.
func loadDense(ld *loader, l int, w *dense, vectors ...vectorTensor) (_ *dense, err error) {
	for _, v := range append(vectors, vectorTensor{"attn_norm.weight", &w.attnNorm}, vectorTensor{"ffn_norm.weight", &w.ffnNorm}) {
		if *v.to, err = ld.vector(blockTensor(l, v.name)); err != nil {
			return nil, err
		}
	}
	matrices := []matrixTensor{
		{"attn_q.weight", &w.q}, {"attn_k.weight", &w.k}, {"attn_v.weight", &w.v}, {"attn_output.weight", &w.o},
	}
	if ld.has(blockTensor(l, "ffn_gate_inp.weight")) {
		if err := loadExperts(ld, l, w); err != nil {
			return nil, err
		}
	} else {
		matrices = append(matrices, matrixTensor{"ffn_gate.weight", &w.gate}, matrixTensor{"ffn_up.weight", &w.up}, matrixTensor{"ffn_down.weight", &w.down})
	}
	for _, m := range matrices {
		if *m.to, err = ld.matrix(blockTensor(l, m.name)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// dense returns layer l of the model.
func (m *Model) dense(l int) *dense { return m.layer[l-m.layers.First] }

// forwardDense takes rows through layer l: each row's h is replaced by the layer's output, and its K and V are stored.
// What the family does not have, in brackets, is left out:
//
//	x  = RMSNorm(h)·attn_norm
//	q, k, v = Wq x [+ bq], Wk x [+ bk], Wv x [+ bv]
//	[each head of q = RMSNorm(head)·q_norm, each of k = RMSNorm(head)·k_norm]
//	q and k rotated at the row's position
//	store k, v
//	y  = Wo attention(q, stored keys and values up to and including the row's own [, the window's only])
//	h += y [normed: RMSNorm(y)·post_attention_norm]
//	x  = RMSNorm(h)·ffn_norm
//	y  = Wdown (activation(Wgate x)·Wup x) [or forwardExperts' sum]
//	h += y [normed: RMSNorm(y)·post_ffw_norm]
//
// Each line is element-wise or one kernel call per row and output; so nothing depends on which rows come together.
func (m *Model) forwardDense(l int, rows []row) error {
	c, w, b := &m.cfg, m.dense(l), &m.buf
	b.shape(c, len(rows))

	err := m.prepare(l, rows, c.Width, []*weight{w.q, w.k, w.v}, b.x, func(p *pass, r int, x []float32) {
		kernels.RMSNorm(x, p.rows[r].h, p.m.dense(p.l).attnNorm, p.m.cfg.Eps)
	})
	if err != nil {
		return err
	}
	if err := m.multiply(len(rows), product{w: w.q, dst: b.q}, product{w: w.k, dst: b.k}, product{w: w.v, dst: b.v}); err != nil {
		return err
	}
	if err := m.eachRow(l, rows, "KV row", storeRow); err != nil {
		return err
	}
	m.attend(l, rows, b.attn, b.q, w.window, c.AttnScale)

	err = m.prepare(l, rows, c.Heads*c.HeadDim, []*weight{w.o}, b.attn, nil)
	if err != nil {
		return err
	}
	if err := m.multiply(len(rows), product{w: w.o, dst: b.y}); err != nil {
		return err
	}

	into := []*weight{w.gate, w.up}
	if w.router != nil {
		into = []*weight{w.router}
	}
	err = m.prepare(l, rows, c.Width, into, b.x, func(p *pass, r int, x []float32) {
		w, h := p.m.dense(p.l), p.rows[r].h
		p.addRow(r, w.attnPost)
		kernels.RMSNorm(x, h, w.ffnNorm, p.m.cfg.Eps)
	})
	if err != nil {
		return err
	}
	if w.router != nil {
		err = m.forwardExperts(l, rows)
	} else {
		err = m.forwardFFN(l, rows)
	}
	if err != nil {
		return err
	}

	return m.eachRow(l, rows, "hidden state", func(p *pass, r int) bool {
		p.addRow(r, p.m.dense(p.l).ffnPost)
		return kernels.CheckFinite(p.rows[r].h) < 0
	})
}

// forwardFFN computes a layer's feed-forward block into b.y, of prepared rows.
func (m *Model) forwardFFN(l int, rows []row) error {
	c, w, b := &m.cfg, m.dense(l), &m.buf
	if err := m.multiply(len(rows), product{w: w.gate, dst: b.gate}, product{w: w.up, dst: b.up}); err != nil {
		return err
	}
	err := m.prepare(l, rows, c.FFN, []*weight{w.down}, b.gate, func(p *pass, r int, x []float32) {
		p.m.dense(p.l).gated(x, x, p.m.buf.up[r*len(x):(r+1)*len(x)])
	})
	if err != nil {
		return err
	}
	return m.multiply(len(rows), product{w: w.down, dst: b.y})
}

// storeRow takes a row's q, k and v from their products to the end: biases, norms, rotation; and stores k and v.
func storeRow(p *pass, r int) bool {
	c, b, w, row := &p.m.cfg, &p.m.buf, p.m.dense(p.l), &p.rows[r]
	qDim, kvDim := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	q, k, v := b.q[r*qDim:(r+1)*qDim], b.k[r*kvDim:(r+1)*kvDim], b.v[r*kvDim:(r+1)*kvDim]
	if w.qBias != nil {
		kernels.Add(q, q, w.qBias)
		kernels.Add(k, k, w.kBias)
		kernels.Add(v, v, w.vBias)
	}
	if w.qNorm != nil {
		normHeads(q, w.qNorm, c.Eps)
		normHeads(k, w.kNorm, c.Eps)
	}
	at := &row.full
	if w.local {
		at = &row.local
	}
	w.rotate(q, c.Heads, c.HeadDim, c.RopeDim, at.cos, at.sin)
	w.rotate(k, c.KVHeads, c.HeadDim, c.RopeDim, at.cos, at.sin)
	if kernels.CheckFinite(k) >= 0 || kernels.CheckFinite(v) >= 0 {
		return false
	}
	row.seq.store(p.l, row.pos, k, v)
	return true
}

// normHeads normalises each head of x by itself.
func normHeads(x, weight []float32, eps float32) {
	for dim := len(weight); len(x) > 0; x = x[dim:] {
		kernels.RMSNorm(x[:dim], x[:dim], weight, eps)
	}
}

// addRow adds a row's y to its residual stream, normed first where there is a norm.
func (p *pass) addRow(r int, norm []float32) {
	h, width := p.rows[r].h, p.m.cfg.Width
	y := p.m.buf.y[r*width : (r+1)*width]
	if norm != nil {
		kernels.RMSNorm(y, y, norm, p.m.cfg.Eps)
	}
	kernels.Add(h, h, y)
}
