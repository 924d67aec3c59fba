package tokenizer

// gpt2Word is GPT-2's expression:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2Word(sc *scanner, text string, i int) (int, bool) {
	if n := contraction(text[i:], false); n > 0 {
		return i + n, true
	}
	j := i
	if text[i] == ' ' {
		j++
	}
	if c, w := sc.at(text, j); c != end && c != space {
		return sc.run(text, j+w, c), true
	}
	return spaces(sc, text, i, false), true
}

// llama3Word is Llama-3's expression:
//
//	(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//	 ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func llama3Word(sc *scanner, text string, i int) (int, bool) { return modernWord(sc, text, i, 3) }

// qwen2Word is Qwen2's expression: Llama-3's with one digit at a time.
func qwen2Word(sc *scanner, text string, i int) (int, bool) { return modernWord(sc, text, i, 1) }

func modernWord(sc *scanner, text string, i, digits int) (int, bool) {
	if n := contraction(text[i:], true); n > 0 {
		return i + n, true
	}
	c, w := sc.at(text, i)
	switch {
	case c == letter:
		return sc.run(text, i+w, letter), true
	case c == number:
		i += w
		for digits--; digits > 0; digits-- {
			if c, w = sc.at(text, i); c != number {
				break
			}
			i += w
		}
		return i, true
	case !isNewline(text[i]):
		if next, nw := sc.at(text, i+w); next == letter {
			return sc.run(text, i+w+nw, letter), true
		}
	}
	j := i
	if text[i] == ' ' {
		j++
	}
	if c, w := sc.at(text, j); c == other {
		j = sc.run(text, j+w, other)
		for j < len(text) && isNewline(text[j]) {
			j++
		}
		return j, true
	}
	return spaces(sc, text, i, true), true
}

// spaces matches \s*[\r\n]+ (with lines), else \s+(?!\S), else \s+: a run of
// white space up to its last line break, or all but its last character, which
// goes with the word that follows.
func spaces(sc *scanner, text string, i int, lines bool) int {
	j, last, afterLine := i, i, i
	for {
		c, w := sc.at(text, j)
		if c != space {
			break
		}
		if isNewline(text[j]) {
			afterLine = j + 1
		}
		last, j = j, j+w
	}
	switch {
	case lines && afterLine > i:
		return afterLine
	case j < len(text) && last > i:
		return last
	}
	return j
}

func isNewline(c byte) bool { return c == '\r' || c == '\n' }

// contraction returns the length of the English contraction that text begins
// with, in any case with fold, or 0.
func contraction(text string, fold bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	lower := func(c byte) byte {
		if fold && 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}
	switch a := lower(text[1]); a {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v', 'l':
		if len(text) > 2 {
			if b := lower(text[2]); a == 'l' && b == 'l' || a != 'l' && b == 'e' {
				return 3
			}
		}
	}
	return 0
}
