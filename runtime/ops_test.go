package runtime_test

import (
	"path/filepath"
	"testing"

	"github.com/starling-swarm/starling/runtime"
)

// TestCountOps compares the sums with Config, and checks which arithmetic the types of a file mean.
func TestCountOps(t *testing.T) {
	for _, c := range []struct {
		file      []string
		int8, f32 bool // some of the layers' matrices are quantised; some are not
	}{
		{[]string{"golden", "llama", "model.gguf"}, false, true},
		{[]string{"golden", "llama_tied", "model.gguf"}, false, true},
		{[]string{"golden", "quants", "llama-Q5_0.gguf"}, true, false},
		{[]string{"golden", "deepseek2_v3", "model.gguf"}, false, true},
		{[]string{"golden", "qwen3_5_moe", "model.gguf"}, false, true},
		{nil, true, true}, // the smoke model
	} {
		t.Run(filepath.Join(c.file...), func(t *testing.T) {
			path := filepath.Join("..", "cmd", "starling", "smoke", "smoke.gguf")
			if c.file != nil {
				path = shared(t, c.file...)
			}
			layers, head, err := runtime.CountOps(path)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := runtime.Inspect(path)
			if err != nil {
				t.Fatal(err)
			}
			want := 0.0
			for _, flops := range cfg.LayerFlops {
				want += flops
			}
			if got := layers.Int8 + layers.F32; got != want {
				t.Errorf("%v operations in the layers, Config says %v", got, want)
			}
			if got := head.Int8 + head.F32; got != cfg.HeadFlops {
				t.Errorf("%v operations in the head, Config says %v", got, cfg.HeadFlops)
			}
			if (layers.Int8 > 0) != c.int8 || (layers.F32 > 0) != c.f32 {
				t.Errorf("the layers' operations are %+v", layers)
			}
		})
	}
	if _, _, err := runtime.CountOps("no such file"); err == nil {
		t.Error("no error for a file that isn't there")
	}
}
