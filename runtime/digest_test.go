package runtime_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/golden"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"lukechampine.com/blake3"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/digests.json anew; commit only changes that you can explain")

var soak = flag.Bool("soak", false, "compute every cut with every batch and chunk size, which takes long")

// digests are BLAKE3 hashes, 16 bytes of them, of what a model computes.
type digests struct {
	Logits string   `json:"logits"` // of the prompt's rows at logits_positions, float32 little endian
	KV     []string `json:"kv"`     // by layer
}

// digest runs the prompt at once.
func digest(t testing.TB, m *runtime.Model, e golden.Expected) digests {
	t.Helper()
	return prefill(t, m, e, len(e.Prompt), 0, 1)[0]
}

// digestTypes are the weight types of tiny models of the llama architecture, digestArchitectures the others, in Q4_K.
var (
	digestTypes = []kernels.Type{
		kernels.F32, kernels.F16, kernels.BF16, kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.Q5_0, kernels.Q5_1,
		kernels.Q2_K, kernels.Q3_K, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K, kernels.IQ4_NL, kernels.IQ4_XS, kernels.MXFP4,
		kernels.IQ2_XXS, kernels.IQ2_XS, kernels.IQ2_S, kernels.IQ3_XXS, kernels.IQ3_S, kernels.IQ1_S, kernels.IQ1_M,
	}
	digestArchitectures = []string{"qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "glm4moe", "qwen35", "qwen35moe", "gpt-oss", "phi3", "mistral3"}
)

// TestDigests compares what models compute with the committed hashes: the same bits on every machine, for ever (or
// until RulesVersion changes). Models written by the test itself are always there; golden ones where ../shared is.
func TestDigests(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	path := filepath.Join("testdata", "digests.json")
	committed := make(map[string]digests)
	if data, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(data, &committed); err != nil {
			t.Fatal(err)
		}
	} else if !*rewrite {
		t.Fatal(err)
	}
	compare := func(t *testing.T, name string, got digests) {
		t.Helper()
		if *rewrite {
			committed[name] = got
			return
		}
		if want, ok := committed[name]; !ok {
			t.Errorf("%s: no committed digests: run with -rewrite", name)
		} else if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, committed %v", name, got, want)
		}
	}
	written := func(name string, model runtimetest.TinyModel) {
		t.Run("tiny/"+name, func(t *testing.T) {
			m := open(t, runtime.Options{Path: tiny(t, model)})
			prompt := make([]int32, 40)
			for i := range prompt {
				prompt[i] = int32(i * 53 % 259)
			}
			compare(t, "tiny "+name, digest(t, m, golden.Expected{Prompt: prompt, LogitsPositions: []int{0, 20, 39}}))
		})
	}
	for _, typ := range digestTypes {
		written(typ.String(), runtimetest.TinyModel{Seed: 1, Layers: 2, Type: typ})
	}
	for _, arch := range digestArchitectures {
		written(arch, runtimetest.TinyModel{Arch: arch, Seed: 1, Layers: 3, Type: kernels.Q4_K})
	}
	for _, name := range append([]string{"smoke"}, goldenModels...) {
		for _, kv := range []runtime.KVType{runtime.KVF16, runtime.KVF32} {
			t.Run(name+"/"+kv.String(), func(t *testing.T) {
				path, e := proofModel(t, name)
				m := open(t, runtime.Options{Path: path, KV: kv})
				compare(t, name+" "+kv.String(), digest(t, m, e))
			})
		}
	}
	for _, name := range append([]string{"smoke"}, goldenModels...) {
		t.Run(name+"/profiles", func(t *testing.T) {
			path, e := proofModel(t, name)
			m := open(t, runtime.Options{Path: path})
			for _, p := range roundedProfiles(m) {
				compare(t, name+" kv "+p.KV.String()+" seam "+p.SeamText(), prefillAs(t, m, p, e, len(e.Prompt), 0, 1)[0])
			}
		})
	}
	if !*rewrite {
		return
	}
	data, err := json.MarshalIndent(committed, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBitIdentity computes the golden prompts whole and then with each of the threads, chunks, cuts and batches of the
// project's promise, and asks for the same bits. TestExecutor has more combinations on smaller models.
func TestBitIdentity(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	for _, name := range goldenModels {
		t.Run(name, func(t *testing.T) {
			e := readExpected(t, name)
			path := goldenFile(t, name, "model.gguf")
			m := open(t, runtime.Options{Path: path, Threads: 1})
			layers := m.Config().Layers
			want := fmt.Sprint(digest(t, m, e))
			for i, v := range []struct{ threads, chunk, batch int }{
				{1, 256, 1}, {1, 7, 1}, {2, 1, 1}, {2, 64, 5}, {4, 3, 1}, {4, len(e.Prompt), 1},
				{2, 64, 15}, {1, 1, 16}, {2, 7, 17},
			} {
				m := m
				if v.threads > 1 {
					m = open(t, runtime.Options{Path: path, Threads: v.threads})
				}
				cut := i % layers
				for j, got := range prefill(t, m, e, v.chunk, cut, v.batch) {
					if fmt.Sprint(got) != want {
						t.Errorf("%d threads, chunks of %d, cut at %d, sequence %d of %d: other bits", v.threads, v.chunk, cut, j, v.batch)
					}
				}
			}
		})
	}
}

// TestCuts cuts a model before every layer and asks for the bits of the whole: of one sequence and of as many as fill a tile of
// rows, and one less and one more, in chunks of 1, 7 and 64. All of these together only with -soak; else every cut, with a few.
func TestCuts(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	next := 0
	for _, name := range slices.Concat(goldenModels, quantisedGolden) {
		t.Run(name, func(t *testing.T) {
			e := readExpected(t, name)
			m := open(t, runtime.Options{Path: goldenFile(t, name, "model.gguf")})
			if !*soak { // beyond a window of 24
				e.Prompt, e.LogitsPositions = e.Prompt[:70], []int{0, 31, 69}
			}
			want := fmt.Sprint(digest(t, m, e))
			for cut := range m.Config().Layers {
				for i, v := range []struct{ chunk, batch int }{
					{7, 16}, {1, 17}, {64, 1}, {64, 15}, {1, 16}, {7, 17}, {64, 16}, {1, 15}, {7, 1}, {64, 17}, {1, 1}, {7, 15},
				} {
					if !*soak && i != next%12 {
						continue
					}
					for j, got := range prefill(t, m, e, v.chunk, cut, v.batch) {
						if fmt.Sprint(got) != want {
							t.Errorf("chunks of %d, cut at %d, sequence %d of %d: other bits", v.chunk, cut, j, v.batch)
						}
					}
				}
				next++
			}
		})
	}
}

// prefill runs the prompt in chunks for `batch` sequences in one Run each, and where cut > 0, layers [0, cut) and the
// rest in separate Runs. The first chunks of sequences but the first are shorter, so that no two of a few are at one position.
func prefill(t testing.TB, m *runtime.Model, e golden.Expected, chunk, cut, batch int) []digests {
	t.Helper()
	return prefillAs(t, m, m.Profile(), e, chunk, cut, batch)
}

// prefillAs is prefill of sequences with a profile, whose seam passes the cut as bytes.
func prefillAs(t testing.TB, m *runtime.Model, p runtime.Profile, e golden.Expected, chunk, cut, batch int) []digests {
	t.Helper()
	out := make([]digests, batch)
	hash := make([]*blake3.Hasher, batch)
	seqs := make([]runtime.Sequence, batch)
	for i := range batch {
		var err error
		if seqs[i], err = m.NewSequenceFor(p, len(e.Prompt), m.Layers()); err != nil {
			t.Fatal(err)
		}
		hash[i] = blake3.New(32, nil)
		defer seqs[i].Close()
	}
	layers := m.Config().Layers
	at := make([]int, batch)
	for round := 0; ; round++ {
		var who []int
		var firsts, steps []*runtime.Step
		for i := range batch {
			n := min(chunk, len(e.Prompt)-at[i])
			if round == 0 {
				n = min(chunk-i%chunk, n)
			}
			if n == 0 {
				continue
			}
			step := &runtime.Step{Seq: seqs[i], Layers: runtime.Range{First: 0, Last: layers}, Start: at[i], N: n, Tokens: e.Prompt[at[i] : at[i]+n]}
			for _, pos := range e.LogitsPositions {
				if pos >= at[i] && pos < at[i]+n {
					step.LogitRows = append(step.LogitRows, pos-at[i])
				}
			}
			if cut > 0 {
				firsts = append(firsts, &runtime.Step{Seq: seqs[i], Layers: runtime.Range{First: 0, Last: cut}, Start: at[i], N: n, Tokens: step.Tokens})
				step.Layers.First, step.Tokens = cut, nil
			}
			steps, who = append(steps, step), append(who, i)
			at[i] += n
		}
		if len(steps) == 0 {
			break
		}
		if cut > 0 {
			run(t, m, firsts...)
			for i, first := range firsts {
				seam, width := p.SeamAt(cut), m.Config().Width
				steps[i].Seam = seam.Decode(seam.Append(nil, first.Out, width), width)
			}
		}
		run(t, m, steps...)
		for i, step := range steps {
			for _, logits := range step.Logits {
				var b []byte
				for _, x := range logits {
					b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
				}
				hash[who[i]].Write(b)
			}
		}
	}
	for i := range out {
		out[i].Logits = hex.EncodeToString(hash[i].Sum(nil)[:16])
		for l := range layers {
			kv := seqs[i].Digest(l)
			out[i].KV = append(out[i].KV, hex.EncodeToString(kv[:16]))
		}
	}
	return out
}
