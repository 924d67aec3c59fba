package tokenizer

import (
	"os"
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

// BenchmarkEncodeOneWord encodes the same without white space, nearly one word.
func BenchmarkEncodeOneWord(b *testing.B) {
	text, err := os.ReadFile(shared(b, "golden/llamacpp/nll_text.txt"))
	if err != nil {
		b.Fatal(err)
	}
	benchEncode(b, strings.Join(strings.Fields(string(text)), ""))
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
