package runtime

import (
	"context"
	"slices"
	"time"

	"github.com/starling-swarm/starling/kernels"
)

// row is one position of one step on its way through the layers.
type row struct {
	step        int // index in the Run
	seq         *sequence
	pos         int
	h           []float32 // [Width] residual stream, changed in place
	full, local angles    // at pos, by Model.rope
}

// Run implements Executor.
func (m *Model) Run(ctx context.Context, steps []*Step) error {
	if err := CheckSteps(&m.cfg, m.Layers(), steps); err != nil {
		return err
	}
	for i, s := range steps {
		if seq, ok := s.Seq.(*sequence); !ok || seq.budget != &m.budget {
			return &StepError{i, "its sequence was not made by this executor"}
		}
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	if m.closed.Load() {
		return ErrClosed
	}
	for i, s := range steps {
		if err := s.Seq.(*sequence).claim(s.Layers, s.Start, s.N); err != nil {
			releaseAll(steps[:i], false)
			return err
		}
	}
	err := m.forward(ctx, steps)
	releaseAll(steps, err == nil)
	return err
}

// fewRows is up to how many rows a Run counts as decoding: it is as fast as memory, not as arithmetic.
const fewRows = 16

// threadsFor returns how many threads a Run of steps uses.
func (m *Model) threadsFor(steps []*Step) int {
	n := 0
	for _, s := range steps {
		n += s.N
	}
	if n <= fewRows {
		return m.threads.decode
	}
	return m.threads.prefill
}

// begin lets up to want threads compute, fewer where others are to have the machine.
func (m *Model) begin(want int) {
	if m.others != nil {
		want = m.others.limit(want, time.Now())
	}
	m.pool.begin(want)
}

// releaseAll ends the claims of steps; their rows stay if keep is set.
func releaseAll(steps []*Step, keep bool) {
	for _, s := range steps {
		n := 0
		if keep {
			n = s.N
		}
		s.Seq.(*sequence).release(n)
	}
}

// forward computes the steps, whose sequences are claimed. Layers go in ascending order, all steps that have a layer
// together, in the order of steps.
func (m *Model) forward(ctx context.Context, steps []*Step) error {
	threads := m.threadsFor(steps)
	m.begin(threads)
	all, err := m.inputs(steps)
	if err != nil {
		return err
	}
	first, last := m.layers.Last, 0
	for _, s := range steps {
		first, last = min(first, s.Layers.First), max(last, s.Layers.Last)
	}
	beginProbes(steps, m.cfg.Width)
	for l := first; l < last; l++ {
		probe(steps, all, l)
		active := m.buf.active[:0]
		for i := range all {
			if steps[all[i].step].Layers.Contains(l) {
				active = append(active, all[i])
			}
		}
		m.buf.active = active
		m.begin(threads)
		m.stream.before(l - m.layers.First)
		for at := 0; at < len(active); at += passRows {
			if err := ctx.Err(); err != nil {
				return err
			}
			rows := active[at:min(at+passRows, len(active))]
			rollWindows(l, rows)
			if err := m.forwardLayer(l, rows); err != nil {
				return err
			}
			if err := m.roundSeams(l+1, rows); err != nil {
				return err
			}
		}
		m.stream.after(l - m.layers.First)
	}
	probe(steps, all, last)
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.head(steps, all)
}

// beginProbes makes the memory for what the steps' probes give.
func beginProbes(steps []*Step, width int) {
	for _, s := range steps {
		s.Probed = sized(s.Probed, len(s.Probe))
		for i := range s.Probed {
			s.Probed[i] = sized(s.Probed[i], s.N*width)
		}
	}
}

// probe copies the residual stream of the steps that want it at boundary l; a step that ends before has left it as it was there.
func probe(steps []*Step, all []row, l int) {
	at := 0
	for _, s := range steps {
		if i, found := slices.BinarySearch(s.Probe, l); found {
			width := len(s.Probed[i]) / s.N
			for r := range s.N {
				copy(s.Probed[i][r*width:], all[at+r].h)
			}
		}
		at += s.N
	}
}

// inputs makes the rows of all steps: embedding rows, or copies of the seams, in Out where that is wanted.
func (m *Model) inputs(steps []*Step) ([]row, error) {
	c := &m.cfg
	n, hidden := 0, 0
	for _, s := range steps {
		n += s.N
		if s.Layers.Last == c.Layers && !s.KeepHidden {
			s.Out = nil
			hidden += s.N
		} else {
			s.Out = sized(s.Out, s.N*c.Width)
		}
	}
	m.buf.hidden = sized(m.buf.hidden, hidden*c.Width)
	m.buf.rope = sized(m.buf.rope, n*2*c.RopeDim)
	rope := m.buf.rope
	rows := m.buf.all[:0]
	spare := m.buf.hidden
	for i, s := range steps {
		h := s.Out
		if h == nil {
			h, spare = spare[:s.N*c.Width], spare[s.N*c.Width:]
		}
		for r := range s.N {
			row := row{step: i, seq: s.Seq.(*sequence), pos: s.Start + r, h: h[r*c.Width : (r+1)*c.Width]}
			row.full, rope = m.rope.full.cut(rope)
			row.local, rope = m.rope.local.cut(rope)
			rows = append(rows, row)
		}
	}
	m.buf.all = rows
	m.pass.rows, m.pass.steps = rows, steps
	if i, found := m.forkRows(n, c.Width, m.ops.input); found {
		if s := steps[rows[i].step]; s.Layers.First == 0 {
			if err := m.embed.check(int(s.Tokens[rows[i].pos-s.Start])); err != nil {
				return nil, err
			}
		}
		return nil, &NonFiniteError{rows[i].step, "seam", steps[rows[i].step].Layers.First, rows[i].pos}
	}
	return rows, nil
}

// inputTask fills in residual streams and rope angles of a task's rows.
func (m *Model) inputTask(_, task int) {
	p := &m.pass
	for i, last := p.span(task, len(p.rows)); i < last; i++ {
		row := &p.rows[i]
		s := p.steps[row.step]
		m.rope.fullFor(row.seq.capacity).fill(row.full, row.pos)
		m.rope.local.fill(row.local, row.pos)
		r := row.pos - s.Start
		if s.Layers.First > 0 {
			copy(row.h, s.Seam[r*m.cfg.Width:])
		} else if id := int(s.Tokens[r]); m.embed.check(id) == nil {
			m.embedRow(row.h, id)
		} else {
			p.bad.note(i)
			continue
		}
		if kernels.CheckFinite(row.h) >= 0 {
			p.bad.note(i)
		}
	}
}

// embedRow makes the residual stream that begins with a token: its row of the embedding table, times EmbedScale where that
// is not 1.
func (m *Model) embedRow(h []float32, token int) {
	m.embed.Row(h, token)
	if s := m.cfg.EmbedScale; s != 1 {
		kernels.Scale(h, h, s)
	}
}

// head computes the logits of the rows whose logits are wanted:
//
//	logits = W_output (RMSNorm(h)·output_norm)
func (m *Model) head(steps []*Step, all []row) error {
	c := &m.cfg
	wanted := m.buf.wanted[:0]
	at := 0
	for _, s := range steps {
		for _, r := range s.LogitRows {
			wanted = append(wanted, all[at+r])
		}
		at += s.N
	}
	m.buf.wanted = wanted
	if len(wanted) > 0 {
		m.stream.before(m.layers.Len())
		defer m.stream.after(m.layers.Len())
	}
	logits := m.logitMemory(steps, len(wanted))
	for at := 0; at < len(wanted); at += passRows {
		rows := wanted[at:min(at+passRows, len(wanted))]
		m.buf.x = sized(m.buf.x, len(rows)*c.Width)
		err := m.prepare(c.Layers, rows, c.Width, []*weight{m.output}, m.buf.x, func(p *pass, r int, x []float32) {
			kernels.RMSNorm(x, p.rows[r].h, p.m.outputNorm, p.m.cfg.Eps)
		})
		if err != nil {
			return err
		}
		m.pass.logits = logits[at*c.Vocab:]
		if err := m.multiply(len(rows), product{w: m.output, dst: m.pass.logits}); err != nil {
			return err
		}
		err = m.eachRow(c.Layers, rows, "logits", func(p *pass, r int) bool {
			vocab := p.m.cfg.Vocab
			return kernels.CheckFinite(p.logits[r*vocab:(r+1)*vocab]) < 0
		})
		if err != nil {
			return err
		}
	}
	copyLogits(steps, logits)
	return nil
}

// logitMemory returns memory for n rows of logits in one piece, and makes each step's Logits: slices of their own where
// the rows are few and will be copied (one row: the memory itself), parts of one new piece where they are many.
func (m *Model) logitMemory(steps []*Step, n int) []float32 {
	vocab := m.cfg.Vocab
	if n > fewRows {
		memory := make([]float32, n*vocab)
		rest := memory
		for _, s := range steps {
			s.Logits = s.Logits[:0]
			for range s.LogitRows {
				s.Logits = append(s.Logits, rest[:vocab:vocab])
				rest = rest[vocab:]
			}
		}
		return memory
	}
	var only []float32
	for _, s := range steps {
		s.Logits = sized(s.Logits, len(s.LogitRows))
		for i := range s.Logits {
			s.Logits[i] = sized(s.Logits[i], vocab)
			only = s.Logits[i]
		}
	}
	if n == 1 {
		return only
	}
	m.buf.logits = sized(m.buf.logits, n*vocab)
	return m.buf.logits
}

// copyLogits takes rows of logits to the steps, where they aren't there already.
func copyLogits(steps []*Step, logits []float32) {
	for _, s := range steps {
		for _, dst := range s.Logits {
			if &dst[0] != &logits[0] {
				copy(dst, logits)
			}
			logits = logits[len(dst):]
		}
	}
}
