package template

import (
	"slices"
	"strconv"
	"strings"
)

// expression parses a whole expression with its inline if. Loosest first, the
// levels below are: or, and, not, comparison, + -, ~, * / // %, **, sign, then
// subscripts and calls, then filters and tests.
func (p *parser) expression() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	x, err := p.or()
	if err != nil {
		return nil, err
	}
	for n := 0; p.skipName("if"); {
		if err := p.chain(&n); err != nil {
			return nil, err
		}
		cond, err := p.or()
		if err != nil {
			return nil, err
		}
		var otherwise expr
		if p.skipName("else") {
			if otherwise, err = p.expression(); err != nil {
				return nil, err
			}
		}
		x = &condExpr{cond, x, otherwise}
	}
	return x, nil
}

// tuple parses expressions separated by commas: one without a comma is itself.
// With cond false, an inline if is not part of it.
func (p *parser) tuple(cond bool) (expr, error) {
	one := p.expression
	if !cond {
		one = p.or
	}
	var items []expr
	for isTuple := false; ; isTuple = true {
		if t := p.cur(); t.kind == tokVarEnd || t.kind == tokBlockEnd || p.isOp(")") || p.isName("recursive") && isTuple {
			break
		}
		x, err := one()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
		if !p.skipOp(",") {
			if !isTuple {
				return x, nil
			}
			break
		}
	}
	if items == nil && !p.isOp(")") {
		return nil, p.unexpected("an expression")
	}
	return &listExpr{items, true}, nil
}

func (p *parser) or() (expr, error) {
	return p.leftChain(p.and, func(a, b expr, _ string) expr { return &orExpr{a, b} }, tokName, "or")
}

func (p *parser) and() (expr, error) {
	return p.leftChain(p.not, func(a, b expr, _ string) expr { return &andExpr{a, b} }, tokName, "and")
}

// leftChain parses operands of one level joined by any of ops, left to right.
func (p *parser) leftChain(operand func() (expr, error), join func(a, b expr, op string) expr, k kind, ops ...string) (expr, error) {
	x, err := operand()
	if err != nil {
		return nil, err
	}
	for n := 0; p.cur().kind == k && slices.Contains(ops, p.cur().val); {
		if err := p.chain(&n); err != nil {
			return nil, err
		}
		op := p.next().val
		y, err := operand()
		if err != nil {
			return nil, err
		}
		x = join(x, y, op)
	}
	return x, nil
}

func (p *parser) not() (expr, error) {
	if !p.skipName("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	x, err := p.not()
	return &notExpr{x}, err
}

func (p *parser) compare() (expr, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{first: first}
	for {
		op := ""
		switch t := p.cur(); {
		case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.val), p.isName("in"):
			op = p.next().val
		case p.isName("not") && p.peek().kind == tokName && p.peek().val == "in":
			p.pos += 2
			op = "not in"
		}
		if op == "" {
			break
		}
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, x)
	}
	if c.ops == nil {
		return first, nil
	}
	return c, nil
}

func binary(a, b expr, op string) expr { return &binaryExpr{op, a, b} }

func (p *parser) sum() (expr, error) { return p.leftChain(p.concat, binary, tokOp, "+", "-") }

func (p *parser) concat() (expr, error) {
	x, err := p.product()
	if err != nil || !p.isOp("~") {
		return x, err
	}
	c := &concatExpr{[]expr{x}}
	for p.skipOp("~") {
		if x, err = p.product(); err != nil {
			return nil, err
		}
		c.parts = append(c.parts, x)
	}
	return c, nil
}

func (p *parser) product() (expr, error) {
	return p.leftChain(p.power, binary, tokOp, "*", "/", "//", "%")
}

func (p *parser) power() (expr, error) { return p.leftChain(p.filtered, binary, tokOp, "**") }

// filtered parses a signed primary with its subscripts, calls, filters and tests.
func (p *parser) filtered() (expr, error) {
	x, err := p.unary()
	if err != nil {
		return nil, err
	}
	for n := 0; ; {
		if err := p.chain(&n); err != nil {
			return nil, err
		}
		switch {
		case p.isOp("|"):
			x, err = p.filter(x)
		case p.isName("is"):
			x, err = p.test(x)
		case p.isOp("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) unary() (expr, error) {
	var x expr
	var err error
	if p.isOp("-") || p.isOp("+") {
		if err := p.enter(); err != nil {
			return nil, err
		}
		neg := p.next().val == "-"
		x, err = p.unary()
		x = &signExpr{x, neg}
		p.leave()
	} else {
		x, err = p.primary()
	}
	if err != nil {
		return nil, err
	}
	return p.postfix(x)
}

// postfix parses subscripts and calls.
func (p *parser) postfix(x expr) (expr, error) {
	var err error
	for n := 0; ; {
		if err := p.chain(&n); err != nil {
			return nil, err
		}
		switch {
		case p.skipOp("."):
			switch t := p.next(); t.kind {
			case tokName:
				x = &attrExpr{x, t.val}
			case tokInt:
				key, err := p.intConst(t)
				if err != nil {
					return nil, err
				}
				x = &itemExpr{x, key}
			default:
				return nil, p.errorf(t.line, "expected a name or a number after '.', found %s", t)
			}
		case p.skipOp("["):
			x, err = p.subscript(x)
		case p.isOp("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// subscript parses what is after '[': a key, a tuple of keys, or a slice.
func (p *parser) subscript(of expr) (expr, error) {
	var parts [3]expr
	colons := 0
	for colons < 3 && !p.isOp("]") {
		if p.skipOp(":") {
			colons++
			continue
		}
		if colons > 2 || parts[colons] != nil {
			return nil, p.unexpected("']'")
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		parts[colons] = x
	}
	if colons > 2 {
		return nil, p.unexpected("']'")
	}
	if err := p.expectOp("]"); err != nil {
		return nil, err
	}
	if colons > 0 {
		return &sliceExpr{of, parts[0], parts[1], parts[2]}, nil
	}
	if parts[0] == nil {
		return nil, p.unexpected("a subscript")
	}
	return &itemExpr{of, parts[0]}, nil
}

func (p *parser) call(of expr) (expr, error) {
	args, err := p.args()
	return &callExpr{of, args}, err
}

// args parses the arguments of a call, with the parentheses.
func (p *parser) args() (argExprs, error) {
	var a argExprs
	if err := p.expectOp("("); err != nil {
		return a, err
	}
	for !p.skipOp(")") {
		line := p.cur().line
		misplaced := false
		var err error
		switch {
		case p.skipOp("*"):
			misplaced = a.star != nil || a.double != nil
			a.star, err = p.expression()
		case p.skipOp("**"):
			misplaced = a.double != nil
			a.double, err = p.expression()
		case p.cur().kind == tokName && p.peek().kind == tokOp && p.peek().val == "=":
			misplaced = a.double != nil
			name := p.next().val
			p.pos++
			var x expr
			x, err = p.expression()
			a.names, a.kw = append(a.names, name), append(a.kw, x)
		default:
			misplaced = a.star != nil || a.double != nil || a.kw != nil
			var x expr
			x, err = p.expression()
			a.pos = append(a.pos, x)
		}
		if err != nil {
			return a, err
		}
		if misplaced {
			return a, p.errorf(line, "arguments are in the wrong order")
		}
		if !p.isOp(")") {
			if err := p.expectOp(","); err != nil {
				return a, err
			}
		}
	}
	return a, nil
}

// dotted parses the name of a filter or test, which may have dots.
func (p *parser) dotted() (string, error) {
	t, err := p.expectKind(tokName, "a name")
	if err != nil {
		return "", err
	}
	name := t.val
	for n := 0; p.skipOp("."); {
		if err := p.chain(&n); err != nil {
			return "", err
		}
		if t, err = p.expectKind(tokName, "a name"); err != nil {
			return "", err
		}
		name += "." + t.val
	}
	return name, nil
}

// filter parses "| name(args)"; the bar may be missing at the start of a filter block.
func (p *parser) filter(of expr) (expr, error) {
	p.skipOp("|")
	name, err := p.dotted()
	if err != nil {
		return nil, err
	}
	f := &filterExpr{of: of, name: name}
	if p.isOp("(") {
		f.args, err = p.args()
	}
	return f, err
}

// test parses "is [not] name", with arguments in parentheses or one without.
func (p *parser) test(of expr) (expr, error) {
	p.pos++
	t := &testExpr{of: of, negate: p.skipName("not")}
	var err error
	if t.name, err = p.dotted(); err != nil {
		return nil, err
	}
	switch c := p.cur(); {
	case p.isOp("("):
		t.args, err = p.args()
	case p.isName("is"):
		return nil, p.errorf(c.line, "tests cannot be chained with 'is'")
	case c.kind == tokName && !slices.Contains(reserved, c.val) && c.val != "recursive",
		c.kind == tokString, c.kind == tokInt, c.kind == tokFloat, p.isOp("["), p.isOp("{"):
		var x expr
		if x, err = p.primary(); err == nil {
			x, err = p.postfix(x)
		}
		t.args.pos = []expr{x}
	}
	return t, err
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() (expr, error) {
	switch t := p.cur(); t.kind {
	case tokName:
		if value, ok := constants[t.val]; ok {
			p.pos++
			return &constExpr{value}, nil
		}
		name, err := p.expectName()
		p.mention(name)
		return &nameExpr{name}, err
	case tokString:
		var b strings.Builder
		for p.cur().kind == tokString {
			b.WriteString(p.next().val)
		}
		return &constExpr{b.String()}, nil
	case tokInt:
		return p.intConst(p.next())
	case tokFloat:
		p.pos++
		f, err := strconv.ParseFloat(t.val, 64)
		if err != nil {
			return nil, p.errorf(t.line, "the number %s is out of range", t.val)
		}
		return &constExpr{f}, nil
	case tokOp:
		switch t.val {
		case "(":
			p.pos++
			if err := p.enter(); err != nil {
				return nil, err
			}
			defer p.leave()
			x, err := p.tuple(true)
			if err != nil {
				return nil, err
			}
			return x, p.expectOp(")")
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	return nil, p.unexpected("an expression")
}

func (p *parser) intConst(t token) (expr, error) {
	base := 10
	if len(t.val) > 1 && t.val[1] > '9' { // 0x, 0o, 0b
		base = 0
	}
	n, err := strconv.ParseInt(t.val, base, 64)
	if err != nil {
		return nil, p.errorf(t.line, "the integer %s is out of range", t.val)
	}
	return &constExpr{n}, nil
}

// mention notes that the macros being parsed use a name.
func (p *parser) mention(name string) {
	for _, m := range p.macros {
		switch name {
		case "varargs":
			m.varargs = true
		case "kwargs":
			m.kwargs = true
		case "caller":
			m.caller = true
		}
	}
}

func (p *parser) list() (expr, error) {
	p.pos++
	l := &listExpr{}
	for !p.skipOp("]") {
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, x)
		if !p.isOp("]") {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

func (p *parser) dict() (expr, error) {
	p.pos++
	d := &dictExpr{}
	for !p.skipOp("}") {
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
		if !p.isOp("}") {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}
