package template

import (
	"math"
	"strconv"
	"strings"
	"unicode"
)

// str is Python's str(v), which is also how a value is output.
func (vm *interp) str(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case *undefined:
		if v.unsafe {
			return "", v.fail()
		}
		return "", nil
	}
	var b strings.Builder
	if err := vm.repr(&b, v); err != nil {
		return "", err
	}
	return b.String(), nil
}

// repr writes Python's repr(v).
func (vm *interp) repr(b *strings.Builder, v any) error {
	if err := vm.enter(); err != nil {
		return err
	}
	defer vm.leave()
	// 16 covers numbers and punctuation; strings and lists add their own.
	if err := vm.alloc(16); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		b.WriteString(floatRepr(v))
	case string:
		return vm.reprString(b, v)
	case *list:
		return vm.reprList(b, v)
	case *Dict:
		return vm.reprDict(b, v)
	case *undefined:
		b.WriteString("Undefined")
	case *namespace:
		b.WriteString("<Namespace ")
		if err := vm.reprDict(b, v.attrs); err != nil {
			return err
		}
		b.WriteByte('>')
	case *function:
		b.WriteString("<function " + v.name + ">")
	default:
		b.WriteString("<" + typeName(v) + ">")
	}
	return nil
}

func (vm *interp) reprList(b *strings.Builder, l *list) error {
	open, closer := "[", "]"
	switch l.kind {
	case isTuple:
		open, closer = "(", ")"
		if len(l.items) == 1 {
			closer = ",)"
		}
	case isView:
		open, closer = l.view+"([", "])"
	case isIterator:
		b.WriteString("<generator object>")
		return nil
	}
	b.WriteString(open)
	for i, item := range l.items {
		if i > 0 {
			b.WriteString(", ")
		}
		if err := vm.repr(b, item); err != nil {
			return err
		}
	}
	b.WriteString(closer)
	return nil
}

func (vm *interp) reprDict(b *strings.Builder, d *Dict) error {
	b.WriteByte('{')
	for i, key := range d.keys {
		if i > 0 {
			b.WriteString(", ")
		}
		if err := vm.repr(b, key); err != nil {
			return err
		}
		b.WriteString(": ")
		if err := vm.repr(b, d.values[i]); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// reprString quotes as Python does: single quotes unless only those are inside.
func (vm *interp) reprString(b *strings.Builder, s string) error {
	if err := vm.alloc(2*len(s) + 2); err != nil { // with room for escapes
		return err
	}
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			b.WriteString(`\x` + hex(r, 2))
		case r < 0x10000:
			b.WriteString(`\u` + hex(r, 4))
		default:
			b.WriteString(`\U` + hex(r, 8))
		}
	}
	b.WriteRune(quote)
	return nil
}

// hex writes r with at least n hexadecimal digits.
func hex(r rune, n int) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", max(n-len(s), 0)) + s
}

// floatRepr is Python's repr of a float: the shortest digits that read back the
// same, with an exponent below 1e-4 and from 1e16 on.
func floatRepr(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	abs := math.Abs(f)
	if abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
