package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// grammar is the shape that the expressions since cl100k_base share, as an
// ordered choice:
//
//	first | prefix? word | \p{N}{1,digits} | ' '? inked+ tail* | \s*[\r\n]+ | \s+(?!\S) | \s+
type grammar struct {
	first  func(sc *scanner, text string, i int) int // where the match at text[i:] ends, i when there is none; nil for no such alternative
	prefix class                                     // of these, but never a line break, one may be in front of a word
	word   func(sc *scanner, text string, i int) int // likewise
	digits int
	inked  class
	tail   string // characters
}

// beforeWord is [^\r\n\p{L}\p{N}], with what [grammar.match] knows of line breaks.
const beforeWord = inked | space

var (
	// llama3 is (?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
	//  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
	llama3 = &grammar{first: anyContraction, prefix: beforeWord, word: letters, digits: 3, inked: inked, tail: "\r\n"}

	// qwen2 is llama3 with one digit at a time. BailingMoE's \s*[\r\n] in the place of
	// \s*[\r\n]+ matches the same.
	qwen2 = &grammar{first: anyContraction, prefix: beforeWord, word: letters, digits: 1, inked: inked, tail: "\r\n"}

	// qwen35 is qwen2 with combining marks as letters: [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+ and  ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*
	qwen35 = &grammar{first: anyContraction, prefix: beforeWord, word: lettersAndMarks, digits: 1, inked: inked &^ mark, tail: "\r\n"}

	// seedCoder is qwen2 with  ?[^\s\p{L}\p{N}\r\n]+
	seedCoder = &grammar{first: anyContraction, prefix: beforeWord, word: letters, digits: 1, inked: inked}

	// tekken is, with U for (?=\p{L})[^a-z] and L for (?=\p{L})[^A-Z],
	// [^\r\n\p{L}\p{N}]?U*L+|[^\r\n\p{L}\p{N}]?U+L*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
	tekken = &grammar{prefix: beforeWord, word: casedWord, digits: 1, inked: inked, tail: "\r\n/"}

	// gpt4o is tekken with \p{N}{1,3}, and llama3's contractions as ends of words.
	gpt4o = &grammar{prefix: beforeWord, word: contractedWord(casedWord), digits: 3, inked: inked, tail: "\r\n/"}

	// kimi is, with \p{Han} as isHan, [\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{L}--\p{Han}]+(?:contraction)?|\p{N}{1,3}|
	//  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
	kimi = &grammar{first: han, prefix: beforeWord, word: contractedWord(lettersButHan), digits: 3, inked: inked, tail: "\r\n"}

	// deepseek3 is the last of DeepSeek-V3's expressions, [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
	//  ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
	deepseek3 = &grammar{first: signAndLetters, prefix: mark | number | space | other, word: lettersAndMarks, inked: punctuation | symbol, tail: "\r\n"}
)

// match is a stage.
func (g *grammar) match(sc *scanner, text string, i int) (int, bool) {
	if g.first != nil {
		if j := g.first(sc, text, i); j > i {
			return j, true
		}
	}
	c, w := sc.at(text, i)
	if c&g.prefix != 0 && !isNewline(text[i]) {
		if j := g.word(sc, text, i+w); j > i+w {
			return j, true
		}
	}
	if c&(letter|mark) != 0 {
		if j := g.word(sc, text, i); j > i {
			return j, true
		}
	}
	if c == number && g.digits > 0 {
		return sc.upTo(text, i, number, g.digits), true
	}
	j := i
	if text[i] == ' ' {
		j++
	}
	if c, w := sc.at(text, j); c&g.inked != 0 {
		j = sc.run(text, j+w, g.inked)
		for j < len(text) && strings.IndexByte(g.tail, text[j]) >= 0 {
			j++
		}
		return j, true
	}
	j = spaces(sc, text, i, true)
	return j, j > i
}

// upTo returns the end of the run of characters in set, at most n, that begins at text[i:].
func (sc *scanner) upTo(text string, i int, set class, n int) int {
	for ; n > 0; n-- {
		c, w := sc.at(text, i)
		if c&set == 0 {
			break
		}
		i += w
	}
	return i
}

func anyContraction(_ *scanner, text string, i int) int { return i + contraction(text[i:], true) }

func letters(sc *scanner, text string, i int) int { return sc.run(text, i, letter) }

func lettersAndMarks(sc *scanner, text string, i int) int { return sc.run(text, i, letter|mark) }

// casedWord matches U*L+|U+L* for letters, where U is all but a–z and L all but
// A–Z: letters outside ASCII are both. Words end in front of a capital after a
// small letter.
func casedWord(sc *scanner, text string, i int) int {
	capitals, both := i, i // where U* ends, and where the last letter of both kinds in it does
	for {
		c, w := sc.at(text, capitals)
		if c != letter || isSmall(text[capitals]) {
			break
		}
		capitals += w
		if w > 1 {
			both = capitals
		}
	}
	j := capitals
	for {
		c, w := sc.at(text, j)
		if c != letter || isCapital(text[j]) {
			break
		}
		j += w
	}
	if j == capitals && both > i { // L+ needs a letter, so U* gives back what it can spare
		return both
	}
	return j
}

func isSmall(c byte) bool { return 'a' <= c && c <= 'z' }

func isCapital(c byte) bool { return 'A' <= c && c <= 'Z' }

// contractedWord is word with an English contraction after it, if there is one.
func contractedWord(word func(*scanner, string, int) int) func(*scanner, string, int) int {
	return func(sc *scanner, text string, i int) int {
		j := word(sc, text, i)
		if j > i {
			j += contraction(text[j:], true)
		}
		return j
	}
}

// isHan reports whether r is of the blocks of Chinese characters that Kimi-K2's
// expression means in llama.cpp (b11434, unicode_cpt_is_han).
func isHan(r rune) bool {
	return r >= 0x4E00 && r <= 0x9FFF || r >= 0x3400 && r <= 0x4DBF || r >= 0x20000 && r <= 0x2A6DF ||
		r >= 0x2A700 && r <= 0x2EBEF || r >= 0xF900 && r <= 0xFAFF || r >= 0x2F800 && r <= 0x2FA1F
}

func han(sc *scanner, text string, i int) int { return sc.runOf(text, i, isHan) }

func lettersButHan(sc *scanner, text string, i int) int {
	for {
		c, w := sc.at(text, i)
		if c != letter {
			return i
		}
		if r, _ := utf8.DecodeRuneInString(text[i:]); isHan(r) {
			return i
		}
		i += w
	}
}

// signAndLetters matches [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+.
func signAndLetters(sc *scanner, text string, i int) int {
	if text[i] >= utf8.RuneSelf || asciiClass[text[i]]&(punctuation|symbol) == 0 {
		return i
	}
	j := i + 1
	for j < len(text) && (isSmall(text[j]) || isCapital(text[j])) {
		j++
	}
	if j == i+1 {
		return i
	}
	return j
}
