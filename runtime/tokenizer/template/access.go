package template

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// mutators are the methods that Jinja's immutable sandbox forbids.
var mutators = map[string][]string{
	"list": {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"},
	"dict": {"clear", "pop", "popitem", "setdefault", "update"},
}

// attr is of.name: an attribute or method, else an item.
func (vm *interp) attr(of any, name string) (any, error) {
	if u, ok := of.(*undefined); ok {
		return nil, u.fail()
	}
	if v, ok := vm.attribute(of, name); ok {
		return v, nil
	}
	if d, ok := of.(*Dict); ok {
		if v, ok := d.get(name); ok {
			return v, nil
		}
	}
	return missing(of, name), nil
}

// item is of[key]: an item, else an attribute or method.
func (vm *interp) item(of, key any) (any, error) {
	switch of := of.(type) {
	case *undefined:
		return nil, of.fail()
	case *Dict:
		hash, err := hashKey(key)
		if err != nil {
			return missing(of, key), nil
		}
		if v, ok := of.get(hash); ok {
			return v, nil
		}
	case *list:
		if i, _, isInt, _ := number(key); isInt && of.kind <= isTuple {
			if i < 0 {
				i += int64(len(of.items))
			}
			if i >= 0 && i < int64(len(of.items)) {
				return of.items[i], nil
			}
			return missing(of, key), nil
		}
	case string:
		if i, _, isInt, _ := number(key); isInt {
			return vm.character(of, i)
		}
	}
	if name, ok := key.(string); ok {
		if v, ok := vm.attribute(of, name); ok {
			return v, nil
		}
	}
	return missing(of, key), nil
}

// character is s[i], by characters.
func (vm *interp) character(s string, i int64) (any, error) {
	if err := vm.scan(len(s)); err != nil {
		return nil, err
	}
	left := i
	if i < 0 {
		left += int64(utf8.RuneCountInString(s))
	}
	for at := range s {
		if left == 0 {
			_, w := utf8.DecodeRuneInString(s[at:]) // a byte that is no UTF-8 is a character of one
			return s[at : at+w], nil
		}
		left--
	}
	return missing(s, i), nil
}

// attribute returns the attribute or method of a value, if it has one of that name.
func (vm *interp) attribute(of any, name string) (any, bool) {
	switch x := of.(type) {
	case string:
		if m, ok := stringMethods[name]; ok {
			return method(name, x, m), true
		}
	case *Dict:
		if m, ok := dictMethods[name]; ok {
			return method(name, x, m), true
		}
	case *list:
		if m, ok := listMethods[name]; ok && x.kind <= isTuple {
			return method(name, x, m), true
		}
	case *namespace:
		return x.attrs.get(name)
	case *loopState:
		return x.attribute(name)
	case *cycler:
		return x.attribute(name)
	case *function:
		if x.macro != nil && name == "name" {
			return x.macro.name, true
		}
	}
	if slices.Contains(mutators[typeName(of)], name) {
		return &undefined{msg: fmt.Sprintf("access to attribute '%s' of '%s' object is unsafe.", name, typeName(of)), unsafe: true}, true
	}
	return nil, false
}

// missing is what an attribute or item that does not exist evaluates to.
func missing(of, key any) *undefined {
	name := typeName(of) + " object"
	if of == nil {
		name = "None"
	}
	switch key := key.(type) {
	case string:
		return &undefined{msg: fmt.Sprintf("'%s' has no attribute '%s'", name, key)}
	case int64:
		return &undefined{msg: fmt.Sprintf("%s has no element %d", name, key)}
	}
	return &undefined{msg: fmt.Sprintf("%s has no such element", name)}
}

// slice is of[from:to:step] with Python's rules; nil bounds are absent.
func (vm *interp) slice(of, from, to, step any) (any, error) {
	if u, ok := of.(*undefined); ok {
		return nil, u.fail()
	}
	n, err := vm.length(of)
	l, isSeq := of.(*list)
	s, isStr := of.(string)
	if err != nil || !isStr && (!isSeq || l.kind > isTuple) {
		return nil, fmt.Errorf("'%s' object is not subscriptable", typeName(of))
	}
	lo, hi, by, err := sliceBounds(n, from, to, step)
	if err != nil {
		return nil, err
	}
	if isStr {
		return vm.sliceString(s, n, lo, hi, by)
	}
	if by == 1 { // shared, which is safe: items are never changed
		hi = max(lo, hi)
		return &list{kind: l.kind, items: l.items[lo:hi:hi]}, nil
	}
	items := []any{}
	for i := lo; by > 0 && i < hi || by < 0 && i > hi; i += by {
		items = append(items, l.items[i])
	}
	return &list{kind: l.kind, items: items}, vm.allocItems(len(items))
}

func (vm *interp) sliceString(s string, n, lo, hi, by int) (any, error) {
	if by == 1 && n == len(s) { // ASCII
		return s[lo:max(lo, hi)], nil
	}
	if err := vm.alloc(4 * n); err != nil {
		return nil, err
	}
	runes := []rune(s)
	if by == 1 {
		return string(runes[lo:max(lo, hi)]), nil
	}
	var out []rune
	for i := lo; by > 0 && i < hi || by < 0 && i > hi; i += by {
		out = append(out, runes[i])
	}
	return string(out), nil
}

// sliceBounds resolves Python's slice indices for a sequence of n items. Steps
// are clamped to beyond n, so that adding one cannot overflow.
func sliceBounds(n int, from, to, step any) (lo, hi, by int, err error) {
	index := func(v any, absent, least, most int) (int, error) {
		if v == nil {
			return absent, nil
		}
		i, _, isInt, _ := number(v)
		if !isInt {
			return 0, fmt.Errorf("slice indices must be integers or None, not %s", typeName(v))
		}
		if i < 0 {
			i += int64(n)
		}
		return int(min(max(i, int64(least)), int64(most))), nil
	}
	by = 1
	if step != nil {
		i, _, isInt, _ := number(step)
		if !isInt || i == 0 {
			return 0, 0, 0, fmt.Errorf("the slice step must be an integer other than zero")
		}
		by = int(min(max(i, int64(-n-1)), int64(n+1)))
	}
	if by > 0 {
		lo, err = index(from, 0, 0, n)
	} else {
		lo, err = index(from, n-1, -1, n-1)
	}
	if err != nil {
		return 0, 0, 0, err
	}
	if by > 0 {
		hi, err = index(to, n, 0, n)
	} else {
		hi, err = index(to, -1, -1, n-1)
	}
	return lo, hi, by, err
}
