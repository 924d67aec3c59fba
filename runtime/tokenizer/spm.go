package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// spaceMark is how SentencePiece writes a space.
const (
	spaceRune = '\u2581'
	spaceMark = string(spaceRune)
)

// spm is a SentencePiece vocabulary of byte-pair kind, tokenizer.ggml.model
// "llama": two neighbours may merge whenever their texts together are a token,
// and that token's score says how early. What ends up as no token becomes the
// tokens of its bytes.
type spm struct {
	byText  lexicon
	rank    []uint32      // by id: 0 for the highest score possible, ascending with falling scores; noText for tokens that text cannot become
	byteID  [256]int32    // token id of each byte, or unk, or -1
	longest int           // bytes of the longest token that text can become
	joined  map[rune]bool // characters that such a token has just before a space
	prefix  bool          // a space is put in front of every text between special tokens
}

// noText is the rank of control, unknown and byte tokens, which cannot come out
// of text: they must not appear in a prompt because somebody spelled them. No
// score has this rank.
const noText = math.MaxUint32

// newSPM indexes the vocabulary.
func newSPM(v Vocab, types []int32, byText lexicon) (*spm, error) {
	switch n := len(v.Tokens); {
	case len(v.Scores) == 0:
		return nil, errors.New("tokenizer.ggml.scores is missing or empty")
	case len(v.Scores) != n:
		return nil, fmt.Errorf("tokenizer.ggml.scores has %d entries for %d tokens", len(v.Scores), n)
	}
	s := &spm{byText: byText, rank: make([]uint32, len(v.Tokens)), joined: make(map[rune]bool), prefix: v.AddSpacePrefix}
	for c := range s.byteID {
		s.byteID[c] = max(v.UNK, -1)
	}
	bytes := 0
	for i, text := range v.Tokens {
		if v.Scores[i] != v.Scores[i] {
			return nil, fmt.Errorf("tokenizer.ggml.scores[%d] is not a number", i)
		}
		s.rank[i] = rankOf(v.Scores[i])
		switch types[i] {
		case typeByte:
			b, err := parseByteToken(text)
			if err != nil {
				return nil, fmt.Errorf("tokenizer.ggml.tokens[%d]: %w", i, err)
			}
			s.byteID[b] = int32(i)
			bytes++
			fallthrough
		case typeControl, typeUnknown:
			s.rank[i] = noText
			continue
		}
		s.longest = max(s.longest, len(text))
		s.noteJoined(text)
	}
	if bytes == 0 { // tokens of one byte stand in
		for c := range s.byteID {
			if id := s.find(string([]byte{byte(c)})); id >= 0 {
				s.byteID[c] = id
			}
		}
	}
	return s, nil
}

// noteJoined notes the characters in front of spaces inside of text.
func (s *spm) noteJoined(text string) {
	for from := 1; from < len(text); {
		at := strings.Index(text[from:], spaceMark)
		if at < 0 {
			return
		}
		at += from
		if r, _ := utf8.DecodeLastRuneInString(text[:at]); r != spaceRune {
			s.joined[r] = true
		}
		from = at + len(spaceMark)
	}
}

// find returns the token that text can become, or -1.
func (s *spm) find(text string) int32 {
	id := s.byText.find(text)
	if id >= 0 && s.rank[id] == noText {
		return -1
	}
	return id
}

// rankOf orders scores: the higher the score, the lower the rank.
func rankOf(score float32) uint32 {
	u := math.Float32bits(score + 0) // -0 counts as 0
	if u>>31 != 0 {
		return u
	}
	return ^u &^ (1 << 31)
}

// appendText implements model. Where no token has the characters around a place
// in its text, no merge crosses it: so the text is cut into words in front of
// spaces, as long as that is sure, and words are merged one by one.
func (s *spm) appendText(ids []int32, text string, w *work) []int32 {
	text = strings.ReplaceAll(text, " ", spaceMark)
	if s.prefix {
		text = spaceMark + text
	}
	start := 0
	for i := 0; i < len(text); {
		r, width := utf8.DecodeRuneInString(text[i:])
		i += width
		if r != spaceRune && !s.joined[r] && strings.HasPrefix(text[i:], spaceMark) {
			ids = w.appendWord(ids, text[start:i], s)
			start = i
		}
	}
	return w.appendWord(ids, text[start:], s)
}

// swallowed in merger.sym is part of the symbol before it; -1 there is a character
// that is not a token.
const swallowed = -2

// encode appends the ids of word to dst: starting from single characters, the
// merge into the token of the highest score is applied first, the leftmost of
// equals first, until none applies. Cost: O(n log n) for n bytes, with n times
// the length of the longest token to compare texts.
func (s *spm) encode(dst []int32, word string, m *merger) []int32 {
	n := len(word)
	m.sym, m.prev, m.next = sized(m.sym, n), sized(m.prev, n), sized(m.next, n)
	m.heap = m.heap[:0]
	last := int32(-1)
	for i := 0; i < n; {
		_, width := utf8.DecodeRuneInString(word[i:])
		m.sym[i], m.prev[i], m.next[i] = s.find(word[i:i+width]), last, int32(i+width)
		for j := i + 1; j < i+width; j++ {
			m.sym[j] = swallowed
		}
		last = int32(i)
		i += width
	}
	for i := int32(0); int(i) < n; i = m.next[i] {
		s.queue(m, word, i)
	}
	for len(m.heap) > 0 {
		c := m.pop()
		l, r, after := c.pos(), c.right, c.end
		if m.sym[l] == swallowed || m.sym[r] == swallowed || m.next[r] != after {
			continue
		}
		m.sym[l], m.sym[r] = c.sym, swallowed
		m.next[l] = after
		if int(after) < n {
			m.prev[after] = l
			s.queue(m, word, l)
		}
		if p := m.prev[l]; p >= 0 {
			s.queue(m, word, p)
		}
	}
	for i := int32(0); int(i) < n; i = m.next[i] {
		if id := m.sym[i]; id >= 0 {
			dst = append(dst, id)
			continue
		}
		for j := i; j < m.next[i]; j++ {
			if id := s.byteID[word[j]]; id >= 0 {
				dst = append(dst, id)
			}
		}
	}
	return dst
}

// queue adds the merge of the symbol at byte l of word with its right neighbour,
// if their text is a token.
func (s *spm) queue(m *merger, word string, l int32) {
	r := m.next[l]
	if int(r) == len(word) {
		return
	}
	after := m.next[r]
	if int(after-l) > s.longest {
		return
	}
	if id := s.find(word[l:after]); id >= 0 {
		m.push(candidate{key: key(s.rank[id], l), right: r, end: after, sym: id})
	}
}

// sized returns a slice of n elements with arbitrary contents, in s's memory
// where that suffices.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/2)
	}
	return s[:n]
}

// appendSpaced appends text with spaces for the marks.
func appendSpaced(dst []byte, text string) []byte {
	for {
		at := strings.Index(text, spaceMark)
		if at < 0 {
			return append(dst, text...)
		}
		dst = append(append(dst, text[:at]...), ' ')
		text = text[at+len(spaceMark):]
	}
}
