package runtime_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-swarm/starling/runtime"
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

// goldenModels are the folders of ../shared/golden whose models run.
var goldenModels = []string{"llama", "llama_tied", "qwen2", "gemma3"}

// expected is what ../shared/golden/README.md describes, as far as it is used here.
type expected struct {
	Prompt           []int32       `json:"prompt"`
	LogitsPositions  []int         `json:"logits_positions"`
	Logits           [][]float32   `json:"logits"`
	Greedy           []int32       `json:"greedy"`
	GreedyLastLogits []float32     `json:"greedy_last_logits"`
	HiddenPositions  []int         `json:"hidden_positions"`
	Hidden           [][][]float32 `json:"hidden"`
}

func readExpected(t testing.TB, model string) (e expected) {
	t.Helper()
	data, err := os.ReadFile(shared(t, "golden", model, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	return e
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

// TestGolden compares logits, hidden states and greedy decoding with transformers, in float32 throughout.
func TestGolden(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	for _, name := range goldenModels {
		t.Run(name, func(t *testing.T) {
			e := readExpected(t, name)
			m := open(t, runtime.Options{Path: shared(t, "golden", name, "model.gguf"), KV: runtime.KVF32})
			const tolerance = 2e-3
			worst := 0.0
			check := func(what string, got, want []float32) {
				t.Helper()
				d := maxDiff(got, want)
				worst = math.Max(worst, d)
				if d > tolerance {
					t.Errorf("%s: off by %g, tolerance %g", what, d, tolerance)
				}
			}
			c := m.Config()
			s := sequenceOf(t, m, len(e.Prompt)+len(e.Greedy))
			step := &runtime.Step{Seq: s, Layers: m.Layers(), N: len(e.Prompt), Tokens: e.Prompt, LogitRows: e.LogitsPositions}
			run(t, m, step)
			for i := range e.LogitsPositions {
				check("logits", step.Logits[i], e.Logits[i])
			}
			next := step.Logits[len(step.Logits)-1]
			for i, want := range e.Greedy {
				got, err := runtime.Sample(next, nil, len(e.Prompt)+i, runtime.Sampling{})
				if err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Fatalf("greedy token %d: %d, want %d", i, got, want)
				}
				one := &runtime.Step{Seq: s, Layers: m.Layers(), Start: len(e.Prompt) + i, N: 1, Tokens: []int32{got}, LogitRows: []int{0}}
				run(t, m, one)
				next = one.Logits[0]
			}
			check("logits after decoding", next, e.GreedyLastLogits)

			// Hidden states, one layer after the other; the input of layer 0 is the embedding.
			s.Truncate(0)
			var seam []float32
			for l := range c.Layers {
				one := &runtime.Step{Seq: s, Layers: runtime.Range{l, l + 1}, N: len(e.Prompt), Seam: seam, KeepHidden: true}
				if l == 0 {
					one.Tokens = e.Prompt
					x := make([]float32, c.Width)
					for i, pos := range e.HiddenPositions {
						m.EmbedRow(x, e.Prompt[pos])
						check("embedding", x, e.Hidden[0][i])
					}
				}
				run(t, m, one)
				for i, pos := range e.HiddenPositions {
					check("hidden", one.Out[pos*c.Width:(pos+1)*c.Width], e.Hidden[l+1][i])
				}
				seam = one.Out
			}
			t.Logf("largest difference %.2g", worst)
		})
	}
}
