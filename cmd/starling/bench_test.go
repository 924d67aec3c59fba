package main

import (
	"math"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/runtime"
)

func TestBenchNames(t *testing.T) {
	c := benchCmd{Prompt: []int{0, 512}, New: []int{128}, Depth: []int{0, 2048}, Batch: []int{1, 4}, Repeat: 1}
	tests, err := c.tests()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pp512", "pp512@d2048", "tg128", "tg128xB4", "tg128@d2048", "tg128xB4@d2048"}
	if len(tests) != len(want) {
		t.Fatalf("%d tests, want %d", len(tests), len(want))
	}
	for i, w := range want {
		if got := tests[i].String(); got != w {
			t.Errorf("test %d is %s, want %s", i, got, w)
		}
	}
	if n := tests[5].tokens(); n != 512 {
		t.Errorf("%v counts %d tokens, want 4×128", tests[5], n)
	}
}

func TestBenchResult(t *testing.T) {
	for _, c := range []struct {
		samples        []float64
		tps, dev, mean float64
	}{
		{[]float64{7}, 7, 0, 7},
		{[]float64{4, 1}, 2.5, math.Sqrt(4.5), 2.5},
		{[]float64{9, 1, 2}, 2, math.Sqrt(19), 4},
	} {
		r := newResult(benchTest{New: 1, Batch: 1}, c.samples)
		if r.TPS != c.tps || math.Abs(r.StdDev-c.dev) > 1e-12 || math.Abs(r.Mean-c.mean) > 1e-12 {
			t.Errorf("%v: median %v ± %v, mean %v; want %v ± %v, %v", c.samples, r.TPS, r.StdDev, r.Mean, c.tps, c.dev, c.mean)
		}
	}
}

// twoLayers are two layers' caches, of 8 bytes a position each.
var twoLayers = []runtime.LayerCache{{Heads: 1, Key: 2, Value: 2}, {Heads: 1, Key: 2, Value: 2}}

// TestBenchWindows counts the bytes of a layer that sees all and of one that sees the last 3.
func TestBenchWindows(t *testing.T) {
	cfg := runtime.Config{Layers: 2, Cache: twoLayers}
	if n := kvBytes(&cfg, 5); n != 80 {
		t.Errorf("%d bytes without windows, want 2·5·8", n)
	}
	cfg.Cache = slices.Clone(twoLayers)
	cfg.Cache[1].Window = 3
	for n, want := range map[int]int64{1: 16, 3: 48, 5: 64} {
		if got := kvBytes(&cfg, n); got != want {
			t.Errorf("%d bytes for the last of %d, want %d", got, n, want)
		}
	}
}

// TestBenchModel counts a table that the head shares once, and one that it does not share for no pass.
func TestBenchModel(t *testing.T) {
	cfg := runtime.Config{LayerBytes: []int64{100, 100}, EmbedBytes: 30, HeadBytes: 50}
	if m := newBenchModel("a/b.gguf", &cfg); m.File != "b.gguf" || m.Bytes != 280 || m.Pass != 250 {
		t.Errorf("%+v", m)
	}
	cfg.Tied = true
	if m := newBenchModel("b.gguf", &cfg); m.Bytes != 250 || m.Pass != 250 {
		t.Errorf("tied: %+v", m)
	}
}

// TestBenchLimit works out limits of a made-up model by hand: 2 layers, 100 bytes and 1000 operations each, a head of 50
// bytes and 400 operations, KV rows of 2·1·2·2 = 8 bytes.
func TestBenchLimit(t *testing.T) {
	cfg := runtime.Config{Layers: 2, LayerBytes: []int64{100, 100}, HeadBytes: 50, Cache: twoLayers}
	layers, head := runtime.Ops{Int8: 2000}, runtime.Ops{F32: 400}
	for _, c := range []struct {
		test  benchTest
		s     benchSpeeds
		limit float64
		bound string
	}{
		// One pass: 250 bytes. 8 rows: 16,000 operations, and the head once: 400.
		{benchTest{Prompt: 8, Batch: 1}, benchSpeeds{Read: 250, Int8: 16000, F32: 100}, 8.0 / 5, "f32"},
		{benchTest{Prompt: 8, Batch: 1}, benchSpeeds{Read: 250, Int8: 8000, F32: 800}, 8 / 2.5, "int8"},
		{benchTest{Prompt: 8, Batch: 1}, benchSpeeds{Read: 10, Int8: 16000, F32: 400}, 8.0 / 25, "memory"},
		// Two passes of three streams from depth 4 on: 500 bytes of weights, (5+6)·2·3 rows of KV.
		{benchTest{New: 2, Depth: 4, Batch: 3}, benchSpeeds{Read: 1028, Int8: 1e9, F32: 1e9}, 6, "memory"},
		// … and 6·2,000 operations in layers, 6·400 in the head.
		{benchTest{New: 2, Depth: 4, Batch: 3}, benchSpeeds{Read: 1e9, Int8: 12000, F32: 2400}, 3, "int8"},
	} {
		r := newResult(c.test, []float64{c.limit / 2})
		r.limit(&cfg, layers, head, c.s)
		if math.Abs(r.Limit-c.limit) > 1e-12 || math.Abs(r.Fraction-0.5) > 1e-12 || r.Bound != c.bound {
			t.Errorf("%v at %+v: limit %v (%s), fraction %v; want %v (%s), 0.5", c.test, c.s, r.Limit, r.Bound, r.Fraction, c.limit, c.bound)
		}
	}
}
