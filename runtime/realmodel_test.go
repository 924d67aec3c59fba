package runtime_test

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/tokenizer"
)

// llamacpp is what ../shared/golden/llamacpp/README.md describes, as far as it is used here.
type llamacpp struct {
	Prompts []struct {
		Name   string  `json:"name"`
		Tokens []int32 `json:"tokens_add_and_parse_special"`
		Top10  []struct {
			ID    int32   `json:"id"`
			Logit float32 `json:"logit"`
		} `json:"next_top10"`
		Greedy []int32   `json:"greedy48"`
		Margin []float32 `json:"greedy48_margin"`
		Text   string    `json:"greedy48_text_hex"`
	} `json:"prompts"`
	NLL struct {
		Tokens   []int32   `json:"tokens"`
		PerToken []float64 `json:"per_token_nll"`
		Mean     float64   `json:"mean_nll"`
	} `json:"nll"`
}

// readLlamacpp reads a file of ../shared/golden/llamacpp.
func readLlamacpp(t testing.TB, name string) (g llamacpp) {
	t.Helper()
	data, err := os.ReadFile(shared(t, "golden", "llamacpp", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// realModel is a model that people use, with what llama.cpp computes by it.
type realModel struct {
	name, golden  string
	arch, weights string
	token         float64 // how far a token's NLL may be from llama.cpp's with 8-bit activations
}

// realModels: llama.cpp's NLL of a single token with 8-bit activations is up to 0.8 off its own in float32. Where ours is
// off the other way, twice that lies between the two: with Gemma 1.0 does, on tokens where both are within 0.8 of float32.
//
// SmolLM2 lies beside the repository; Gemma is in the folder that STARLING_TEST_MODELS names, where
// ../shared/bench-peers/bench-peers.sh has put it.
var realModels = []realModel{
	{"smollm2-135m-instruct-q4_1.gguf", "smollm2-135m-q4_1", "llama", "Q4_1", 0.8},
	{"gemma3-270m-q4_k_m.gguf", "gemma3-270m-q4_k_m", "gemma3", "Q4_K_M", 1.6},
}

// open opens the model, or skips the test where it is not here.
func (r realModel) open(t testing.TB) (*runtime.Model, llamacpp) {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "models", r.name)
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(os.Getenv("STARLING_TEST_MODELS"), r.name)
		if _, err := os.Stat(path); err != nil {
			t.Skipf("needs %s: set STARLING_TEST_MODELS to its folder", r.name)
		}
	}
	g := readLlamacpp(t, r.golden+".q8act.json")
	m := open(t, runtime.Options{Path: path})
	if arch := m.Config().Arch; arch != r.arch {
		t.Fatalf("%s is of the architecture %s, not %s", path, arch, r.arch)
	}
	return m, g
}

// heavy skips a test that computes for long.
func heavy(t testing.TB) {
	t.Helper()
	if testing.Short() || raceEnabled {
		t.Skip("computes for a minute or two: not with -short or -race")
	}
}

const (
	topTolerance = 0.65 // of a top-10 logit: how far llama.cpp's own two variants lie apart
	decisive     = 1.3  // a lead of the best token that no such error can undo
)

// TestSmolLM2Paris asks the shipped model a question in its own chat format. With the template's default system message
// its first token would be a near tie ("The" leads "L" by 0.09 in float32), which 8-bit activations may turn.
func TestSmolLM2Paris(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	m, _ := realModels[0].open(t)
	tok := m.Tokenizer()
	text, err := tok.RenderChat([]tokenizer.Message{
		{Role: "system", Content: "You are a helpful assistant."},
		{Role: "user", Content: "What is the capital of France?"},
	}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	prompt := tok.Encode(text, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
	start := time.Now()
	answer := tok.Decode(generate(t, m, prompt, 16), false)
	t.Logf("%d prompt tokens, %q, %v", len(prompt), answer, time.Since(start).Round(time.Millisecond))
	if !strings.Contains(answer, "Paris") {
		t.Errorf("the answer is %q", answer)
	}
}

// generate decodes greedily until the end of the answer or for n tokens.
func generate(t testing.TB, m *runtime.Model, prompt []int32, n int) (out []int32) {
	t.Helper()
	s := sequenceOf(t, m, len(prompt)+n)
	step := &runtime.Step{Seq: s, Layers: m.Layers(), N: len(prompt), Tokens: prompt, LogitRows: []int{len(prompt) - 1}}
	for {
		run(t, m, step)
		at := step.Start + step.N
		id, err := runtime.Sample(step.Logits[0], out, at, runtime.Sampling{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Tokenizer().IsEOG(id) {
			return out
		}
		if out = append(out, id); len(out) == n {
			return out
		}
		step = &runtime.Step{Seq: s, Layers: m.Layers(), Start: at, N: 1, Tokens: []int32{id}, LogitRows: []int{0}}
	}
}

// TestTop10 compares the logits after each prompt, and after each prefix of its greedy continuation
// (teacher-forced), with llama.cpp's.
func TestTop10(t *testing.T) {
	heavy(t)
	for _, r := range realModels {
		t.Run(r.golden, func(t *testing.T) {
			m, g := r.open(t)
			compareTop10(t, m, g)
		})
	}
}

func compareTop10(t *testing.T, m *runtime.Model, g llamacpp) {
	worst, tested := 0.0, 0
	for _, p := range g.Prompts {
		if len(p.Tokens) == 0 {
			continue
		}
		tokens := slices.Concat(p.Tokens, p.Greedy)
		want := len(p.Tokens) - 1
		step := &runtime.Step{Seq: sequenceOf(t, m, len(tokens)), Layers: m.Layers(), N: len(tokens), Tokens: tokens}
		for r := want; r < len(tokens); r++ {
			step.LogitRows = append(step.LogitRows, r)
		}
		run(t, m, step)
		for _, top := range p.Top10 {
			d := math.Abs(float64(step.Logits[0][top.ID] - top.Logit))
			worst = math.Max(worst, d)
			if d > topTolerance {
				t.Errorf("%s: logit of token %d is %v, llama.cpp's %v", p.Name, top.ID, step.Logits[0][top.ID], top.Logit)
			}
		}
		for i, id := range p.Greedy {
			if p.Margin[i] <= decisive {
				continue
			}
			tested++
			if got, err := runtime.Sample(step.Logits[i], nil, want+i, runtime.Sampling{}); err != nil || got != id {
				t.Errorf("%s: greedy token %d is %d (%v), llama.cpp's %d by %v", p.Name, i, got, err, id, p.Margin[i])
			}
		}
		if text, err := hex.DecodeString(p.Text); err != nil || m.Tokenizer().Decode(p.Greedy, true) != string(text) {
			t.Errorf("%s: the greedy text is %q, want %q", p.Name, m.Tokenizer().Decode(p.Greedy, true), text)
		}
	}
	if tested < 30 {
		t.Errorf("only %d decisive greedy tokens compared", tested)
	}
	t.Logf("largest difference of a top-10 logit %.3f; %d decisive tokens", worst, tested)
}

// TestNLL compares the negative log-likelihood of a long text, token by token.
func TestNLL(t *testing.T) {
	heavy(t)
	for _, r := range realModels {
		t.Run(r.golden, func(t *testing.T) {
			m, g := r.open(t)
			compareNLL(t, m, g, r.token)
		})
	}
}

func compareNLL(t *testing.T, m *runtime.Model, g llamacpp, token float64) {
	tokens := g.NLL.Tokens
	s := sequenceOf(t, m, len(tokens))
	start := time.Now()
	sum, worst := 0.0, 0.0
	const chunk = 128
	for at := 0; at < len(tokens); at += chunk {
		n := min(chunk, len(tokens)-at)
		step := &runtime.Step{Seq: s, Layers: m.Layers(), Start: at, N: n, Tokens: tokens[at : at+n]}
		for r := range n {
			if at+r+1 < len(tokens) {
				step.LogitRows = append(step.LogitRows, r)
			}
		}
		run(t, m, step)
		for i, r := range step.LogitRows {
			got := nll(step.Logits[i], tokens[at+r+1])
			want := g.NLL.PerToken[at+r]
			sum += got
			worst = math.Max(worst, math.Abs(got-want))
			if math.Abs(got-want) > token {
				t.Errorf("NLL of token %d is %.3f, llama.cpp's %.3f", at+r+1, got, want)
			}
		}
	}
	mean := sum / float64(len(tokens)-1)
	if math.Abs(mean-g.NLL.Mean) > 0.005*g.NLL.Mean {
		t.Errorf("mean NLL %.5f, llama.cpp's %.5f", mean, g.NLL.Mean)
	}
	t.Logf("mean NLL %.5f, llama.cpp's %.5f; largest difference of a token %.3f; %v", mean, g.NLL.Mean, worst, time.Since(start).Round(time.Second))
}

// nll is −log softmax(logits)[id].
func nll(logits []float32, id int32) float64 { return logSum(logits) - float64(logits[id]) }
