package template

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// textFilter makes a filter of a function on text.
func textFilter(f func(string) string) filterFunc {
	m := mapper(f)
	return func(vm *interp, in any, a args) (any, error) {
		s, err := vm.str(in)
		if err != nil {
			return nil, err
		}
		return m(vm, s, a)
	}
}

// titleFilter is Jinja's: words begin after white space, hyphens and opening brackets.
func titleFilter(s string) string {
	start := true
	return strings.Map(func(r rune) rune {
		was := start
		start = isSpace(r) || strings.ContainsRune("-({[<", r)
		if was {
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, s)
}

func trimFilter(vm *interp, in any, a args) (any, error) {
	s, err := vm.str(in)
	if err != nil {
		return nil, err
	}
	return stringMethods["strip"](vm, s, a)
}

func replaceFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("replace", 2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	var parts [3]string
	for i, x := range []any{in, v[0], v[1]} {
		if parts[i], err = vm.str(x); err != nil {
			return nil, err
		}
	}
	n := -1
	if c := or(v[2], nil); c != nil {
		if n, err = integer("replace", c, 1<<30); err != nil {
			return nil, err
		}
	}
	return vm.replace(parts[0], parts[1], parts[2], n)
}

// indentFilter indents all lines but the first, and no blank ones, unless told to.
func indentFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("indent", 0, "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	s, err := text("indent", in)
	if err != nil {
		return nil, err
	}
	pad, isText := or(v[0], int64(4)).(string)
	if !isText {
		n, err := integer("indent", or(v[0], int64(4)), maxWidth)
		if err != nil {
			return nil, err
		}
		pad = strings.Repeat(" ", max(n, 0))
	}
	if err := vm.alloc(2 * len(s)); err != nil {
		return nil, err
	}
	blank := truth(or(v[2], false))
	lines := splitLines(s+"\n", false)
	for i, line := range lines {
		if i > 0 && (line != "" || blank) || i == 0 && truth(or(v[1], false)) {
			if err := vm.alloc(len(pad) + len(line)); err != nil {
				return nil, err
			}
			lines[i] = pad + line
		}
	}
	return vm.joinStrings(lines, "\n")
}

func centerFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("center", 0, "width")
	if err != nil {
		return nil, err
	}
	s, err := vm.str(in)
	if err != nil {
		return nil, err
	}
	return stringMethods["center"](vm, s, args{pos: []any{or(v[0], int64(80))}})
}

func truncateFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("truncate", 0, "length", "killwords", "end", "leeway")
	if err != nil {
		return nil, err
	}
	s, err := vm.str(in)
	if err != nil {
		return nil, err
	}
	length, err := integer("truncate", or(v[0], int64(255)), 1<<30)
	if err != nil {
		return nil, err
	}
	leeway, err := integer("truncate", or(v[3], int64(5)), 1<<30)
	if err != nil {
		return nil, err
	}
	end, err := vm.str(or(v[2], "..."))
	if err != nil {
		return nil, err
	}
	if err := vm.alloc(len(s) + len(end)); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(s) <= length+leeway {
		return s, nil
	}
	s = cutRunes(s, max(length-utf8.RuneCountInString(end), 0))
	if !truth(or(v[1], false)) {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
	}
	return s + end, nil
}

func wordCountFilter(vm *interp, in any, a args) (any, error) {
	if _, err := a.bind("wordcount", 0); err != nil {
		return nil, err
	}
	s, err := vm.str(in)
	if err != nil {
		return nil, err
	}
	n, inWord := int64(0), false
	for _, r := range s {
		is := r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r)
		if is && !inWord {
			n++
		}
		inWord = is
	}
	return n, vm.scan(len(s))
}

// formatFilter is "…" | format(a, b): printf-style.
func formatFilter(vm *interp, in any, a args) (any, error) {
	s, err := vm.str(in)
	if err != nil {
		return nil, err
	}
	if len(a.names) == 0 {
		return vm.percent(s, newTuple(a.pos...))
	}
	d := NewDict()
	for i, name := range a.names {
		d.Set(name, a.kw[i])
	}
	return vm.percent(s, d)
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

func escapeFilter(vm *interp, in any, a args) (any, error) {
	if _, err := a.bind("escape", 0); err != nil {
		return nil, err
	}
	s, err := vm.str(in)
	if err != nil {
		return nil, err
	}
	if err := vm.alloc(5 * len(s)); err != nil {
		return nil, err
	}
	return htmlEscaper.Replace(s), nil
}

// urlEncodeFilter escapes all bytes but letters, digits and "_.-~/". Mappings
// are not supported.
func urlEncodeFilter(vm *interp, in any, a args) (any, error) {
	if _, err := a.bind("urlencode", 0); err != nil {
		return nil, err
	}
	s, err := vm.str(in)
	if err != nil {
		return nil, err
	}
	if err := vm.alloc(3 * len(s)); err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) || strings.IndexByte("_.-~/", c) >= 0) {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + strings.ToUpper(hex(rune(c), 2)))
		}
	}
	return b.String(), nil
}
