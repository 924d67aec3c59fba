package template

import "fmt"

// loopState is the variable loop inside of a for loop.
type loopState struct {
	items []any
	i     int
	depth int
	last  []any // arguments of the latest changed()
	again func(vm *interp, seq any) (any, error)
}

func (l *loopState) attribute(name string) (any, bool) {
	n := len(l.items)
	switch name {
	case "index":
		return int64(l.i + 1), true
	case "index0":
		return int64(l.i), true
	case "revindex":
		return int64(n - l.i), true
	case "revindex0":
		return int64(n - l.i - 1), true
	case "first":
		return l.i == 0, true
	case "last":
		return l.i == n-1, true
	case "length":
		return int64(n), true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if l.i > 0 {
			return l.items[l.i-1], true
		}
		return &undefined{msg: "there is no previous item"}, true
	case "nextitem":
		if l.i+1 < n {
			return l.items[l.i+1], true
		}
		return &undefined{msg: "there is no next item"}, true
	case "cycle":
		return &function{name: name, call: l.cycle}, true
	case "changed":
		return &function{name: name, call: l.changed}, true
	}
	return nil, false
}

func (l *loopState) cycle(_ *interp, a args) (any, error) {
	if len(a.pos) == 0 {
		return nil, fmt.Errorf("no items for cycling given")
	}
	return a.pos[l.i%len(a.pos)], nil
}

func (l *loopState) changed(vm *interp, a args) (any, error) {
	if l.last != nil {
		eq, err := vm.equal(newTuple(l.last...), newTuple(a.pos...))
		if err != nil || eq {
			return false, err
		}
	}
	l.last = append([]any{}, a.pos...)
	return true, nil
}

// recurse is loop(seq) in a recursive loop: it renders the loop over seq.
func (l *loopState) recurse(vm *interp, a args) (any, error) {
	if l.again == nil {
		return nil, fmt.Errorf("the loop is not recursive: it must have the word 'recursive' to be called")
	}
	v, err := a.bind("loop", 1, "iterable")
	if err != nil {
		return nil, err
	}
	return l.again(vm, v[0])
}

// cycler is the global of that name: it goes round its values.
type cycler struct {
	values []any
	i      int
}

func (c *cycler) attribute(name string) (any, bool) {
	switch name {
	case "current":
		return c.values[c.i], true
	case "next":
		return &function{name: name, call: func(*interp, args) (any, error) {
			v := c.values[c.i]
			c.i = (c.i + 1) % len(c.values)
			return v, nil
		}}, true
	case "reset":
		return &function{name: name, call: func(*interp, args) (any, error) {
			c.i = 0
			return nil, nil
		}}, true
	}
	return nil, false
}

// joiner is the global of that name: it is nothing the first time, then its separator.
type joiner struct {
	separator string
	used      bool
}

func (j *joiner) call() any {
	if !j.used {
		j.used = true
		return ""
	}
	return j.separator
}
