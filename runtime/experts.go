package runtime

import (
	"cmp"
	"math"
	"slices"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// maxExperts bounds a layer's experts: several times the largest number known.
const maxExperts = 4096

// llama.cpp's llama_expert_gating_func_type.
const (
	gatingSoftmax = 1
	gatingSigmoid = 2
)

// readExperts reads what the headers of mixture-of-experts models have in common.
func (c *Config) readExperts(r *reader) {
	c.Experts = r.count(r.key("expert_count"), maxExperts)
	c.UsedExperts = r.count(r.key("expert_used_count"), maxExperts)
	c.ExpertFFN = r.count(r.key("expert_feed_forward_length"), maxWidth)
	c.Router = Router{Groups: 1, UsedGroups: 1, Scale: 1}
	switch gating := r.countOr(r.key("expert_gating_func"), 16, gatingSoftmax); gating {
	case gatingSoftmax:
	case gatingSigmoid:
		c.Router.Sigmoid = true
	default:
		r.fail(r.key("expert_gating_func"), "is %d: only softmax, %d, and sigmoid, %d, are supported", gating, gatingSoftmax, gatingSigmoid)
	}
	if c.UsedExperts > c.Experts {
		r.fail(r.key("expert_used_count"), "is %d of %d experts", c.UsedExperts, c.Experts)
	}
}

// readSharedExperts reads what families have whose experts have company: shared experts, dense layers, groups, weights.
func (c *Config) readSharedExperts(r *reader) {
	zeroOr := func(name string, limit uint64) int {
		n, err := r.meta.UintOr(r.key(name), 0)
		if err != nil || n > limit {
			r.fail(r.key(name), "is not a number from 0 to %d", limit)
			return 0
		}
		return int(n)
	}
	if c.LeadingDense = zeroOr("leading_dense_block_count", uint64(c.Layers)); c.LeadingDense > 0 {
		c.FFN = r.count(r.key("feed_forward_length"), maxWidth)
	}
	c.SharedFFN = c.ExpertFFN * zeroOr("expert_shared_count", maxExperts)
	if c.SharedFFN > maxWidth {
		r.fail(r.key("expert_shared_count"), "makes %d hidden elements", c.SharedFFN)
	}
	g := &c.Router
	if key := r.key("expert_weights_norm"); g.Sigmoid || r.has(key) { // with softmax, files older than the key have no norm
		normed, err := r.meta.Bool(key)
		r.err = cmp.Or(r.err, err)
		g.Normed = normed
	}
	g.Scale = float32(r.positive(r.key("expert_weights_scale"), 1e6, 0))
	groups, used := zeroOr("expert_group_count", maxExperts), zeroOr("expert_group_used_count", maxExperts)
	g.Groups, g.UsedGroups = max(groups, 1), max(used, 1)
	switch {
	case g.Groups == 1 && used > 1:
		r.fail(r.key("expert_group_count"), "is %d or missing, where expert_group_used_count is %d", groups, used)
	case g.Groups == 1:
	case used == 0:
		r.fail(r.key("expert_group_used_count"), "is 0 or missing, where expert_group_count is %d", groups)
	case c.Experts%g.Groups != 0 || c.Experts/g.Groups < 2 || g.UsedGroups > g.Groups || c.Experts/g.Groups*g.UsedGroups < c.UsedExperts:
		r.fail(r.key("expert_group_count"), "is %d, of which %d are used: not possible with %d of %d experts", g.Groups, g.UsedGroups, c.UsedExperts, c.Experts)
	}
}

// expert is one feed-forward block of a layer.
type expert struct {
	gate, up *weight // ExpertFFN outputs of Width
	down     *weight // Width outputs of ExpertFFN
	// Biases of the three, or nil.
	gateBias, upBias, downBias []float32
}

// expertSpecs are the tensors of a layer's feed-forward blocks: gate and up in two tensors, or fused in one, gate's rows
// of an expert first.
func (c *Config) expertSpecs(set *gguf.Set, l int) []tensorSpec {
	each := tensorSpec{rows: c.ExpertFFN, cols: c.Width, count: c.Experts, expert: true}
	gate, up, both, down := each, each, each, each
	gate.name, up.name, both.name, down.name = "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_gate_up_exps.weight", "ffn_down_exps.weight"
	both.rows = 2 * c.ExpertFFN
	down.rows, down.cols = c.Width, c.ExpertFFN
	specs := []tensorSpec{{name: "ffn_gate_inp.weight", rows: c.Experts, cols: c.Width}, down}
	if _, fused := set.Tensor(blockTensor(l, both.name)); fused {
		specs = append(specs, both)
	} else {
		specs = append(specs, gate, up)
	}
	if c.Router.Sigmoid {
		specs = append(specs, tensorSpec{name: "exp_probs_b.bias", cols: c.Experts})
	}
	if c.SharedGated {
		specs = append(specs, tensorSpec{name: "ffn_gate_inp_shexp.weight", cols: c.Width})
	}
	if c.SharedFFN > 0 {
		specs = append(specs, tensorSpec{name: "ffn_gate_shexp.weight", rows: c.SharedFFN, cols: c.Width},
			tensorSpec{name: "ffn_up_shexp.weight", rows: c.SharedFFN, cols: c.Width},
			tensorSpec{name: "ffn_down_shexp.weight", rows: c.Width, cols: c.SharedFFN})
	}
	return specs
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
		w.experts[e] = expert{gate: gate[e], up: up[e], down: down[e]}
	}
	if bias := "exp_probs_b.bias"; ld.has(blockTensor(l, bias)) {
		if err := ld.vectors(l, vectorTensor{bias, &w.bias}); err != nil {
			return err
		}
	}
	if scale := blockTensor(l, "ffn_gate_inp_shexp.weight"); ld.has(scale) {
		if w.scale, err = ld.matrix(scale); err != nil {
			return err
		}
		w.inputs = append(w.inputs, w.scale)
	}
	if !ld.has(blockTensor(l, "ffn_gate_shexp.weight")) {
		return nil
	}
	w.shared = &expert{}
	err = ld.layerMatrices(l, matrixTensor{"ffn_gate_shexp.weight", &w.shared.gate}, matrixTensor{"ffn_up_shexp.weight", &w.shared.up},
		matrixTensor{"ffn_down_shexp.weight", &w.shared.down})
	w.inputs, w.last = append(w.inputs, w.shared.gate, w.shared.up), []*weight{w.shared.down}
	return err
}

// routing is which rows of a layer's input go to which experts, and what comes back. A use is one row at one expert; uses
// are ordered by expert, then by row, so that an expert multiplies all its rows at once.
type routing struct {
	scores []float32 // [rows][Experts] the router's logits, then probabilities
	ranks  []float32 // [rows][Experts] by which experts are chosen, where not by probabilities
	best   []float32 // [rows][Groups] by which groups are
	groups []int32   // [rows][UsedGroups] groups, ascending
	chosen []int32   // [rows][UsedExperts] experts, ascending
	share  []float32 // [rows][UsedExperts] what each contributes
	use    []int32   // [rows][UsedExperts] index of the use

	first  []int32 // [Experts+1] first use of each expert
	expert []int32 // [uses]
	row    []int32 // [uses]

	in, mid  [3][]kernels.Activations // by form and expert: its rows of x, and of the activated gate
	gate, up []float32                // [uses][ExpertFFN]
	out      []float32                // [uses][Width]
	products []product
}

// forwardExperts computes the feed-forward blocks of a layer with experts into b.y, of b.x, which is prepared for the
// router. Of each row, float32 throughout and each step rounded, e ascending:
//
//	s = Wrouter x [+ brouter]
//	softmax: m = max s;  z[e] = Exp(s[e] − m);  p[e] = z[e] / Σ z.  Sigmoid: p[e] = 1 / (1 + Exp(−s[e]))
//	the UsedExperts largest p + bias are chosen, of equal ones the first; with groups, from those of the UsedGroups whose
//	best (softmax, as in DeepSeek V2) or sums of their two best (sigmoid, as in V3) are largest
//	share[e] = p[e] [normed: / (Σ over the chosen of p + 1e-20)] · Scale
//	y = Σ over chosen e of share[e]·(Wdown[e] (activation(Wgate[e] x)·Wup[e] x)) [+ the same of the shared expert [·Sigmoid(wscale·x)]]
//
// Where experts have biases, they are added to the three products, each before its result is used.
// The sums begin with their first term. Nothing depends on what other rows choose.
func (m *Model) forwardExperts(l int, rows []row) error {
	c, w, b, n := &m.cfg, &m.layerOf(l).ffn, &m.buf, len(rows)
	t, uses, ffn := &b.routing, n*c.UsedExperts, c.ExpertFFN
	t.scores, t.ranks = sized(t.scores, n*c.Experts), sized(t.ranks, n*c.Experts)
	t.best, t.groups = sized(t.best, n*c.Router.Groups), sized(t.groups, n*c.Router.UsedGroups)
	t.chosen, t.share, t.use = sized(t.chosen, uses), sized(t.share, uses), sized(t.use, uses)
	t.products = append(t.products[:0], product{w: w.router, dst: t.scores})
	if w.shared != nil {
		b.gate, b.up, b.shared = sized(b.gate, n*c.SharedFFN), sized(b.up, n*c.SharedFFN), sized(b.shared, n*c.Width)
		if w.scale != nil {
			b.shares = sized(b.shares, n)
			t.products = append(t.products, product{w: w.scale, dst: b.shares})
		}
		t.products = append(t.products, product{w: w.shared.gate, dst: b.gate}, product{w: w.shared.up, dst: b.up})
	}
	if err := m.multiply(n, t.products...); err != nil {
		return err
	}
	if err := m.eachRow(l, rows, "router's scores", chooseExperts); err != nil {
		return err
	}
	t.order(c.Experts, c.UsedExperts)

	t.gate, t.up, t.out = sized(t.gate, uses*ffn), sized(t.up, uses*ffn), sized(t.out, uses*c.Width)
	t.products = t.products[:0]
	for e := range c.Experts {
		k := t.uses(e)
		if k == 0 {
			continue
		}
		x, at := &w.experts[e], int(t.first[e])
		for _, q := range []product{{w: x.gate, dst: t.gate[at*ffn:][:k*ffn]}, {w: x.up, dst: t.up[at*ffn:][:k*ffn]}} {
			q.a, q.n = t.activations(&t.in, q.w, e, k, c.Experts), k
			t.products = append(t.products, q)
		}
	}
	if err := m.eachUse(l, rows, c.Width, m.ops.expertInput); err != nil {
		return err
	}
	if err := m.multiply(n, t.products...); err != nil {
		return err
	}

	t.products = t.products[:0]
	for e := range c.Experts {
		k := t.uses(e)
		if k == 0 {
			continue
		}
		q := product{w: w.experts[e].down, dst: t.out[int(t.first[e])*c.Width:][:k*c.Width]}
		q.a, q.n = t.activations(&t.mid, q.w, e, k, c.Experts), k
		t.products = append(t.products, q)
	}
	if err := m.eachUse(l, rows, ffn, m.ops.expertGate); err != nil {
		return err
	}
	if w.shared != nil {
		if err := m.prepare(l, rows, c.SharedFFN, w.last, b.gate, activate); err != nil {
			return err
		}
		t.products = append(t.products, product{w: w.shared.down, dst: b.shared})
	}
	if err := m.multiply(n, t.products...); err != nil {
		return err
	}
	return m.eachRow(l, rows, "experts' sum", sumExperts)
}

// shareEps keeps shares finite where all probabilities of the chosen are 0, as the makers of DeepSeek V3 do.
const shareEps = 1e-20

// chooseExperts takes a row's scores to probabilities, the chosen experts and their shares.
func chooseExperts(p *pass, r int) bool {
	c, t, w := &p.m.cfg, &p.m.buf.routing, &p.layer.ffn
	g := &c.Router
	s := t.scores[r*c.Experts : (r+1)*c.Experts]
	if w.routerBias != nil {
		kernels.Add(s, s, w.routerBias)
	}
	if kernels.CheckFinite(s) >= 0 {
		return false
	}
	if g.Sigmoid {
		sigmoids(s)
	} else {
		softmax(s)
	}
	rank := s
	if w.bias != nil || g.Groups > 1 {
		rank = t.ranks[r*c.Experts : (r+1)*c.Experts]
		copy(rank, s)
	}
	if w.bias != nil {
		kernels.Add(rank, rank, w.bias)
	}
	if g.Groups > 1 {
		keepGroups(rank, t.best[r*g.Groups:(r+1)*g.Groups], t.groups[r*g.UsedGroups:(r+1)*g.UsedGroups], g.Sigmoid)
	}
	chosen := t.chosen[r*c.UsedExperts : (r+1)*c.UsedExperts]
	largest(chosen, rank)
	share := t.share[r*c.UsedExperts : (r+1)*c.UsedExperts]
	total := float32(0)
	for i, e := range chosen {
		share[i] = s[e]
		total += s[e]
	}
	if g.Normed {
		total += shareEps
		for i := range share {
			share[i] /= total
		}
	}
	kernels.Scale(share, share, g.Scale)
	return true
}

// softmax replaces scores by their softmax.
func softmax(s []float32) {
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
}

// sigmoids replaces scores by 1/(1 + e^−s).
func sigmoids(s []float32) {
	for e := range s {
		s[e] = -s[e]
	}
	kernels.Exps(s, s)
	for e := range s {
		s[e] = 1 / (1 + s[e])
	}
}

// largest sets chosen to the indices of the largest values of s, ascending; of equal ones the first.
func largest(chosen []int32, s []float32) {
	n := 0 // held so far, by falling value
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
}

// keepGroups sets rank to −∞ outside of the best groups, as many as kept has room for. A group is len(rank)/len(best)
// neighbours; it is as good as its best, or, of pairs, as the sum of its two best.
func keepGroups(rank, best []float32, kept []int32, pairs bool) {
	size := len(rank) / len(best)
	for g := range best {
		first, second := float32(math.Inf(-1)), float32(math.Inf(-1))
		for _, x := range rank[g*size : (g+1)*size] {
			switch {
			case x > first:
				first, second = x, first
			case x > second:
				second = x
			}
		}
		if best[g] = first; pairs {
			best[g] = first + second
		}
	}
	largest(kept, best)
	for g := range best {
		if !slices.Contains(kept, int32(g)) {
			for i := range size {
				rank[g*size+i] = float32(math.Inf(-1))
			}
		}
	}
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
	p, t, ffn := &m.pass, &m.buf.routing, m.cfg.ExpertFFN
	for i, last := p.span(task, len(t.row)); i < last; i++ {
		w := &p.layer.ffn
		gate, up := t.gate[i*ffn:(i+1)*ffn], t.up[i*ffn:(i+1)*ffn]
		if x := &w.experts[t.expert[i]]; x.gateBias != nil {
			kernels.Add(gate, gate, x.gateBias)
			kernels.Add(up, up, x.upBias)
		}
		w.gated(gate, gate, up)
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
		if bias := p.layer.ffn.experts[t.chosen[i]].downBias; bias != nil {
			kernels.Add(out, out, bias)
		}
		if j == 0 {
			kernels.Scale(y, out, t.share[i])
			continue
		}
		kernels.Scale(out, out, t.share[i])
		kernels.Add(y, y, out)
	}
	if p.layer.ffn.shared != nil {
		shared := p.m.buf.shared[r*c.Width : (r+1)*c.Width]
		if p.layer.ffn.scale != nil {
			kernels.Scale(shared, shared, kernels.Sigmoid(p.m.buf.shares[r]))
		}
		kernels.Add(y, y, shared)
	}
	return true
}
