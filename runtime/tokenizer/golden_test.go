package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// shared returns the path of a file of the golden data beside the repository,
// and skips the test when that is not there.
func shared(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join("../../../shared", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no golden data: %v", err)
	}
	return path
}

// benchModel returns the path of a model that is too large to be beside the
// repository: STARLING_TEST_MODELS names the folder of models that
// ../shared/bench-peers/bench-peers.sh has downloaded. Without it the test is skipped.
func benchModel(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(os.Getenv("STARLING_TEST_MODELS"), name)
	if _, err := os.Stat(path); err != nil || os.Getenv("STARLING_TEST_MODELS") == "" {
		t.Skipf("set STARLING_TEST_MODELS to a folder with %s", name)
	}
	return path
}

// loadVocab reads the tokenizer of a GGUF file the way runtime does.
func loadVocab(t testing.TB, path string) Vocab {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	model, err := f.String("tokenizer.ggml.model")
	must(err)
	pre, err := f.StringOr("tokenizer.ggml.pre", "")
	must(err)
	v := Defaults(model, pre)
	v.Tokens, err = f.Strings("tokenizer.ggml.tokens")
	must(err)
	v.Types, err = f.Int32sOr("tokenizer.ggml.token_type", nil)
	must(err)
	v.Merges, err = f.StringsOr("tokenizer.ggml.merges", nil)
	must(err)
	v.Scores, err = f.Float32sOr("tokenizer.ggml.scores", nil)
	must(err)
	v.AddBOS, err = f.BoolOr("tokenizer.ggml.add_bos_token", v.AddBOS)
	must(err)
	v.AddEOS, err = f.BoolOr("tokenizer.ggml.add_eos_token", false)
	must(err)
	v.AddSpacePrefix, err = f.BoolOr("tokenizer.ggml.add_space_prefix", v.AddSpacePrefix)
	must(err)
	v.ChatTemplate, err = f.StringOr("tokenizer.chat_template", "")
	must(err)
	v.Name, err = f.StringOr("general.name", "")
	must(err)
	const none = 1 << 40
	for key, id := range map[string]*int32{
		"bos_token_id": &v.BOS, "eos_token_id": &v.EOS, "eot_token_id": &v.EOT,
		"padding_token_id": &v.PAD, "unknown_token_id": &v.UNK,
	} {
		n, err := f.UintOr("tokenizer.ggml."+key, none)
		must(err)
		if n != none {
			*id = int32(n)
		}
	}
	return v
}

func loadTokenizer(t testing.TB, path string) *Tokenizer {
	t.Helper()
	tok, err := New(loadVocab(t, path))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func loadJSON(t testing.TB, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

// checkIDs compares an encoding and, for plain ones, the way back.
func checkIDs(t *testing.T, tok *Tokenizer, text string, o EncodeOptions, want []int32) {
	t.Helper()
	got := tok.Encode(text, o)
	if !slices.Equal(got, want) {
		t.Errorf("Encode(%q, %+v)\n got %v\nwant %v", text, o, got, want)
	}
	if back := tok.Decode(got, true); !o.AddSpecial && back != text {
		t.Errorf("Decode(Encode(%q)) = %q", text, back)
	}
}

// TestVocabGolden runs llama.cpp's own tokenizer test vectors: those beside the
// repository, and all that are in the folder STARLING_TEST_VOCABS, which can be
// the folder models of llama.cpp's source.
func TestVocabGolden(t *testing.T) {
	for _, name := range []string{"gpt-2", "starcoder", "falcon", "deepseek-llm", "llama-spm"} {
		t.Run(name, func(t *testing.T) {
			path := shared(t, "golden/vocab/"+name+".gguf")
			checkVocab(t, path, loadTokenizer(t, path))
		})
	}
	if dir := os.Getenv("STARLING_TEST_VOCABS"); dir != "" {
		vectors, err := filepath.Glob(filepath.Join(dir, "*.gguf.out"))
		if err != nil || len(vectors) == 0 {
			t.Fatalf("STARLING_TEST_VOCABS: no *.gguf.out in %s (%v)", dir, err)
		}
		for _, path := range vectors {
			path = strings.TrimSuffix(path, ".out")
			t.Run(filepath.Base(path), func(t *testing.T) {
				tok, err := New(loadVocab(t, path))
				if errors.Is(err, ErrUnsupported) {
					t.Skipf("refused, so its vectors prove nothing here: %v", err)
				} else if err != nil {
					t.Fatal(err)
				}
				checkVocab(t, path, tok)
			})
		}
	}
}

// checkVocab compares with the vectors path.inp and path.out.
func checkVocab(t *testing.T, path string, tok *Tokenizer) {
	in, err := os.ReadFile(path + ".inp")
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(path + ".out")
	if err != nil {
		t.Fatal(err)
	}
	texts := strings.Split(strings.TrimSuffix(string(in), "\n__ggml_vocab_test__\n"), "\n__ggml_vocab_test__\n")
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(texts) != len(lines) || len(texts) < 40 {
		t.Fatalf("%d texts, %d lines of ids", len(texts), len(lines))
	}
	for i, text := range texts {
		var want []int32
		for _, f := range strings.Fields(lines[i]) {
			id, err := strconv.ParseInt(f, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, int32(id))
		}
		checkIDs(t, tok, text, EncodeOptions{}, want)
	}
}

// TestLlamaCppGolden compares with ids that llama.cpp b11434 gave for prompts
// with code, numbers, several scripts, emoji and special tokens.
func TestLlamaCppGolden(t *testing.T) {
	for _, c := range []struct{ vocab, ids string }{
		{"golden/vocab/deepseek-r1-qwen.gguf", "golden/llamacpp/deepseek-r1-distill-qwen-7b.tokens.json"},
		{"models/smollm2-135m-instruct-q4_1.gguf", "golden/llamacpp/smollm2-135m-q4_1.q8act.json"},
		{"gemma3-270m-q4_k_m.gguf", "golden/llamacpp/gemma3-270m-q4_k_m.q8act.json"},
	} {
		t.Run(filepath.Base(c.vocab), func(t *testing.T) {
			var path string
			if filepath.Dir(c.vocab) == "." {
				path = benchModel(t, c.vocab)
			} else {
				path = shared(t, c.vocab)
			}
			tok := loadTokenizer(t, path)
			var golden struct {
				NVocab  int `json:"n_vocab"`
				Prompts []struct {
					Name, Text string
					Plain      []int32 `json:"tokens_plain"`
					Special    []int32 `json:"tokens_add_special"`
					Parsed     []int32 `json:"tokens_add_and_parse_special"`
				}
				NLL struct{ Tokens []int32 }
				IDs []int32 `json:"nll_text_tokens"`
			}
			loadJSON(t, shared(t, c.ids), &golden)
			if tok.Size() != golden.NVocab {
				t.Errorf("Size() = %d, want %d", tok.Size(), golden.NVocab)
			}
			if len(golden.Prompts) == 0 {
				t.Fatal("no prompts")
			}
			for _, p := range golden.Prompts {
				checkIDs(t, tok, p.Text, EncodeOptions{}, p.Plain)
				checkIDs(t, tok, p.Text, EncodeOptions{AddSpecial: true}, p.Special)
				checkIDs(t, tok, p.Text, EncodeOptions{AddSpecial: true, ParseSpecial: true}, p.Parsed)
			}
			text, err := os.ReadFile(shared(t, "golden/llamacpp/nll_text.txt"))
			if err != nil {
				t.Fatal(err)
			}
			want := golden.IDs
			if want == nil {
				want = golden.NLL.Tokens
			}
			if len(want) == 0 {
				t.Fatal("no ids for nll_text.txt")
			}
			if got := tok.Encode(string(text), EncodeOptions{AddSpecial: true}); !slices.Equal(got, want) {
				t.Errorf("nll_text.txt: %d ids, want %d; they differ", len(got), len(want))
			}
		})
	}
}

// TestTinyGolden compares with the tokenizer of the golden Llama model, which
// Hugging Face's tokenizers library made and ran.
func TestTinyGolden(t *testing.T) {
	tok := loadTokenizer(t, shared(t, "golden/llama/model.gguf"))
	var golden struct {
		Tokenize []struct {
			Text string
			IDs  []int32
		}
	}
	loadJSON(t, shared(t, "golden/llama/expected.json"), &golden)
	if len(golden.Tokenize) == 0 {
		t.Fatal("no vectors")
	}
	for _, c := range golden.Tokenize {
		checkIDs(t, tok, c.Text, EncodeOptions{}, c.IDs)
	}
}
