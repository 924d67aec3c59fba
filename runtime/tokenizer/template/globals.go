package template

import "fmt"

// globals are the names every template can use. Functions hold no state.
var globals = map[string]any{
	"range":           &function{name: "range", call: rangeFunc},
	"dict":            &function{name: "dict", call: dictFunc},
	"namespace":       &function{name: "namespace", call: namespaceFunc},
	"cycler":          &function{name: "cycler", call: cyclerFunc},
	"joiner":          &function{name: "joiner", call: joinerFunc},
	"raise_exception": &function{name: "raise_exception", call: raiseFunc},
	"strftime_now":    &function{name: "strftime_now", call: strftimeFunc},
}

func rangeFunc(vm *interp, a args) (any, error) {
	v, err := a.bind("range", 1, "start", "stop", "step")
	if err != nil {
		return nil, err
	}
	bounds := [3]int64{0, 0, 1}
	for i, x := range v {
		if (x == absent{}) {
			continue
		}
		n, _, isInt, _ := number(x)
		if !isInt {
			return nil, fmt.Errorf("'%s' object cannot be interpreted as an integer", typeName(x))
		}
		bounds[i] = n
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if (v[1] == absent{}) {
		start, stop = 0, start
	}
	if step == 0 {
		return nil, fmt.Errorf("range() arg 3 must not be zero")
	}
	n := uint64(0)
	switch { // the differences are computed without sign, where they cannot overflow
	case step > 0 && start < stop:
		n = (uint64(stop)-uint64(start)-1)/uint64(step) + 1
	case step < 0 && start > stop:
		n = (uint64(start)-uint64(stop)-1)/(-uint64(step)) + 1
	}
	if n > maxRange {
		return nil, fmt.Errorf("range too big: the limit is %d items", maxRange)
	}
	if err := vm.allocItems(int(n)); err != nil {
		return nil, err
	}
	items := make([]any, n)
	for i := range items {
		items[i] = start + int64(i)*step
	}
	return newList(items...), nil
}

func dictFunc(vm *interp, a args) (any, error) {
	d := NewDict()
	if len(a.pos) > 1 {
		return nil, fmt.Errorf("dict expected at most 1 argument, got %d", len(a.pos))
	}
	if len(a.pos) == 1 {
		if src, ok := a.pos[0].(*Dict); ok {
			if err := vm.copyDict(d, src); err != nil {
				return nil, err
			}
		} else if err := vm.fillDict(d, a.pos[0]); err != nil {
			return nil, err
		}
	}
	if err := vm.allocItems(4 * len(a.names)); err != nil {
		return nil, err
	}
	for i, name := range a.names {
		d.Set(name, a.kw[i])
	}
	return d, nil
}

// copyDict adds the entries of src to d.
func (vm *interp) copyDict(d, src *Dict) error {
	if err := vm.allocItems(4 * src.Len()); err != nil {
		return err
	}
	for i, key := range src.keys {
		hash, err := hashKey(key)
		if err != nil {
			return err
		}
		d.set(hash, key, src.values[i])
	}
	return nil
}

// fillDict adds the pairs of an iterable to d.
func (vm *interp) fillDict(d *Dict, pairs any) error {
	items, err := vm.iterate(pairs)
	if err != nil {
		return err
	}
	if err := vm.allocItems(4 * len(items)); err != nil {
		return err
	}
	for _, item := range items {
		pair, err := vm.iterate(item)
		if err != nil {
			return err
		}
		if len(pair) != 2 {
			return fmt.Errorf("a dict needs pairs, not %d values", len(pair))
		}
		hash, err := hashKey(pair[0])
		if err != nil {
			return err
		}
		d.set(hash, pair[0], pair[1])
	}
	return nil
}

func namespaceFunc(vm *interp, a args) (any, error) {
	d, err := dictFunc(vm, a)
	if err != nil {
		return nil, err
	}
	return &namespace{d.(*Dict)}, nil
}

func cyclerFunc(_ *interp, a args) (any, error) {
	if len(a.pos) == 0 {
		return nil, fmt.Errorf("at least one item has to be provided")
	}
	return &cycler{values: a.pos}, nil
}

func joinerFunc(vm *interp, a args) (any, error) {
	v, err := a.bind("joiner", 0, "sep")
	if err != nil {
		return nil, err
	}
	sep, err := vm.str(or(v[0], ", "))
	return &joiner{separator: sep}, err
}

func raiseFunc(vm *interp, a args) (any, error) {
	v, err := a.bind("raise_exception", 1, "message")
	if err != nil {
		return nil, err
	}
	msg, err := vm.str(v[0])
	if err != nil {
		return nil, err
	}
	return nil, &RaisedError{Msg: msg}
}

func strftimeFunc(vm *interp, a args) (any, error) {
	v, err := a.bind("strftime_now", 1, "format")
	if err != nil {
		return nil, err
	}
	format, ok := v[0].(string)
	if !ok {
		return nil, fmt.Errorf("strftime_now() needs a format string, not %s", typeName(v[0]))
	}
	return vm.strftime(format, vm.now())
}
