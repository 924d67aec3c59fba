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
	for _, set := range [...]class{letter, number, inked} {
		if c, w := sc.at(text, j); c&set != 0 {
			return sc.run(text, j+w, set), true
		}
	}
	return spaces(sc, text, i, false), true
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
