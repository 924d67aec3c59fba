package runtime

import (
	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// gqa is attention in which groups of query heads share a head of keys and values (multi-head and multi-query attention are
// its ends). nil vectors are not there.
type gqa struct {
	q, k, v             *weight   // Heads×HeadDim, KVHeads×HeadDim (twice) outputs of Width
	qBias, kBias, vBias []float32 // [outputs]
	qNorm, kNorm        []float32 // [HeadDim], of each head
	o                   *weight   // Width outputs of Heads×HeadDim
	oBias               []float32 // [Width]
	sinks               []float32 // [Heads] scores of a position without a value, which takes its share of the weights

	rotate func(x []float32, heads, headDim, ropeDim int, cos, sin []float32) // pairs of a head's elements, in place
	local  bool                                                               // by the angles of layers with a window
	gated  bool                                                               // q has twice the outputs: of each head [query | gate]

	qkv, out []*weight // what is multiplied together
}

// gqaSpecs are the tensors of grouped attention that all families with it have.
func (c *Config) gqaSpecs() []tensorSpec {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	queries := q
	if c.GatedAttn {
		queries *= 2
	}
	return []tensorSpec{
		{name: "attn_q.weight", rows: queries, cols: c.Width},
		{name: "attn_k.weight", rows: kv, cols: c.Width},
		{name: "attn_v.weight", rows: kv, cols: c.Width},
		{name: "attn_output.weight", rows: c.Width, cols: q},
	}
}

// gqaBiasSpecs are the biases of queries, keys and values, which some families have.
func (c *Config) gqaBiasSpecs() []tensorSpec {
	return []tensorSpec{
		{name: "attn_q.bias", cols: c.Heads * c.HeadDim},
		{name: "attn_k.bias", cols: c.KVHeads * c.HeadDim},
		{name: "attn_v.bias", cols: c.KVHeads * c.HeadDim},
	}
}

// foundBiasSpecs are those biases where the file has the queries': some families have models with and without.
func (c *Config) foundBiasSpecs(set *gguf.Set, l int) []tensorSpec {
	if _, ok := set.Tensor(blockTensor(l, "attn_q.bias")); ok {
		return c.gqaBiasSpecs()
	}
	return nil
}

// gqaNormSpecs are the norms of query and key heads, which some families have.
func (c *Config) gqaNormSpecs() []tensorSpec {
	return []tensorSpec{
		{name: "attn_q_norm.weight", cols: c.HeadDim},
		{name: "attn_k_norm.weight", cols: c.HeadDim},
	}
}

// biases, foundBiases and norms are where those go.
func (w *gqa) biases() []vectorTensor {
	return []vectorTensor{{"attn_q.bias", &w.qBias}, {"attn_k.bias", &w.kBias}, {"attn_v.bias", &w.vBias}}
}

func (w *gqa) foundBiases(ld *loader, l int) []vectorTensor {
	if ld.has(blockTensor(l, "attn_q.bias")) {
		return w.biases()
	}
	return nil
}

func (w *gqa) norms() []vectorTensor {
	return []vectorTensor{{"attn_q_norm.weight", &w.qNorm}, {"attn_k_norm.weight", &w.kNorm}}
}

// load maps the matrices, and vectors that the family has.
func (w *gqa) load(ld *loader, l int, vectors ...vectorTensor) error {
	if err := ld.vectors(l, vectors...); err != nil {
		return err
	}
	err := ld.layerMatrices(l, matrixTensor{"attn_q.weight", &w.q}, matrixTensor{"attn_k.weight", &w.k},
		matrixTensor{"attn_v.weight", &w.v}, matrixTensor{"attn_output.weight", &w.o})
	w.qkv, w.out = []*weight{w.q, w.k, w.v}, []*weight{w.o}
	return err
}

func (w *gqa) inputs() []*weight { return w.qkv }

// mix computes, with what the family does not have, in brackets, left out:
//
//	q, k, v = Wq x, Wk x, Wv x [+ bq, bk, bv]
//	[each head of q = RMSNorm(head)·q_norm, each of k = RMSNorm(head)·k_norm]
//	q and k rotated at the row's position [, q tempered]
//	store k, v
//	y  = Wo (attention(q, stored keys and values up to and including the row's own [, the window's only] [, a sink]) [·Sigmoid(gate)]) [+ bo]
func (w *gqa) mix(m *Model, l int, rows []row) error {
	c, b, n := &m.cfg, &m.buf, len(rows)
	b.q, b.attn = sized(b.q, n*c.Heads*c.HeadDim), sized(b.attn, n*c.Heads*c.HeadDim)
	b.k, b.v = sized(b.k, n*c.KVHeads*c.HeadDim), sized(b.v, n*c.KVHeads*c.HeadDim)
	queries := b.q
	if w.gated {
		b.gated, b.attnGate = sized(b.gated, 2*len(b.q)), sized(b.attnGate, len(b.q))
		queries = b.gated
	}
	if err := m.multiply(n, product{w: w.q, dst: queries}, product{w: w.k, dst: b.k}, product{w: w.v, dst: b.v}); err != nil {
		return err
	}
	if err := m.eachRow(l, rows, "KV row", storeHeads); err != nil {
		return err
	}
	m.attend(l, rows, b.attn, b.q, c.Cache[l].Window, c.AttnScale, w.sinks)
	var gate func(p *pass, r int, x []float32)
	if w.gated {
		gate = func(p *pass, r int, x []float32) { kernels.MulSigmoid(x, p.m.buf.attnGate[r*len(x):(r+1)*len(x)], x) }
	}
	if err := m.prepare(l, rows, c.Heads*c.HeadDim, w.out, b.attn, gate); err != nil {
		return err
	}
	if err := m.multiply(n, product{w: w.o, dst: b.y}); err != nil || w.oBias == nil {
		return err
	}
	return m.eachRow(l, rows, "attention output", func(p *pass, r int) bool {
		bias := p.layer.mixer.(*gqa).oBias
		y := p.m.buf.y[r*len(bias) : (r+1)*len(bias)]
		kernels.Add(y, y, bias)
		return true
	})
}

// storeHeads takes a row's q, k and v from their products to the end: biases, norms, rotation; and stores k and v.
func storeHeads(p *pass, r int) bool {
	c, b, w, row := &p.m.cfg, &p.m.buf, p.layer.mixer.(*gqa), &p.rows[r]
	qDim, kvDim := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	q, k, v := b.q[r*qDim:(r+1)*qDim], b.k[r*kvDim:(r+1)*kvDim], b.v[r*kvDim:(r+1)*kvDim]
	if w.gated {
		for h := range c.Heads {
			at, from := r*qDim+h*c.HeadDim, 2*(r*qDim+h*c.HeadDim)
			copy(b.q[at:at+c.HeadDim], b.gated[from:])
			copy(b.attnGate[at:at+c.HeadDim], b.gated[from+c.HeadDim:])
		}
	}
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
	if c.Temper.Original > 0 {
		kernels.Scale(q, q, c.Temper.at(row.pos))
	}
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

// loadDense maps layer l of a family with grouped attention into w, whose activation is set; vectors are those of a that the
// family has.
func loadDense(ld *loader, l int, a *gqa, w *layer, vectors ...vectorTensor) (*layer, error) {
	if err := a.load(ld, l, vectors...); err != nil {
		return nil, err
	}
	w.mixer = a
	return loadLayer(ld, l, ffnNorm, w)
}
