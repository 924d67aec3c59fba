package template

import (
	"strings"
	"unicode/utf8"
)

// number reads an integer (decimal, 0x, 0o, 0b; underscores between digits) or
// a float. A number right after a dot is an integer: it is a subscript.
func (l *lexer) number() error {
	s := l.src[l.pos:]
	afterDot := l.pos > 0 && l.src[l.pos-1] == '.'
	if len(s) > 2 && s[0] == '0' {
		if digits := map[byte]string{'x': "0123456789abcdefABCDEF", 'o': "01234567", 'b': "01"}[s[1]|0x20]; digits != "" {
			n := 2 + digitsLen(s[2:], digits)
			if n > 2 {
				l.emit(tokInt, s[:n])
				l.advance(l.pos + n)
				return nil
			}
		}
	}
	const decimal = "0123456789"
	n := digitsLen(s, decimal)
	isFloat := false
	if !afterDot {
		if n+1 < len(s) && s[n] == '.' {
			if d := digitsLen(s[n+1:], decimal); d > 0 {
				n += 1 + d
				isFloat = true
			}
		}
		if n+1 < len(s) && s[n]|0x20 == 'e' {
			m := n + 1
			if s[m] == '+' || s[m] == '-' {
				m++
			}
			if d := digitsLen(s[m:], decimal); d > 0 {
				n = m + d
				isFloat = true
			}
		}
	}
	k := tokInt
	if isFloat {
		k = tokFloat
	}
	l.emit(k, strings.ReplaceAll(s[:n], "_", ""))
	l.advance(l.pos + n)
	return nil
}

// digitsLen returns the length of the run of digits, with single underscores
// between them, that s begins with.
func digitsLen(s, digits string) int {
	n := 0
	for i := 0; i < len(s); i++ {
		switch {
		case strings.IndexByte(digits, s[i]) >= 0:
			n = i + 1
		case s[i] == '_' && n == i && i > 0:
		default:
			return n
		}
	}
	return n
}

// str reads a quoted string and resolves Python's escapes.
func (l *lexer) str() error {
	quote := l.src[l.pos]
	var b strings.Builder
	for i := l.pos + 1; i < len(l.src); {
		switch c := l.src[i]; c {
		case quote:
			l.emit(tokString, b.String())
			l.advance(i + 1)
			return nil
		case '\\':
			n, err := l.escape(&b, i)
			if err != nil {
				return err
			}
			i += n
		default:
			b.WriteByte(c)
			i++
		}
	}
	return l.errorf("a string is not closed")
}

var simpleEscapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// escape resolves the escape at src[i:] and returns its length.
func (l *lexer) escape(b *strings.Builder, i int) (int, error) {
	if i+1 >= len(l.src) {
		return 0, l.errorf("a string is not closed")
	}
	c := l.src[i+1]
	if s, ok := simpleEscapes[c]; ok {
		b.WriteString(s)
		return 2, nil
	}
	value := func(from, n, base int) (rune, int) {
		var r rune
		k := 0
		for k < n && from+k < len(l.src) {
			d := strings.IndexByte("0123456789abcdef", l.src[from+k]|0x20)
			if l.src[from+k] < '0' || d < 0 || d >= base {
				break
			}
			r = r*rune(base) + rune(d)
			k++
		}
		return r, k
	}
	switch c {
	case '0', '1', '2', '3', '4', '5', '6', '7':
		r, n := value(i+1, 3, 8)
		b.WriteRune(r)
		return 1 + n, nil
	case 'x', 'u', 'U':
		want := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		r, n := value(i+2, want, 16)
		if n != want || !utf8.ValidRune(r) {
			return 0, l.errorf("a string has a bad \\%c escape", c)
		}
		b.WriteRune(r)
		return 2 + n, nil
	case 'N':
		return 0, l.errorf("the \\N{…} escape is not supported")
	}
	b.WriteByte('\\')
	return 1, nil
}
