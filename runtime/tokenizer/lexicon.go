package tokenizer

import (
	"fmt"
	"hash/maphash"
)

// lexicon finds tokens by their text. It is a hash table of half a million slots
// for a large vocabulary, built in a third of the time of a map, which matters at
// start, and asked several times per byte by [spm].
type lexicon struct {
	tokens []string
	seed   maphash.Seed
	slots  []slot // a power of two, at most half of them taken
}

// slot is an entry of the table: empty where id is 0, else for token id-1.
type slot struct {
	hash uint32 // the upper half of the text's
	id   int32
}

// newLexicon indexes token texts by id and refuses duplicates. Empty texts are
// allowed (they can be neither matched nor merged) and left out.
func newLexicon(tokens []string) (lexicon, error) {
	size := 2
	for size < 2*len(tokens) {
		size *= 2
	}
	x := lexicon{tokens: tokens, seed: maphash.MakeSeed(), slots: make([]slot, size)}
	for i, text := range tokens {
		if text == "" {
			continue
		}
		at, hash, other := x.search(text)
		if other >= 0 {
			return lexicon{}, fmt.Errorf("tokenizer.ggml.tokens[%d] and [%d] are the same token %s", other, i, quote(text))
		}
		x.slots[at] = slot{hash, int32(i) + 1}
	}
	return x, nil
}

// search returns the token of that text, or -1, and the slot where it is or
// belongs, with its hash.
func (x *lexicon) search(text string) (at int, hash uint32, id int32) {
	h := maphash.String(x.seed, text)
	hash = uint32(h >> 32)
	for at = int(h) & (len(x.slots) - 1); ; at = (at + 1) & (len(x.slots) - 1) {
		s := x.slots[at]
		if s.id == 0 {
			return at, hash, -1
		}
		if s.hash == hash && x.tokens[s.id-1] == text {
			return at, hash, s.id - 1
		}
	}
}

// find returns the token of that text, or -1.
func (x *lexicon) find(text string) int32 {
	_, _, id := x.search(text)
	return id
}

// has reports whether there is a token of that text.
func (x *lexicon) has(text string) bool { return x.find(text) >= 0 }
