package template

import (
	"fmt"
	"slices"
)

// Template is a parsed chat template. It is immutable and safe for concurrent
// use.
type Template struct {
	body block
}

// Parse parses a template. Its error is a [SyntaxError], or a [LimitError] for
// a source that is too long.
func Parse(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, &LimitError{What: "source", Limit: maxSource}
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, _, err := p.block()
	if err != nil {
		return nil, err
	}
	return &Template{body: body}, nil
}

// parser is a recursive-descent parser with Jinja's grammar. It holds the
// position; the statements are in parse_stmt.go, the expressions in
// parse_expr.go.
type parser struct {
	tokens  []token
	pos     int
	nesting int
	macros  []*macroDef // being parsed, outermost first
	loops   int         // for loops being parsed, within the innermost macro
}

func (p *parser) cur() token { return p.tokens[p.pos] }

// peek returns the token after the current one.
func (p *parser) peek() token { return p.tokens[min(p.pos+1, len(p.tokens)-1)] }

// next returns the current token and moves on; the end is never passed.
func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

func (p *parser) isOp(op string) bool {
	t := p.cur()
	return t.kind == tokOp && t.val == op
}

func (p *parser) isName(name string) bool {
	t := p.cur()
	return t.kind == tokName && t.val == name
}

// skipOp moves past the operator if it is here.
func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) errorf(line int, format string, args ...any) error {
	return &SyntaxError{Line: line, Msg: fmt.Sprintf(format, args...)}
}

// unexpected is the error for the current token.
func (p *parser) unexpected(want string) error {
	return p.errorf(p.cur().line, "expected %s, found %s", want, p.cur())
}

func (p *parser) expectOp(op string) error {
	if !p.skipOp(op) {
		return p.unexpected("'" + op + "'")
	}
	return nil
}

func (p *parser) expectKind(k kind, want string) (token, error) {
	if p.cur().kind != k {
		return token{}, p.unexpected(want)
	}
	return p.next(), nil
}

// reserved words are not variables.
var reserved = []string{"and", "else", "if", "in", "is", "not", "or"}

func (p *parser) expectName() (string, error) {
	t := p.cur()
	if t.kind != tokName {
		return "", p.unexpected("a name")
	}
	if slices.Contains(reserved, t.val) {
		return "", p.errorf(t.line, "'%s' cannot be used as a name", t.val)
	}
	p.pos++
	return t.val, nil
}

// enter counts one level of nesting of the source.
func (p *parser) enter() error {
	p.nesting++
	if p.nesting > maxNesting {
		return p.errorf(p.cur().line, "nested more than %d deep", maxNesting)
	}
	return nil
}

func (p *parser) leave() { p.nesting-- }

// chain counts what comes in a row and makes a tree deep without nesting, or is
// searched one by one.
func (p *parser) chain(n *int) error {
	*n++
	if *n > maxChain {
		return p.errorf(p.cur().line, "more than %d parts in a row", maxChain)
	}
	return nil
}
