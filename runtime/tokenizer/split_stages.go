package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// singleNumber is \p{N}.
func singleNumber(sc *scanner, text string, i int) (int, bool) {
	c, w := sc.at(text, i)
	return i + w, c == number
}

// numberRun is \p{N}+.
func numberRun(sc *scanner, text string, i int) (int, bool) {
	j := sc.run(text, i, number)
	return j, j > i
}

// numberTriple is \p{N}{1,3}.
func numberTriple(sc *scanner, text string, i int) (int, bool) {
	j := sc.upTo(text, i, number, 3)
	return j, j > i
}

// digitTriple is [0-9][0-9][0-9].
func digitTriple(_ *scanner, text string, i int) (int, bool) {
	for j := i; j < i+3; j++ {
		if j >= len(text) || text[j] < '0' || text[j] > '9' {
			return i, false
		}
	}
	return i + 3, true
}

// punctuationRun is [\p{P}\$\+<=>\^~\|]+.
func punctuationRun(sc *scanner, text string, i int) (int, bool) {
	return setRun(sc, text, i, func(r rune) bool {
		return unicode.IsPunct(r) || r < utf8.RuneSelf && strings.IndexByte("$+<=>^~|", byte(r)) >= 0
	})
}

// punctuationOrBacktickRun is Falcon's [\p{P}\$\+<=>\^~\|`]+.
func punctuationOrBacktickRun(sc *scanner, text string, i int) (int, bool) {
	return setRun(sc, text, i, func(r rune) bool {
		return unicode.IsPunct(r) || r < utf8.RuneSelf && strings.IndexByte("$+<=>^~|`", byte(r)) >= 0
	})
}

// newline is [\r\n].
func newline(_ *scanner, text string, i int) (int, bool) {
	if isNewline(text[i]) {
		return i + 1, true
	}
	return i, false
}

// deepseekLetters is DeepSeek-LLM's \s?[A-Za-z…]+.
func deepseekLetters(sc *scanner, text string, i int) (int, bool) {
	return spaceAndSetRun(sc, text, i, isDeepseekLetter)
}

// deepseekPunctuation is DeepSeek-LLM's \s?[!-/:-~！-／：-～‘-‟　-。]+.
func deepseekPunctuation(sc *scanner, text string, i int) (int, bool) {
	return spaceAndSetRun(sc, text, i, isDeepseekPunctuation)
}

// deepseekCJK is DeepSeek-LLM's [一-龥ࠀ-一가-퟿]+.
func deepseekCJK(sc *scanner, text string, i int) (int, bool) {
	return setRun(sc, text, i, isDeepseekCJK)
}

// deepseek3CJK is DeepSeek-V3's [一-龥぀-ゟ゠-ヿ]+.
func deepseek3CJK(sc *scanner, text string, i int) (int, bool) {
	return setRun(sc, text, i, func(r rune) bool {
		return r >= 0x4E00 && r <= 0x9FA5 || r >= 0x3040 && r <= 0x30FF
	})
}

// spaceAndLetters is DeepSeek-Coder's \s?\p{L}+.
func spaceAndLetters(sc *scanner, text string, i int) (int, bool) {
	return spaceAndSetRun(sc, text, i, unicode.IsLetter)
}

// spaceAndPunctuation is DeepSeek-Coder's \s?\p{P}+.
func spaceAndPunctuation(sc *scanner, text string, i int) (int, bool) {
	return spaceAndSetRun(sc, text, i, unicode.IsPunct)
}

// trailingSpace is \s+$. White space that does not reach the end of the word is
// passed over as a whole: no match begins in it.
func trailingSpace(sc *scanner, text string, i int) (int, bool) {
	j := sc.run(text, i, space)
	return j, j > i && j == len(text)
}

// setRun matches […]+ for the set in.
func setRun(sc *scanner, text string, i int, in func(rune) bool) (int, bool) {
	j := sc.runOf(text, i, in)
	return j, j > i
}

// spaceAndSetRun matches \s?[…]+ for the set in, which has no white space.
func spaceAndSetRun(sc *scanner, text string, i int, in func(rune) bool) (int, bool) {
	j := i
	if c, w := sc.at(text, i); c == space {
		j += w
	}
	if end := sc.runOf(text, j, in); end > j {
		return end, true
	}
	return i, false
}
