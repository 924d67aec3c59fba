package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/starling-swarm/starling/runtime"
)

// The parts of TestExecutor about what is refused, cancelled, reserved and shared.

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
		"probe twice":        {Seq: seq, Layers: s.all, N: 2, Tokens: tok, Probe: []int{1, 1}},
		"probe before":       {Seq: seq, Layers: back, N: 2, Seam: seam, Probe: []int{0}},
		"probe behind":       {Seq: seq, Layers: runtime.Range{First: 0, Last: 1}, N: 2, Tokens: tok, Probe: []int{2}},
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
		want[*runtime.PositionError](s, "ImportKV at the wrong place", seq.ImportKV(1, first, 2, rows))
	}
	if err := seq.ImportKV(1, 3, 2, rows[1:]); err == nil {
		s.Error("ImportKV of a broken row succeeded")
	}
	want[*runtime.FullError](s, "ImportKV beyond the reservation", seq.ImportKV(1, 3, 6, slices.Concat(rows, rows, rows)))
	if got := seq.Len(1); got != 3 {
		s.Errorf("failed imports changed the length to %d", got)
	}
	if err := seq.ImportKV(1, 3, 0, nil); err != nil || seq.Len(1) != 3 {
		s.Errorf("ImportKV of nothing: %v", err)
	}
	if err := seq.ImportKV(1, 3, 2, rows); err != nil || seq.Len(1) != 5 {
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
	rows := make([]byte, 2*seq.RowBytes(0))
	size, end := 2, len(rows)
	switch s.whole.Profile().KV {
	case runtime.KVF32:
		size = 4
	case runtime.KVQ8:
		end = min(end, 2) // codes follow a scale
	}
	for i := size - 1; i < end; i += size {
		for _, top := range []byte{0x7f, 0xff} { // all exponent bits set: infinity (f32: with 0x80 below) or NaN
			rows[i], rows[i-1] = top, 0xf0
			err := seq.ImportKV(0, 0, 2, rows)
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
	seq, err := s.whole.NewSequence(300, s.all)
	if err != nil {
		s.Fatal(err)
	}
	taken := free - s.whole.FreeKVBytes()
	least := int64(0)
	for l := range s.cfg.Layers {
		least += int64(300 * s.cfg.KVRowBytes(l, s.whole.Profile().KV))
	}
	if taken < least {
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
	if err := seq.ImportKV(0, 0, 0, make([]byte, seq.TailBytes(0))); !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("ImportKV into a closed sequence: %v", err)
	}
	if _, err := seq.ExportKV(nil, 0, 0, 0); !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("ExportKV from a closed sequence: %v", err)
	}
	err = s.whole.Run(context.Background(), []*runtime.Step{{Seq: seq, Layers: s.all, N: 1, Tokens: []int32{0}}})
	if !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("Run with a closed sequence: %v", err)
	}
	_, err = s.whole.NewSequence(s.cfg.Context+1, s.all)
	want[*runtime.ContextError](s, "a sequence beyond the context", err)
	for _, n := range []int{0, -1} {
		if _, err := s.whole.NewSequence(n, s.all); err == nil {
			s.Errorf("NewSequence(%d) succeeded", n)
		}
	}
	s.someLayers(free, taken)
	// Take all there is, up to a sane number of sequences.
	var held []runtime.Sequence
	for range 1000 {
		seq, err := s.whole.NewSequence(min(s.cfg.Context, 1<<20), s.all)
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

// someLayers checks a sequence of the last layer alone: it costs its part of all (which cost whole bytes of 300
// positions; where layers are alike, an equal part), and has no other layer.
func (s *suite) someLayers(free, whole int64) {
	n := s.cfg.Layers
	last := runtime.Range{First: n - 1, Last: n}
	seq, err := s.whole.NewSequence(300, last)
	if err != nil {
		s.Fatal(err)
	}
	alike := !slices.ContainsFunc(s.cfg.Cache, func(c runtime.LayerCache) bool { return c != s.cfg.Cache[0] })
	if taken := free - s.whole.FreeKVBytes(); alike && taken*int64(n) != whole || taken <= 0 || taken >= whole {
		s.Errorf("300 positions of 1 layer reserve %d bytes, those of %d reserve %d", taken, n, whole)
	}
	seam := make([]float32, 2*s.cfg.Width)
	for i := range seam {
		seam[i] = float32(i%7) - 3
	}
	s.run(s.whole, &runtime.Step{Seq: seq, Layers: last, N: 2, Seam: seam})
	rows, err := seq.ExportKV(nil, n-1, 0, 2)
	if err != nil || seq.Len(n-1) != 2 {
		s.Errorf("the layer holds %d rows: %v", seq.Len(n-1), err)
	}
	if seq.Len(n-2) != 0 || seq.RowBytes(n-2) != 0 {
		s.Error("the sequence has rows of a layer that it wasn't made for")
	}
	want[*runtime.LayerError](s, "ImportKV into a layer without a reservation", seq.ImportKV(n-2, 0, 1, rows))
	_, err = seq.ExportKV(nil, n-2, 0, 0)
	want[*runtime.LayerError](s, "ExportKV from a layer without a reservation", err)
	err = s.whole.Run(context.Background(), []*runtime.Step{{Seq: seq, Layers: s.all, Start: 2, N: 1, Tokens: []int32{0}}})
	want[*runtime.LayerError](s, "Run of a layer without a reservation", err)
	seq.Close()
	empty, err := s.whole.NewSequence(300, runtime.Range{First: n, Last: n})
	if err != nil {
		s.Fatal(err)
	}
	if got := s.whole.FreeKVBytes(); got != free {
		s.Errorf("the head alone reserves %d bytes of KV", free-got)
	}
	s.run(s.whole, &runtime.Step{Seq: empty, Layers: runtime.Range{First: n, Last: n}, N: 2, Seam: seam, LogitRows: []int{1}})
	empty.Close()
	s.unloadedLayers()
	for _, r := range []runtime.Range{{First: -1, Last: 1}, {First: 0, Last: n + 1}, {First: n, Last: n + 1}, {First: 1, Last: 0}, {First: n + 1, Last: n + 1}} {
		_, err := s.whole.NewSequence(1, r)
		want[*runtime.LayerError](s, fmt.Sprintf("a sequence of layers [%d, %d)", r.First, r.Last), err)
	}
}

// badGrowth checks that an executor that cannot grow stays as it is.
func (s *suite) badGrowth() {
	n := s.cfg.Layers
	back := s.executor(runtime.Range{First: 1, Last: n})
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for what, err := range map[string]error{
		"beyond the model": back.Grow(context.Background(), runtime.Range{First: 0, Last: n + 1}),
		"before the model": back.Grow(context.Background(), runtime.Range{First: -1, Last: n}),
		"less":             back.Grow(context.Background(), runtime.Range{First: 2, Last: n}),
		"other layers":     back.Grow(context.Background(), runtime.Range{First: 0, Last: 1}),
	} {
		if err == nil {
			s.Errorf("growing to layers %s succeeded", what)
		}
	}
	if err := back.Grow(cancelled, s.all); !errors.Is(err, context.Canceled) {
		s.Errorf("Grow with a cancelled context: %v", err)
	}
	if got := back.Layers(); got != (runtime.Range{First: 1, Last: n}) {
		s.Errorf("growing that failed left %v", got)
	}
	for range 2 {
		if err := back.Grow(context.Background(), s.all); err != nil || back.Layers() != s.all {
			s.Errorf("growing afterwards: %v, there is %v", err, back.Layers())
		}
	}
}

// unloadedLayers checks that an executor keeps rows of layers that it cannot compute.
func (s *suite) unloadedLayers() {
	tokens := s.tokens(9, 5)
	front := s.executor(runtime.Range{First: 0, Last: 1})
	made := s.sequence(front, 5)
	s.run(front, &runtime.Step{Seq: made, Layers: front.Layers(), N: 5, Tokens: tokens})
	rows, err := made.ExportKV(nil, 0, 0, 5)
	if err != nil {
		s.Fatal(err)
	}
	back := s.executor(runtime.Range{First: 1, Last: s.cfg.Layers})
	seq, err := back.NewSequence(5, s.all)
	if err != nil {
		s.Fatalf("NewSequence of layers that are not loaded: %v", err)
	}
	defer seq.Close()
	if err := seq.ImportKV(0, 0, 5, rows); err != nil || seq.Digest(0) != made.Digest(0) {
		s.Errorf("rows of a layer that is not loaded: %v, digests %x and %x", err, seq.Digest(0), made.Digest(0))
	}
	err = back.Run(context.Background(), []*runtime.Step{{Seq: seq, Layers: s.all, N: 1, Tokens: tokens[:1]}})
	want[*runtime.StepError](s, "Run of a layer that is not loaded", err)
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
	if _, err := e.NewSequence(1, s.all); !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("NewSequence after Close: %v", err)
	}
	if err := e.Grow(context.Background(), s.all); !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("Grow after Close: %v", err)
	}
	err := e.Run(context.Background(), []*runtime.Step{{Seq: seq, Layers: s.all, N: 1, Tokens: []int32{0}}})
	if !errors.Is(err, runtime.ErrClosed) {
		s.Errorf("Run after Close: %v", err)
	}
	seq.Close()
}
