package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/starling-swarm/starling/runtime"
)

// The parts of TestExecutor that compare results.

func (s *suite) description() {
	e := s.executor(runtime.Range{First: 1, Last: 2})
	if got := e.Layers(); got != (runtime.Range{First: 1, Last: 2}) {
		s.Errorf("Layers() of [1, 2) is %v", got)
	}
	if got := s.whole.Layers(); got != s.all {
		s.Errorf("Layers() of the zero range is %v, want %v", got, s.all)
	}
	if e.Profile().ID() != s.whole.Profile().ID() {
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
	if got, want := seq.RowBytes(1), s.cfg.KVRowBytes(1, e.Profile().KV); got != want {
		s.Errorf("RowBytes is %d, want %d", got, want)
	}
	if seq.RowBytes(0) != 0 || seq.Len(0) != 0 || seq.Len(-1) != 0 {
		s.Error("a layer outside the range has rows")
	}
	_, err := seq.ExportKV(nil, 0, 0, 0)
	want[*runtime.LayerError](s, "ExportKV of layer 0 of [1, 2)", err)
	want[*runtime.LayerError](s, "ImportKV of layer 2 of [1, 2)", seq.ImportKV(2, 0, 0, nil))
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

// probes asks for the residual stream at every boundary, in steps that run together, and compares it with seams: what a cut there
// gives.
func (s *suite) probes() {
	tokens := s.tokens(7, 20)
	want := make([][]float32, s.cfg.Layers+1)
	for l := range want[1:] {
		cut := s.sequence(s.whole, len(tokens))
		front := &runtime.Step{Seq: cut, Layers: runtime.Range{First: 0, Last: l + 1}, N: len(tokens), Tokens: tokens, KeepHidden: true}
		s.run(s.whole, front)
		want[l+1] = front.Out
	}
	var all []int
	for l := range want {
		all = append(all, l)
	}
	last := s.executor(runtime.Range{First: s.cfg.Layers, Last: s.cfg.Layers})
	whole := &runtime.Step{Seq: s.sequence(s.whole, len(tokens)), Layers: s.all, N: 9, Tokens: tokens[:9], Probe: all}
	none := &runtime.Step{Seq: s.sequence(s.whole, len(tokens)), Layers: s.all, N: 4, Tokens: tokens[:4], LogitRows: []int{3}}
	part := &runtime.Step{Seq: s.sequence(s.whole, len(tokens)), Layers: runtime.Range{First: 1, Last: s.cfg.Layers}, N: len(tokens), Seam: want[1], Probe: all[1:2]}
	s.run(s.whole, whole, none, part)
	if len(none.Probed) != 0 || len(part.Probed) != 1 || !slices.Equal(bits(part.Probed[0]), bits(want[1])) {
		s.Errorf("a probe of boundary 1 of layers from 1 on is not what went in")
	}
	for l := range want {
		n := 9 * s.cfg.Width
		if l == 0 { // the embedding is what a first layer alone begins with
			want[0] = slices.Clone(whole.Probed[0])
			continue
		}
		if !slices.Equal(bits(whole.Probed[l]), bits(want[l][:n])) {
			s.Errorf("boundary %d differs from a seam there", l)
		}
	}
	whole.Start, whole.N, whole.Tokens, whole.Probe = 9, 11, tokens[9:], []int{0, s.cfg.Layers} // the same memory again
	s.run(s.whole, whole)
	if len(whole.Probed) != 2 || !slices.Equal(bits(whole.Probed[1]), bits(want[s.cfg.Layers][9*s.cfg.Width:])) {
		s.Errorf("the last boundary of later positions differs")
	}
	first := s.sequence(s.whole, len(tokens))
	front := &runtime.Step{Seq: first, Layers: runtime.Range{First: 0, Last: 1}, N: 9, Tokens: tokens[:9], Probe: []int{0, 1}}
	s.run(s.whole, front)
	if !slices.Equal(bits(front.Probed[0]), bits(want[0])) || !slices.Equal(bits(front.Probed[1]), bits(front.Out)) {
		s.Errorf("probes of the first layer alone differ")
	}
	head := &runtime.Step{Seq: s.sequence(last, 20), Layers: last.Layers(), N: 20, Seam: want[s.cfg.Layers], Probe: []int{s.cfg.Layers}}
	s.run(last, head)
	if !slices.Equal(bits(head.Probed[0]), bits(want[s.cfg.Layers])) {
		s.Errorf("a probe before the head alone is not what went in")
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
			wg.Go(func() { // a few rows at a time, where neither a tail goes with them nor a window limits them
				piece := 33
				if s.cfg.Cache[l].State > 0 || s.cfg.Cache[l].Window > 0 {
					piece = n
				}
				for r := at; r < at+n; r += piece {
					end := min(r+piece, at+n)
					rows, err := from.ExportKV(nil, l, r, end)
					if err == nil {
						err = to.ImportKV(l, r, end-r, rows)
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

// grow lets an executor that has the last layers only, and the rows of all, load the others while it runs.
func (s *suite) grow() {
	tokens := s.tokens(4, 262)
	const prompt, switched = 250, 256
	ref := s.reference(tokens)
	for _, cut := range []int{1, s.cfg.Layers - 1, s.cfg.Layers} {
		front, back := runtime.Range{First: 0, Last: cut}, runtime.Range{First: cut, Last: s.cfg.Layers}
		stage, decoder := s.executor(front), s.executor(back)
		from := s.sequence(stage, len(tokens))
		to, err := decoder.NewSequence(len(tokens), s.all)
		if err != nil {
			s.Fatal(err)
		}
		defer to.Close()
		var got outcome
		grown := make(chan error, 1)
		for at := 0; at < switched; {
			n := 1
			if at < prompt {
				n = 50
			} else if at == prompt {
				go func() { grown <- decoder.Grow(context.Background(), s.all) }()
			}
			first := &runtime.Step{Seq: from, Layers: front, Start: at, N: n, Tokens: tokens[at : at+n], KeepHidden: true}
			s.run(stage, first)
			for l := range cut {
				rows, err := from.ExportKV(nil, l, at, at+n)
				if err == nil {
					err = to.ImportKV(l, at, n, rows)
				}
				if err != nil {
					s.Fatal(err)
				}
			}
			step := &runtime.Step{Seq: to, Layers: back, Start: at, N: n, Seam: first.Out, LogitRows: allRows(n), KeepHidden: true}
			s.run(decoder, step)
			got.add(step)
			at += n
		}
		if err := <-grown; err != nil || decoder.Layers() != s.all {
			s.Fatalf("growing from %v: %v, there is %v", back, err, decoder.Layers())
		}
		for at := switched; at < len(tokens); at++ {
			step := &runtime.Step{Seq: to, Layers: s.all, Start: at, N: 1, Tokens: tokens[at : at+1], LogitRows: []int{0}, KeepHidden: true}
			s.run(decoder, step)
			got.add(step)
		}
		s.addKV(&got, to, s.all)
		s.same(fmt.Sprintf("grown from %v", back), got, ref)
	}
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
	reach := seq.Reach(10)
	at := seq.Truncate(10)
	if at != reach {
		s.Errorf("Truncate(10) went to %d, Reach said %d", at, reach)
	}
	if held := seq.Len(0); at > 10 || held != at {
		s.Fatalf("Truncate(10) went to %d and left %d rows", at, held)
	}
	for l := range s.cfg.Layers {
		if s.cfg.Cache[l].State == 0 && s.cfg.Cache[l].Window == 0 {
			continue
		}
		if at != 0 {
			s.Errorf("Truncate(10) of 260 positions at once went to %d, where layer %d keeps no tail", at, l)
		}
		break
	}
	var o outcome
	o.hidden, o.logits = ref.hidden[:at*s.cfg.Width:at*s.cfg.Width], ref.logits[:at:at]
	step := &runtime.Step{Seq: seq, Layers: s.all, Start: at, N: 270 - at, Tokens: tokens[at:], LogitRows: allRows(270 - at), KeepHidden: true}
	s.run(s.whole, step)
	o.add(step)
	s.addKV(&o, seq, s.all)
	s.same("after Truncate", o, ref)
	seq.Truncate(-1)
	if got := seq.Len(s.cfg.Layers - 1); got != 0 {
		s.Errorf("Truncate(-1) left %d rows", got)
	}
}

// fork lets two sequences go on differently from a common beginning, closes them in both orders, and forks a fork.
func (s *suite) fork() {
	tokens, other := s.tokens(7, 270), s.tokens(8, 270)
	free := s.whole.FreeKVBytes()
	read := func(seq runtime.Sequence, tokens []int32, last int) (o outcome) {
		s.Helper()
		if at := seq.Len(0); at < last {
			step := &runtime.Step{Seq: seq, Layers: s.all, Start: at, N: last - at, Tokens: tokens[at:last], LogitRows: allRows(last - at), KeepHidden: true}
			s.run(s.whole, step)
			o.add(step)
		}
		s.addKV(&o, seq, s.all)
		return o
	}
	for i, at := range []int{0, 1, 255, 256, 257, 262} {
		parent, err := s.whole.NewSequence(262, s.all)
		if err != nil {
			s.Fatal(err)
		}
		read(parent, tokens, at)
		read(parent, tokens, 262)
		mixed := append(slices.Clone(tokens[:at]), other[at:]...)
		child, err := parent.Fork(at, 270)
		if err != nil {
			s.Fatalf("Fork(%d): %v", at, err)
		}
		if n := child.Len(0); n != at || child.Capacity() != 270 {
			s.Fatalf("Fork(%d, 270) of %d positions holds %d, capacity %d", at, parent.Len(0), n, child.Capacity())
		}
		want, err := s.whole.NewSequence(270, s.all)
		if err != nil {
			s.Fatal(err)
		}
		read(want, mixed, at)
		expected := read(want, mixed, 266)
		want.Close()
		held := read(parent, tokens, 262)
		if i%2 == 0 {
			parent.Close()
		}
		s.same("a fork", read(child, mixed, 266), expected)
		second, err := child.Fork(266, 266)
		if err != nil {
			s.Fatalf("Fork of a fork: %v", err)
		}
		child.Truncate(0)
		child.Close()
		var kept, now outcome
		s.addKV(&kept, second, s.all)
		now.kv, now.rows = expected.kv, expected.rows
		s.same("a fork's fork", kept, now)
		if i%2 == 1 {
			s.same("what was forked", read(parent, tokens, 262), held)
			parent.Close()
		}
		second.Close()
		if now := s.whole.FreeKVBytes(); now != free {
			s.Fatalf("%d bytes free after all have ended, before there were %d", now, free)
		}
	}
	seq := s.sequence(s.whole, 10)
	_, err := seq.Fork(0, s.cfg.Context+1)
	want[*runtime.ContextError](s, "Fork beyond the context", err)
	read(seq, tokens, 10)
	_, err = seq.Fork(10, 9)
	want[*runtime.FullError](s, "Fork of more than fits", err)
	seq.Close()
	if _, err := seq.Fork(0, 10); !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("Fork of a closed sequence: %v", err)
	}
}
