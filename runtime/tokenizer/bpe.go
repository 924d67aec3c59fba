package tokenizer

import (
	"fmt"
	"strings"
)

// bpe is the merge table of a byte-level BPE vocabulary.
//
// Symbols are numbered: token ids first, then "virtual" symbols, which occur in
// merges but are not tokens themselves. A virtual symbol left over when no
// merge applies is emitted byte by byte.
type bpe struct {
	tokens  int32            // symbols below this are token ids
	byteSym [256]int32       // symbol of each single byte, or -1
	byteID  [256]int32       // token id of each single byte, or unk
	merges  map[uint64]merge // by pair(left, right)
	virtual [][]byte         // bytes of the virtual symbols
	words   *plain           // asked for whole words first; nil when the pre-tokenizer has no such rule
}

// merge is what a pair of symbols becomes, and how early.
type merge struct {
	rank uint32 // position in tokenizer.ggml.merges
	sym  int32
}

func pair(l, r int32) uint64 { return uint64(uint32(l))<<32 | uint64(uint32(r)) }

// plain are the tokens that can come out of merges, by their text in the byte
// alphabet: the normal ones. Control tokens must not appear in a prompt because
// somebody spelled them.
type plain struct {
	byText lexicon
	types  []int32
}

// find returns the normal token of that text, or -1.
func (p *plain) find(text string) int32 {
	if id := p.byText.find(text); id >= 0 && p.normal(id) {
		return id
	}
	return -1
}

// is reports whether id is the normal token of that text. Any id may be asked for.
func (p *plain) is(id int32, text string) bool {
	return int(id) < len(p.types) && p.byText.tokens[id] == text && p.normal(id)
}

func (p *plain) normal(id int32) bool {
	return p.types[id] == typeNormal || p.types[id] == typeUndefined
}

// newBPE builds the merge table. It is on the way to the first token of every
// run: texts are looked up as the file has them, and only those of merges that
// name no token are kept apart.
func newBPE(v Vocab, types []int32, byText lexicon, wholeWords bool) (bpe, error) {
	b := bpe{tokens: int32(len(v.Tokens)), merges: make(map[uint64]merge, len(v.Merges))}
	known := &plain{byText, types}
	if wholeWords {
		b.words = known
	}
	for c := range 256 {
		id := known.find(string(runeOf[c]))
		b.byteSym[c], b.byteID[c] = id, id
		if id < 0 {
			b.byteID[c] = max(v.UNK, -1)
		}
	}

	virtual := map[string]int32{} // by text
	symbol := func(text string) int32 {
		if id := known.find(text); id >= 0 {
			return id
		}
		if id, ok := virtual[text]; ok {
			return id
		}
		raw := appendDecoded(nil, text)
		id := b.tokens + int32(len(b.virtual))
		b.virtual = append(b.virtual, raw)
		virtual[strings.Clone(text)] = id // a copy, so that text itself need not be on the heap
		if len(raw) == 1 {
			b.byteSym[raw[0]] = id
		}
		return id
	}
	var buf []byte
	made := int32(-1) // by the last merge
	for i, m := range v.Merges {
		// A merge never begins with the separator, hence the search from 1.
		cut := -1
		if m != "" {
			cut = strings.IndexByte(m[1:], ' ') + 1
		}
		if cut < 1 || cut == len(m)-1 {
			return bpe{}, fmt.Errorf("tokenizer.ggml.merges[%d] is %s, not two symbols with a space between", i, quote(m))
		}
		if !inAlphabet(m[:cut]) || !inAlphabet(m[cut+1:]) {
			return bpe{}, fmt.Errorf("tokenizer.ggml.merges[%d] is %s, which has characters outside the byte alphabet", i, quote(m))
		}
		p := pair(symbol(m[:cut]), symbol(m[cut+1:]))
		if _, dup := b.merges[p]; !dup { // the first of equal merges counts
			buf = append(append(buf[:0], m[:cut]...), m[cut+1:]...)
			// Most vocabularies number tokens in the order of the merges that make them.
			if made++; !known.is(made, string(buf)) {
				made = symbol(string(buf))
			}
			b.merges[p] = merge{rank: uint32(i), sym: made}
		}
	}
	return b, nil
}

// candidate is a possible merge of the symbol at pos with its right neighbour.
// It is stale once either of them has changed.
type candidate struct {
	key         uint64 // rank, then position: the order of merging
	left, right int32
	sym         int32
}

func (c candidate) pos() int32 { return int32(uint32(c.key)) }

// merger holds the working memory of encoding one text after another.
type merger struct {
	text       []byte  // the word, in the byte alphabet
	sym        []int32 // symbol at each position, -1 once swallowed by its left neighbour
	prev, next []int32 // neighbours; -1 at the start, len(sym) at the end
	heap       []candidate
	pushes     int // candidates ever queued: the measure of work, at most 3 per byte
}

// encode appends the ids of word to dst: starting from single bytes, the merge
// of lowest rank is applied first, the leftmost of equals first, until none
// applies. Cost: O(n log n) for n bytes.
func (b *bpe) encode(dst []int32, word string, m *merger) []int32 {
	if b.words != nil {
		m.text = appendAlphabet(m.text[:0], word)
		if id := b.words.find(string(m.text)); id >= 0 {
			return append(dst, id)
		}
	}
	n := len(word)
	if n == 1 {
		return b.emitByte(dst, word[0])
	}
	m.sym, m.prev, m.next = m.sym[:0], m.prev[:0], m.next[:0]
	m.heap = m.heap[:0]
	for i := range n {
		m.sym = append(m.sym, b.byteSym[word[i]])
		m.prev = append(m.prev, int32(i-1))
		m.next = append(m.next, int32(i+1))
	}
	for i := range n - 1 {
		b.queue(m, int32(i))
	}
	for len(m.heap) > 0 {
		c := m.pop()
		l := c.pos()
		if m.sym[l] != c.left {
			continue
		}
		r := m.next[l]
		if int(r) == n || m.sym[r] != c.right {
			continue
		}
		m.sym[l], m.sym[r] = c.sym, -1
		after := m.next[r]
		m.next[l] = after
		if int(after) < n {
			m.prev[after] = l
			b.queue(m, l)
		}
		if p := m.prev[l]; p >= 0 {
			b.queue(m, p)
		}
	}
	for i := int32(0); int(i) < n; i = m.next[i] {
		switch s := m.sym[i]; {
		case s >= 0 && s < b.tokens:
			dst = append(dst, s)
		default:
			for j := i; j < m.next[i]; j++ {
				dst = b.emitByte(dst, word[j])
			}
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

// queue adds the merge of the symbol at position l with its right neighbour, if there is one.
func (b *bpe) queue(m *merger, l int32) {
	left, right := m.sym[l], m.sym[m.next[l]]
	if left < 0 || right < 0 {
		return
	}
	if mg, ok := b.merges[pair(left, right)]; ok {
		m.push(candidate{key: uint64(mg.rank)<<32 | uint64(uint32(l)), left: left, right: right, sym: mg.sym})
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
