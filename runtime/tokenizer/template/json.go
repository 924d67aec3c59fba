package template

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
)

// jsonStyle is how tojson writes.
type jsonStyle struct {
	indent      string
	multiline   bool
	item, key   string // separators
	ascii, sort bool
}

// tojson is Python's json.dumps as transformers has it: no HTML escapes, no
// ASCII escapes, keys in order.
func tojson(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	st := jsonStyle{item: ", ", key: ": ", ascii: truth(or(v[0], false)), sort: truth(or(v[3], false))}
	switch indent := or(v[1], nil).(type) {
	case nil:
	case string:
		st.indent, st.multiline = indent, true
	default:
		n, _, isInt, _ := number(indent)
		if !isInt {
			return nil, fmt.Errorf("tojson: indent must be a number or a string, not %s", typeName(indent))
		}
		if n > 1000 {
			return nil, fmt.Errorf("tojson: indent is more than 1000")
		}
		st.indent, st.multiline = strings.Repeat(" ", int(max(n, 0))), true
	}
	if st.multiline {
		st.item = ","
	}
	if sep := or(v[2], nil); sep != nil {
		pair, err := vm.iterate(sep)
		if err != nil {
			return nil, err
		}
		if len(pair) != 2 {
			return nil, fmt.Errorf("tojson: separators must be a pair")
		}
		var ok1, ok2 bool
		st.item, ok1 = pair[0].(string)
		st.key, ok2 = pair[1].(string)
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("tojson: separators must be strings")
		}
	}
	w := jsonWriter{vm: vm, style: st}
	if err := w.value(in, 0); err != nil {
		return nil, err
	}
	return w.b.String(), nil
}

type jsonWriter struct {
	vm    *interp
	style jsonStyle
	b     strings.Builder
}

// write appends s, counting it.
func (w *jsonWriter) write(s string) error {
	if err := w.vm.alloc(len(s)); err != nil {
		return err
	}
	w.b.WriteString(s)
	return nil
}

func (w *jsonWriter) value(v any, level int) error {
	if err := w.vm.enter(); err != nil {
		return err
	}
	defer w.vm.leave()
	if err := w.vm.step(1); err != nil {
		return err
	}
	switch v := v.(type) {
	case string:
		return w.str(v)
	case *list:
		if v.kind <= isTuple {
			return w.sequence('[', ']', level, len(v.items), func(i int) error { return w.value(v.items[i], level+1) })
		}
	case *Dict:
		order, err := w.order(v)
		if err != nil {
			return err
		}
		return w.sequence('{', '}', level, len(order), func(i int) error { return w.entry(v, order[i], level+1) })
	default:
		if s, ok := jsonScalar(v); ok {
			return w.write(s)
		}
	}
	return fmt.Errorf("an object of type %s is not JSON serializable", typeName(v))
}

// jsonScalar writes what is not a string, list or dict.
func jsonScalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN", true
		case math.IsInf(v, 0):
			return strings.TrimSuffix(floatRepr(v), "inf") + "Infinity", true
		}
		return floatRepr(v), true
	}
	return "", false
}

// sequence writes n elements between brackets.
func (w *jsonWriter) sequence(open, closer byte, level, n int, element func(i int) error) error {
	if n == 0 {
		return w.write(string([]byte{open, closer}))
	}
	newline := func(level int) error {
		if !w.style.multiline {
			return nil
		}
		if err := w.vm.alloc(level * len(w.style.indent)); err != nil {
			return err
		}
		return w.write("\n" + strings.Repeat(w.style.indent, level))
	}
	if err := w.write(string(rune(open))); err != nil {
		return err
	}
	for i := range n {
		if i > 0 {
			if err := w.write(w.style.item); err != nil {
				return err
			}
		}
		if err := newline(level + 1); err != nil {
			return err
		}
		if err := element(i); err != nil {
			return err
		}
	}
	if err := newline(level); err != nil {
		return err
	}
	return w.write(string(rune(closer)))
}

// order returns the indices of d's entries in the order to write them.
func (w *jsonWriter) order(d *Dict) ([]int, error) {
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	if !w.style.sort {
		return order, nil
	}
	err := sortBy(w.vm, order, false, func(i int) any { return d.keys[i] })
	return order, err
}

func (w *jsonWriter) entry(d *Dict, i, level int) error {
	var err error
	switch key := d.keys[i].(type) {
	case string:
		err = w.str(key)
	default:
		s, ok := jsonScalar(key)
		if !ok {
			return fmt.Errorf("keys must be str, int, float, bool or None, not %s", typeName(key))
		}
		err = w.str(s)
	}
	if err != nil {
		return err
	}
	if err := w.write(w.style.key); err != nil {
		return err
	}
	return w.value(d.values[i], level)
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (w *jsonWriter) str(s string) error {
	if err := w.vm.alloc(2*len(s) + 2); err != nil { // with room for escapes
		return err
	}
	w.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\' || r < 0x20:
			if e, ok := jsonEscapes[r]; ok {
				w.b.WriteString(e)
			} else {
				w.b.WriteString(`\u` + hex(r, 4))
			}
		case r < 0x80 || !w.style.ascii:
			w.b.WriteRune(r)
		case r < 0x10000:
			w.b.WriteString(`\u` + hex(r, 4))
		default:
			hi, lo := utf16.EncodeRune(r)
			w.b.WriteString(`\u` + hex(hi, 4) + `\u` + hex(lo, 4))
		}
	}
	w.b.WriteByte('"')
	return nil
}
