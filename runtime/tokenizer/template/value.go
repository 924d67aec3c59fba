package template

import (
	"fmt"
	"unicode/utf8"
)

// A value is one of
//
//	nil                     None
//	bool, int64, float64
//	string                  valid UTF-8, indexed by character
//	*list                   list, tuple, a dict's view, or an iterator
//	*Dict                   dict
//	*undefined              what a missing name or attribute is
//	*namespace, *function, *loopState, *cycler, *joiner
type namespace struct{ attrs *Dict }

// undefined is the value of a name, attribute or item that does not exist. It
// prints as nothing and is false; doing anything else with it is an error.
type undefined struct {
	msg    string // what does not exist, for the error
	unsafe bool   // exists in Python but is forbidden
}

func (u *undefined) fail() error { return fmt.Errorf("%s", u.msg) }

// listKind says which of Python's sequence types a list stands for.
type listKind uint8

const (
	isList listKind = iota
	isTuple
	isView     // of a dict: has a length, but no items by index
	isIterator // can be gone through once; has no length
)

// list is a sequence of values. Its items are never changed, except that going
// through an iterator empties it.
type list struct {
	kind  listKind
	items []any
	view  string // "dict_keys", … for isView
}

func newList(items ...any) *list  { return &list{items: items} }
func newTuple(items ...any) *list { return &list{kind: isTuple, items: items} }
func newIter(items []any) *list   { return &list{kind: isIterator, items: items} }

// Dict is a mapping that keeps the order of insertion, as Python's does: pass
// one where the order of keys matters, as in tool schemas. It is built with
// Set and must not be changed while a template is rendered.
type Dict struct {
	keys   []any
	values []any
	index  map[any]int
}

// NewDict returns an empty dict; so is the zero Dict.
func NewDict() *Dict { return &Dict{} }

// Len returns the number of entries.
func (d *Dict) Len() int { return len(d.keys) }

// Set adds an entry, or replaces the value of an existing one in its place. The
// value is anything that Render takes.
func (d *Dict) Set(key string, value any) { d.set(key, key, value) }

// Get returns the value of a key.
func (d *Dict) Get(key string) (any, bool) { return d.get(key) }

// set takes the key both as it is hashed and as it is kept.
func (d *Dict) set(hash, key, value any) {
	if i, ok := d.index[hash]; ok {
		d.values[i] = value
		return
	}
	if d.index == nil {
		d.index = map[any]int{}
	}
	d.index[hash] = len(d.keys)
	d.keys, d.values = append(d.keys, key), append(d.values, value)
}

func (d *Dict) get(hash any) (any, bool) {
	i, ok := d.index[hash]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// hashKey maps a value to a Go map key under which equal keys meet: in Python
// 1, 1.0 and True are the same key.
func hashKey(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, int64:
		return v, nil
	case *undefined: // all are equal
		return (*undefined)(nil), nil
	case bool:
		return boolInt(v), nil
	case float64:
		if i := int64(v); float64(i) == v && v >= -1<<62 && v <= 1<<62 {
			return i, nil
		}
		return v, nil
	}
	return nil, fmt.Errorf("unhashable type: '%s'", typeName(v))
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// typeName is the name of a value's type in Python.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *list:
		switch v.kind {
		case isTuple:
			return "tuple"
		case isView:
			return v.view
		case isIterator:
			return "generator"
		}
		return "list"
	case *Dict:
		return "dict"
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *loopState:
		return "LoopContext"
	case *function:
		if v.macro != nil {
			return "Macro"
		}
		return "function"
	}
	return "object"
}

// truth is Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *list:
		return v.kind == isIterator || len(v.items) > 0
	case *Dict:
		return v.Len() > 0
	case *loopState:
		return len(v.items) > 0
	}
	return true
}

// iterate returns what Python's iter(v) goes through. An iterator is empty afterwards.
func (vm *interp) iterate(v any) ([]any, error) {
	switch v := v.(type) {
	case *list:
		items := v.items
		if v.kind == isIterator {
			v.items = nil
		}
		return items, vm.step(1)
	case *Dict:
		return v.keys, vm.step(1)
	case *undefined:
		if v.unsafe {
			return nil, v.fail()
		}
		return nil, nil
	case string:
		n := utf8.RuneCountInString(v)
		if err := vm.allocItems(n); err != nil {
			return nil, err
		}
		items := make([]any, 0, n)
		for len(v) > 0 {
			_, w := utf8.DecodeRuneInString(v)
			items, v = append(items, v[:w]), v[w:]
		}
		return items, nil
	case *loopState:
		return nil, fmt.Errorf("the loop cannot be iterated")
	}
	return nil, fmt.Errorf("'%s' object is not iterable", typeName(v))
}

// length is Python's len(v).
func (vm *interp) length(v any) (int, error) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), vm.scan(len(v))
	case *list:
		if v.kind != isIterator {
			return len(v.items), nil
		}
	case *Dict:
		return v.Len(), nil
	case *undefined:
		if v.unsafe {
			return 0, v.fail()
		}
		return 0, nil
	}
	return 0, fmt.Errorf("object of type '%s' has no len()", typeName(v))
}
