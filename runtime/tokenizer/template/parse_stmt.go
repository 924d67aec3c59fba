package template

import "slices"

// block parses text, output and statements up to one of the end tags, of which
// it consumes the name and returns it: the rest of the tag is the caller's.
// Without end tags it parses to the end of the template.
func (p *parser) block(ends ...string) (block, string, error) {
	var b block
	if err := p.enter(); err != nil {
		return b, "", err
	}
	defer p.leave()
	add := func(line int, s stmt) {
		if s != nil {
			b.stmts, b.lines = append(b.stmts, s), append(b.lines, line)
		}
	}
	for {
		switch t := p.next(); t.kind {
		case tokEOF:
			if len(ends) > 0 {
				return b, "", p.errorf(t.line, "the template ends where {%% %s %%} is due", ends[len(ends)-1])
			}
			return b, "", nil
		case tokData:
			add(t.line, &textStmt{t.val})
		case tokVarBegin:
			x, err := p.tuple(true)
			if err != nil {
				return b, "", err
			}
			if _, err := p.expectKind(tokVarEnd, "'}}'"); err != nil {
				return b, "", err
			}
			add(t.line, &outputStmt{x})
		case tokBlockBegin:
			name, err := p.expectKind(tokName, "the name of a tag")
			if err != nil {
				return b, "", err
			}
			if slices.Contains(ends, name.val) {
				return b, name.val, nil
			}
			s, err := p.statement(name)
			if err != nil {
				return b, "", err
			}
			add(t.line, s)
		default:
			return b, "", p.errorf(t.line, "unexpected %s", t)
		}
	}
}

func (p *parser) blockEnd() error {
	_, err := p.expectKind(tokBlockEnd, "'%}'")
	return err
}

// body parses the rest of the opening tag, a block, and its end tag.
func (p *parser) body(end string) (block, error) {
	if err := p.blockEnd(); err != nil {
		return block{}, err
	}
	b, _, err := p.block(end)
	if err != nil {
		return block{}, err
	}
	return b, p.blockEnd()
}

// statement parses a tag whose name has just been read.
func (p *parser) statement(name token) (stmt, error) {
	switch name.val {
	case "if":
		return p.ifTag()
	case "for":
		return p.forTag()
	case "set":
		return p.setTag()
	case "macro":
		return p.macroTag()
	case "call":
		return p.callTag()
	case "filter":
		return p.filterTag()
	case "with":
		return p.withTag()
	case "generation":
		b, err := p.body("endgeneration")
		return &scopeStmt{b}, err
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.errorf(name.line, "'%s' outside of a loop", name.val)
		}
		f := breakLoop
		if name.val == "continue" {
			f = continueLoop
		}
		return &loopControl{f}, p.blockEnd()
	case "include", "import", "from", "extends", "block", "do", "autoescape", "trans", "debug":
		return nil, p.errorf(name.line, "the tag '%s' is not supported in chat templates", name.val)
	}
	return nil, p.errorf(name.line, "unknown tag '%s'", name.val)
}

func (p *parser) ifTag() (stmt, error) {
	s := &ifStmt{}
	for {
		cond, err := p.tuple(false)
		if err != nil {
			return nil, err
		}
		if err := p.blockEnd(); err != nil {
			return nil, err
		}
		body, end, err := p.block("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.conds, s.bodies = append(s.conds, cond), append(s.bodies, body)
		switch end {
		case "else":
			s.otherwise, err = p.body("endif")
			return s, err
		case "endif":
			return s, p.blockEnd()
		}
	}
}

func (p *parser) forTag() (stmt, error) {
	s := &forStmt{}
	var err error
	if s.target, err = p.target(false); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.unexpected("'in'")
	}
	if s.seq, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.filter, err = p.expression(); err != nil {
			return nil, err
		}
	}
	s.recursive = p.skipName("recursive")
	if err := p.blockEnd(); err != nil {
		return nil, err
	}
	p.loops++
	var end string
	s.body, end, err = p.block("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	if end == "else" {
		s.otherwise, err = p.body("endfor")
		return s, err
	}
	return s, p.blockEnd()
}

// target parses what is assigned to: a name, a tuple of names, or, with attr, an
// attribute of a namespace.
func (p *parser) target(attr bool) (target, error) {
	one := func() (target, error) {
		if p.skipOp("(") {
			if err := p.enter(); err != nil {
				return target{}, err
			}
			defer p.leave()
			t, err := p.target(attr)
			if err != nil {
				return target{}, err
			}
			return t, p.expectOp(")")
		}
		line := p.cur().line
		name, err := p.expectName()
		if err != nil {
			return target{}, err
		}
		if _, isConst := constants[name]; isConst {
			return target{}, p.errorf(line, "cannot assign to '%s'", name)
		}
		if attr && p.skipOp(".") {
			field, err := p.expectKind(tokName, "a name")
			return target{name: name, attr: field.val}, err
		}
		return target{name: name}, nil
	}
	t, err := one()
	if err != nil || !p.isOp(",") {
		return t, err
	}
	tuple := target{parts: []target{t}}
	for p.skipOp(",") {
		if p.isName("in") || p.isOp("=") || p.isOp(")") || p.cur().kind == tokBlockEnd {
			break
		}
		if t, err = one(); err != nil {
			return target{}, err
		}
		tuple.parts = append(tuple.parts, t)
	}
	return tuple, nil
}

func (p *parser) setTag() (stmt, error) {
	t, err := p.target(true)
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		x, err := p.tuple(true)
		if err != nil {
			return nil, err
		}
		return &setStmt{t, x}, p.blockEnd()
	}
	s := &setBlockStmt{target: t}
	if s.filter, err = p.filterChain(nil); err != nil {
		return nil, err
	}
	s.body, err = p.body("endset")
	return s, err
}

// filterChain parses filters applied to x, which may be nil for a block's text.
func (p *parser) filterChain(x expr) (expr, error) {
	for n := 0; p.isOp("|"); {
		if err := p.chain(&n); err != nil {
			return nil, err
		}
		var err error
		if x, err = p.filter(x); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func (p *parser) filterTag() (stmt, error) {
	x, err := p.filter(nil)
	if err != nil {
		return nil, err
	}
	if x, err = p.filterChain(x); err != nil {
		return nil, err
	}
	b, err := p.body("endfilter")
	return &filterStmt{x, b}, err
}

func (p *parser) withTag() (stmt, error) {
	s := &withStmt{}
	for p.cur().kind != tokBlockEnd {
		if len(s.targets) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return nil, err
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, target{name: name}), append(s.values, x)
	}
	var err error
	s.body, err = p.body("endwith")
	return s, err
}

func (p *parser) macroTag() (stmt, error) {
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	m := &macroDef{name: name}
	if !p.isOp("(") {
		return nil, p.unexpected("'('")
	}
	return &macroStmt{m}, p.macro(m, "endmacro")
}

func (p *parser) callTag() (stmt, error) {
	s := &callStmt{caller: &macroDef{name: "caller"}}
	// The parameters come before the call, the body after it.
	if p.isOp("(") {
		if err := p.params(s.caller); err != nil {
			return nil, err
		}
	}
	line := p.cur().line
	x, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := x.(*callExpr)
	if !ok {
		return nil, p.errorf(line, "{%% call %%} needs a call")
	}
	s.call = call
	return s, p.macroBody(s.caller, "endcall")
}

// macro parses the parameters and the body of m.
func (p *parser) macro(m *macroDef, end string) error {
	if err := p.params(m); err != nil {
		return err
	}
	return p.macroBody(m, end)
}

func (p *parser) macroBody(m *macroDef, end string) error {
	loops := p.loops
	p.loops = 0
	p.macros = append(p.macros, m)
	var err error
	m.body, err = p.body(end)
	p.macros = p.macros[:len(p.macros)-1]
	p.loops = loops
	return err
}

// params parses (a, b=default, …).
func (p *parser) params(m *macroDef) error {
	if err := p.expectOp("("); err != nil {
		return err
	}
	for n := 0; !p.skipOp(")"); {
		line := p.cur().line
		if err := p.chain(&n); err != nil {
			return err
		}
		name, err := p.expectName()
		if err != nil {
			return err
		}
		if slices.Contains(m.params, name) {
			return p.errorf(line, "the parameter '%s' occurs twice", name)
		}
		m.params = append(m.params, name)
		if p.skipOp("=") {
			x, err := p.expression()
			if err != nil {
				return err
			}
			m.defaults = append(m.defaults, x)
		} else if m.defaults != nil {
			return p.errorf(line, "the parameter '%s' without default follows one with default", name)
		}
		if !p.isOp(")") {
			if err := p.expectOp(","); err != nil {
				return err
			}
		}
	}
	return nil
}
