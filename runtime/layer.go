package runtime

import "github.com/starling-swarm/starling/kernels"

// layer is one layer of a model: its weights, and what the family makes of them. nil norms are not there.
type layer struct {
	attnNorm, ffnNorm []float32 // [Width]
	attnPost, ffnPost []float32 // [Width], norms of what is added to the residual stream
	mixer             mixer
	ffn               ffn
}

// mixer is the half of a layer in which a position hears of earlier ones: attention, or what stands for it. It keeps what it
// has seen of each sequence in the layer's cache, in the shape of Config.Cache.
type mixer interface {
	// inputs are the matrices that multiply x, the normed residual stream. The slice is the mixer's own.
	inputs() []*weight
	// mix computes into m.buf.y what the layer adds to the residual streams of rows, of m.buf.x, which is prepared for
	// inputs, and stores what later rows need.
	mix(m *Model, l int, rows []row) error
}

// layerOf returns layer l of the model.
func (m *Model) layerOf(l int) *layer { return m.layer[l-m.layers.First] }

// forwardLayer takes rows through layer l: each row's h is replaced by the layer's output. What the family does not have, in
// brackets, is left out:
//
//	x  = RMSNorm(h)·attn_norm
//	y  = mixer(x)
//	h += y [normed: RMSNorm(y)·post_attention_norm]
//	x  = RMSNorm(h)·ffn_norm
//	y  = Wdown (activation(Wgate x)·Wup x) [or forwardExperts' sum]
//	h += y [normed: RMSNorm(y)·post_ffw_norm]
//
// Each line is element-wise or one kernel call per row and output; so nothing depends on which rows come together.
func (m *Model) forwardLayer(l int, rows []row) error {
	c, w, b := &m.cfg, m.layerOf(l), &m.buf
	m.pass.layer = w
	b.x, b.y = sized(b.x, len(rows)*c.Width), sized(b.y, len(rows)*c.Width)

	err := m.prepare(l, rows, c.Width, w.mixer.inputs(), b.x, func(p *pass, r int, x []float32) {
		kernels.RMSNorm(x, p.rows[r].h, p.layer.attnNorm, p.m.cfg.Eps)
	})
	if err != nil {
		return err
	}
	if err := w.mixer.mix(m, l, rows); err != nil {
		return err
	}

	err = m.prepare(l, rows, c.Width, w.ffn.inputs, b.x, func(p *pass, r int, x []float32) {
		h := p.rows[r].h
		p.addRow(r, p.layer.attnPost)
		kernels.RMSNorm(x, h, p.layer.ffnNorm, p.m.cfg.Eps)
	})
	if err != nil {
		return err
	}
	if w.ffn.router != nil {
		err = m.forwardExperts(l, rows)
	} else {
		err = m.forwardFFN(l, rows)
	}
	if err != nil {
		return err
	}

	return m.eachRow(l, rows, "hidden state", func(p *pass, r int) bool {
		p.addRow(r, p.layer.ffnPost)
		return kernels.CheckFinite(p.rows[r].h) < 0
	})
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

// vectors maps vectors of layer l.
func (ld *loader) vectors(l int, list ...vectorTensor) (err error) {
	for _, v := range list {
		if *v.to, err = ld.vector(blockTensor(l, v.name)); err != nil {
			return err
		}
	}
	return nil
}

// layerMatrices maps matrices of layer l.
func (ld *loader) layerMatrices(l int, list ...matrixTensor) (err error) {
	for _, m := range list {
		if *m.to, err = ld.matrix(blockTensor(l, m.name)); err != nil {
			return err
		}
	}
	return nil
}

// ffnNorm is what most families call the norm before the feed-forward block.
const ffnNorm = "ffn_norm.weight"

// postAttentionNorm is what GLM and gpt-oss call it.
const postAttentionNorm = "post_attention_norm.weight"

// loadLayer maps the two norms and the feed-forward block that all families have into w, whose mixer and activation are set.
// ffnNorm is the second one's name.
func loadLayer(ld *loader, l int, ffnNorm string, w *layer) (*layer, error) {
	err := ld.vectors(l, vectorTensor{"attn_norm.weight", &w.attnNorm}, vectorTensor{ffnNorm, &w.ffnNorm})
	if err == nil {
		err = w.ffn.load(ld, l)
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}
