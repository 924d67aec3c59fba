package runtime

import (
	"math"

	"github.com/starling-swarm/starling/kernels"
)

// deltaNet is a gated delta net (Yang et al. 2024, arXiv:2412.06464): instead of earlier positions it keeps a matrix of each
// value head, which every position decays and corrects, and the last inputs of a short convolution. Both are its tail:
// [Kernel−1][Channels] inputs, oldest first, then [ValueHeads][Dim][Dim], rows along the key.
type deltaNet struct {
	qkv, gate   *weight     // Channels, ValueHeads×Dim outputs of Width
	alpha, beta *weight     // ValueHeads outputs of Width
	out         *weight     // Width outputs of ValueHeads×Dim
	taps        [][]float32 // [Kernel][Channels] of the convolution, oldest first
	a, dt       []float32   // [ValueHeads]
	norm        []float32   // [Dim]

	in, last []*weight // what is multiplied together
}

// DeltaNet has the sizes of a gated delta net.
type DeltaNet struct {
	KeyHeads, ValueHeads int // value head i goes with key head i mod KeyHeads
	Dim                  int // elements of a query, a key or a value
	Kernel               int // positions that the convolution sees
}

// Channels is the elements of all queries, keys and values of a position.
func (d DeltaNet) Channels() int { return (2*d.KeyHeads + d.ValueHeads) * d.Dim }

// history is how many elements of the tail are inputs of the convolution.
func (d DeltaNet) history() int { return (d.Kernel - 1) * d.Channels() }

// state returns the elements of the tail.
func (d DeltaNet) state() int { return d.history() + d.ValueHeads*d.Dim*d.Dim }

// deltaEps keeps the norm of queries and keys from dividing by zero; it is transformers' constant.
const deltaEps = 1e-6

// readDelta reads the sizes. llama.cpp's names of them are those of other state space models.
func (c *Config) readDelta(r *reader) {
	d := DeltaNet{
		KeyHeads: r.count(r.key("ssm.group_count"), maxHeads), ValueHeads: r.count(r.key("ssm.time_step_rank"), maxHeads),
		Dim: r.count(r.key("ssm.state_size"), maxHeadDim), Kernel: r.count(r.key("ssm.conv_kernel"), 64),
	}
	switch inner := r.count(r.key("ssm.inner_size"), maxHeads*maxHeadDim); {
	case d.ValueHeads%d.KeyHeads != 0:
		r.fail(r.key("ssm.time_step_rank"), "is %d value heads, not a multiple of %d key heads", d.ValueHeads, d.KeyHeads)
	case inner != d.ValueHeads*d.Dim:
		r.fail(r.key("ssm.inner_size"), "is %d, not %d heads of %d", inner, d.ValueHeads, d.Dim)
	case d.Channels() > maxWidth:
		r.fail(r.key("ssm.state_size"), "is %d: %d channels are too many", d.Dim, d.Channels())
	}
	c.Delta = d
}

// deltaSpecs are the tensors of a gated delta net.
func (c *Config) deltaSpecs() []tensorSpec {
	d := c.Delta
	values := d.ValueHeads * d.Dim
	return []tensorSpec{
		{name: "attn_qkv.weight", rows: d.Channels(), cols: c.Width},
		{name: "attn_gate.weight", rows: values, cols: c.Width},
		{name: "ssm_alpha.weight", rows: d.ValueHeads, cols: c.Width},
		{name: "ssm_beta.weight", rows: d.ValueHeads, cols: c.Width},
		{name: "ssm_out.weight", rows: c.Width, cols: values},
		{name: "ssm_conv1d.weight", rows: d.Channels(), cols: d.Kernel},
		{name: "ssm_a", cols: d.ValueHeads},
		{name: "ssm_dt.bias", cols: d.ValueHeads},
		{name: "ssm_norm.weight", cols: d.Dim},
	}
}

// load maps the tensors of layer l.
func (w *deltaNet) load(ld *loader, c *Config, l int) error {
	err := ld.vectors(l, vectorTensor{"ssm_a", &w.a}, vectorTensor{"ssm_dt.bias", &w.dt}, vectorTensor{"ssm_norm.weight", &w.norm})
	if err != nil {
		return err
	}
	err = ld.layerMatrices(l, matrixTensor{"attn_qkv.weight", &w.qkv}, matrixTensor{"attn_gate.weight", &w.gate},
		matrixTensor{"ssm_alpha.weight", &w.alpha}, matrixTensor{"ssm_beta.weight", &w.beta}, matrixTensor{"ssm_out.weight", &w.out})
	if err != nil {
		return err
	}
	w.in, w.last = []*weight{w.qkv, w.gate, w.alpha, w.beta}, []*weight{w.out}
	w.taps, err = ld.columns(blockTensor(l, "ssm_conv1d.weight"))
	return err
}

func (w *deltaNet) inputs() []*weight { return w.in }

// deltaBuffers are the intermediate rows of deltaNet.
type deltaBuffers struct {
	qkv, mixed  []float32 // [rows][Channels] before and after the convolution
	gate        []float32 // [rows][ValueHeads×Dim]
	alpha, beta []float32 // [rows][ValueHeads], then the factors of decay and of correction

	runs [][2]int // rows of one sequence each
}

// mix computes, for every value head i by itself, where k and q are those of key head i mod KeyHeads:
//
//	u         = Wqkv x;  z = Wgate x
//	c         = SiLU(Σ_j taps[j]·u of Kernel−1−j positions before), of u = 0 before the sequence, each channel by itself
//	q | k | v = c;  q = L2Norm(q)·1/√Dim;  k = L2Norm(k), of each head
//	decay     = Exp(a·Softplus(Walpha x + dt));  beta = Sigmoid(Wbeta x)
//	o         = kernels.DeltaStep of the head's matrix
//	y         = Wout [SiLU(z)·(RMSNorm(o)·ssm_norm) of each head]
func (w *deltaNet) mix(m *Model, l int, rows []row) error {
	d, b, t, n := m.cfg.Delta, &m.buf, &m.buf.delta, len(rows)
	values := d.ValueHeads * d.Dim
	t.qkv, t.mixed, t.gate = sized(t.qkv, n*d.Channels()), sized(t.mixed, n*d.Channels()), sized(t.gate, n*values)
	t.alpha, t.beta, b.attn = sized(t.alpha, n*d.ValueHeads), sized(t.beta, n*d.ValueHeads), sized(b.attn, n*values)
	err := m.multiply(n, product{w: w.qkv, dst: t.qkv}, product{w: w.gate, dst: t.gate}, product{w: w.alpha, dst: t.alpha}, product{w: w.beta, dst: t.beta})
	if err != nil {
		return err
	}
	if err := m.eachRow(l, rows, "recurrent input", convolveRow); err != nil {
		return err
	}

	t.runs = t.runs[:0]
	for first, r := 0, 1; r <= n; r++ {
		if r == n || rows[r].seq != rows[first].seq {
			t.runs = append(t.runs, [2]int{first, r})
			first = r
		}
	}
	m.pool.do(len(t.runs)*d.ValueHeads, m.ops.delta)

	err = m.prepare(l, rows, values, w.last, b.attn, func(p *pass, r int, x []float32) {
		normHeads(x, p.layer.mixer.(*deltaNet).norm, p.m.cfg.Eps)
		kernels.MulSiLU(x, p.m.buf.delta.gate[r*len(x):(r+1)*len(x)], x)
	})
	if err != nil {
		return err
	}
	return m.multiply(n, product{w: w.out, dst: b.y})
}

// convolveRow takes a row from the products to what DeltaStep needs.
func convolveRow(p *pass, r int) bool {
	c, t, w := &p.m.cfg, &p.m.buf.delta, p.layer.mixer.(*deltaNet)
	d, ch := c.Delta, c.Delta.Channels()
	alpha, beta := t.alpha[r*d.ValueHeads:(r+1)*d.ValueHeads], t.beta[r*d.ValueHeads:(r+1)*d.ValueHeads]
	if kernels.CheckFinite(t.qkv[r*ch:(r+1)*ch]) >= 0 || kernels.CheckFinite(alpha) >= 0 || kernels.CheckFinite(beta) >= 0 {
		return false
	}
	x := t.mixed[r*ch : (r+1)*ch]
	clear(x)
	for j, taps := range w.taps {
		if u := t.input(p.rows, r, d.Kernel-1-j, p.l, d); u != nil {
			kernels.MulAdd(x, taps, u)
		}
	}
	kernels.SiLUs(x, x)
	scale := 1 / float32(math.Sqrt(float64(d.Dim)))
	for h := range 2 * d.KeyHeads {
		head := x[h*d.Dim : (h+1)*d.Dim]
		kernels.L2Norm(head, head, deltaEps)
		if h < d.KeyHeads {
			kernels.Scale(head, head, scale)
		}
	}
	for h := range alpha {
		alpha[h] = kernels.Exp(float32(w.a[h] * kernels.Softplus(alpha[h]+w.dt[h])))
		beta[h] = kernels.Sigmoid(beta[h])
	}
	return true
}

// input returns what the convolution had for input back positions before row r, nil for zeros.
func (t *deltaBuffers) input(rows []row, r, back, l int, d DeltaNet) []float32 {
	ch := d.Channels()
	if at := r - back; at >= 0 && rows[at].seq == rows[r].seq {
		return t.qkv[at*ch : (at+1)*ch]
	}
	first := r // of the sequence's rows
	for first > 0 && rows[first-1].seq == rows[r].seq {
		first--
	}
	past := rows[first].seq.past(l, rows[first].pos)
	if past == nil {
		return nil
	}
	at := d.Kernel - 1 - (back - (r - first)) // of the kept inputs
	return past[at*ch : (at+1)*ch]
}

// deltaTask takes a value head through all rows of one sequence. The task of head 0 keeps the inputs of the convolution, too.
func (m *Model) deltaTask(_, task int) {
	p, d, t := &m.pass, m.cfg.Delta, &m.buf.delta
	run, head := t.runs[task/d.ValueHeads], task%d.ValueHeads
	first := &p.rows[run[0]]
	past, next := first.seq.past(p.l, first.pos), first.seq.next(p.l)
	at, size := d.history()+head*d.Dim*d.Dim, d.Dim*d.Dim
	state := next[at : at+size]
	switch {
	case past == nil:
		clear(state)
	case &past[0] != &next[0]:
		copy(state, past[at:at+size])
	}
	ch, key := d.Channels(), head%d.KeyHeads*d.Dim
	for r := run[0]; r < run[1]; r++ {
		x, i := t.mixed[r*ch:(r+1)*ch], r*d.ValueHeads+head
		q, k, v := x[key:], x[d.KeyHeads*d.Dim+key:], x[2*d.KeyHeads*d.Dim+head*d.Dim:]
		kernels.DeltaStep(m.buf.attn[i*d.Dim:(i+1)*d.Dim], state, q[:d.Dim], k[:d.Dim], v[:d.Dim], t.alpha[i], t.beta[i])
		if kept := first.seq.snapshot(p.l, p.rows[r].pos+1); kept != nil {
			copy(kept[at:at+size], state)
			if head == 0 {
				t.keepInputs(kept, p.rows, r, p.l, d)
			}
		}
	}
	if head == 0 {
		t.keepInputs(next, p.rows, run[1]-1, p.l, d)
	}
}

// keepInputs writes the convolution's part of a tail behind row r.
func (t *deltaBuffers) keepInputs(tail []float32, rows []row, r, l int, d DeltaNet) {
	ch := d.Channels()
	for j := range d.Kernel - 1 { // ascending: what it reads may be tail itself
		to := tail[j*ch : (j+1)*ch]
		if u := t.input(rows, r, d.Kernel-2-j, l, d); u != nil {
			copy(to, u)
		} else {
			clear(to)
		}
	}
}
