package tokenizer

import (
	"fmt"
	"hash/maphash"
	"strings"
	"unicode/utf8"
)

// bpe is a byte-level BPE vocabulary.
//
// A merge is found by the texts of its two sides. So nothing but their hashes is
// worked out beforehand, and what a merge makes need not be a token: where it is
// none and no merge follows, it is emitted byte by byte.
type bpe struct {
	byText     lexicon
	types      []int32
	merges     []string // best first
	slots      slots    // of merges, by pairHash
	bytePairs  []int32  // merge of two single bytes, by left<<8 | right, or -1: words begin with these
	byteHash   [256]uint64
	byteID     [256]int32 // token id of each single byte, or unk
	wholeWords bool       // a word that is a token is not merged
}

// newBPE indexes the merges.
func newBPE(v Vocab, types []int32, byText lexicon, wholeWords bool) (bpe, error) {
	b := bpe{byText: byText, types: types, merges: v.Merges, wholeWords: wholeWords, bytePairs: make([]int32, 1<<16)}
	for c, r := range runeOf {
		b.byteHash[c] = maphash.String(seed, string(r))
		b.byteID[c] = b.find(b.byteHash[c], string(r))
		if b.byteID[c] < 0 {
			b.byteID[c] = max(v.UNK, -1)
		}
	}
	hashes := make([]uint64, len(v.Merges))
	for i, m := range v.Merges {
		cut := cutMerge(m)
		if cut < 0 {
			return bpe{}, mergeError(i, m)
		}
		hashes[i] = pairHash(maphash.String(seed, m[:cut]), maphash.String(seed, m[cut+1:]))
	}
	b.slots = newSlots(hashes, func(first, again int32) bool { return v.Merges[first] == v.Merges[again] })
	for i := range b.bytePairs {
		b.bytePairs[i] = -1
	}
	var buf [8]byte
	for i := len(v.Merges) - 1; i >= 0; i-- { // backwards: the first of equal merges counts
		if m := v.Merges[i]; len(m) <= 5 {
			if pair := appendDecoded(buf[:0], m); len(pair) == 3 {
				b.bytePairs[int(pair[0])<<8|int(pair[2])] = int32(i)
			}
		}
	}
	return b, nil
}

// cutMerge returns where the separator of a merge "left right" is, or -1 when m is
// not one of two symbols in the byte alphabet.
func cutMerge(m string) int {
	cut := -1
	for i := 0; i < len(m); i++ {
		switch c := m[i]; {
		case c > ' ' && c < 0x7F:
		case c == ' ' && cut < 0 && i > 0 && i < len(m)-1:
			cut = i
		case c >= 0xC2 && i+1 < len(m) && m[i+1]&0xC0 == 0x80: // of two bytes
			r := int(c&0x3F)<<6 | int(m[i+1]&0x3F) // too large where the character is longer
			if r >= len(byteOf) || byteOf[r] < 0 {
				return -1
			}
			i++
		default:
			return -1
		}
	}
	return cut
}

// mergeError says what is wrong with a merge.
func mergeError(i int, m string) error {
	// A merge never begins with the separator, hence the search from 1.
	if m != "" {
		if cut := strings.IndexByte(m[1:], ' ') + 1; cut > 0 && cut < len(m)-1 {
			return fmt.Errorf("tokenizer.ggml.merges[%d] is %s, which has characters outside the byte alphabet", i, quote(m))
		}
	}
	return fmt.Errorf("tokenizer.ggml.merges[%d] is %s, not two symbols with a space between", i, quote(m))
}

// pairHash is the hash of a merge, from those of its sides.
func pairHash(left, right uint64) uint64 {
	return left + right*0x9E3779B97F4A7C15 // odd: 2^64 divided by the golden ratio
}

// search returns the merge of left and right, whose pairHash is h, or -1.
func (b *bpe) search(h uint64, left, right string) int32 {
	mask := len(b.slots) - 1
	for at := int(h) & mask; ; at = (at + 1) & mask {
		s := b.slots[at]
		if s.id == 0 {
			return -1
		}
		if s.hash != uint32(h>>32) {
			continue
		}
		m := b.merges[s.id-1]
		if n := len(left); len(m) == n+1+len(right) && m[n] == ' ' && m[:n] == left && m[n+1:] == right {
			return s.id - 1
		}
	}
}

// find returns the token of a text with hash h, if it can come out of merges, or
// -1. Control tokens cannot: they must not appear in a prompt because somebody
// spelled them.
func (b *bpe) find(h uint64, text string) int32 {
	id := b.byText.search(h, text)
	if id >= 0 && b.types[id] != typeNormal && b.types[id] != typeUndefined {
		return -1
	}
	return id
}

// candidate is a possible merge of the symbol at pos with its right neighbour,
// which reaches from right to end. It is stale once that is no longer so.
type candidate struct {
	key        uint64 // rank, then position: the order of merging
	right, end int32
	sym        int32 // SentencePiece: the token it makes
}

func (c candidate) pos() int32 { return int32(uint32(c.key)) }

// merger holds the working memory of encoding one text after another. A symbol is
// a part of the word and known by the byte where it begins.
type merger struct {
	prev, next []int32 // by byte: neighbours; -1 at the start, the word's length at the end
	heap       []candidate
	pushes     int // candidates ever queued: the measure of work, at most 3 per byte

	sym []int32 // SentencePiece: the token of the symbol, -1 for none, swallowed by its left neighbour

	text []byte   // byte-level BPE: the word, in the byte alphabet
	off  []int32  // where each byte of the word is in text, and where that ends
	hash []uint64 // the hash of the symbol in text
}

// encode appends the ids of word to dst: starting from single bytes, the merge
// of lowest rank is applied first, the leftmost of equals first, until none
// applies. Cost: O(n log n) for n bytes, with n times the length of the longest
// merge to hash and compare texts.
func (b *bpe) encode(dst []int32, word string, m *merger) []int32 {
	n := len(word)
	if n == 1 && !b.wholeWords {
		return b.emitByte(dst, word[0])
	}
	m.prev, m.next, m.hash, m.off = sized(m.prev, n), sized(m.next, n), sized(m.hash, n), sized(m.off, n+1)
	m.text, m.heap = m.text[:0], m.heap[:0]
	for i := range n {
		m.prev[i], m.next[i], m.hash[i], m.off[i] = int32(i-1), int32(i+1), b.byteHash[word[i]], int32(len(m.text))
		m.text = utf8.AppendRune(m.text, runeOf[word[i]])
	}
	m.off[n] = int32(len(m.text))
	if b.wholeWords {
		if id := b.find(maphash.Bytes(seed, m.text), string(m.text)); id >= 0 {
			return append(dst, id)
		}
	}
	for i := range int32(n - 1) {
		m.add(i, i+1, i+2, b.bytePairs[int(word[i])<<8|int(word[i+1])])
	}
	for len(m.heap) > 0 {
		c := m.pop()
		l, r, after := c.pos(), c.right, c.end
		if m.next[l] != r || m.next[r] != after {
			continue
		}
		m.next[l], m.next[r] = after, -1
		m.hash[l] = maphash.Bytes(seed, m.text[m.off[l]:m.off[after]])
		if int(after) < n {
			m.prev[after] = l
			b.queue(m, l)
		}
		if p := m.prev[l]; p >= 0 {
			b.queue(m, p)
		}
	}
	for i := int32(0); int(i) < n; i = m.next[i] {
		if id := b.find(m.hash[i], string(m.text[m.off[i]:m.off[m.next[i]]])); id >= 0 {
			dst = append(dst, id)
			continue
		}
		for j := i; j < m.next[i]; j++ {
			dst = b.emitByte(dst, word[j])
		}
	}
	return dst
}

// emitByte appends the token of one byte, or UNK, or nothing where the
// vocabulary has neither.
func (b *bpe) emitByte(dst []int32, c byte) []int32 {
	if id := b.byteID[c]; id >= 0 {
		return append(dst, id)
	}
	return dst
}

// queue adds the merge of the symbol at byte l with its right neighbour, if there is one.
func (b *bpe) queue(m *merger, l int32) {
	r := m.next[l]
	after := m.next[r]
	left, right := m.text[m.off[l]:m.off[r]], m.text[m.off[r]:m.off[after]]
	m.add(l, r, after, b.search(pairHash(m.hash[l], m.hash[r]), string(left), string(right)))
}

// add queues the merge of the symbols at bytes l and r, which ends at byte end, if its rank is not -1.
func (m *merger) add(l, r, end, rank int32) {
	if rank >= 0 {
		m.push(candidate{key: uint64(rank)<<32 | uint64(uint32(l)), right: r, end: end})
	}
}

// push adds c to the binary min-heap.
func (m *merger) push(c candidate) {
	m.pushes++
	m.heap = append(m.heap, c)
	i := len(m.heap) - 1
	for i > 0 {
		p := (i - 1) / 2
		if c.key >= m.heap[p].key {
			break
		}
		m.heap[i] = m.heap[p]
		i = p
	}
	m.heap[i] = c
}

// pop removes and returns the least candidate; the heap must not be empty.
func (m *merger) pop() candidate {
	top := m.heap[0]
	n := len(m.heap) - 1
	c := m.heap[n]
	m.heap = m.heap[:n]
	i := 0
	for {
		k := 2*i + 1
		if k >= n {
			break
		}
		if k+1 < n && m.heap[k+1].key < m.heap[k].key {
			k++
		}
		if m.heap[k].key >= c.key {
			break
		}
		m.heap[i] = m.heap[k]
		i = k
	}
	if n > 0 {
		m.heap[i] = c
	}
	return top
}
