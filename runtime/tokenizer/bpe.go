package tokenizer

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"unicode/utf8"
)

// bpe is a byte-level BPE vocabulary.
//
// Whether two neighbours merge is found by the text of both together: each symbol
// has the merges that make it. So there is no table of merges, whose sides would
// have to be looked up beforehand, and what a merge makes is known with it. A
// symbol that is no token is emitted byte by byte.
type bpe struct {
	byText     lexicon // symbols: tokens, then what else merges make
	types      []int32
	makings    []making   // by symbol: the first of its merges, of cut 0 where there is none
	more       []making   // those after the first; more[0] is unused
	longest    int        // bytes of the longest symbol that a merge makes
	bytePairs  []pairing  // of two single bytes, by left<<8 | right: words begin with these
	byteID     [256]int32 // token id of each single byte, or unk
	wholeWords bool       // a word that is a token is not merged
}

// making is a merge, at the symbol that it makes.
type making struct {
	cut  int32 // where the right side begins in the symbol's text
	rank int32 // index in tokenizer.ggml.merges
	next int32 // the symbol's next making in bpe.more, 0 for none
}

// pairing is what two single bytes become.
type pairing struct {
	sym  int32
	rank int32 // -1: they do not merge
}

// newBPE indexes the merges. It is on the way to the first token of every run.
func newBPE(v Vocab, types []int32, byText lexicon, wholeWords bool) (bpe, error) {
	b := bpe{
		byText: byText, types: types, makings: make([]making, len(v.Tokens)), more: make([]making, 1, 1+max(0, len(v.Merges)-len(v.Tokens))),
		bytePairs: make([]pairing, 1<<16), wholeWords: wholeWords,
	}
	for c, r := range runeOf {
		if b.byteID[c] = b.find([]byte(string(r))); b.byteID[c] < 0 {
			b.byteID[c] = max(v.UNK, -1)
		}
	}
	for i := range b.bytePairs {
		b.bytePairs[i].rank = -1
	}
	var texts []string // of symbols that are no tokens
	others := map[string]int32{}
	last := int32(-1) // the token that the last merge made
	var buf []byte
	for i, m := range v.Merges {
		// Most vocabularies number tokens in the order of the merges that make them, some with several merges for each.
		sym, cut := last+1, cutInto(v.Tokens, last+1, m)
		if cut < 0 {
			sym, cut = last, cutInto(v.Tokens, last, m)
		}
		switch {
		case cut < 0:
			if cut = cutMerge(m); cut < 0 {
				return bpe{}, mergeError(i, m)
			}
			buf = append(append(buf[:0], m[:cut]...), m[cut+1:]...)
			sym = byText.search(maphash.Bytes(seed, buf), buf)
		case b.makings[sym].cut == 0 && !inAlphabet(v.Tokens[sym]):
			return bpe{}, mergeError(i, m)
		}
		if sym >= 0 {
			last = sym
		} else if other, ok := others[string(buf)]; ok {
			sym = other
		} else {
			sym = int32(len(b.makings))
			b.makings = append(b.makings, making{})
			texts = append(texts, string(buf))
			others[texts[len(texts)-1]] = sym
		}
		b.longest = max(b.longest, len(m)-1)
		if !b.note(sym, making{cut: int32(cut), rank: int32(i)}) {
			continue
		}
		if len(m) <= 5 {
			if left, right := byteOfText(m[:cut]), byteOfText(m[cut+1:]); left >= 0 && right >= 0 {
				b.bytePairs[left<<8|right] = pairing{sym, int32(i)}
			}
		}
	}
	if len(texts) == 0 {
		return b, nil
	}
	var err error
	b.byText, err = newLexicon(slices.Concat(v.Tokens, texts))
	return b, err
}

// cutInto returns where the separator of merge m is if without it m is the text of
// token id, else -1. It may be given any id.
func cutInto(tokens []string, id int32, m string) int {
	if id < 0 || int(id) >= len(tokens) || len(tokens[id]) != len(m)-1 {
		return -1
	}
	text, cut := tokens[id], 0
	for cut < len(text) && m[cut] == text[cut] {
		cut++
	}
	if cut == 0 || cut == len(text) || m[cut] != ' ' || m[cut+1:] != text[cut:] {
		return -1
	}
	return cut
}

// note adds a merge that makes sym, and reports whether it was not there: the
// first of equal merges counts.
func (b *bpe) note(sym int32, m making) bool {
	at := &b.makings[sym]
	if at.cut == 0 {
		*at = m
		return true
	}
	for at.cut != m.cut {
		if at.next == 0 {
			at.next = int32(len(b.more))
			b.more = append(b.more, m)
			return true
		}
		at = &b.more[at.next]
	}
	return false
}

// cutMerge returns where the separator of a merge "left right" is, or -1 when m is
// not one of two symbols in the byte alphabet.
func cutMerge(m string) int {
	cut := strings.IndexByte(m, ' ')
	if cut < 1 || cut == len(m)-1 || !inAlphabet(m[:cut]) || !inAlphabet(m[cut+1:]) {
		return -1
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

// merge returns what the two sides of text, the right one from cut on, become by
// a merge, and its rank; -1 when they do not merge.
func (b *bpe) merge(text []byte, cut int32) (sym, rank int32) {
	if len(text) > b.longest {
		return -1, -1
	}
	sym = b.byText.search(maphash.Bytes(seed, text), text)
	if sym < 0 {
		return -1, -1
	}
	at := &b.makings[sym]
	for at.cut != cut {
		if at.next == 0 {
			return -1, -1
		}
		at = &b.more[at.next]
	}
	return sym, at.rank
}

// find returns the token of a text in the byte alphabet, if it can come out of
// merges, or -1.
func (b *bpe) find(text []byte) int32 {
	if id := b.byText.search(maphash.Bytes(seed, text), text); id >= 0 && b.normal(id) {
		return id
	}
	return -1
}

// normal reports whether a symbol is a token that can come out of merges. Control
// tokens cannot: they must not appear in a prompt because somebody spelled them.
func (b *bpe) normal(sym int32) bool {
	return int(sym) < len(b.types) && (b.types[sym] == typeNormal || b.types[sym] == typeUndefined)
}

// candidate is a possible merge of the symbol at pos with its right neighbour,
// which reaches from right to end. It is stale once that is no longer so.
type candidate struct {
	key        uint64 // rank, then position: the order of merging
	right, end int32
	sym        int32 // what it makes
}

// key returns the key of a candidate.
func key[T int32 | uint32](rank T, pos int32) uint64 { return uint64(rank)<<32 | uint64(uint32(pos)) }

func (c candidate) pos() int32 { return int32(uint32(c.key)) }

// merger holds the working memory of encoding one text after another. A symbol is
// a part of the word and known by the byte where it begins.
type merger struct {
	prev, next []int32 // by byte: neighbours; -1 at the start, the word's length at the end
	heap       []candidate
	pushes     int // candidates ever queued: the measure of work, at most 3 per byte

	sym []int32 // by the byte where a symbol begins: its number, -1 for none; SentencePiece: swallowed inside of one

	text []byte  // byte-level BPE: the word, in the byte alphabet
	off  []int32 // where each byte of the word is in text, and where that ends
}

// encode appends the ids of word to dst: starting from single bytes, the merge
// of lowest rank is applied first, the leftmost of equals first, until none
// applies. Cost: O(n log n) for n bytes, with n times the length of the longest
// symbol to hash and compare texts.
func (b *bpe) encode(dst []int32, word string, m *merger) []int32 {
	n := len(word)
	if n == 1 {
		return b.emitByte(dst, word[0])
	}
	m.prev, m.next, m.sym, m.off = sized(m.prev, n), sized(m.next, n), sized(m.sym, n), sized(m.off, n+1)
	m.text, m.heap = m.text[:0], m.heap[:0]
	for i := range n {
		m.prev[i], m.next[i], m.sym[i], m.off[i] = int32(i-1), int32(i+1), -1, int32(len(m.text))
		m.text = utf8.AppendRune(m.text, runeOf[word[i]])
	}
	m.off[n] = int32(len(m.text))
	if b.wholeWords {
		if id := b.find(m.text); id >= 0 {
			return append(dst, id)
		}
	}
	for i := range int32(n - 1) {
		if p := b.bytePairs[int(word[i])<<8|int(word[i+1])]; p.rank >= 0 {
			m.push(candidate{key: key(p.rank, i), right: i + 1, end: i + 2, sym: p.sym})
		}
	}
	for len(m.heap) > 0 {
		c := m.pop()
		l, r, after := c.pos(), c.right, c.end
		if m.next[l] != r || m.next[r] != after {
			continue
		}
		m.next[l], m.next[r], m.sym[l] = after, -1, c.sym
		if int(after) < n {
			m.prev[after] = l
			b.queue(m, l)
		}
		if p := m.prev[l]; p >= 0 {
			b.queue(m, p)
		}
	}
	for i := int32(0); int(i) < n; i = m.next[i] {
		if sym := m.sym[i]; sym >= 0 && b.normal(sym) {
			dst = append(dst, sym)
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
	from := m.off[l]
	if sym, rank := b.merge(m.text[from:m.off[after]], m.off[r]-from); sym >= 0 {
		m.push(candidate{key: key(rank, l), right: r, end: after, sym: sym})
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
