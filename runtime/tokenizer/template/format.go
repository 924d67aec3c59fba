package template

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is a format specification: of "%-5.2f" and of "{:>5.2f}".
type spec struct {
	fill        rune
	align       byte // '<', '>', '^', or 0
	sign        byte // '+', ' ', or 0
	alt, zero   bool
	comma       bool
	width, prec int // prec is -1 when absent
	verb        byte
}

// maxWidth bounds widths and precisions.
const maxWidth = 1000

// digits reads a number from the front of s.
func digits(s string) (n int, rest string, err error) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i == 0 {
		return 0, s, nil
	}
	if n, err = strconv.Atoi(s[:i]); err != nil || n > maxWidth {
		return 0, s, fmt.Errorf("a format's width or precision is more than %d", maxWidth)
	}
	return n, s[i:], nil
}

// percent is Python's format % values.
func (vm *interp) percent(format string, values any) (any, error) {
	queue, all := []any{values}, true // whether all of them must be used: not where they could be asked for by name
	switch v := values.(type) {
	case *list:
		if v.kind == isTuple {
			queue = v.items
		} else {
			all = false
		}
	case *Dict:
		all = false
	}
	dict, _ := values.(*Dict)
	used := 0
	var b strings.Builder
	for format != "" {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			i = len(format)
		}
		if err := vm.alloc(i + 1); err != nil {
			return nil, err
		}
		b.WriteString(format[:i])
		if i == len(format) {
			break
		}
		format = format[i+1:]
		if strings.HasPrefix(format, "%") {
			b.WriteByte('%')
			format = format[1:]
			continue
		}
		var value any
		named := strings.HasPrefix(format, "(") && dict != nil
		if named {
			end := strings.IndexByte(format, ')')
			if end < 0 {
				return nil, fmt.Errorf("incomplete format key")
			}
			v, ok := dict.Get(format[1:end])
			if !ok {
				return nil, fmt.Errorf("format key '%s' is missing", format[1:end])
			}
			value, format = v, format[end+1:]
		}
		sp, rest, err := percentSpec(format)
		if err != nil {
			return nil, err
		}
		format = rest
		if !named {
			if used == len(queue) {
				return nil, fmt.Errorf("not enough arguments for format string")
			}
			value = queue[used]
			used++
		}
		s, err := vm.formatValue(sp, value)
		if err != nil {
			return nil, err
		}
		b.WriteString(s)
	}
	if used < len(queue) && all {
		return nil, fmt.Errorf("not all arguments converted during string formatting")
	}
	return b.String(), nil
}

// percentSpec reads what follows '%'.
func percentSpec(s string) (sp spec, rest string, err error) {
	sp = spec{fill: ' ', prec: -1, align: '>'}
	for s != "" && strings.IndexByte("-+ #0", s[0]) >= 0 {
		switch s[0] {
		case '-':
			sp.align = '<'
		case '+':
			sp.sign = '+'
		case ' ':
			if sp.sign == 0 {
				sp.sign = ' '
			}
		case '#':
			sp.alt = true
		case '0':
			sp.zero = true
		}
		s = s[1:]
	}
	if sp.width, s, err = digits(s); err != nil {
		return sp, s, err
	}
	if strings.HasPrefix(s, ".") {
		if sp.prec, s, err = digits(s[1:]); err != nil {
			return sp, s, err
		}
	}
	if s == "" {
		return sp, s, fmt.Errorf("incomplete format")
	}
	sp.verb = s[0]
	if strings.IndexByte("sradiufFeEgGxXoc", sp.verb) < 0 {
		return sp, s, fmt.Errorf("unsupported format character %q", s[0])
	}
	return sp, s[1:], nil
}

// formatValue formats one value by sp.
func (vm *interp) formatValue(sp spec, v any) (string, error) {
	body, err := vm.formatBody(sp, v)
	if err != nil {
		return "", err
	}
	pad := sp.width - utf8.RuneCountInString(body)
	if err := vm.alloc(len(body) + max(pad, 0)*utf8.RuneLen(sp.fill)); err != nil {
		return "", err
	}
	if pad <= 0 {
		return body, nil
	}
	_, _, isInt, isFloat := number(v)
	if sp.zero && sp.align != '<' && (isInt || isFloat) && body != "" {
		at := 0
		if body[0] == '-' || body[0] == '+' || body[0] == ' ' {
			at = 1
		}
		return body[:at] + strings.Repeat("0", pad) + body[at:], nil
	}
	left, right := pad, 0
	switch sp.align {
	case '<':
		left, right = 0, pad
	case '^':
		left, right = pad/2, pad-pad/2
	}
	fill := string(sp.fill)
	return strings.Repeat(fill, left) + body + strings.Repeat(fill, right), nil
}

// formatBody formats without padding.
func (vm *interp) formatBody(sp spec, v any) (string, error) {
	i, f, isInt, isFloat := number(v)
	needs := func(ok bool, what string) error {
		if ok {
			return nil
		}
		return fmt.Errorf("the format %%%c needs %s, not %s", sp.verb, what, typeName(v))
	}
	var s string
	switch sp.verb {
	case 's':
		var err error
		if s, err = vm.str(v); err != nil {
			return "", err
		}
		return cutRunes(s, sp.prec), nil
	case 'r', 'a':
		var b strings.Builder
		if err := vm.repr(&b, v); err != nil {
			return "", err
		}
		return cutRunes(b.String(), sp.prec), nil
	case 'c':
		return string(rune(i)), needs(isInt && utf8.ValidRune(rune(i)) && i == int64(rune(i)), "a character's number")
	case 'd', 'i', 'u':
		if isFloat {
			if f != f || f > 1<<62 || f < -1<<62 {
				return "", errOverflow
			}
			i, isInt = int64(f), true
		}
		if err := needs(isInt, "a number"); err != nil {
			return "", err
		}
		s = strconv.FormatInt(i, 10)
	case 'x', 'X', 'o', 'b':
		if err := needs(isInt, "an integer"); err != nil {
			return "", err
		}
		s = strconv.FormatInt(i, map[byte]int{'x': 16, 'X': 16, 'o': 8, 'b': 2}[sp.verb])
		if sp.alt {
			s = strings.Replace("0"+string(sp.verb|0x20)+s, "0"+string(sp.verb|0x20)+"-", "-0"+string(sp.verb|0x20), 1)
		}
		if sp.verb == 'X' {
			s = strings.ToUpper(s)
		}
	default:
		if err := needs(isInt || isFloat, "a number"); err != nil {
			return "", err
		}
		prec := sp.prec
		if prec < 0 {
			prec = 6
		}
		verb := sp.verb
		switch verb {
		case '%':
			s = strconv.FormatFloat(f*100, 'f', prec, 64) + "%"
		case 'g', 'G':
			s = strconv.FormatFloat(f, verb, max(prec, 1), 64)
		default:
			s = strconv.FormatFloat(f, verb|0x20, prec, 64)
			if verb == 'E' {
				s = strings.ToUpper(s)
			}
		}
	}
	if sp.comma {
		s = groupThousands(s)
	}
	if sp.sign != 0 && s[0] != '-' {
		s = string(sp.sign) + s
	}
	return s, nil
}

// cutRunes returns at most n characters of s, all for n < 0.
func cutRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// groupThousands puts commas into the whole part of a number.
func groupThousands(s string) string {
	start := 0
	for start < len(s) && (s[start] < '0' || s[start] > '9') {
		start++
	}
	end := start
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	var b strings.Builder
	b.WriteString(s[:start])
	for i := start; i < end; i++ {
		if i > start && (end-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(s[i])
	}
	return b.String() + s[end:]
}

// formatMethod is Python's str.format, with fields {}, {0} and {name}; fields of
// fields are not supported.
func formatMethod(vm *interp, s string, a args) (any, error) {
	var b strings.Builder
	auto := 0
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			i = len(s)
		}
		if err := vm.alloc(i + 1); err != nil {
			return nil, err
		}
		b.WriteString(s[:i])
		if i == len(s) {
			break
		}
		if strings.HasPrefix(s[i:], "{{") || strings.HasPrefix(s[i:], "}}") {
			b.WriteByte(s[i])
			s = s[i+2:]
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if s[i] == '}' || end < 0 {
			return nil, fmt.Errorf("single '%c' in a format string", s[i])
		}
		field, format, _ := strings.Cut(s[i+1:i+end], ":")
		s = s[i+end+1:]
		field, conversion, _ := strings.Cut(field, "!")
		v, err := a.field(field, &auto)
		if err != nil {
			return nil, err
		}
		text, err := vm.formatField(v, conversion, format)
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// field finds the argument that a replacement field names.
func (a args) field(name string, auto *int) (any, error) {
	i := *auto
	if name == "" {
		*auto++
	} else if n, err := strconv.Atoi(name); err == nil {
		i = n
	} else {
		if v, ok := a.take(name); ok {
			return v, nil
		}
		return nil, fmt.Errorf("the format field '%s' is missing or not supported", name)
	}
	if i < 0 || i >= len(a.pos) {
		return nil, fmt.Errorf("the format field %d has no argument", i)
	}
	return a.pos[i], nil
}

// formatField formats by "[[fill]align][sign][#][0][width][,][.precision][type]".
func (vm *interp) formatField(v any, conversion, format string) (string, error) {
	_, _, isInt, isFloat := number(v)
	if _, isBool := v.(bool); isBool && format == "" {
		isInt = false
	}
	sp := spec{fill: ' ', prec: -1, align: '<', verb: 's'}
	if isInt {
		sp.align, sp.verb = '>', 'd'
	} else if isFloat {
		sp.align = '>'
	}
	switch conversion {
	case "":
	case "r", "s", "a":
		sp.align, sp.verb = '<', conversion[0]
	default:
		return "", fmt.Errorf("unknown conversion '%s' in a format string", conversion)
	}
	s := format
	r, w := utf8.DecodeRuneInString(s)
	switch {
	case len(s) > w && strings.IndexByte("<>^", s[w]) >= 0:
		sp.fill, sp.align, s = r, s[w], s[w+1:]
	case s != "" && strings.IndexByte("<>^", s[0]) >= 0:
		sp.align, s = s[0], s[1:]
	}
	if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
		if s[0] != '-' {
			sp.sign = s[0]
		}
		s = s[1:]
	}
	if strings.HasPrefix(s, "#") {
		sp.alt, s = true, s[1:]
	}
	if strings.HasPrefix(s, "0") {
		sp.zero, s = true, s[1:]
	}
	var err error
	if sp.width, s, err = digits(s); err != nil {
		return "", err
	}
	if strings.HasPrefix(s, ",") {
		sp.comma, s = true, s[1:]
	}
	if strings.HasPrefix(s, ".") {
		if sp.prec, s, err = digits(s[1:]); err != nil {
			return "", err
		}
		if isFloat && sp.verb == 's' {
			sp.verb = 'g'
		}
	}
	if s != "" {
		if len(s) > 1 || strings.IndexByte("sdxXobeEfFgG%c", s[0]) < 0 {
			return "", fmt.Errorf("invalid format specifier '%s'", format)
		}
		sp.verb = s[0]
	}
	return vm.formatValue(sp, v)
}
