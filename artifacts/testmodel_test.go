package artifacts

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// testModel describes a small model made by writeModel.
type testModel struct {
	layers int
	parts  int // files it is split over
	seed   uint64
	untied bool
	vocab  int // 0: 300
}

const testWidth = 64

// writeModel writes a llama-shaped GGUF with random weights into dir and returns its files' paths.
// A layer takes 192 KiB and a bit.
func writeModel(t testing.TB, dir string, c testModel) []string {
	t.Helper()
	if c.vocab == 0 {
		c.vocab = 300
	}
	c.parts = max(c.parts, 1)
	rng := rand.New(rand.NewPCG(c.seed, 1))
	ws := make([]gguf.Writer, c.parts)
	meta := &ws[0]
	meta.Set("general.architecture", gguf.ValueOf("llama"))
	meta.Set("general.name", gguf.ValueOf("test model"))
	meta.Set("llama.block_count", gguf.ValueOf(uint32(c.layers)))
	meta.Set("llama.embedding_length", gguf.ValueOf(uint32(testWidth)))
	meta.Set("llama.context_length", gguf.ValueOf(uint32(512)))
	meta.Set("llama.attention.head_count", gguf.ValueOf(uint32(4)))
	meta.Set("llama.attention.head_count_kv", gguf.ValueOf(uint32(2)))
	tokens := make([]string, c.vocab)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("token%06d", i)
	}
	meta.Set("tokenizer.ggml.tokens", gguf.ArrayOf(tokens))
	if c.parts > 1 {
		for i := range ws {
			ws[i].Set("split.no", gguf.ValueOf(uint16(i)))
			ws[i].Set("split.count", gguf.ValueOf(uint16(c.parts)))
		}
	}
	add := func(part int, name string, dims ...uint64) {
		n := uint64(4)
		for _, d := range dims {
			n *= d
		}
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		ws[part].AddTensor(name, gguf.F32, dims, data)
	}
	add(0, "token_embd.weight", testWidth, uint64(c.vocab))
	for i := range c.layers {
		part := i * c.parts / c.layers
		add(part, fmt.Sprintf("blk.%d.attn_norm.weight", i), testWidth)
		add(part, fmt.Sprintf("blk.%d.ffn_up.weight", i), testWidth, 512)
		add(part, fmt.Sprintf("blk.%d.attn_q.weight", i), testWidth, 256)
	}
	add(c.parts-1, "output_norm.weight", testWidth)
	if c.untied {
		add(c.parts-1, "output.weight", testWidth, uint64(c.vocab))
	}
	paths := make([]string, c.parts)
	for i := range ws {
		paths[i] = filepath.Join(dir, "m.gguf")
		if c.parts > 1 {
			paths[i] = gguf.PartName(filepath.Join(dir, "m"), i, c.parts)
		}
		var buf bytes.Buffer
		if _, err := ws[i].WriteTo(&buf); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(paths[i], buf.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// openStore opens a store that the test closes.
func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// publish makes a model and publishes it in a new store.
func publish(t testing.TB, c testModel) (*Store, *Model, []string) {
	t.Helper()
	paths := writeModel(t, t.TempDir(), c)
	s := openStore(t, t.TempDir())
	m, err := s.Publish(t.Context(), paths[:1], nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, m, paths
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// smolLM2 returns the path of the model in the shared folder, or skips.
func smolLM2(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../../shared/models/smollm2-135m-instruct-q4_1.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the shared model is not here: %v", err)
	}
	return path
}
