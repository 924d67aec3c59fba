package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// good is a whole expected.json but for values.
const good = `{"prompt": [1, 2, 3], "logits_positions": [0, 2], "logits": [[0.5], [1]], "greedy": [4], "greedy_last_logits": [1],
	"hidden_positions": [1], "hidden": [[[1]], [[2]]], "cache": {"per_layer": [{"growing": 128, "ring": 0, "state": 0}]}, "tokenize": []}`

// TestParse changes good in one place each, and expects an error that names it.
func TestParse(t *testing.T) {
	if _, err := parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{`[1, 2, 3]`, `[]`, "prompt"},
		{`[1, 2, 3]`, `[1, 2]`, "logits_positions"},
		{`"logits_positions": [0, 2]`, `"logits_positions": [2, 0]`, "logits_positions"},
		{`"logits_positions": [0, 2]`, `"logits_positions": [-1, 2]`, "logits_positions"},
		{`"logits_positions": [0, 2]`, `"logits_positions": [0]`, "logits_positions"},
		{`"hidden_positions": [1]`, `"hidden_positions": [7]`, "hidden_positions"},
		{`"hidden_positions": [1]`, `"hidden_positions": []`, "hidden"},
		{`{"prompt"`, `["prompt"`, "invalid"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: %v", c.to, c.from, err)
		}
	}
}

// TestCheckDisagrees gives a model expectations that it cannot meet.
func TestCheckDisagrees(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"growing": 128`, `"growing": 127`, "cache of layer 0"},
		{`"tokenize": []`, `"tokenize": [{"text": "a", "ids": [7, 7]}]`, `tokens of "a"`},
		{"", "", "logits at position 0: 259 values, want 1"},
	} {
		dir := t.TempDir()
		model := runtimetest.TinyModel{Layers: 1, Type: kernels.F32}
		if err := model.Write(filepath.Join(dir, "model.gguf")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "expected.json"), []byte(strings.Replace(good, c.from, c.to, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Check(t.Context(), dir, runtime.Options{Threads: 1}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
}

// FuzzExpected feeds anything to what reads expected.json.
func FuzzExpected(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"prompt": [1], "logits_positions": [0], "logits": [null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := parse(data)
		if err == nil && (len(e.Prompt) == 0 || len(e.Logits) == 0) {
			t.Errorf("accepted %+v", e)
		}
	})
}
