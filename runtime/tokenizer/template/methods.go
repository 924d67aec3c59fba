package template

import (
	"fmt"
	"slices"
)

// method binds a method to its receiver.
func method[T any](name string, of T, m func(vm *interp, of T, a args) (any, error)) *function {
	return &function{name: name, call: func(vm *interp, a args) (any, error) { return m(vm, of, a) }}
}

var dictMethods = map[string]func(vm *interp, d *Dict, a args) (any, error){
	"get": func(_ *interp, d *Dict, a args) (any, error) {
		v, err := a.bind("get", 1, "key", "default")
		if err != nil {
			return nil, err
		}
		hash, err := hashKey(v[0])
		if err != nil {
			return nil, err
		}
		if value, ok := d.get(hash); ok {
			return value, nil
		}
		return or(v[1], nil), nil
	},
	"keys": func(_ *interp, d *Dict, a args) (any, error) {
		_, err := a.bind("keys", 0)
		return &list{kind: isView, view: "dict_keys", items: slices.Clip(d.keys)}, err
	},
	"values": func(_ *interp, d *Dict, a args) (any, error) {
		_, err := a.bind("values", 0)
		return &list{kind: isView, view: "dict_values", items: slices.Clip(d.values)}, err
	},
	"items": func(vm *interp, d *Dict, a args) (any, error) {
		if _, err := a.bind("items", 0); err != nil {
			return nil, err
		}
		items, err := vm.pairs(d)
		return &list{kind: isView, view: "dict_items", items: items}, err
	},
	"copy": func(vm *interp, d *Dict, a args) (any, error) {
		if _, err := a.bind("copy", 0); err != nil {
			return nil, err
		}
		c := NewDict()
		return c, vm.copyDict(c, d)
	},
}

// pairs returns the entries of d as tuples.
func (vm *interp) pairs(d *Dict) ([]any, error) {
	if err := vm.allocItems(4 * d.Len()); err != nil {
		return nil, err
	}
	items := make([]any, d.Len())
	for i, key := range d.keys {
		items[i] = newTuple(key, d.values[i])
	}
	return items, nil
}

var listMethods = map[string]func(vm *interp, l *list, a args) (any, error){
	"index": func(vm *interp, l *list, a args) (any, error) {
		v, err := a.bind("index", 1, "value")
		if err != nil {
			return nil, err
		}
		for i, item := range l.items {
			eq, err := vm.equal(item, v[0])
			if err != nil {
				return nil, err
			}
			if eq {
				return int64(i), nil
			}
		}
		return nil, fmt.Errorf("the value is not in the %s", typeName(l))
	},
	"count": func(vm *interp, l *list, a args) (any, error) {
		v, err := a.bind("count", 1, "value")
		if err != nil {
			return nil, err
		}
		n := int64(0)
		for _, item := range l.items {
			eq, err := vm.equal(item, v[0])
			if err != nil {
				return nil, err
			}
			if eq {
				n++
			}
		}
		return n, nil
	},
	"copy": func(_ *interp, l *list, a args) (any, error) {
		_, err := a.bind("copy", 0)
		return l, err
	},
}
