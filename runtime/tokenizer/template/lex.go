package template

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is the kind of a token.
type kind uint8

const (
	tokEOF  kind = iota
	tokData      // text outside of tags
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString // val is the value, escapes resolved
	tokInt
	tokFloat
	tokOp // val is the operator
)

type token struct {
	kind kind
	val  string
	line int
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "the end of the template"
	case tokVarEnd:
		return "}}"
	case tokBlockEnd:
		return "%}"
	case tokString:
		return strconv.Quote(t.val)
	}
	return "'" + t.val + "'"
}

// lexer cuts a source into tokens, with Jinja's rules for white space around
// tags: a '-' inside a tag's brackets removes it on that side, '+' keeps it, a
// line break after a block or comment is removed (trim_blocks), and so is the
// indentation before one that begins its line (lstrip_blocks).
type lexer struct {
	src    string
	pos    int
	line   int
	tokens []token
	// lineStart is whether the last thing read ended with a line break: then
	// the tag that follows begins its line though no text is before it.
	lineStart bool
}

// lex returns the tokens of src, ended by tokEOF.
func lex(src string) ([]token, error) {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	src = strings.TrimSuffix(src, "\n")
	l := &lexer{src: src, line: 1, lineStart: true}
	for l.pos < len(l.src) {
		if err := l.data(); err != nil {
			return nil, err
		}
	}
	l.emit(tokEOF, "")
	return l.tokens, nil
}

func (l *lexer) emit(k kind, val string) { l.tokens = append(l.tokens, token{k, val, l.line}) }

func (l *lexer) errorf(format string, args ...any) error {
	return &SyntaxError{Line: l.line, Msg: fmt.Sprintf(format, args...)}
}

// advance moves to pos, counting lines.
func (l *lexer) advance(pos int) {
	l.line += strings.Count(l.src[l.pos:pos], "\n")
	l.pos = pos
}

// data reads text up to the next tag, and that tag.
func (l *lexer) data() error {
	rest := l.src[l.pos:]
	at := tagStart(rest)
	if at < 0 {
		l.emit(tokData, rest)
		l.advance(len(l.src))
		return nil
	}
	open := rest[at : at+2]
	after := l.pos + at + 2
	sign := byte(0)
	if after < len(l.src) && (l.src[after] == '-' || l.src[after] == '+') {
		sign = l.src[after]
		after++
	}
	if text := l.strip(rest[:at], sign, open != "{{"); text != "" {
		l.emit(tokData, text)
	}
	l.advance(after)
	switch open {
	case "{#":
		return l.comment()
	case "{%":
		if end, ok := l.rawBegin(); ok {
			l.advance(end)
			return l.raw()
		}
		l.emit(tokBlockBegin, "{%")
		return l.tag(tokBlockEnd)
	}
	l.emit(tokVarBegin, "{{")
	return l.tag(tokVarEnd)
}

// tagStart returns the offset of the first "{{", "{%" or "{#" of s, or -1.
func tagStart(s string) int {
	for i := 0; ; {
		j := strings.IndexByte(s[i:], '{')
		if j < 0 || i+j+1 >= len(s) {
			return -1
		}
		i += j
		if c := s[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
		i++
	}
}

// strip removes the white space at the end of text that a tag with the given
// sign takes.
func (l *lexer) strip(text string, sign byte, block bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == 0 && block:
		lineAt := strings.LastIndexByte(text, '\n') + 1
		if (lineAt > 0 || l.lineStart) && strings.TrimLeftFunc(text[lineAt:], isSpace) == "" {
			return text[:lineAt]
		}
	}
	return text
}

// blockClose reports where the end of a block, comment or raw tag that begins
// at src[i:] ends, with the white space it takes: close is "%}" or "#}".
func (l *lexer) blockClose(i int, close string) (end int, ok bool) {
	s := l.src[i:]
	switch {
	case strings.HasPrefix(s, "+"+close):
		return i + 3, true
	case strings.HasPrefix(s, "-"+close):
		return l.skipSpace(i + 3), true
	case strings.HasPrefix(s, close+"\n"):
		return i + 3, true
	case strings.HasPrefix(s, close):
		return i + 2, true
	}
	return i, false
}

func (l *lexer) skipSpace(i int) int {
	return len(l.src) - len(strings.TrimLeftFunc(l.src[i:], isSpace))
}

// finish moves past a tag's end and remembers whether it ended a line.
func (l *lexer) finish(end int) {
	l.lineStart = l.src[end-1] == '\n'
	l.advance(end)
}

func (l *lexer) comment() error {
	i := strings.Index(l.src[l.pos:], "#}")
	if i < 0 {
		return l.errorf("a comment is not closed with #}")
	}
	i += l.pos
	if i > l.pos && (l.src[i-1] == '-' || l.src[i-1] == '+') {
		i--
	}
	end, _ := l.blockClose(i, "#}")
	l.finish(end)
	return nil
}

// rawBegin reports whether "raw %}" follows, and where it ends.
func (l *lexer) rawBegin() (end int, ok bool) { return l.word(l.pos, "raw", false) }

// word matches white space, a keyword, white space and the end of a block.
func (l *lexer) word(i int, word string, trim bool) (end int, ok bool) {
	i = l.skipSpace(i)
	if !strings.HasPrefix(l.src[i:], word) {
		return 0, false
	}
	i = l.skipSpace(i + len(word))
	if trim {
		return l.blockClose(i, "%}")
	}
	switch {
	case strings.HasPrefix(l.src[i:], "-%}"):
		return l.skipSpace(i + 3), true
	case strings.HasPrefix(l.src[i:], "%}"):
		return i + 2, true
	}
	return 0, false
}

// raw reads text up to {% endraw %}.
func (l *lexer) raw() error {
	for i := l.pos; ; {
		j := strings.Index(l.src[i:], "{%")
		if j < 0 {
			return l.errorf("{%% raw %%} is not closed with {%% endraw %%}")
		}
		at := i + j
		i = at + 2
		after, sign := i, byte(0)
		if after < len(l.src) && (l.src[after] == '-' || l.src[after] == '+') {
			sign = l.src[after]
			after++
		}
		if end, ok := l.word(after, "endraw", true); ok {
			l.lineStart = l.src[l.pos-1] == '\n'
			if text := l.strip(l.src[l.pos:at], sign, true); text != "" {
				l.emit(tokData, text)
			}
			l.finish(end)
			return nil
		}
	}
}

// operators, longest first.
var operators = []string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

// tag reads the tokens of a tag up to and with its end.
func (l *lexer) tag(closer kind) error {
	var open []byte // closing brackets that are due
	for {
		l.advance(l.skipSpace(l.pos))
		if l.pos >= len(l.src) {
			return l.errorf("a tag is not closed at the end of the template")
		}
		if len(open) == 0 && l.tagEnd(closer) {
			return nil
		}
		s := l.src[l.pos:]
		c := s[0]
		switch {
		case c >= '0' && c <= '9':
			if err := l.number(); err != nil {
				return err
			}
			continue
		case c == '\'' || c == '"':
			if err := l.str(); err != nil {
				return err
			}
			continue
		}
		if n := nameLen(s); n > 0 {
			l.emit(tokName, s[:n])
			l.advance(l.pos + n)
			continue
		}
		op := ""
		for _, o := range operators {
			if strings.HasPrefix(s, o) {
				op = o
				break
			}
		}
		switch op {
		case "":
			r, _ := utf8.DecodeRuneInString(s)
			return l.errorf("unexpected character %q", r)
		case "(":
			open = append(open, ')')
		case "[":
			open = append(open, ']')
		case "{":
			open = append(open, '}')
		case ")", "]", "}":
			if len(open) == 0 || open[len(open)-1] != op[0] {
				return l.errorf("unexpected '%s'", op)
			}
			open = open[:len(open)-1]
		}
		l.emit(tokOp, op)
		l.advance(l.pos + len(op))
	}
}

// tagEnd reads the end of a tag, if it is here.
func (l *lexer) tagEnd(closer kind) bool {
	s := l.src[l.pos:]
	if closer == tokBlockEnd {
		end, ok := l.blockClose(l.pos, "%}")
		if ok {
			l.emit(tokBlockEnd, "%}")
			l.finish(end)
		}
		return ok
	}
	end := 0
	switch {
	case strings.HasPrefix(s, "-}}"):
		end = l.skipSpace(l.pos + 3)
	case strings.HasPrefix(s, "}}"):
		end = l.pos + 2
	default:
		return false
	}
	l.emit(tokVarEnd, "}}")
	l.finish(end)
	return true
}

// nameLen returns the length of the identifier that s begins with, or 0.
func nameLen(s string) int {
	for i, r := range s {
		if r == '_' || unicode.IsLetter(r) || i > 0 && (unicode.IsDigit(r) || unicode.IsMark(r)) {
			continue
		}
		return i
	}
	return len(s)
}

// isSpace is Python's notion of white space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F }
