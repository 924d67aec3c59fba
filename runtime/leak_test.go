package runtime_test

import (
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// TestCloseJoins checks that a model's threads end with it, packed or not, and wherever it fails to open.
func TestCloseJoins(t *testing.T) {
	damaged := tiny(t, runtimetest.TinyModel{Type: kernels.Q4_1})
	overwrite(t, damaged, "blk.2.ffn_up.weight", []byte{0, 0x7c})
	few := func(w *gguf.Writer) {
		w.AddTensor("token_embd.weight", gguf.Type(kernels.F32), []uint64{64, 100}, make([]byte, 4*64*100))
	}
	paths := map[string]string{
		"good":             tiny(t, runtimetest.TinyModel{Type: kernels.Q4_1}),
		"damaged":          damaged,
		"missing tensor":   tiny(t, runtimetest.TinyModel{Type: kernels.Q4_1, Drop: "blk.1.ffn_up.weight"}),
		"bad tokenizer":    tiny(t, runtimetest.TinyModel{Type: kernels.Q4_1, Meta: meta("tokenizer.ggml.model", "bert")}),
		"too many tokens":  tiny(t, runtimetest.TinyModel{Type: kernels.Q4_1, Tied: true, Drop: "token_embd.weight", Extra: few}),
		"bad rope factors": tiny(t, runtimetest.TinyModel{Type: kernels.Q4_1, Extra: zeroFactors}),
	}
	before := goruntime.NumGoroutine()
	for _, c := range []struct {
		name string
		pack runtime.Packing
		want string // part of the error, or nothing
	}{
		{"good", runtime.PackOff, ""},
		{"good", runtime.PackOn, ""},
		{"damaged", runtime.PackOff, ""}, // found by the first product
		{"damaged", runtime.PackOn, "blk.2.ffn_up.weight"},
		{"missing tensor", runtime.PackOff, "blk.1.ffn_up.weight"},
		{"bad tokenizer", runtime.PackOff, "bert"},
		{"bad tokenizer", runtime.PackOn, "bert"},
		{"too many tokens", runtime.PackOff, "has 259 entries"},
		{"too many tokens", runtime.PackOn, "has 259 entries"},
		{"bad rope factors", runtime.PackOn, "factor 0"},
	} {
		m, err := runtime.Open(runtime.Options{Path: paths[c.name], Threads: 3, Pack: c.pack})
		if err == nil {
			err = m.Close()
			if c.want != "" {
				t.Errorf("%s, packing %v: opened", c.name, c.pack)
			}
		}
		if err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, packing %v: %v, want %q", c.name, c.pack, err, c.want)
		}
	}
	for wait := 0; goruntime.NumGoroutine() > before; wait++ {
		if wait == 10_000 { // others may have the processor meanwhile
			t.Fatalf("%d goroutines, %d before", goruntime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// zeroFactors adds rope factors that loading refuses after other weights.
func zeroFactors(w *gguf.Writer) {
	w.AddTensor("rope_freqs.weight", gguf.Type(kernels.F32), []uint64{16}, make([]byte, 64))
}
