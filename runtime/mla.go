package runtime

import (
	"fmt"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// mla is multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434) in absorbed form: keys and values of all heads are
// linear in one latent of Rank elements per position, so the latent is what is kept, queries go into its space before they
// meet it, and outputs leave it afterwards. A key is the latent and, behind it, RopeDim rotated elements that all heads share.
type mla struct {
	q      *weight   // Heads×HeadDim outputs of Width; or, where there is a latent of queries, nil and
	qA, qB *weight   // QRank outputs of Width, Heads×HeadDim outputs of QRank
	qNorm  []float32 // [QRank]
	kv     *weight   // Rank+RopeDim outputs of Width
	kvNorm []float32 // [Rank]
	k, v   []*weight // [Heads] Rank outputs of Nope, Value outputs of Rank
	o      *weight   // Width outputs of Heads×Value

	in, inB, out []*weight // what is multiplied together
}

// latentBuffers are the intermediate rows of mla.
type latentBuffers struct {
	q       []float32             // [rows][QRank]
	kv      []float32             // [rows][Rank+RopeDim]
	half    []uint16              // the same, scratch
	queries []float32             // [rows][Heads][Rank+RopeDim]
	mixed   []float32             // [rows][Heads][Rank]
	heads   []kernels.Activations // [Heads]

	products []product
}

// cacheOfLatents is what n layers of latent attention keep.
func (c *Config) cacheOfLatents() []LayerCache {
	cache := make([]LayerCache, c.Layers)
	for l := range cache {
		cache[l] = LayerCache{Heads: 1, Key: c.Latent.Rank + c.RopeDim, Value: c.Latent.Rank, Latent: true}
	}
	return cache
}

// jointKV is what older files have instead of attn_k_b and attn_v_b: of each head Nope rows of its key, then Value rows of its
// value. Queries are multiplied by the key's transpose, which of quantised rows can't be had to the bit.
const jointKV = "attn_kv_b.weight"

// mlaSpecs are the tensors of latent attention in layer l.
func (c *Config) mlaSpecs(set *gguf.Set, l int) []tensorSpec {
	s, q := c.Latent, c.Heads*c.HeadDim
	specs := []tensorSpec{
		{name: "attn_kv_a_mqa.weight", rows: s.Rank + c.RopeDim, cols: c.Width},
		{name: "attn_kv_a_norm.weight", cols: s.Rank},
		{name: "attn_output.weight", rows: c.Width, cols: c.Heads * s.Value},
	}
	if _, joint := set.Tensor(blockTensor(l, jointKV)); joint {
		specs = append(specs, tensorSpec{name: jointKV, rows: c.Heads * (s.Nope + s.Value), cols: s.Rank, transposed: true})
	} else {
		specs = append(specs, tensorSpec{name: "attn_k_b.weight", rows: s.Rank, cols: s.Nope, count: c.Heads},
			tensorSpec{name: "attn_v_b.weight", rows: s.Value, cols: s.Rank, count: c.Heads})
	}
	if s.QRank == 0 {
		return append(specs, tensorSpec{name: "attn_q.weight", rows: q, cols: c.Width})
	}
	return append(specs, tensorSpec{name: "attn_q_a.weight", rows: s.QRank, cols: c.Width},
		tensorSpec{name: "attn_q_a_norm.weight", cols: s.QRank}, tensorSpec{name: "attn_q_b.weight", rows: q, cols: s.QRank})
}

// load maps the tensors of layer l.
func (w *mla) load(ld *loader, c *Config, l int) (err error) {
	vectors := []vectorTensor{{"attn_kv_a_norm.weight", &w.kvNorm}}
	matrices := []matrixTensor{{"attn_kv_a_mqa.weight", &w.kv}, {"attn_output.weight", &w.o}}
	if c.Latent.QRank == 0 {
		matrices = append(matrices, matrixTensor{"attn_q.weight", &w.q})
	} else {
		vectors = append(vectors, vectorTensor{"attn_q_a_norm.weight", &w.qNorm})
		matrices = append(matrices, matrixTensor{"attn_q_a.weight", &w.qA}, matrixTensor{"attn_q_b.weight", &w.qB})
	}
	if err := ld.vectors(l, vectors...); err != nil {
		return err
	}
	if err := ld.layerMatrices(l, matrices...); err != nil {
		return err
	}
	if ld.has(blockTensor(l, jointKV)) {
		err = w.loadJoint(ld, c, l)
	} else if w.k, err = ld.matrices(blockTensor(l, "attn_k_b.weight"), c.Heads); err == nil {
		w.v, err = ld.matrices(blockTensor(l, "attn_v_b.weight"), c.Heads)
	}
	if err != nil {
		return err
	}
	w.in, w.inB, w.out = []*weight{w.kv, w.q}, []*weight{w.qB}, []*weight{w.o}
	if w.q == nil {
		w.in[1] = w.qA
	}
	return nil
}

// loadJoint maps the values' rows of jointKV, and copies the keys' transposed.
func (w *mla) loadJoint(ld *loader, c *Config, l int) error {
	name, nope := blockTensor(l, jointKV), c.Latent.Nope
	all, source, err := ld.read(name)
	if err != nil {
		return err
	}
	row := len(all.Data) / all.Rows // bytes
	elem, size := row/all.Cols, all.Rows/c.Heads*row
	for h := range c.Heads {
		head := all.Data[h*size:][:size:size]
		keys := make([]byte, nope*row)
		for i := range nope {
			for j := range all.Cols {
				copy(keys[(j*nope+i)*elem:][:elem], head[i*row+j*elem:])
			}
		}
		k, err := kernels.NewMatrix(all.Type, all.Cols, nope, keys)
		if err != nil {
			return fmt.Errorf("runtime: tensor %s, key of head %d: %w", name, h, err)
		}
		v, err := kernels.NewMatrix(all.Type, c.Latent.Value, all.Cols, head[nope*row:])
		if err != nil {
			return fmt.Errorf("runtime: tensor %s, value of head %d: %w", name, h, err)
		}
		w.k = append(w.k, newWeight(fmt.Sprintf("%s[%d].k", name, h), k, nil))
		w.v = append(w.v, newWeight(fmt.Sprintf("%s[%d].v", name, h), v, source))
	}
	ld.weights = append(append(ld.weights, w.k...), w.v...)
	return nil
}

func (w *mla) inputs() []*weight { return w.in }

// mix computes, for every query head by itself:
//
//	q      = Wq x, or Wqb (RMSNorm(Wqa x)·q_a_norm);  of each head [nope | rope]
//	c | r  = Wkv x;  c = RMSNorm(c)·kv_a_norm;  r and each rope rotated at the row's position, in interleaved pairs
//	store [c | r], both key and, without r, value
//	q'     = [Wk nope | rope]
//	o      = attention(q', stored rows up to and including the row's own)
//	y      = Wo [Wv o of each head]
func (w *mla) mix(m *Model, l int, rows []row) error {
	c, b, t, n := &m.cfg, &m.buf, &m.buf.latent, len(rows)
	s := c.Latent
	key := s.Rank + c.RopeDim
	b.q, t.kv, t.half = sized(b.q, n*c.Heads*c.HeadDim), sized(t.kv, n*key), sized(t.half, n*key)
	t.queries, t.mixed = sized(t.queries, n*c.Heads*key), sized(t.mixed, n*c.Heads*s.Rank)
	b.attn = sized(b.attn, n*c.Heads*s.Value)

	first := product{w: w.q, dst: b.q}
	if w.q == nil {
		t.q = sized(t.q, n*s.QRank)
		first = product{w: w.qA, dst: t.q}
	}
	if err := m.multiply(n, product{w: w.kv, dst: t.kv}, first); err != nil {
		return err
	}
	if w.q == nil {
		err := m.prepare(l, rows, s.QRank, w.inB, t.q, func(p *pass, _ int, x []float32) {
			kernels.RMSNorm(x, x, p.layer.mixer.(*mla).qNorm, p.m.cfg.Eps)
		})
		if err != nil {
			return err
		}
		if err := m.multiply(n, product{w: w.qB, dst: b.q}); err != nil {
			return err
		}
	}
	if err := m.eachRow(l, rows, "KV row", storeLatent); err != nil {
		return err
	}

	if err := m.multiplyHeads(l, rows, w.k, t.queries, key, prepareQueries); err != nil {
		return err
	}
	m.attend(l, rows, t.mixed, t.queries, 0, c.AttnScale, nil)
	if err := m.multiplyHeads(l, rows, w.v, b.attn, s.Value, prepareMixed); err != nil {
		return err
	}

	if err := m.prepare(l, rows, c.Heads*s.Value, w.out, b.attn, nil); err != nil {
		return err
	}
	return m.multiply(n, product{w: w.o, dst: b.y})
}

// multiplyHeads multiplies each head of rows by its own matrix, into dst, [rows][Heads][size]. prepare makes a row's heads
// ready in latentBuffers.heads.
func (m *Model) multiplyHeads(l int, rows []row, heads []*weight, dst []float32, size int, prepare func(p *pass, r int) bool) error {
	t := &m.buf.latent
	if len(t.heads) == 0 {
		t.heads = make([]kernels.Activations, m.cfg.Heads)
	}
	t.products = t.products[:0]
	for h, w := range heads {
		t.heads[h].Reset(len(rows), w.Cols, w.Type.Form())
		t.products = append(t.products, product{w: w, dst: dst[h*size:], stride: len(heads) * size, a: &t.heads[h], n: len(rows)})
	}
	if err := m.eachRow(l, rows, "activations of a head", prepare); err != nil {
		return err
	}
	return m.multiply(len(rows), t.products...)
}

// storeLatent takes a row's latent and the rotated part of its key from their product to the end, and stores them.
func storeLatent(p *pass, r int) bool {
	c, t, row := &p.m.cfg, &p.m.buf.latent, &p.rows[r]
	rank, key := c.Latent.Rank, c.Latent.Rank+c.RopeDim
	kv := t.kv[r*key : (r+1)*key]
	kernels.RMSNorm(kv[:rank], kv[:rank], p.layer.mixer.(*mla).kvNorm, c.Eps)
	kernels.RopeInterleaved(kv[rank:], 1, c.RopeDim, c.RopeDim, row.full.cos, row.full.sin)
	if kernels.CheckFinite(kv) >= 0 {
		return false
	}
	row.seq.storeLatent(p.l, row.pos, kv, t.half[r*key:(r+1)*key])
	return true
}

// prepareQueries rotates the last part of a row's query heads and puts it where the keys have theirs; the first part is made
// ready for attn_k_b.
func prepareQueries(p *pass, r int) bool {
	c, t, at := &p.m.cfg, &p.m.buf.latent, &p.rows[r].full
	nope, rank, key := c.Latent.Nope, c.Latent.Rank, c.Latent.Rank+c.RopeDim
	for h := range c.Heads {
		i := r*c.Heads + h
		q := p.m.buf.q[i*c.HeadDim : (i+1)*c.HeadDim]
		rotated := t.queries[i*key+rank : (i+1)*key]
		copy(rotated, q[nope:])
		kernels.RopeInterleaved(rotated, 1, c.RopeDim, c.RopeDim, at.cos, at.sin)
		if t.heads[h].PrepareRow(q[:nope], r) != nil || kernels.CheckFinite(rotated) >= 0 {
			return false
		}
	}
	return true
}

// prepareMixed makes a row's heads, which attention has mixed from latents, ready for attn_v_b.
func prepareMixed(p *pass, r int) bool {
	c, t := &p.m.cfg, &p.m.buf.latent
	rank := c.Latent.Rank
	for h := range c.Heads {
		i := r*c.Heads + h
		if t.heads[h].PrepareRow(t.mixed[i*rank:(i+1)*rank], r) != nil {
			return false
		}
	}
	return true
}
