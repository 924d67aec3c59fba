package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/starling-swarm/starling/runtime"
)

// TestExecutor checks that executors keep the contract of runtime.Executor and runtime.Sequence, and above all that
// results do not depend on how the work was cut. open returns a new executor for a layer range of always the same model,
// with the same profile (the zero Range: all layers); the model has at least 2 layers, a context of at least 300 and room
// in its KV budget for a few sequences of 300 positions. With a *testing.T every part is a subtest.
func TestExecutor(t testing.TB, open func(runtime.Range) runtime.Executor) {
	for _, part := range []struct {
		name string
		f    func(*suite)
	}{
		{"Description", (*suite).description},
		{"Chunks", (*suite).chunks},
		{"Splits", (*suite).splits},
		{"Batches", (*suite).batches},
		{"HeadOnly", (*suite).headOnly},
		{"HandOff", (*suite).handOff},
		{"Truncate", (*suite).truncate},
		{"BadSteps", (*suite).badSteps},
		{"BadPositions", (*suite).badPositions},
		{"NonFinite", (*suite).nonFinite},
		{"Cancel", (*suite).cancel},
		{"Reservations", (*suite).reservations},
		{"Concurrent", (*suite).concurrent},
		{"Close", (*suite).closing},
	} {
		run := func(t testing.TB) {
			s := &suite{TB: t, open: open}
			s.whole = s.executor(runtime.Range{})
			s.cfg = s.whole.Config()
			s.all = runtime.Range{First: 0, Last: s.cfg.Layers}
			part.f(s)
		}
		if tt, ok := t.(*testing.T); ok {
			tt.Run(part.name, func(t *testing.T) { run(t) })
		} else {
			run(t)
		}
	}
}

type suite struct {
	testing.TB
	open  func(runtime.Range) runtime.Executor
	whole runtime.Executor
	cfg   runtime.Config
	all   runtime.Range
}

// executor opens a range and closes it at the end.
func (s *suite) executor(r runtime.Range) runtime.Executor {
	e := s.open(r)
	s.Cleanup(func() {
		if err := e.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	return e
}

// sequence reserves a sequence and closes it at the end.
func (s *suite) sequence(e runtime.Executor, capacity int) runtime.Sequence {
	s.Helper()
	seq, err := e.NewSequence(capacity)
	if err != nil {
		s.Fatalf("NewSequence(%d): %v", capacity, err)
	}
	s.Cleanup(seq.Close)
	return seq
}

// run runs steps that must succeed.
func (s *suite) run(e runtime.Executor, steps ...*runtime.Step) {
	s.Helper()
	if err := e.Run(context.Background(), steps); err != nil {
		s.Fatalf("Run: %v", err)
	}
}

// tokens makes n tokens.
func (s *suite) tokens(seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 0))
	out := make([]int32, n)
	for i := range out {
		out[i] = rng.Int32N(int32(s.cfg.Vocab))
	}
	return out
}

// outcome is everything that a prompt leaves behind.
type outcome struct {
	hidden []uint32   // bits of [n][Width] after the last layer
	logits [][]uint32 // bits, of every row
	kv     [][32]byte // digest by layer
	rows   [][]byte   // by layer
}

func bits(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}

func allRows(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// add notes the results of a step that ended at the model's end.
func (o *outcome) add(step *runtime.Step) {
	o.hidden = append(o.hidden, bits(step.Out)...)
	for _, l := range step.Logits {
		o.logits = append(o.logits, bits(l))
	}
}

// addKV notes the cache rows of some layers.
func (s *suite) addKV(o *outcome, seq runtime.Sequence, r runtime.Range) {
	s.Helper()
	for l := r.First; l < r.Last; l++ {
		rows, err := seq.ExportKV(nil, l, 0, seq.Len(l))
		if err != nil {
			s.Fatalf("ExportKV of layer %d: %v", l, err)
		}
		o.rows = append(o.rows, rows)
		o.kv = append(o.kv, seq.Digest(l))
	}
}

// reference runs a prompt at once on the whole model.
func (s *suite) reference(tokens []int32) outcome {
	s.Helper()
	return s.chunked(s.whole, tokens, len(tokens))
}

// chunked runs a prompt in chunks.
func (s *suite) chunked(e runtime.Executor, tokens []int32, chunk int) (o outcome) {
	s.Helper()
	seq := s.sequence(e, len(tokens))
	for at := 0; at < len(tokens); at += chunk {
		part := tokens[at:min(at+chunk, len(tokens))]
		step := &runtime.Step{Seq: seq, Layers: s.all, Start: at, N: len(part), Tokens: part, LogitRows: allRows(len(part)), KeepHidden: true}
		s.run(e, step)
		o.add(step)
	}
	s.addKV(&o, seq, s.all)
	return o
}

// same fails the test where two outcomes differ in a bit.
func (s *suite) same(what string, got, want outcome) {
	s.Helper()
	if !slices.Equal(got.hidden, want.hidden) {
		s.Errorf("%s: hidden states differ", what)
	}
	if !slices.EqualFunc(got.logits, want.logits, slices.Equal[[]uint32]) {
		s.Errorf("%s: logits differ", what)
	}
	if !slices.Equal(got.kv, want.kv) {
		s.Errorf("%s: KV digests differ", what)
	}
	if !slices.EqualFunc(got.rows, want.rows, slices.Equal[[]byte]) {
		s.Errorf("%s: KV rows differ", what)
	}
}

// want fails the test unless err is of type E (or wraps one).
func want[E error](s *suite, what string, err error) {
	s.Helper()
	var e E
	if !errors.As(err, &e) {
		s.Errorf("%s: error %v, want a %T", what, err, e)
	}
}

func (s *suite) description() {
	e := s.executor(runtime.Range{First: 1, Last: 2})
	if got := e.Layers(); got != (runtime.Range{First: 1, Last: 2}) {
		s.Errorf("Layers() of [1, 2) is %v", got)
	}
	if got := s.whole.Layers(); got != s.all {
		s.Errorf("Layers() of the zero range is %v, want %v", got, s.all)
	}
	if e.Profile() != s.whole.Profile() {
		s.Errorf("profiles of one model differ: %v, %v", e.Profile(), s.whole.Profile())
	}
	if e.Tokenizer() == nil || e.Tokenizer().Size() > s.cfg.Vocab {
		s.Error("no tokenizer that fits the vocabulary")
	}
	if len(s.cfg.LayerBytes) != s.cfg.Layers {
		s.Errorf("%d LayerBytes for %d layers", len(s.cfg.LayerBytes), s.cfg.Layers)
	}
	seq := s.sequence(e, 10)
	if got := seq.Capacity(); got != 10 {
		s.Errorf("Capacity() is %d, want 10", got)
	}
	if got, want := seq.RowBytes(1), s.cfg.KVRowBytes(e.Profile().KV); got != want {
		s.Errorf("RowBytes is %d, want %d", got, want)
	}
	if seq.RowBytes(0) != 0 || seq.Len(0) != 0 || seq.Len(-1) != 0 {
		s.Error("a layer outside the range has rows")
	}
	_, err := seq.ExportKV(nil, 0, 0, 0)
	want[*runtime.LayerError](s, "ExportKV of layer 0 of [1, 2)", err)
	want[*runtime.LayerError](s, "ImportKV of layer 2 of [1, 2)", seq.ImportKV(2, 0, nil))
}

func (s *suite) chunks() {
	tokens := s.tokens(1, 270) // beyond one page
	ref := s.reference(tokens)
	for _, chunk := range []int{7, 64, 256} {
		s.same(fmt.Sprintf("chunks of %d", chunk), s.chunked(s.whole, tokens, chunk), ref)
	}
	short := s.reference(tokens[:20])
	for _, chunk := range []int{1, 3} {
		s.same(fmt.Sprintf("chunks of %d", chunk), s.chunked(s.whole, tokens[:20], chunk), short)
	}
	// Asking for fewer logits must not change those that are asked for.
	seq := s.sequence(s.whole, len(tokens))
	step := &runtime.Step{Seq: seq, Layers: s.all, N: len(tokens), Tokens: tokens, LogitRows: []int{0, 5, len(tokens) - 1}}
	s.run(s.whole, step)
	if step.Out != nil {
		s.Error("Out is set at the model's end without KeepHidden")
	}
	for i, r := range step.LogitRows {
		if !slices.Equal(bits(step.Logits[i]), ref.logits[r]) {
			s.Errorf("logits of row %d depend on which others are asked for", r)
		}
	}
}

func (s *suite) splits() {
	tokens := s.tokens(2, 40)
	ref := s.reference(tokens)
	for cut := 1; cut < s.cfg.Layers; cut++ {
		ranges := []runtime.Range{{First: 0, Last: cut}, {First: cut, Last: s.cfg.Layers}}
		var got outcome
		seqs := make([]runtime.Sequence, 2)
		execs := make([]runtime.Executor, 2)
		for i, r := range ranges {
			execs[i] = s.executor(r)
			seqs[i] = s.sequence(execs[i], len(tokens))
		}
		for at := 0; at < len(tokens); at += 16 {
			part := tokens[at:min(at+16, len(tokens))]
			first := &runtime.Step{Seq: seqs[0], Layers: ranges[0], Start: at, N: len(part), Tokens: part}
			s.run(execs[0], first)
			seam := slices.Clone(first.Out)
			second := &runtime.Step{Seq: seqs[1], Layers: ranges[1], Start: at, N: len(part), Seam: first.Out, LogitRows: allRows(len(part)), KeepHidden: true}
			s.run(execs[1], second)
			if !slices.Equal(bits(seam), bits(first.Out)) {
				s.Fatal("Run changed its Seam")
			}
			got.add(second)
		}
		for i, r := range ranges {
			s.addKV(&got, seqs[i], r)
		}
		s.same(fmt.Sprintf("cut at %d", cut), got, ref)
	}
}

// batches runs sequences of different lengths, positions and layers in one Run.
func (s *suite) batches() {
	const n = 5
	prompts := make([][]int32, n)
	refs := make([]outcome, n)
	for i := range prompts {
		prompts[i] = s.tokens(uint64(10+i), 20+3*i)
		refs[i] = s.reference(prompts[i])
	}
	seqs := make([]runtime.Sequence, n)
	got := make([]outcome, n)
	at := make([]int, n)
	for i := range seqs {
		seqs[i] = s.sequence(s.whole, len(prompts[i]))
	}
	for round := 0; ; round++ {
		var steps []*runtime.Step
		var who []int
		for i := range seqs {
			if chunk := min(1+(i+round)%4, len(prompts[i])-at[i]); chunk > 0 {
				steps = append(steps, &runtime.Step{
					Seq: seqs[i], Layers: s.all, Start: at[i], N: chunk, Tokens: prompts[i][at[i] : at[i]+chunk],
					LogitRows: allRows(chunk), KeepHidden: true,
				})
				at[i] += chunk
				who = append(who, i)
			}
		}
		if len(steps) == 0 {
			break
		}
		s.run(s.whole, steps...)
		for j, i := range who {
			got[i].add(steps[j])
		}
	}
	for i := range seqs {
		s.addKV(&got[i], seqs[i], s.all)
		s.same(fmt.Sprintf("sequence %d of a batch", i), got[i], refs[i])
	}

	// One sequence a layer ahead of the other.
	a, b := s.sequence(s.whole, 50), s.sequence(s.whole, 50)
	first := &runtime.Step{Seq: a, Layers: runtime.Range{First: 0, Last: 1}, N: len(prompts[0]), Tokens: prompts[0]}
	s.run(s.whole, first)
	rest := &runtime.Step{Seq: a, Layers: runtime.Range{First: 1, Last: s.cfg.Layers}, N: first.N, Seam: first.Out, LogitRows: allRows(first.N), KeepHidden: true}
	whole := &runtime.Step{Seq: b, Layers: s.all, N: len(prompts[1]), Tokens: prompts[1], LogitRows: allRows(len(prompts[1])), KeepHidden: true}
	s.run(s.whole, rest, whole)
	for i, step := range []*runtime.Step{rest, whole} {
		var o outcome
		o.add(step)
		s.addKV(&o, step.Seq, s.all)
		s.same("batch of different layers", o, refs[i])
	}
}

// headOnly applies the head to hidden states without running a layer.
func (s *suite) headOnly() {
	tokens := s.tokens(3, 12)
	ref := s.reference(tokens)
	seq := s.sequence(s.whole, 12)
	body := &runtime.Step{Seq: seq, Layers: s.all, N: 12, Tokens: tokens, KeepHidden: true}
	s.run(s.whole, body)
	end := runtime.Range{First: s.cfg.Layers, Last: s.cfg.Layers}
	for _, e := range []runtime.Executor{s.whole, s.executor(end)} {
		head := &runtime.Step{Seq: s.sequence(e, 12), Layers: end, N: 12, Seam: body.Out, LogitRows: allRows(12), KeepHidden: true}
		s.run(e, head)
		var o outcome
		o.add(head)
		s.same("head alone", o, outcome{hidden: ref.hidden, logits: ref.logits})
	}
}

// handOff is prefill-across, decode-local: a stage computes the first layers, the decoder the last one, and the stage's
// cache rows arrive in slices while the decoder is at work; then the decoder goes on alone.
func (s *suite) handOff() {
	tokens := s.tokens(4, 262)
	const prompt = 250
	ref := s.reference(tokens)
	cut := s.cfg.Layers - 1
	front, back := runtime.Range{First: 0, Last: cut}, runtime.Range{First: cut, Last: s.cfg.Layers}
	stage := s.executor(front)
	from, to := s.sequence(stage, prompt), s.sequence(s.whole, len(tokens))
	var got outcome
	for at := 0; at < prompt; at += 100 {
		n := min(100, prompt-at)
		first := &runtime.Step{Seq: from, Layers: front, Start: at, N: n, Tokens: tokens[at : at+n]}
		s.run(stage, first)
		step := &runtime.Step{Seq: to, Layers: back, Start: at, N: n, Seam: first.Out, LogitRows: allRows(n), KeepHidden: true}
		var wg sync.WaitGroup
		for l := range cut {
			wg.Go(func() { // a few rows at a time
				for r := at; r < at+n; r += 33 {
					rows, err := from.ExportKV(nil, l, r, min(r+33, at+n))
					if err == nil {
						err = to.ImportKV(l, r, rows)
					}
					if err != nil {
						s.Errorf("hand-off of layer %d, row %d: %v", l, r, err)
						return
					}
				}
			})
		}
		s.run(s.whole, step)
		wg.Wait()
		got.add(step)
	}
	for at := prompt; at < len(tokens); at++ {
		step := &runtime.Step{Seq: to, Layers: s.all, Start: at, N: 1, Tokens: tokens[at : at+1], LogitRows: []int{0}, KeepHidden: true}
		s.run(s.whole, step)
		got.add(step)
	}
	s.addKV(&got, to, s.all)
	s.same("hand-off", got, ref)
}

func (s *suite) truncate() {
	tokens := s.tokens(5, 270)
	ref := s.reference(tokens)
	seq := s.sequence(s.whole, len(tokens))
	wrong := s.tokens(6, 260)
	s.run(s.whole, &runtime.Step{Seq: seq, Layers: s.all, N: 260, Tokens: slices.Concat(tokens[:10], wrong[10:])})
	seq.Truncate(300)
	if got := seq.Len(0); got != 260 {
		s.Errorf("Truncate beyond the end left %d rows of 260", got)
	}
	seq.Truncate(10)
	var o outcome
	o.hidden, o.logits = ref.hidden[:10*s.cfg.Width:10*s.cfg.Width], ref.logits[:10:10]
	step := &runtime.Step{Seq: seq, Layers: s.all, Start: 10, N: 260, Tokens: tokens[10:], LogitRows: allRows(260), KeepHidden: true}
	s.run(s.whole, step)
	o.add(step)
	s.addKV(&o, seq, s.all)
	s.same("after Truncate", o, ref)
	seq.Truncate(-1)
	if got := seq.Len(s.cfg.Layers - 1); got != 0 {
		s.Errorf("Truncate(-1) left %d rows", got)
	}
}

func (s *suite) badSteps() {
	tail := s.executor(runtime.Range{First: 1, Last: s.cfg.Layers})
	seq, tailSeq := s.sequence(s.whole, 8), s.sequence(tail, 8)
	w, n := s.cfg.Width, s.cfg.Layers
	tok := []int32{1, 2}
	seam := make([]float32, 2*w)
	back := runtime.Range{First: 1, Last: n}
	for what, step := range map[string]*runtime.Step{
		"no sequence":        {Layers: s.all, N: 2, Tokens: tok},
		"no rows":            {Seq: seq, Layers: s.all},
		"negative start":     {Seq: seq, Layers: s.all, Start: -1, N: 2, Tokens: tok},
		"beyond the context": {Seq: seq, Layers: s.all, Start: s.cfg.Context - 1, N: 2, Tokens: tok},
		"start overflows":    {Seq: seq, Layers: s.all, Start: math.MaxInt - 1, N: 2, Tokens: tok},
		"no tokens":          {Seq: seq, Layers: s.all, N: 2},
		"too few tokens":     {Seq: seq, Layers: s.all, N: 3, Tokens: tok},
		"tokens and seam":    {Seq: seq, Layers: s.all, N: 2, Tokens: tok, Seam: seam},
		"seam at layer 0":    {Seq: seq, Layers: s.all, N: 2, Seam: seam},
		"tokens at layer 1":  {Seq: seq, Layers: back, N: 2, Tokens: tok},
		"short seam":         {Seq: seq, Layers: back, N: 2, Seam: seam[1:]},
		"unknown token":      {Seq: seq, Layers: s.all, N: 2, Tokens: []int32{0, int32(s.cfg.Vocab)}},
		"negative token":     {Seq: seq, Layers: s.all, N: 2, Tokens: []int32{0, -1}},
		"layers backwards":   {Seq: seq, Layers: runtime.Range{First: 1, Last: 0}, N: 2, Seam: seam},
		"too many layers":    {Seq: seq, Layers: runtime.Range{First: 0, Last: n + 1}, N: 2, Tokens: tok},
		"negative layer":     {Seq: seq, Layers: runtime.Range{First: -1, Last: n}, N: 2, Seam: seam},
		"no layers inside":   {Seq: seq, Layers: runtime.Range{First: 1, Last: 1}, N: 2, Seam: seam},
		"logits in between":  {Seq: seq, Layers: runtime.Range{First: 0, Last: 1}, N: 2, Tokens: tok, LogitRows: []int{0}},
		"logits of row 2":    {Seq: seq, Layers: s.all, N: 2, Tokens: tok, LogitRows: []int{2}},
		"logits of row −1":   {Seq: seq, Layers: s.all, N: 2, Tokens: tok, LogitRows: []int{-1}},
		"logits twice":       {Seq: seq, Layers: s.all, N: 2, Tokens: tok, LogitRows: []int{1, 1}},
		"foreign sequence":   {Seq: tailSeq, Layers: s.all, N: 2, Tokens: tok},
	} {
		good := &runtime.Step{Seq: s.sequence(s.whole, 4), Layers: s.all, N: 2, Tokens: tok}
		err := s.whole.Run(context.Background(), []*runtime.Step{good, step})
		want[*runtime.StepError](s, what, err)
		var se *runtime.StepError
		if errors.As(err, &se) && se.Step != 1 {
			s.Errorf("%s: blames step %d, want 1", what, se.Step)
		}
		if good.Seq.Len(0) != 0 || seq.Len(0) != 0 {
			s.Errorf("%s: a failed Run left rows", what)
		}
	}
	err := tail.Run(context.Background(), []*runtime.Step{{Seq: tailSeq, Layers: s.all, N: 2, Tokens: tok}})
	want[*runtime.StepError](s, "layers that are not loaded", err)
	same := &runtime.Step{Seq: seq, Layers: s.all, N: 2, Tokens: tok}
	err = s.whole.Run(context.Background(), []*runtime.Step{same, {Seq: seq, Layers: s.all, Start: 2, N: 2, Tokens: tok}})
	want[*runtime.StepError](s, "a sequence twice", err)
	s.run(s.whole, same)
	if err := s.whole.Run(context.Background(), nil); err != nil {
		s.Errorf("Run of nothing: %v", err)
	}
}

func (s *suite) badPositions() {
	seq := s.sequence(s.whole, 8)
	tok := s.tokens(7, 10)
	run := func(start, n int) error {
		return s.whole.Run(context.Background(), []*runtime.Step{{Seq: seq, Layers: s.all, Start: start, N: n, Tokens: tok[:n]}})
	}
	want[*runtime.PositionError](s, "a gap", run(1, 2))
	want[*runtime.FullError](s, "more than reserved", run(0, 9))
	s.run(s.whole, &runtime.Step{Seq: seq, Layers: s.all, N: 3, Tokens: tok[:3]})
	want[*runtime.PositionError](s, "a repetition", run(2, 2))
	want[*runtime.FullError](s, "more than reserved", run(3, 6))
	// Layer 0 is ahead of the others now.
	s.run(s.whole, &runtime.Step{Seq: seq, Layers: runtime.Range{First: 0, Last: 1}, Start: 3, N: 1, Tokens: tok[:1]})
	want[*runtime.PositionError](s, "layers of different length", run(4, 1))
	if a, b := seq.Len(0), seq.Len(1); a != 4 || b != 3 {
		s.Errorf("layers hold %d and %d rows, want 4 and 3", a, b)
	}

	rows, err := seq.ExportKV([]byte{42}, 1, 1, 3)
	if size := seq.RowBytes(1); err != nil || len(rows) != 1+2*size || rows[0] != 42 {
		s.Fatalf("ExportKV appended %d bytes: %v", len(rows)-1, err)
	}
	rows = rows[1:]
	_, err = seq.ExportKV(nil, 1, 2, 4)
	want[*runtime.PositionError](s, "ExportKV beyond the end", err)
	for _, r := range [][2]int{{2, 1}, {-1, 1}} {
		if _, err := seq.ExportKV(nil, 1, r[0], r[1]); err == nil {
			s.Errorf("ExportKV of [%d, %d) succeeded", r[0], r[1])
		}
	}
	for _, first := range []int{-1, 0, 2, 4, math.MaxInt} {
		want[*runtime.PositionError](s, "ImportKV at the wrong place", seq.ImportKV(1, first, rows))
	}
	if err := seq.ImportKV(1, 3, rows[1:]); err == nil {
		s.Error("ImportKV of a broken row succeeded")
	}
	want[*runtime.FullError](s, "ImportKV beyond the reservation", seq.ImportKV(1, 3, slices.Concat(rows, rows, rows)))
	if got := seq.Len(1); got != 3 {
		s.Errorf("failed imports changed the length to %d", got)
	}
	if err := seq.ImportKV(1, 3, nil); err != nil || seq.Len(1) != 3 {
		s.Errorf("ImportKV of nothing: %v", err)
	}
	if err := seq.ImportKV(1, 3, rows); err != nil || seq.Len(1) != 5 {
		s.Errorf("ImportKV of 2 rows at 3: %v, %d rows", err, seq.Len(1))
	}
}

func (s *suite) nonFinite() {
	seq := s.sequence(s.whole, 8)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		seam := make([]float32, 3*s.cfg.Width)
		for i := range seam {
			seam[i] = 1
		}
		seam[len(seam)-1] = bad
		err := s.whole.Run(context.Background(), []*runtime.Step{{Seq: seq, Layers: runtime.Range{First: 1, Last: s.cfg.Layers}, N: 3, Seam: seam}})
		var e *runtime.NonFiniteError
		if !errors.As(err, &e) {
			s.Errorf("seam with %v: error %v", bad, err)
		} else if e.Layer != 1 || e.Pos != 2 || e.Step != 0 {
			s.Errorf("seam with %v: blames %+v, want layer 1, position 2, step 0", bad, *e)
		}
		if seq.Len(1) != 0 {
			s.Fatal("a failed Run left rows")
		}
	}
	size := s.whole.Profile().KV.Size()
	rows := make([]byte, 2*seq.RowBytes(0))
	for i := size - 1; i < len(rows); i += size {
		for _, top := range []byte{0x7f, 0xff} { // all exponent bits set: infinity (f32: with 0x80 below) or NaN
			rows[i], rows[i-1] = top, 0xf0
			err := seq.ImportKV(0, 0, rows)
			var e *runtime.NonFiniteError
			if !errors.As(err, &e) || e.Layer != 0 || e.Pos != i/seq.RowBytes(0) {
				s.Fatalf("ImportKV with a NaN at byte %d: %v", i, err)
			}
		}
		rows[i], rows[i-1] = 0, 0
	}
	if seq.Len(0) != 0 {
		s.Error("a failed import left rows")
	}
}

func (s *suite) cancel() {
	seq := s.sequence(s.whole, 200)
	tok := s.tokens(8, 200)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	step := func() *runtime.Step { return &runtime.Step{Seq: seq, Layers: s.all, N: 200, Tokens: tok} }
	if err := s.whole.Run(ctx, []*runtime.Step{step()}); !errors.Is(err, context.Canceled) {
		s.Errorf("Run with a cancelled context: %v", err)
	}
	// Cancelling at some moment in between: either outcome is right, but nothing in between.
	ctx, cancel = context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.whole.Run(ctx, []*runtime.Step{step()}) }()
	cancel()
	err := <-done
	for l := range s.cfg.Layers {
		if got, full := seq.Len(l), err == nil; full && got != 200 || !full && got != 0 {
			s.Errorf("layer %d holds %d rows after error %v", l, got, err)
		}
	}
	seq.Truncate(0)
	s.run(s.whole, step())
}

func (s *suite) reservations() {
	free := s.whole.FreeKVBytes()
	seq, err := s.whole.NewSequence(300)
	if err != nil {
		s.Fatal(err)
	}
	taken := free - s.whole.FreeKVBytes()
	if least := int64(300 * s.cfg.KVRowBytes(s.whole.Profile().KV) * s.cfg.Layers); taken < least {
		s.Errorf("300 positions reserve %d bytes, at least %d are needed", taken, least)
	}
	seq.Close()
	seq.Close()
	if got := s.whole.FreeKVBytes(); got != free {
		s.Errorf("%d bytes free after Close, %d before", got, free)
	}
	if seq.Len(0) != 0 {
		s.Error("a closed sequence holds rows")
	}
	if err := seq.ImportKV(0, 0, nil); !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("ImportKV into a closed sequence: %v", err)
	}
	if _, err := seq.ExportKV(nil, 0, 0, 0); !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("ExportKV from a closed sequence: %v", err)
	}
	err = s.whole.Run(context.Background(), []*runtime.Step{{Seq: seq, Layers: s.all, N: 1, Tokens: []int32{0}}})
	if !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("Run with a closed sequence: %v", err)
	}
	_, err = s.whole.NewSequence(s.cfg.Context + 1)
	want[*runtime.ContextError](s, "a sequence beyond the context", err)
	for _, n := range []int{0, -1} {
		if _, err := s.whole.NewSequence(n); err == nil {
			s.Errorf("NewSequence(%d) succeeded", n)
		}
	}
	// Take all there is, up to a sane number of sequences.
	var held []runtime.Sequence
	for range 1000 {
		seq, err := s.whole.NewSequence(min(s.cfg.Context, 1<<20))
		if err != nil {
			want[*runtime.CapacityError](s, "more than there is", err)
			break
		}
		held = append(held, seq)
	}
	for _, seq := range held {
		seq.Close()
	}
	if got := s.whole.FreeKVBytes(); got != free {
		s.Errorf("%d bytes free at the end, %d at the start", got, free)
	}
}

func (s *suite) concurrent() {
	const n = 4
	prompts := make([][]int32, n)
	refs := make([]outcome, n)
	for i := range prompts {
		prompts[i] = s.tokens(uint64(20+i), 12)
		refs[i] = s.reference(prompts[i])
	}
	var wg sync.WaitGroup
	for i := range n {
		seq := s.sequence(s.whole, 12)
		wg.Go(func() {
			for at := range prompts[i] {
				step := &runtime.Step{Seq: seq, Layers: s.all, Start: at, N: 1, Tokens: prompts[i][at : at+1], LogitRows: []int{0}}
				if err := s.whole.Run(context.Background(), []*runtime.Step{step}); err != nil {
					s.Errorf("Run: %v", err)
					return
				}
				if !slices.Equal(bits(step.Logits[0]), refs[i].logits[at]) {
					s.Errorf("logits of sequence %d, position %d differ", i, at)
				}
				for l := range s.cfg.Layers { // others may look at rows while Runs go on
					if _, err := seq.ExportKV(nil, l, 0, at+1); err != nil {
						s.Errorf("ExportKV: %v", err)
					}
				}
				seq.Digest(0)
			}
		})
	}
	wg.Wait()
}

func (s *suite) closing() {
	e := s.open(runtime.Range{})
	seq := s.sequence(e, 4)
	for range 2 {
		if err := e.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	}
	if _, err := e.NewSequence(1); !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("NewSequence after Close: %v", err)
	}
	err := e.Run(context.Background(), []*runtime.Step{{Seq: seq, Layers: s.all, N: 1, Tokens: []int32{0}}})
	if !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("Run after Close: %v", err)
	}
	seq.Close()
}
