package tokenizer

import (
	"fmt"
	"hash/maphash"
	"math/bits"
)

// seed makes hashes differ from process to process, so that no file and no prompt
// can be made of texts that collide.
var seed = maphash.MakeSeed()

// lexicon finds tokens by their text, which is never asked for when empty. It is a
// hash table by open addressing with linear probing.
type lexicon struct {
	tokens []string
	// slots are 0 where empty, else id+1 in the lowest idBits and the uppermost bits of
	// the text's hash above; the lowest bits of the hash say where to look. Small slots
	// keep most of the table in a processor's caches.
	slots  []uint32
	idBits int
}

// newLexicon indexes token texts by id and refuses duplicates. Empty texts are
// allowed: they can be neither matched nor merged. It is on the way to the first
// token of every run: hashes are taken some at a time because then the table,
// which caches do not hold, is written in a loop so short that its waits overlap.
func newLexicon(tokens []string) (lexicon, error) {
	size := 2
	for size < len(tokens)+len(tokens)/2 {
		size *= 2
	}
	x := lexicon{tokens, make([]uint32, size), bits.Len(uint(len(tokens)))}
	var hashes [256]uint64
	for from := 0; from < len(tokens); from += len(hashes) {
		some := tokens[from:min(from+len(hashes), len(tokens))]
		for i, text := range some {
			hashes[i] = maphash.String(seed, text)
		}
		for i, h := range hashes[:len(some)] {
			at, tag, text := int(h)&(size-1), uint32(h>>32)>>x.idBits, some[i]
			for ; x.slots[at] != 0; at = (at + 1) & (size - 1) {
				if first := x.id(x.slots[at]); x.slots[at]>>x.idBits == tag && tokens[first] == text && text != "" {
					return lexicon{}, fmt.Errorf("tokenizer.ggml.tokens[%d] and [%d] are the same token %s", first, from+i, quote(text))
				}
			}
			x.slots[at] = tag<<x.idBits | uint32(from+i+1)
		}
	}
	return x, nil
}

// id returns the token in a slot, -1 in an empty one.
func (x *lexicon) id(slot uint32) int32 { return int32(slot&(1<<x.idBits-1)) - 1 }

// search returns the token of a text with hash h, or -1.
func (x *lexicon) search(h uint64, text []byte) int32 {
	mask, tag := len(x.slots)-1, uint32(h>>32)>>x.idBits
	for at := int(h) & mask; ; at = (at + 1) & mask {
		s := x.slots[at]
		if s == 0 || s>>x.idBits == tag && x.tokens[x.id(s)] == string(text) {
			return x.id(s)
		}
	}
}

// find returns the token of that text, or -1.
func (x *lexicon) find(text string) int32 { return x.search(maphash.String(seed, text), []byte(text)) }

// has reports whether there is a token of that text.
func (x *lexicon) has(text string) bool { return x.find(text) >= 0 }
