package route

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// small is a model of four equal layers and two peers: near holds everything, far the first three layers.
func small() (Model, []Peer) {
	m := Model{Layers: 4, HeadBytes: 1e8, EmbedBytes: 1e8, HeadFlops: 2e8, SeamBytes: 8192, Cuts: []int{1, 2, 3}, Context: 1000}
	for range m.Layers {
		m.LayerWeightBytes = append(m.LayerWeightBytes, 1e8)
		m.LayerFlops = append(m.LayerFlops, 1e9)
		m.KVBytesPerToken = append(m.KVBytesPerToken, 1000)
	}
	return m, []Peer{
		{ID: "near", Holds: Range{0, 4}, Head: true, Embed: true, PrefillFlops: 1e11, DecodeBytesPerSec: 1e10, KVFreeBytes: 1e9, Up: 1e8, Down: 1e8},
		{ID: "far", Holds: Range{0, 3}, Embed: true, PrefillFlops: 1e11, DecodeBytesPerSec: 1e10, KVFreeBytes: 1e9, Up: 1e8, Down: 1e8},
	}
}

func TestValidate(t *testing.T) {
	m, ps := small()
	good := func() Plan {
		p, err := Make(m, ps, nil, Request{PromptTokens: 500, NewTokens: 10, Shape: Across})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := good().Validate(m, ps); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Plan, []Peer){
		"gap":                  func(p *Plan, _ []Peer) { p.Stages[0].Layers.First = 1 },
		"empty stage":          func(p *Plan, _ []Peer) { p.Stages[0].Layers.Last = 0 },
		"overlap":              func(p *Plan, _ []Peer) { p.DecoderLayers.First-- },
		"layers left":          func(p *Plan, _ []Peer) { p.DecoderLayers.Last-- },
		"beyond what it holds": func(p *Plan, _ []Peer) { p.Stages[0].Layers.Last, p.DecoderLayers.First = 4, 4 },
		"stranger":             func(p *Plan, _ []Peer) { p.Stages[0].Peer = "who" },
		"unknown decoder":      func(p *Plan, _ []Peer) { p.Decoder = "" },
		"decoder without head": func(p *Plan, _ []Peer) { p.Decoder, p.Stages[0].Peer = "far", "near" },
		"peer used twice":      func(p *Plan, _ []Peer) { p.Stages[0].Peer = "near" },
		"wrong shape":          func(p *Plan, _ []Peer) { p.Shape = Local },
		"no shape":             func(p *Plan, _ []Peer) { p.Shape = Any },
		"cache left behind":    func(p *Plan, _ []Peer) { p.KVToDecoder = false },
		"chunk of nothing":     func(p *Plan, _ []Peer) { p.Chunk = 0 },
		"chunk beyond prompt":  func(p *Plan, _ []Peer) { p.Chunk = 501 },
		"last chunk of none":   func(p *Plan, _ []Peer) { p.LastChunk = 0 },
		"last chunk too large": func(p *Plan, _ []Peer) { p.LastChunk = p.Chunk + 1 },
		"no prompt":            func(p *Plan, _ []Peer) { p.PromptTokens = 0 },
		"endless answer":       func(p *Plan, _ []Peer) { p.NewTokens = math.MaxInt },
		"cache full":           func(_ *Plan, ps []Peer) { ps[0].KVFreeBytes = 500 },
		"stage's cache full":   func(_ *Plan, ps []Peer) { ps[1].KVFreeBytes = 500 },
		"no embedding":         func(_ *Plan, ps []Peer) { ps[1].Embed = false },
		"won't decode":         func(_ *Plan, ps []Peer) { ps[0].NoDecode = true },
		"context too short":    func(_ *Plan, ps []Peer) { ps[1].Context = 509 },
	} {
		p, peers := good(), append([]Peer{}, ps...)
		change(&p, peers)
		if err := p.Validate(m, peers); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := good()
	coarse := m
	coarse.Cuts = nil
	if err := p.Validate(coarse, ps); !errors.Is(err, ErrInvalid) {
		t.Errorf("an illegal cut: %v", err)
	}
	if err := p.Validate(Model{Layers: 4}, ps); !errors.Is(err, ErrModel) {
		t.Errorf("a model without sizes: %v", err)
	}
}

// The figures of a plan small enough to do by hand.
func TestPredictByHand(t *testing.T) {
	m, ps := small()
	links := []Link{{From: "near", To: "far", RTT: 0.020}}
	p := Plan{
		Shape: Across, PromptTokens: 400, NewTokens: 11, Chunk: 100, LastChunk: 4, KVToDecoder: true,
		Stages: []Stage{{"far", Range{0, 2}}}, Decoder: "near", DecoderLayers: Range{2, 4},
	}
	got, err := p.Predict(m, ps, links)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		// 200 MB of weights at 10 GB/s, 100 tokens · 2 layers · 1 GFLOP at 100 GFLOP/s and 1 ms, twice; the decoder reads what comes, 100 tokens'
		// seam and rows, 16 times; half a round trip each way; 819,200 bytes of seam at 100 MB/s
		{"fill", got.FillSeconds, 2*(0.02+2+0.001) + 16*100*(8192+2000)/1e10 + 2*0.010 + 0.008192},
		{"period", got.PeriodSeconds, 2.021 + 0.00163072},
		{"prefill", got.PrefillSeconds, got.FillSeconds + 3*2.02263072},
		// 100 tokens · 2 layers · 1000 bytes at 100 MB/s
		{"tail", got.KVTailSeconds, 0.002},
		// 200 MFLOP at 100 GFLOP/s is less than 100 MB at 10 GB/s
		{"head", got.HeadSeconds, 0.010},
		// 400 MB of layers and 100 MB of head, 4 kB of cache for 405.5 positions, at 10 GB/s, and 1 ms
		{"token", got.TokenSeconds, 0.050 + 4000*405.5/1e10 + 0.001},
		{"total", got.TotalSeconds, got.FirstTokenSeconds + 10*got.TokenSeconds},
		{"seam bytes", float64(got.SeamBytes), 400 * 8192},
		{"KV bytes", float64(got.KVBytes), 400 * 2000},
	} {
		if math.Abs(c.got-c.want) > 1e-9*c.want {
			t.Errorf("%s is %g, by hand %g", c.name, c.got, c.want)
		}
	}
	p.Shape = Pipelined
	got, err = p.Predict(m, ps, links)
	if err != nil {
		t.Fatal(err)
	}
	// Half the layers each, both ways, one seam, and the head.
	want := 0.010 + (0.020 + 2000*405.5/1e10 + 0.001 + 0.010 + 8192/1e8) + (0.030 + 2000*405.5/1e10 + 0.001)
	if math.Abs(got.TokenSeconds-want) > 1e-9 {
		t.Errorf("pipelined token is %g, by hand %g", got.TokenSeconds, want)
	}
	if got.SeamBytes != 410*8192 || got.KVBytes != 410*2000 {
		t.Errorf("pipelined: %d bytes of seams, %d of KV", got.SeamBytes, got.KVBytes)
	}
}

func TestErrorsCarryTheNumbers(t *testing.T) {
	m, ps := small()
	_, err := Make(m, ps, nil, Request{PromptTokens: 900, NewTokens: 200})
	var long *ContextError
	if !errors.As(err, &long) || *long != (ContextError{Need: 1100, Context: 1000}) || !errors.Is(err, ErrContext) {
		t.Errorf("context: %#v", err)
	}
	ps[0].Holds = Range{0, 1}
	_, err = Make(m, ps, nil, Request{PromptTokens: 10, NewTokens: 20})
	var none *NoRouteError
	if !errors.As(err, &none) || !reflect.DeepEqual(none.Uncovered, []Range{{3, 4}}) || len(none.Reasons) != 2 {
		t.Errorf("no route: %v", err)
	}
	for name, bad := range map[string]func(*Model){
		"no layers":        func(m *Model) { m.Layers = 0 },
		"too many layers":  func(m *Model) { m.Layers = 1 << 40 },
		"missing sizes":    func(m *Model) { m.LayerFlops = m.LayerFlops[:3] },
		"negative weights": func(m *Model) { m.LayerWeightBytes[0] = -1 },
		"fat cache":        func(m *Model) { m.KVBytesPerToken[0], m.KVBytesPerToken[1] = 1<<27, 1<<28 },
		"NaN":              func(m *Model) { m.LayerFlops[0] = math.NaN() },
		"cuts out of line": func(m *Model) { m.Cuts = []int{2, 2} },
		"cut at the end":   func(m *Model) { m.Cuts = []int{4} },
	} {
		m, ps := small()
		bad(&m)
		if _, err := Make(m, ps, nil, Request{PromptTokens: 1}); !errors.Is(err, ErrModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A name can't draw on the terminal of whoever reads the plan.
func TestNamesAreHarmless(t *testing.T) {
	m, ps := small()
	evil := "x\x1b[2J\nroot"
	ps = append(ps, Peer{ID: evil, Holds: Range{0, 4}, Head: true, Embed: true, PrefillFlops: 1e15, DecodeBytesPerSec: 1e15, KVFreeBytes: 1e9})
	p, err := Make(m, ps, nil, Request{PromptTokens: 100, NewTokens: 1, Reasons: true})
	if err != nil {
		t.Fatal(err)
	}
	if text := p.Explain(); strings.Contains(text, "\x1b") || strings.Contains(text, "\nroot") || !strings.Contains(text, `"x\x1b[2J\nroot"`) {
		t.Errorf("the plan prints %q", text)
	}
}

func TestJSON(t *testing.T) {
	m, ps := small()
	p, err := Make(m, ps, nil, Request{PromptTokens: 500, NewTokens: 10})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Plan
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, p) {
		t.Errorf("%s came back as %+v (%v)", b, back, err)
	}
	if !strings.Contains(string(b), `"shape":"across"`) {
		t.Errorf("no shape by name in %s", b)
	}
}

func TestWords(t *testing.T) {
	for r, want := range map[Range]string{{0, 10}: "layers 0–9 (10)", {5, 6}: "layer 5 (1)", {3, 3}: "no layers"} {
		if got := r.String(); got != want {
			t.Errorf("%v is %q", [2]int{r.First, r.Last}, got)
		}
	}
	for s, want := range map[float64]string{0: "0", 1.5e-5: "15 µs", 0.0123: "12.3 ms", 1.234: "1.23 s", 99.9: "99.9 s", 150: "2m30s", 4000: "1h06m", 1e12: "1e+12 s"} {
		if got := secondsText(s); got != want {
			t.Errorf("%g s is %q, not %q", s, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0 B", 999: "999 B", 999.9: "1 kB", 1e6: "1 MB", 5.4e9: "5.4 GB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%g bytes is %q, not %q", n, got, want)
		}
	}
	for _, s := range []Shape{Any, Local, Across, Pipelined} {
		if back, err := ParseShape(s.String()); err != nil || back != s {
			t.Errorf("%v parses as %v (%v)", s, back, err)
		}
	}
	if _, err := ParseShape("sideways"); err == nil {
		t.Error("a shape called sideways")
	}
}

func TestLeaveKV(t *testing.T) {
	m := Model{Layers: 2, LayerWeightBytes: []int64{1e6, 1e6}, LayerFlops: []float64{1e6, 1e6}, KVBytesPerToken: []int64{100, 100}, SeamBytes: 100, Cuts: []int{1}}
	peers := []Peer{
		{ID: "a", Holds: Range{0, 1}, Embed: true, KVFreeBytes: 1 << 20},
		{ID: "b", Holds: Range{1, 2}, Head: true, KVFreeBytes: 1 << 20},
	}
	for _, leave := range []bool{false, true} {
		p, err := Make(m, peers, nil, Request{PromptTokens: 10, NewTokens: 2, LeaveKV: leave})
		if err != nil {
			t.Fatal(err)
		}
		if p.Shape != Pipelined || p.KVToDecoder == leave {
			t.Errorf("leave %v: plan %v sends cache rows to the decoder: %v", leave, p, p.KVToDecoder)
		}
	}
}

// TestTailsOnTheWay has stages leave with the decoder what they keep beside rows where it is little, or seldom goes.
func TestTailsOnTheWay(t *testing.T) {
	m := Model{Layers: 2, LayerWeightBytes: []int64{1e6, 1e6}, LayerFlops: []float64{1e6, 1e6}, KVBytesPerToken: []int64{0, 100}, SeamBytes: 100, Cuts: []int{1}}
	peers := []Peer{
		{ID: "a", Holds: Range{0, 1}, Embed: true, KVFreeBytes: 1 << 30},
		{ID: "b", Holds: Range{1, 2}, Head: true, KVFreeBytes: 1 << 30},
	}
	for _, c := range []struct {
		tail  int64
		every int
		push  bool
	}{{1e3, 1, true}, {1e6, 1, false}, {1e6, 256, true}, {1e8, 256, false}} {
		m.TailBytes, m.TailEvery, m.HeldTails = []int64{c.tail, 0}, c.every, 3
		p, err := Make(m, peers, nil, Request{PromptTokens: 10, NewTokens: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if p.Shape != Pipelined || p.KVToDecoder != c.push {
			t.Errorf("%d bytes every %d tokens: plan %v sends the cache to the decoder: %v (%+v)", c.tail, c.every, p, p.KVToDecoder, p.Predicted)
		}
	}
	m.TailEvery = -1
	if _, err := Make(m, peers, nil, Request{PromptTokens: 10, NewTokens: 2}); !errors.Is(err, ErrModel) {
		t.Errorf("tails every -1 tokens: %v", err)
	}
}

// TestWindowsCount has a peer whose cache memory is enough because one layer keeps 30 of 100 tokens only.
func TestWindowsCount(t *testing.T) {
	m := Model{Layers: 2, LayerWeightBytes: []int64{1e6, 1e6}, LayerFlops: []float64{1e6, 1e6}, KVBytesPerToken: []int64{100, 100}, KVPositions: []int64{30, 0}, SeamBytes: 100, Cuts: []int{1}}
	p := Peer{ID: "a", Holds: Range{0, 2}, Embed: true, Head: true, PrefillFlops: 1e10, DecodeBytesPerSec: 1e9}
	for free, want := range map[int64]bool{100*100 + 30*100: true, 100*100 + 30*100 - 1: false} {
		p.KVFreeBytes = free
		if _, err := Make(m, []Peer{p}, nil, Request{PromptTokens: 60, NewTokens: 40}); (err == nil) != want {
			t.Errorf("%d bytes free: %v", free, err)
		}
	}
	for _, bad := range [][]int64{{30}, {30, -1}} {
		m.KVPositions = bad
		if _, err := Make(m, []Peer{p}, nil, Request{PromptTokens: 60, NewTokens: 40}); !errors.Is(err, ErrModel) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestTailsCount has a peer whose cache memory is enough for the tokens of all layers, but not for their tails too.
func TestTailsCount(t *testing.T) {
	m := Model{Layers: 2, LayerWeightBytes: []int64{1e6, 1e6}, LayerFlops: []float64{1e6, 1e6}, KVBytesPerToken: []int64{0, 100}, TailBytes: []int64{5000, 0}, HeldTails: 2, SeamBytes: 100, Cuts: []int{1}}
	p := Peer{ID: "a", Holds: Range{0, 2}, Embed: true, Head: true, PrefillFlops: 1e10, DecodeBytesPerSec: 1e9}
	for free, want := range map[int64]bool{100*100 + 2*5000: true, 100*100 + 2*5000 - 1: false} {
		p.KVFreeBytes = free
		if _, err := Make(m, []Peer{p}, nil, Request{PromptTokens: 60, NewTokens: 40}); (err == nil) != want {
			t.Errorf("%d bytes free: %v", free, err)
		}
	}
	m.TailBytes = m.TailBytes[:1]
	if _, err := Make(m, []Peer{p}, nil, Request{PromptTokens: 60, NewTokens: 40}); !errors.Is(err, ErrModel) {
		t.Errorf("one tail for two layers: %v", err)
	}
}
