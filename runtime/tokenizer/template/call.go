package template

import (
	"fmt"
	"slices"
)

// function is a value that can be called.
type function struct {
	name  string
	call  func(vm *interp, a args) (any, error)
	macro *macroDef // for macros
}

// args are the evaluated arguments of a call.
type args struct {
	pos   []any
	names []string // of kw
	kw    []any
}

// args evaluates the arguments of a call.
func (vm *interp) args(x argExprs, f *frame) (args, error) {
	var a args
	var err error
	if a.pos, err = vm.evalAll(x.pos, f); err != nil {
		return a, err
	}
	if a.kw, err = vm.evalAll(x.kw, f); err != nil {
		return a, err
	}
	a.names = slices.Clip(x.names)
	if x.star != nil {
		v, err := vm.eval(x.star, f)
		if err != nil {
			return a, err
		}
		items, err := vm.iterate(v)
		if err != nil {
			return a, err
		}
		if err := vm.allocItems(len(items)); err != nil {
			return a, err
		}
		a.pos = append(a.pos, items...)
	}
	if x.double != nil {
		v, err := vm.eval(x.double, f)
		if err != nil {
			return a, err
		}
		d, ok := v.(*Dict)
		if !ok {
			return a, fmt.Errorf("argument after ** must be a mapping, not %s", typeName(v))
		}
		if err := vm.allocItems(2 * d.Len()); err != nil {
			return a, err
		}
		for i, key := range d.keys {
			name, ok := key.(string)
			if !ok {
				return a, fmt.Errorf("keywords must be strings")
			}
			a.names, a.kw = append(a.names, name), append(a.kw, d.values[i])
		}
	}
	for i, name := range a.names {
		if slices.Contains(a.names[:i], name) {
			return a, fmt.Errorf("multiple values for keyword argument '%s'", name)
		}
		if err := vm.step(1 + i/8); err != nil {
			return a, err
		}
	}
	return a, nil
}

// take removes and returns a keyword argument.
func (a *args) take(name string) (any, bool) {
	i := slices.Index(a.names, name)
	if i < 0 {
		return nil, false
	}
	v := a.kw[i]
	a.names = slices.Concat(a.names[:i], a.names[i+1:])
	a.kw = slices.Concat(a.kw[:i], a.kw[i+1:])
	return v, true
}

// absent marks a parameter that no argument was given for.
type absent struct{}

// bind assigns arguments to parameters by position and name. The result has one
// value per parameter, absent{} where there is none; the first required ones
// must be given.
func (a args) bind(name string, required int, params ...string) ([]any, error) {
	if len(a.pos) > len(params) {
		return nil, fmt.Errorf("%s() takes at most %d arguments, got %d", name, len(params), len(a.pos))
	}
	values := make([]any, len(params))
	for i := range values {
		values[i] = absent{}
	}
	copy(values, a.pos)
	for i, n := range a.names {
		k := slices.Index(params, n)
		if k < 0 {
			return nil, fmt.Errorf("%s() got an unexpected keyword argument '%s'", name, n)
		}
		if k < len(a.pos) {
			return nil, fmt.Errorf("%s() got multiple values for argument '%s'", name, n)
		}
		values[k] = a.kw[i]
	}
	for i := range required {
		if (values[i] == absent{}) {
			return nil, fmt.Errorf("%s() is missing its argument '%s'", name, params[i])
		}
	}
	return values, nil
}

// or returns v, or def where v is absent.
func or(v, def any) any {
	if (v == absent{}) {
		return def
	}
	return v
}

// call evaluates a call, with caller for the body of a call block.
func (x *callExpr) call(vm *interp, f *frame, caller *function) (any, error) {
	of, err := vm.eval(x.of, f)
	if err != nil {
		return nil, err
	}
	a, err := vm.args(x.args, f)
	if err != nil {
		return nil, err
	}
	if caller != nil {
		a.names, a.kw = append(a.names, "caller"), append(a.kw, any(caller))
	}
	return vm.call(of, a)
}

// call calls a value.
func (vm *interp) call(of any, a args) (any, error) {
	if err := vm.step(1); err != nil {
		return nil, err
	}
	switch of := of.(type) {
	case *function:
		return of.call(vm, a)
	case *undefined:
		return nil, of.fail()
	case *loopState:
		return of.recurse(vm, a)
	case *joiner:
		return of.call(), nil
	}
	return nil, fmt.Errorf("'%s' object is not callable", typeName(of))
}

// newMacro makes a macro defined in scope f a value.
func newMacro(m *macroDef, f *frame) *function {
	fn := &function{name: m.name, macro: m}
	fn.call = func(vm *interp, a args) (any, error) { return vm.callMacro(m, f, a) }
	return fn
}

// callMacro renders the body of a macro in a scope inside of its definition's.
func (vm *interp) callMacro(m *macroDef, defined *frame, a args) (any, error) {
	if err := vm.enter(); err != nil {
		return nil, err
	}
	defer vm.leave()
	f := defined.child()
	bound := min(len(a.pos), len(m.params))
	for i, name := range m.params[:bound] {
		if slices.Contains(a.names, name) {
			return nil, fmt.Errorf("macro '%s' got multiple values for argument '%s'", m.name, name)
		}
		f.set(name, a.pos[i])
	}
	firstDefault := len(m.params) - len(m.defaults)
	for i := bound; i < len(m.params); i++ {
		name := m.params[i]
		v, given := a.take(name)
		var err error
		switch {
		case given:
		case i >= firstDefault:
			v, err = vm.eval(m.defaults[i-firstDefault], f)
		default:
			v = &undefined{msg: fmt.Sprintf("parameter '%s' was not provided", name)}
		}
		if err != nil {
			return nil, err
		}
		f.set(name, v)
	}
	if m.caller {
		v, given := a.take("caller")
		if !given {
			v = &undefined{msg: "no caller defined"}
		}
		f.set("caller", v)
	}
	if m.varargs {
		f.set("varargs", newTuple(a.pos[bound:]...))
	} else if len(a.pos) > bound {
		return nil, fmt.Errorf("macro '%s' takes not more than %d argument(s)", m.name, len(m.params))
	}
	if m.kwargs {
		d := NewDict()
		for i, name := range a.names {
			d.Set(name, a.kw[i])
		}
		f.set("kwargs", d)
	} else if len(a.names) > 0 {
		return nil, fmt.Errorf("macro '%s' takes no keyword argument '%s'", m.name, a.names[0])
	}
	return vm.capture(m.body, f)
}

// capture renders a block into a string.
func (vm *interp) capture(b block, f *frame) (any, error) {
	out := &output{}
	if _, err := vm.block(b, f, out); err != nil {
		return nil, err
	}
	return string(out.text), vm.alloc(len(out.text))
}
