package tokenizer

import (
	"fmt"
	"hash/maphash"
)

// seed makes hashes differ from process to process, so that no file and no prompt
// can be made of texts that collide.
var seed = maphash.MakeSeed()

// slots is a hash table of things that are numbered and kept elsewhere: open
// addressing, linear probing.
type slots []slot

// slot is empty where id is 0, else for thing id-1.
type slot struct {
	hash uint32 // the upper half of the thing's; the lower half says where to look
	id   int32
}

// newSlots indexes things by their hashes. Of those that same says are the same,
// only the first is entered. It is on the way to the first token of every run:
// all hashes come first because then the table, which caches do not hold, is
// written in a loop so short that its waits overlap.
func newSlots(hashes []uint64, same func(first, again int32) bool) slots {
	size := 2
	for size < len(hashes)+len(hashes)/2 {
		size *= 2
	}
	table, mask := make(slots, size), size-1
	for i, h := range hashes {
		at := int(h) & mask
		for table[at].id != 0 && (table[at].hash != uint32(h>>32) || !same(table[at].id-1, int32(i))) {
			at = (at + 1) & mask
		}
		if table[at].id == 0 {
			table[at] = slot{uint32(h >> 32), int32(i) + 1}
		}
	}
	return table
}

// lexicon finds tokens by their text, which is never asked for when empty.
type lexicon struct {
	tokens []string
	slots  slots
}

// newLexicon indexes token texts by id and refuses duplicates. Empty texts are
// allowed: they can be neither matched nor merged.
func newLexicon(tokens []string) (lexicon, error) {
	hashes := make([]uint64, len(tokens))
	for i, text := range tokens {
		hashes[i] = maphash.String(seed, text)
	}
	var err error
	table := newSlots(hashes, func(first, again int32) bool {
		same := tokens[first] == tokens[again]
		if same && tokens[first] != "" && err == nil {
			err = fmt.Errorf("tokenizer.ggml.tokens[%d] and [%d] are the same token %s", first, again, quote(tokens[first]))
		}
		return same
	})
	return lexicon{tokens, table}, err
}

// search returns the token of a text with hash h, or -1.
func (x *lexicon) search(h uint64, text string) int32 {
	mask := len(x.slots) - 1
	for at := int(h) & mask; ; at = (at + 1) & mask {
		s := x.slots[at]
		if s.id == 0 || s.hash == uint32(h>>32) && x.tokens[s.id-1] == text {
			return s.id - 1
		}
	}
}

// find returns the token of that text, or -1.
func (x *lexicon) find(text string) int32 { return x.search(maphash.String(seed, text), text) }

// has reports whether there is a token of that text.
func (x *lexicon) has(text string) bool { return x.find(text) >= 0 }
