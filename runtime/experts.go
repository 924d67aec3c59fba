package runtime

import (
	"slices"

	"github.com/starling-swarm/starling/kernels"
)

// maxExperts bounds a layer's experts: several times the largest number known.
const maxExperts = 4096

// readExperts reads what the headers of mixture-of-experts models have in common.
func (c *Config) readExperts(r *reader) {
	c.Experts = r.count(r.key("expert_count"), maxExperts)
	c.UsedExperts = r.count(r.key("expert_used_count"), maxExperts)
	c.FFN = r.count(r.key("expert_feed_forward_length"), maxWidth)
	const softmax = 1 // llama.cpp's llama_expert_gating_func_type
	if gating := r.countOr(r.key("expert_gating_func"), 16, softmax); gating != softmax {
		r.fail(r.key("expert_gating_func"), "is %d: only softmax, %d, is supported", gating, softmax)
	}
	if c.UsedExperts > c.Experts {
		r.fail(r.key("expert_used_count"), "is %d of %d experts", c.UsedExperts, c.Experts)
	}
}

// expert is one feed-forward block of a layer.
type expert struct {
	gate, up *weight // FFN outputs of Width
	down     *weight // Width outputs of FFN
}

// expertSpecs are the tensors of a layer's feed-forward blocks: gate and up in two tensors, or fused in one, gate's rows
// of an expert first.
func (c *Config) expertSpecs(fused bool) []tensorSpec {
	specs := []tensorSpec{
		{name: "ffn_gate_inp.weight", rows: c.Experts, cols: c.Width},
		{name: "ffn_down_exps.weight", rows: c.Width, cols: c.FFN, experts: c.Experts},
	}
	if fused {
		return append(specs, tensorSpec{name: "ffn_gate_up_exps.weight", rows: 2 * c.FFN, cols: c.Width, experts: c.Experts})
	}
	return append(specs, tensorSpec{name: "ffn_gate_exps.weight", rows: c.FFN, cols: c.Width, experts: c.Experts},
		tensorSpec{name: "ffn_up_exps.weight", rows: c.FFN, cols: c.Width, experts: c.Experts})
}

// loadExperts maps a layer's router and experts, of a form that expertSpecs has approved.
func (w *ffn) loadExperts(ld *loader, l int) (err error) {
	if w.router, err = ld.matrix(blockTensor(l, "ffn_gate_inp.weight")); err != nil {
		return err
	}
	w.inputs = []*weight{w.router}
	n := w.router.Rows
	w.experts = make([]expert, n)
	down, err := ld.matrices(blockTensor(l, "ffn_down_exps.weight"), n)
	if err != nil {
		return err
	}
	var gate, up []*weight
	if fused := blockTensor(l, "ffn_gate_up_exps.weight"); ld.has(fused) {
		both, err := ld.matrices(fused, 2*n)
		if err != nil {
			return err
		}
		for e := range n {
			gate, up = append(gate, both[2*e]), append(up, both[2*e+1])
		}
	} else {
		if gate, err = ld.matrices(blockTensor(l, "ffn_gate_exps.weight"), n); err != nil {
			return err
		}
		if up, err = ld.matrices(blockTensor(l, "ffn_up_exps.weight"), n); err != nil {
			return err
		}
	}
	for e := range n {
		w.experts[e] = expert{gate[e], up[e], down[e]}
	}
	return nil
}

// routing is which rows of a layer's input go to which experts, and what comes back. A use is one row at one expert; uses
// are ordered by expert, then by row, so that an expert multiplies all its rows at once.
type routing struct {
	scores []float32 // [rows][Experts] the router's logits, then probabilities
	chosen []int32   // [rows][UsedExperts] experts, ascending
	share  []float32 // [rows][UsedExperts] what each contributes
	use    []int32   // [rows][UsedExperts] index of the use

	first  []int32 // [Experts+1] first use of each expert
	expert []int32 // [uses]
	row    []int32 // [uses]

	in, mid  [3][]kernels.Activations // by form and expert: its rows of x, and of the activated gate
	gate, up []float32                // [uses][FFN]
	out      []float32                // [uses][Width]
	products []product
}

// forwardExperts computes the feed-forward blocks of a layer with experts into b.y, of b.x, which is prepared for the
// router. Of each row, float32 throughout and each step rounded, e ascending:
//
//	s = Wrouter x;  m = max s;  z[e] = Exp(s[e] − m);  p[e] = z[e] / Σ z
//	the UsedExperts largest p are chosen, of equal ones the first
//	y = Σ over chosen e of (p[e] / Σ over the chosen of p)·(Wdown[e] (activation(Wgate[e] x)·Wup[e] x))
//
// The sums begin with their first term. Nothing depends on what other rows choose.
func (m *Model) forwardExperts(l int, rows []row) error {
	c, w, b := &m.cfg, &m.layerOf(l).ffn, &m.buf
	t, uses := &b.routing, len(rows)*c.UsedExperts
	t.scores = sized(t.scores, len(rows)*c.Experts)
	t.chosen, t.share, t.use = sized(t.chosen, uses), sized(t.share, uses), sized(t.use, uses)
	if err := m.multiply(len(rows), product{w: w.router, dst: t.scores}); err != nil {
		return err
	}
	if err := m.eachRow(l, rows, "router's scores", chooseExperts); err != nil {
		return err
	}
	t.order(c.Experts, c.UsedExperts)

	t.gate, t.up, t.out = sized(t.gate, uses*c.FFN), sized(t.up, uses*c.FFN), sized(t.out, uses*c.Width)
	t.products = t.products[:0]
	for e := range c.Experts {
		n := t.uses(e)
		if n == 0 {
			continue
		}
		x, at := &w.experts[e], int(t.first[e])
		for _, q := range []product{{w: x.gate, dst: t.gate[at*c.FFN:][:n*c.FFN]}, {w: x.up, dst: t.up[at*c.FFN:][:n*c.FFN]}} {
			q.a, q.n = t.activations(&t.in, q.w, e, n, c.Experts), n
			t.products = append(t.products, q)
		}
	}
	if err := m.eachUse(l, rows, c.Width, m.ops.expertInput); err != nil {
		return err
	}
	if err := m.multiply(len(rows), t.products...); err != nil {
		return err
	}

	t.products = t.products[:0]
	for e := range c.Experts {
		n := t.uses(e)
		if n == 0 {
			continue
		}
		q := product{w: w.experts[e].down, dst: t.out[int(t.first[e])*c.Width:][:n*c.Width]}
		q.a, q.n = t.activations(&t.mid, q.w, e, n, c.Experts), n
		t.products = append(t.products, q)
	}
	if err := m.eachUse(l, rows, c.FFN, m.ops.expertGate); err != nil {
		return err
	}
	if err := m.multiply(len(rows), t.products...); err != nil {
		return err
	}
	return m.eachRow(l, rows, "experts' sum", sumExperts)
}

// chooseExperts takes a row's scores to probabilities, the chosen experts and their shares.
func chooseExperts(p *pass, r int) bool {
	c, t := &p.m.cfg, &p.m.buf.routing
	s := t.scores[r*c.Experts : (r+1)*c.Experts]
	if kernels.CheckFinite(s) >= 0 {
		return false
	}
	most := slices.Max(s)
	for e := range s {
		s[e] -= most
	}
	kernels.Exps(s, s)
	total := float32(0)
	for _, z := range s {
		total += z
	}
	for e := range s {
		s[e] /= total
	}
	chosen := t.chosen[r*c.UsedExperts : (r+1)*c.UsedExperts]
	n := 0 // held so far, by falling probability
	for e := range s {
		at := n
		for at > 0 && s[chosen[at-1]] < s[e] {
			at--
		}
		if at == len(chosen) {
			continue
		}
		n = min(n+1, len(chosen))
		copy(chosen[at+1:n], chosen[at:])
		chosen[at] = int32(e)
	}
	slices.Sort(chosen)
	share := t.share[r*c.UsedExperts : (r+1)*c.UsedExperts]
	total = 0
	for i, e := range chosen {
		share[i] = s[e]
		total += s[e]
	}
	for i := range share {
		share[i] /= total
	}
	return true
}

// order lists the uses by expert and row.
func (t *routing) order(experts, used int) {
	uses := len(t.chosen)
	t.first, t.expert, t.row = sized(t.first, experts+1), sized(t.expert, uses), sized(t.row, uses)
	clear(t.first)
	for _, e := range t.chosen {
		t.first[e+1]++
	}
	for e := range experts {
		t.first[e+1] += t.first[e]
	}
	for i, e := range t.chosen { // ascending rows; first[e] counts up to first[e+1]
		at := t.first[e]
		t.first[e]++
		t.use[i], t.expert[at], t.row[at] = at, e, int32(i/used)
	}
	copy(t.first[1:], t.first)
	t.first[0] = 0
}

// uses is how many rows use an expert.
func (t *routing) uses(e int) int { return int(t.first[e+1] - t.first[e]) }

// activations returns expert e's of a set, with room for n rows that w takes.
func (t *routing) activations(set *[3][]kernels.Activations, w *weight, e, n, experts int) *kernels.Activations {
	f := w.Type.Form()
	if set[f] == nil {
		set[f] = make([]kernels.Activations, experts)
	}
	set[f][e].Reset(n, w.Cols, f)
	return &set[f][e]
}

// eachUse runs a bound operation over the uses, each of which prepares cols elements.
func (m *Model) eachUse(l int, rows []row, cols int, op func(worker, task int)) error {
	p, t := &m.pass, &m.buf.routing
	p.l, p.rows = l, rows
	if i, found := m.forkRows(len(t.row), cols, op); found {
		r := rows[t.row[i]]
		return &NonFiniteError{r.step, "activations of an expert", l, r.pos}
	}
	return nil
}

// expertInputTask prepares rows of x for the experts that use them.
func (m *Model) expertInputTask(_, task int) {
	p, t, c := &m.pass, &m.buf.routing, &m.cfg
	for i, last := p.span(task, len(t.row)); i < last; i++ {
		x := &p.layer.ffn.experts[t.expert[i]]
		row := m.buf.x[int(t.row[i])*c.Width:][:c.Width]
		t.prepare(p, &t.in, x.gate.Type.Form(), i, row)
		if f := x.up.Type.Form(); f != x.gate.Type.Form() {
			t.prepare(p, &t.in, f, i, row)
		}
	}
}

// expertGateTask activates and prepares rows of the experts' gates.
func (m *Model) expertGateTask(_, task int) {
	p, t, c := &m.pass, &m.buf.routing, &m.cfg
	for i, last := p.span(task, len(t.row)); i < last; i++ {
		w := &p.layer.ffn
		gate := t.gate[i*c.FFN : (i+1)*c.FFN]
		w.gated(gate, gate, t.up[i*c.FFN:(i+1)*c.FFN])
		t.prepare(p, &t.mid, w.experts[t.expert[i]].down.Type.Form(), i, gate)
	}
}

// prepare puts the row of use i into its expert's activations.
func (t *routing) prepare(p *pass, set *[3][]kernels.Activations, f kernels.Form, i int, x []float32) {
	e := t.expert[i]
	if set[f][e].PrepareRow(x, i-int(t.first[e])) != nil {
		p.bad.note(i)
	}
}

// sumExperts adds up what a row's experts computed.
func sumExperts(p *pass, r int) bool {
	c, t := &p.m.cfg, &p.m.buf.routing
	y := p.m.buf.y[r*c.Width : (r+1)*c.Width]
	for j := range c.UsedExperts {
		i := r*c.UsedExperts + j
		out := t.out[int(t.use[i])*c.Width:][:c.Width]
		if j == 0 {
			kernels.Scale(y, out, t.share[i])
			continue
		}
		kernels.Scale(out, out, t.share[i])
		kernels.Add(y, y, out)
	}
	return true
}
