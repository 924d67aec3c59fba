package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/session"
)

// smokeFile returns the smoke model.
func smokeFile(t *testing.T) string {
	t.Helper()
	path, err := writeSmoke(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// openSmoke opens the smoke model.
func openSmoke(t *testing.T) *runtime.Model {
	t.Helper()
	m, err := runtime.Open(runtime.Options{Path: smokeFile(t), Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func smokeLayers(t *testing.T) int {
	t.Helper()
	return openSmoke(t).Config().Layers
}

// TestSmokeIsSmall checks what the smoke model must be: at most 3 MB, at least
// six layers, grouped queries, and quantised.
func TestSmokeIsSmall(t *testing.T) {
	c := openSmoke(t).Config()
	if len(smokeModel) > 3e6 || c.Layers < 6 || c.KVHeads >= c.Heads {
		t.Errorf("%d bytes, %d layers, %d heads for %d KV heads", len(smokeModel), c.Layers, c.Heads, c.KVHeads)
	}
	var weights int64
	for _, n := range c.LayerBytes {
		weights += n
	}
	if perWeight := 8 * 2 * float64(weights) / (c.LayerFlops[0] * float64(c.Layers)); perWeight > 9 { // LayerFlops is 2 per weight
		t.Errorf("%.1f bits per weight: not quantised", perWeight)
	}
}

// TestSmokeAnswers asks the held-out questions, greedily: at least 95 % of the
// answers must be right, and of no kind of question less than 80 %.
func TestSmokeAnswers(t *testing.T) {
	b, err := os.ReadFile("smoke/heldout.json")
	if err != nil {
		t.Fatal(err)
	}
	var questions []struct{ Task, Prompt, Answer string }
	if err := json.Unmarshal(b, &questions); err != nil || len(questions) < 100 {
		t.Fatalf("%d questions, %v", len(questions), err)
	}
	m := openSmoke(t)
	asked, right := map[string]int{}, map[string]int{}
	for _, q := range questions {
		tokens, err := prompt{text: q.Prompt}.tokens(m.Tokenizer())
		if err != nil {
			t.Fatal(err)
		}
		got, err := generate(t.Context(), m, m.Profile(), tokens, session.Request{MaxNew: 96}, runtime.Sampling{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		asked[q.Task]++
		asked["all"]++
		if strings.TrimSpace(got.Text) == q.Answer {
			right[q.Task]++
			right["all"]++
		} else if asked["all"]-right["all"] <= 10 {
			t.Logf("%s: %q is %q, want %q", q.Task, q.Prompt, got.Text, q.Answer)
		}
	}
	for task, n := range asked {
		share, want := float64(right[task])/float64(n), 0.8
		if task == "all" {
			want = 0.95
		}
		t.Logf("%s: %d of %d", task, right[task], n)
		if share < want {
			t.Errorf("%s: %.1f %% right, want %.0f %%", task, 100*share, 100*want)
		}
	}
}
