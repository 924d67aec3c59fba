package runtime

import "github.com/starling-swarm/starling/runtime/gguf"

// ffn is a layer's feed-forward block: one for all rows, or experts of which each row uses some.
type ffn struct {
	gate, up   *weight                       // FFN outputs of Width
	down       *weight                       // Width outputs of FFN
	router     *weight                       // Experts outputs of Width; where it is there, experts stand for gate, up and down
	bias       []float32                     // [Experts] added to probabilities where experts are chosen, or nil
	routerBias []float32                     // [Experts] added to what router computes, or nil
	experts    []expert                      // [Experts]
	shared     *expert                       // what every row uses beside them, or nil
	scale      *weight                       // 1 output of Width: the sigmoid of its product multiplies what shared computes; or nil
	gated      func(dst, gate, up []float32) // activation of gate, times up

	inputs []*weight // what multiplies the block's input for all rows
	last   []*weight // what ends it, of one for all rows or the shared expert
}

// ffnSpecs are the tensors of the feed-forward block of layer l.
func (c *Config) ffnSpecs(set *gguf.Set, l int) []tensorSpec {
	if c.Experts > 0 && l >= c.LeadingDense {
		return c.expertSpecs(set, l)
	}
	return []tensorSpec{
		{name: "ffn_gate.weight", rows: c.FFN, cols: c.Width},
		{name: "ffn_up.weight", rows: c.FFN, cols: c.Width},
		{name: "ffn_down.weight", rows: c.Width, cols: c.FFN},
	}
}

// load maps the block of layer l, of a form that ffnSpecs has approved.
func (w *ffn) load(ld *loader, l int) error {
	if ld.has(blockTensor(l, "ffn_gate_inp.weight")) {
		return w.loadExperts(ld, l)
	}
	err := ld.layerMatrices(l, matrixTensor{"ffn_gate.weight", &w.gate}, matrixTensor{"ffn_up.weight", &w.up}, matrixTensor{"ffn_down.weight", &w.down})
	w.inputs, w.last = []*weight{w.gate, w.up}, []*weight{w.down}
	return err
}

// forwardFFN computes a layer's feed-forward block into b.y, of prepared rows.
func (m *Model) forwardFFN(l int, rows []row) error {
	w, b, n := &m.layerOf(l).ffn, &m.buf, len(rows)
	hidden := w.gate.Rows
	b.gate, b.up = sized(b.gate, n*hidden), sized(b.up, n*hidden)
	if err := m.multiply(n, product{w: w.gate, dst: b.gate}, product{w: w.up, dst: b.up}); err != nil {
		return err
	}
	if err := m.prepare(l, rows, hidden, w.last, b.gate, activate); err != nil {
		return err
	}
	return m.multiply(n, product{w: w.down, dst: b.y})
}

// activate makes x, a row of a block's gate, what its down matrix multiplies.
func activate(p *pass, r int, x []float32) {
	p.layer.ffn.gated(x, x, p.m.buf.up[r*len(x):(r+1)*len(x)])
}
