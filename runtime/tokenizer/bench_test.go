package tokenizer

import (
	"bufio"
	"errors"
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// benchVocabs calls f for each kind of vocabulary: with digits and spaces split in
// several ways, the largest of byte-level BPE (152,000 tokens), and SentencePiece.
func benchVocabs(b *testing.B, f func(b *testing.B, v Vocab)) {
	for _, name := range []string{"gpt-2", "starcoder", "falcon", "deepseek-llm", "deepseek-r1-qwen", "llama-spm"} {
		b.Run(name, func(b *testing.B) { f(b, loadVocab(b, shared(b, "golden/vocab/"+name+".gguf"))) })
	}
	b.Run("gemma", func(b *testing.B) { f(b, loadVocab(b, benchModel(b, "gemma3-270m-q4_k_m.gguf"))) })
}

// BenchmarkEncode encodes English prose, each time as if for the first.
func BenchmarkEncode(b *testing.B) {
	text, err := os.ReadFile(shared(b, "golden/llamacpp/nll_text.txt"))
	if err != nil {
		b.Fatal(err)
	}
	benchEncode(b, string(text))
}

// BenchmarkEncodeCold encodes 3 MB of English with many different words by a tokenizer that has just been built.
func BenchmarkEncodeCold(b *testing.B) { benchCold(b, comments(b, 3<<20)) }

// BenchmarkEncodeDistinct encodes each of its words once.
func BenchmarkEncodeDistinct(b *testing.B) {
	seen := map[string]bool{}
	var text strings.Builder
	for word := range strings.FieldsSeq(comments(b, 3<<20)) {
		if !seen[word] {
			seen[word] = true
			text.WriteString(word + " ")
		}
	}
	benchCold(b, text.String())
}

func benchCold(b *testing.B, text string) {
	benchVocabs(b, func(b *testing.B, v Vocab) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			tok := newToy(b, v)
			b.StartTimer()
			tok.Encode(text, EncodeOptions{})
		}
	})
}

// comments returns n bytes of the comments of Go's standard library.
func comments(b *testing.B, n int) string {
	var text strings.Builder
	enough := errors.New("enough")
	err := filepath.WalkDir(filepath.Join(build.Default.GOROOT, "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if comment, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "//"); ok {
				text.WriteString(strings.TrimPrefix(comment, " ") + "\n")
			}
		}
		if text.Len() >= n {
			return enough
		}
		return nil
	})
	if err != enough {
		b.Fatal("not enough comments in the standard library:", err)
	}
	return text.String()[:n]
}

// BenchmarkEncodeOneWord encodes the same without white space, nearly one word.
func BenchmarkEncodeOneWord(b *testing.B) {
	text, err := os.ReadFile(shared(b, "golden/llamacpp/nll_text.txt"))
	if err != nil {
		b.Fatal(err)
	}
	benchEncode(b, strings.Join(strings.Fields(string(text)), ""))
}

// BenchmarkEncodeHostile encodes 1 MB of what makes a careless splitter or merger slow.
func BenchmarkEncodeHostile(b *testing.B) {
	texts := hostile(1 << 20)
	for _, what := range []string{"spaces", "one letter", "random letters", "one emoji", "alternating classes"} {
		b.Run(what, func(b *testing.B) { benchEncode(b, texts[what]) })
	}
}

func benchEncode(b *testing.B, text string) {
	benchVocabs(b, func(b *testing.B, v Vocab) {
		tok := newToy(b, v)
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			tok.Encode(text, EncodeOptions{})
		}
	})
}

// BenchmarkNew builds the tokenizer, which every run waits for.
func BenchmarkNew(b *testing.B) {
	benchVocabs(b, func(b *testing.B, v Vocab) {
		b.ReportAllocs()
		for b.Loop() {
			newToy(b, v)
		}
	})
}
