package runtime_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// dequantised writes a copy of a model with all matrices as float32, which loses nothing, and returns its path.
func dequantised(t testing.TB, path string) string {
	t.Helper()
	set, err := gguf.OpenSet(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w := &gguf.Writer{}
	for _, key := range set.Meta().Keys() {
		v, _ := set.Meta().Lookup(key)
		w.Set(key, v)
	}
	for _, tensor := range set.Tensors {
		rows, cols := int(tensor.Rows()), int(tensor.Cols())
		m, err := kernels.NewMatrix(kernels.Type(tensor.Type), rows, cols, data[tensor.Offset:tensor.Offset+tensor.Size])
		if err != nil {
			t.Fatal(err)
		}
		var out []byte
		row := make([]float32, cols)
		for r := range rows {
			m.Row(row, r)
			for _, x := range row {
				out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
			}
		}
		w.AddTensor(tensor.Name, gguf.Type(kernels.F32), tensor.Dims, out)
	}
	copied := filepath.Join(t.TempDir(), "f32.gguf")
	f, err := os.Create(copied)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := w.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	return copied
}

// quantFiles are the models of ../shared/golden/quants, llama's in one weight type each.
var quantFiles = []string{"F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_M", "Q4_K_S", "Q5_K_S", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_S"}

// TestQuants compares each supported weight type with the same weights in float32 (whose arithmetic TestGolden compares
// with transformers): what is left is the effect of 8-bit activations, which these narrow models feel.
// ../shared/golden/README.md says what to ask for.
func TestQuants(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	e := readExpected(t, "llama")
	tokens := slices.Concat(e.Prompt[:128], e.Greedy)
	logits := func(t *testing.T, path string) [][]float32 {
		m := open(t, runtime.Options{Path: path})
		step := &runtime.Step{Seq: sequenceOf(t, m, len(tokens)), Layers: m.Layers(), N: len(tokens), Tokens: tokens}
		for r := range tokens {
			step.LogitRows = append(step.LogitRows, r)
		}
		run(t, m, step)
		return step.Logits
	}
	for _, name := range quantFiles {
		t.Run(name, func(t *testing.T) {
			path := shared(t, "golden", "quants", "llama-"+name+".gguf")
			got, want := logits(t, path), logits(t, dequantised(t, path))
			worst, matches := 1.0, 0
			for i := range got {
				worst = min(worst, cosine(got[i], want[i]))
				if greedy(t, got[i]) == greedy(t, want[i]) {
					matches++
				}
			}
			t.Logf("least cosine %.5f, %d of %d", worst, matches, len(tokens))
			if worst < 0.98 || matches*32 < len(tokens)*24 {
				t.Errorf("least cosine %.5f, want 0.98; %d tokens match, want %d", worst, matches, len(tokens)*24/32)
			}
		})
	}
}

func greedy(t testing.TB, logits []float32) int32 {
	t.Helper()
	id, err := runtime.Sample(logits, nil, 0, runtime.Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	return id
}
