package tokenizer

import (
	"hash/maphash"
	"strings"
)

// EncodeOptions says how [Tokenizer.Encode] treats special tokens.
type EncodeOptions struct {
	AddSpecial   bool // put BOS before and EOS after, where the vocabulary asks for them
	ParseSpecial bool // text that spells a control token becomes that token; without it, it stays text. User-defined tokens are found in any case
}

// Encode returns the ids of text.
//
// It differs from llama.cpp in three points that no well-formed prompt shows:
// bytes that are not UTF-8 are kept one by one, and not replaced by U+FFFD or
// taken together with what follows; control tokens never come out of merges; and
// of special tokens that overlap the leftmost wins and then the longest, as in
// Hugging Face's tokenizers, not the longest of the whole text.
func (t *Tokenizer) Encode(text string, o EncodeOptions) []int32 {
	ids := make([]int32, 0, len(text)/4+2) // about what English takes
	if o.AddSpecial && t.addBOS {
		ids = append(ids, t.bos)
	}
	ids = t.appendText(ids, text, o.ParseSpecial, &work{})
	if o.AddSpecial && t.addEOS {
		ids = append(ids, t.eos)
	}
	return ids
}

// EncodeChat returns the ids of a rendered chat template: special tokens are
// parsed, and there is exactly one BOS in front where the vocabulary asks for
// one, whether or not the template wrote it. No EOS is added: the conversation
// goes on.
func (t *Tokenizer) EncodeChat(rendered string) []int32 {
	ids := t.Encode(rendered, EncodeOptions{ParseSpecial: true})
	if t.addBOS && (len(ids) == 0 || ids[0] != t.bos) {
		ids = append([]int32{t.bos}, ids...)
	}
	return ids
}

// work is the working memory of one call, with the counts that tests bound.
type work struct {
	merger  merger
	scanner scanner
	met     []meeting // by hash of the word
}

// meeting is a word that the text had before: most words of a text are.
type meeting struct {
	word     string
	from, to int // its ids
}

const (
	maxMeetings = 1 << 14 // 512 KiB; a longer text forgets words
	maxMetLen   = 64      // bytes; longer words are rarely met again
)

// remember makes room for the words of a text of n bytes.
func (w *work) remember(n int) {
	size := 1
	for size < min(n/4, maxMeetings) {
		size *= 2
	}
	w.met = make([]meeting, size)
}

// appendWord appends the ids of a word, which depend on nothing around it.
func (w *work) appendWord(ids []int32, word string, v vocabulary) []int32 {
	if len(word) > maxMetLen {
		return v.encode(ids, word, &w.merger)
	}
	m := &w.met[int(maphash.String(seed, word))&(len(w.met)-1)]
	if m.word == word {
		return append(ids, ids[m.from:m.to]...)
	}
	from := len(ids)
	ids = v.encode(ids, word, &w.merger)
	*m = meeting{word, from, len(ids)}
	return ids
}

// vocabulary turns words into ids: byte-level BPE or SentencePiece.
type vocabulary interface {
	// encode appends the ids of word, which is not empty.
	encode(dst []int32, word string, m *merger) []int32
}

// model is a kind of tokenizer: it turns the text between special tokens into ids.
type model interface {
	// appendText appends the ids of text, which is not empty and has special tokens,
	// or an end of the whole text, on both sides.
	appendText(ids []int32, text string, w *work) []int32
}

// appendText cuts text at its special tokens and encodes what is between them.
func (t *Tokenizer) appendText(ids []int32, text string, control bool, w *work) []int32 {
	w.remember(len(text))
	start := 0
	for i := 0; i < len(text); {
		if !t.special.begins(text[i]) {
			i++
			continue
		}
		id, n := t.special.match(text[i:], control)
		if id < 0 {
			i++
			continue
		}
		if start < i {
			ids = t.model.appendText(ids, text[start:i], w)
		}
		ids = append(ids, id)
		i += n
		if t.eats[id] {
			for i < len(text) && strings.IndexByte(" \t\n\v\f\r", text[i]) >= 0 {
				i++
			}
		}
		start = i
	}
	if start < len(text) {
		ids = t.model.appendText(ids, text[start:], w)
	}
	return ids
}

// byteLevel is byte-level BPE: a pre-tokenizer that cuts text into words, and the
// merges within each.
type byteLevel struct {
	split []stage
	bpe   bpe
}

// appendText implements model.
func (m *byteLevel) appendText(ids []int32, text string, w *work) []int32 {
	start := 0
	for _, end := range w.scanner.split(m.split, text) {
		ids = w.appendWord(ids, text[start:end], &m.bpe)
		start = end
	}
	return ids
}
