// Package tokenizer turns text into a model's token ids and back, and renders
// conversations through the model's chat template.
//
// What a GGUF header says about its tokenizer comes in as a [Vocab]; [New]
// checks all of it, because it is foreign data, and returns a [Tokenizer] that
// is immutable and safe for concurrent use.
//
// # The path of a prompt
//
//	text ── special.go ──▶ fragments: special tokens, and text between them
//
// then, with a byte-level BPE vocabulary,
//
//	── split*.go  ──▶ words: the model's pre-tokenizer, one stage per regular expression of the original
//	── bpe.go     ──▶ ids: byte-level byte-pair merges, lowest rank first, leftmost on ties
//
// and with a SentencePiece one,
//
//	── spm.go     ──▶ ids: merges into tokens, highest score first, leftmost on ties; bytes for the rest
//
// Every step is linear in the text, or n·log n within one word, whatever the
// text is. Token ids are those of llama.cpp (b11434, src/llama-vocab.cpp),
// which is the reference for what a GGUF tokenizer means; the three deliberate
// differences are at [Tokenizer.Encode].
//
// The way back is [Tokenizer.Decode] for whole sequences and [Stream] for
// tokens as they are sampled.
package tokenizer
