package runtime_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// TestDescribe compares a description with what Inspect says of the same model.
func TestDescribe(t *testing.T) {
	for arch, cache := range map[string][]string{
		"llama":     {"append-only", "append-only", "append-only"},
		"gemma3":    {"window of 5", "append-only", "window of 5"},
		"deepseek2": {"latent", "latent", "latent"},
		"qwen35":    {"state", "append-only", "state"},
	} {
		path := tiny(t, runtimetest.TinyModel{Arch: arch})
		c, err := runtime.Inspect(path)
		if err != nil {
			t.Fatal(err)
		}
		d, err := runtime.Describe(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Unsupported) > 0 || d.Layers != c.Layers || d.Context != c.Context || d.Arch != c.Arch || d.Tokenizer.Size != c.Vocab ||
			!slices.Equal(d.LayerBytes, c.LayerBytes) || d.ExpertBytes != c.ExpertBytes {
			t.Errorf("described as %+v, inspected as %+v", d, c)
		}
		bytes := d.OutsideBytes
		for _, b := range d.LayerBytes {
			bytes += b
		}
		for _, w := range d.Types {
			bytes -= w.Bytes
		}
		if bytes != 0 {
			t.Errorf("%s: bytes by layer and bytes by type differ by %d", arch, bytes)
		}
		for l := range c.Layers {
			if d.CacheBytes[l] != int64(c.KVRowBytes(l, runtime.KVF16)) || (d.TailBytes[l] > 0) != (d.Cache[l] == "state") {
				t.Errorf("%s: layer %d keeps %d bytes", arch, l, d.CacheBytes[l])
			}
		}
		if !slices.Equal(d.Cache, cache) {
			t.Errorf("%s: layers keep %q", arch, d.Cache)
		}
	}
}

// TestDescribeUnsupported describes a model in which nothing is supported.
func TestDescribeUnsupported(t *testing.T) {
	var w gguf.Writer
	w.Set("general.architecture", gguf.ValueOf("mystery"))
	w.Set("mystery.block_count", gguf.ValueOf(uint32(1)))
	w.Set("mystery.rope.scaling.type", gguf.ValueOf("spiral"))
	w.Set("tokenizer.ggml.model", gguf.ValueOf("runes"))
	w.AddTensor("blk.0.a.weight", gguf.F64, []uint64{4, 2}, make([]byte, 64))
	w.AddTensor("blk.0.b_exps.weight", gguf.I8, []uint64{8}, make([]byte, 8))
	path := filepath.Join(t.TempDir(), "m.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	d, err := runtime.Describe(path)
	if err != nil {
		t.Fatal(err)
	}
	if d.Layers != 1 || d.Rope != "spiral" || d.Parameters != 16 || d.ExpertBytes != 8 || !slices.Equal(d.LayerBytes, []int64{72}) {
		t.Errorf("described as %+v", d)
	}
	for i, want := range []string{`architecture "mystery"`, "weight type F64", "weight type I8", "tokenizer"} {
		if i >= len(d.Unsupported) || !strings.Contains(d.Unsupported[i], want) {
			t.Fatalf("unsupported: %q, want %s", d.Unsupported, want)
		}
	}
}
