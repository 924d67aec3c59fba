package runtime_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// tiny writes a model and returns its path.
func tiny(t testing.TB, m runtimetest.TinyModel) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := m.Write(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestExecutor runs the conformance suite over the three ways in which activations are prepared, both KV types, tied
// and untied heads, several thread counts and the families.
func TestExecutor(t *testing.T) {
	for i, c := range []struct {
		typ     kernels.Type
		kv      runtime.KVType
		threads int
		layers  int
		tied    bool
		arch    string
	}{
		{kernels.Q4_1, runtime.KVF16, 4, 2, true, "llama"},
		{kernels.F32, runtime.KVF32, 1, 3, false, "llama"},
		{kernels.Q6_K, runtime.KVF16, 2, 2, false, "llama"},
		{kernels.Q8_0, runtime.KVF16, 2, 2, true, "qwen2"},
		{kernels.Q8_0, runtime.KVF16, 2, 3, true, "gemma3"},
		{kernels.Q8_0, runtime.KVF16, 2, 2, false, "deepseek2"},
		{kernels.F16, runtime.KVF32, 1, 2, false, "deepseek2"},
		{kernels.Q8_0, runtime.KVF16, 2, 3, false, "qwen35moe"},
	} {
		if raceEnabled && i > 0 {
			continue
		}
		t.Run(fmt.Sprintf("%s,%v,%v,threads=%d", c.arch, c.typ, c.kv, c.threads), func(t *testing.T) {
			path := tiny(t, runtimetest.TinyModel{Arch: c.arch, Seed: uint64(c.typ), Layers: c.layers, Type: c.typ, Tied: c.tied})
			runtimetest.TestExecutor(t, func(r runtime.Range) runtime.Executor {
				m, err := runtime.Open(runtime.Options{Path: path, Layers: r, KV: c.kv, Threads: c.threads, MaxKVBytes: 32 << 20})
				if err != nil {
					t.Fatal(err)
				}
				return m
			})
		})
	}
}
