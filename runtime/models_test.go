package runtime_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// proofs is what the tests of this package and of kernels compare an architecture's or a weight type's numbers with:
// lists of weight types, or of models.
type proofs struct{ transformers, llamacpp, float32s, digests []string }

// TestModelsTable writes docs/models.md anew, with -rewrite, or compares it: it is made of the lists that the other tests
// go through, and of the golden models themselves.
func TestModelsTable(t *testing.T) {
	byArch := map[string]*proofs{}
	for _, arch := range runtime.Architectures() {
		byArch[arch] = &proofs{}
	}
	for _, name := range slices.Concat(goldenModels, quantisedGolden) {
		set, err := gguf.OpenSet(goldenFile(t, name, "model.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		arch, err := set.Meta().String("general.architecture")
		if err != nil {
			t.Fatal(err)
		}
		types := map[string]bool{}
		for _, tensor := range set.Tensors {
			if len(tensor.Dims) > 1 {
				types[tensor.Type.String()] = true
			}
		}
		if len(types) > 1 {
			delete(types, "F32") // routers and the like
		}
		p := byArch[arch]
		p.transformers = append(p.transformers, fmt.Sprintf("%s (%s)", name, strings.Join(slices.Sorted(maps.Keys(types)), ", ")))
	}
	for _, m := range realModels {
		byArch[m.arch].llamacpp = append(byArch[m.arch].llamacpp, m.weights)
	}
	byArch["llama"].float32s = quantFiles
	for _, typ := range digestTypes {
		byArch["llama"].digests = append(byArch["llama"].digests, typ.String())
	}
	for _, arch := range digestArchitectures {
		byArch[arch].digests = append(byArch[arch].digests, kernels.Q4_K.String())
	}

	var dequant struct {
		GGUF   string
		Files  map[string]map[string]struct{ Type string }
		Blocks map[string]string
	}
	data, err := os.ReadFile(filepath.Join("..", "kernels", "testdata", "dequant.json"))
	if err == nil {
		err = json.Unmarshal(data, &dequant)
	}
	if err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	cell := func(list []string) string {
		if len(list) == 0 {
			return "–"
		}
		return strings.Join(list, ", ")
	}
	b.WriteString("# Models, and what each was compared with\n\n" +
		"Made by `go test ./runtime -run TestModelsTable -rewrite` of the lists that the tests go through; the test fails where this page says anything else.\n\n" +
		"## Architectures\n\n" +
		"| architecture | with transformers | with llama.cpp | with the same weights in F32 | digests |\n| --- | --- | --- | --- | --- |\n")
	for _, arch := range runtime.Architectures() {
		p := byArch[arch]
		if len(p.transformers)+len(p.digests) == 0 {
			t.Errorf("%s is compared with nothing", arch)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", arch, cell(p.transformers), cell(p.llamacpp), cell(p.float32s), cell(p.digests))
	}
	fmt.Fprintf(&b, "\n- With transformers: a tiny model with random weights (and its types); logits, hidden states, greedy tokens, cache sizes and token IDs (`TestGolden`);\n"+
		"  those in F32 also bit for bit over splits, chunks, batches and threads (`TestBitIdentity`).\n"+
		"- With llama.cpp: a model that people use; token IDs, top-10 logits and the NLL of a text (`TestTop10`, `TestNLL`).\n"+
		"- With the same weights in F32: cosine of logits and best tokens (`TestQuants`).\n"+
		"- Digests: committed hashes of logits and cache of a tiny model, the same on every processor (`TestDigests`); of golden models, too.\n\n"+
		"A weight type's arithmetic does not depend on the architecture: any architecture runs with any type of the second table.\n\n"+
		"## Weight types\n\n| type | values equal those of the gguf package %s | digests |\n| --- | --- | --- |\n", dequant.GGUF)
	for _, name := range strings.Split(kernels.SupportedTypes(), ", ") {
		var seen []string
		if dequant.Blocks[name] != "" {
			seen = append(seen, "made-up blocks")
		}
		files := 0
		for _, tensors := range dequant.Files {
			for _, tensor := range tensors {
				if tensor.Type == name {
					files++
					break
				}
			}
		}
		if files > 0 {
			seen = append(seen, fmt.Sprintf("tensors of files: %d", files))
		}
		digest := "–"
		if slices.Contains(byArch["llama"].digests, name) {
			digest = "yes"
		}
		if len(seen) == 0 || digest != "yes" {
			t.Errorf("%s: compared with %v; digests: %s", name, seen, digest)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, cell(seen), digest)
	}

	path := filepath.Join("..", "docs", "models.md")
	if *rewrite {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if committed, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	} else if !bytes.Equal(committed, b.Bytes()) {
		t.Errorf("%s is not what the tests cover: run this test with -rewrite", path)
	}
}
