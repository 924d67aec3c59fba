package node

import (
	"path/filepath"
	"testing"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// TestCardsAgree compares what the planner is told of a model's cache with what the engine reserves, for every family.
func TestCardsAgree(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "glm4moe", "qwen35", "qwen35moe", "gpt-oss", "phi3", "mistral3"} {
		path := filepath.Join(t.TempDir(), "model.gguf")
		if err := (runtimetest.TinyModel{Arch: arch, Layers: 8}).Write(path); err != nil {
			t.Fatal(err)
		}
		set, err := gguf.OpenSet(path)
		if err != nil {
			t.Fatal(err)
		}
		card, err := artifacts.NewCard(set)
		if err != nil {
			t.Fatal(err)
		}
		c, err := runtime.InspectSet(set)
		if err != nil {
			t.Fatal(err)
		}
		m := planModel(card)
		for l, cache := range c.Cache {
			positions := int64(0)
			if cache.Window > 0 {
				positions = int64(cache.Positions(c.Context))
			}
			if m.KVBytesPerToken[l] != int64(c.KVRowBytes(l, runtime.KVF16)) || m.TailBytes[l] != int64(cache.TailBytes()) || m.KVPositions[l] != positions {
				t.Errorf("%s, layer %d: %d bytes a token, of %d, and a tail of %d; the engine has %d, %d and %d", arch, l, m.KVBytesPerToken[l], m.KVPositions[l],
					m.TailBytes[l], c.KVRowBytes(l, runtime.KVF16), positions, cache.TailBytes())
			}
		}
	}
}
