package runtime_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/golden"
)

// TestDigestsEverywhere computes whole models under every kernel variant that this processor has, with one to four
// threads, and asks for the committed digests each time. Other processors and builds do the same (make digests).
func TestDigestsEverywhere(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	data, err := os.ReadFile(filepath.Join("testdata", "digests.json"))
	if err != nil {
		t.Fatal(err)
	}
	committed := make(map[string]digests)
	if err := json.Unmarshal(data, &committed); err != nil {
		t.Fatal(err)
	}
	before := kernels.Active()
	t.Cleanup(func() {
		if err := kernels.Use(before); err != nil {
			t.Fatal(err)
		}
	})
	for _, name := range append([]string{"smoke"}, goldenModels...) {
		t.Run(name, func(t *testing.T) {
			path, e := proofModel(t, name)
			want, ok := committed[name+" f16"]
			if !ok {
				t.Fatalf("%s: no committed digests: run TestDigests -rewrite", name)
			}
			for _, v := range kernels.Variants() {
				if err := kernels.Use(v); err != nil {
					t.Fatal(err)
				}
				for threads := 1; threads <= 4; threads++ {
					m := open(t, runtime.Options{Path: path, Threads: threads})
					if got := digest(t, m, e); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("%v kernels, %d threads: %v, committed %v", v, threads, got, want)
					}
				}
			}
		})
	}
}

// proofModel returns the file of a model with committed digests, and what to compute with it.
func proofModel(t *testing.T, name string) (path string, e golden.Expected) {
	t.Helper()
	if name != "smoke" {
		return goldenFile(t, name, "model.gguf"), readExpected(t, name)
	}
	e.Prompt = make([]int32, 300) // more than a page
	for i := range e.Prompt {
		e.Prompt[i] = int32(i * 37 % 448)
	}
	e.LogitsPositions = []int{0, 150, 299}
	return filepath.Join("..", "cmd", "starling", "smoke", "smoke.gguf"), e
}
