package runtime_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/golden"
)

// shared returns a file of the folder beside the repository, or skips the test.
func shared(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("needs %s, which is not here", path)
	}
	return path
}

// goldenFile returns a file of a golden model: of testdata/golden, which tools/reference made, or of ../shared/golden.
func goldenFile(t testing.TB, model, name string) string {
	t.Helper()
	if path := filepath.Join("testdata", "golden", model, name); exists(path) {
		return path
	}
	return shared(t, "golden", model, name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// goldenModels are the golden models with F32 weights that run.
var goldenModels = []string{"llama", "llama_tied", "qwen2", "qwen3", "qwen3_yarn", "qwen3moe", "gemma3", "deepseek2_lite", "deepseek2_v3", "qwen3_5_moe", "glm4moe", "gpt_oss", "phi3_long", "phi3_short", "mistral3", "llama_bias", "deepseek2_v2", "qwen35"}

// quantisedGolden are golden models whose weights, and so activations, are quantised.
var quantisedGolden = []string{"qwen3_q8_0", "gpt_oss_mxfp4"}

func readExpected(t testing.TB, model string) golden.Expected {
	t.Helper()
	e, err := golden.Read(filepath.Dir(goldenFile(t, model, "expected.json")))
	if err != nil {
		t.Fatal(err)
	}
	return *e
}

// open opens a model and closes it at the test's end.
func open(t testing.TB, o runtime.Options) *runtime.Model {
	t.Helper()
	m, err := runtime.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// sequenceOf reserves a sequence and closes it at the test's end.
func sequenceOf(t testing.TB, m *runtime.Model, capacity int) runtime.Sequence {
	t.Helper()
	s, err := m.NewSequence(capacity, m.Layers())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func run(t testing.TB, m *runtime.Model, steps ...*runtime.Step) {
	t.Helper()
	if err := m.Run(context.Background(), steps); err != nil {
		t.Fatal(err)
	}
}

func maxDiff(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	d := 0.0
	for i := range a {
		d = math.Max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}

// TestGolden compares cache sizes, tokens, logits, hidden states and greedy decoding with transformers.
func TestGolden(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	for _, name := range slices.Concat(quantisedGolden, goldenModels) {
		t.Run(name, func(t *testing.T) {
			r, err := golden.Check(context.Background(), filepath.Dir(goldenFile(t, name, "model.gguf")), runtime.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", r)
		})
	}
}

// TestGoldenHalf compares logits over an F16 cache with transformers: there a choice of experts may flip, so it is their
// directions that are compared.
func TestGoldenHalf(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	for _, name := range goldenModels {
		e := readExpected(t, name)
		m := open(t, runtime.Options{Path: goldenFile(t, name, "model.gguf")})
		step := &runtime.Step{Seq: sequenceOf(t, m, len(e.Prompt)), Layers: m.Layers(), N: len(e.Prompt), Tokens: e.Prompt, LogitRows: e.LogitsPositions}
		run(t, m, step)
		least, most := 1.0, 0.0
		for i, logits := range step.Logits {
			least, most = min(least, cosine(logits, e.Logits[i])), max(most, maxDiff(logits, e.Logits[i]))
		}
		t.Logf("%s: cosine %.6f at least, off by %.2g at most", name, least, most)
		if least < 0.99 {
			t.Errorf("%s: the cosine of logits is %v", name, least)
		}
	}
}

// TestGoldenEmbedding compares the input of layer 0, which only this package's tests see, with transformers.
func TestGoldenEmbedding(t *testing.T) {
	for _, name := range goldenModels {
		e := readExpected(t, name)
		m := open(t, runtime.Options{Path: goldenFile(t, name, "model.gguf"), KV: runtime.KVF32})
		x := make([]float32, m.Config().Width)
		for i, pos := range e.HiddenPositions {
			m.EmbedRow(x, e.Prompt[pos])
			if d := maxDiff(x, e.Hidden[0][i]); d > 2e-3 {
				t.Errorf("%s: embedding at position %d: off by %g", name, pos, d)
			}
		}
	}
}
