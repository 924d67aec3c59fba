package template

import (
	"fmt"
	"math"
	"strings"
)

// eval evaluates x, counting it.
func (vm *interp) eval(x expr, f *frame) (any, error) {
	if err := vm.step(1); err != nil {
		return nil, err
	}
	return x.eval(vm, f)
}

// evalAll evaluates a sequence of expressions.
func (vm *interp) evalAll(xs []expr, f *frame) ([]any, error) {
	if err := vm.allocItems(len(xs)); err != nil {
		return nil, err
	}
	values := make([]any, len(xs))
	for i, x := range xs {
		v, err := vm.eval(x, f)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}

func (x *constExpr) eval(*interp, *frame) (any, error) { return x.value, nil }

func (x *nameExpr) eval(vm *interp, f *frame) (any, error) { return vm.lookup(f, x.name) }

func (x *listExpr) eval(vm *interp, f *frame) (any, error) {
	items, err := vm.evalAll(x.items, f)
	if err != nil {
		return nil, err
	}
	l := newList(items...)
	if x.tuple {
		l.kind = isTuple
	}
	return l, nil
}

func (x *dictExpr) eval(vm *interp, f *frame) (any, error) {
	if err := vm.allocItems(4 * len(x.keys)); err != nil {
		return nil, err
	}
	d := NewDict()
	for i := range x.keys {
		key, err := vm.eval(x.keys[i], f)
		if err != nil {
			return nil, err
		}
		hash, err := hashKey(key)
		if err != nil {
			return nil, err
		}
		value, err := vm.eval(x.values[i], f)
		if err != nil {
			return nil, err
		}
		d.set(hash, key, value)
	}
	return d, nil
}

func (x *attrExpr) eval(vm *interp, f *frame) (any, error) {
	of, err := vm.eval(x.of, f)
	if err != nil {
		return nil, err
	}
	return vm.attr(of, x.name)
}

func (x *itemExpr) eval(vm *interp, f *frame) (any, error) {
	of, err := vm.eval(x.of, f)
	if err != nil {
		return nil, err
	}
	key, err := vm.eval(x.key, f)
	if err != nil {
		return nil, err
	}
	return vm.item(of, key)
}

func (x *sliceExpr) eval(vm *interp, f *frame) (any, error) {
	of, err := vm.eval(x.of, f)
	if err != nil {
		return nil, err
	}
	var bounds [3]any
	for i, b := range []expr{x.from, x.to, x.step} {
		if b == nil {
			continue
		}
		if bounds[i], err = vm.eval(b, f); err != nil {
			return nil, err
		}
	}
	return vm.slice(of, bounds[0], bounds[1], bounds[2])
}

func (x *callExpr) eval(vm *interp, f *frame) (any, error) { return x.call(vm, f, nil) }

func (x *filterExpr) eval(vm *interp, f *frame) (any, error) {
	in, err := vm.eval(x.of, f)
	if err != nil {
		return nil, err
	}
	return x.apply(vm, f, in)
}

// apply applies the filter to a value that is already there.
func (x *filterExpr) apply(vm *interp, f *frame, in any) (any, error) {
	a, err := vm.args(x.args, f)
	if err != nil {
		return nil, err
	}
	return vm.filter(x.name, in, a)
}

func (x *testExpr) eval(vm *interp, f *frame) (any, error) {
	v, err := vm.eval(x.of, f)
	if err != nil {
		return nil, err
	}
	a, err := vm.args(x.args, f)
	if err != nil {
		return nil, err
	}
	ok, err := vm.test(x.name, v, a)
	return ok != x.negate, err
}

func (x *condExpr) eval(vm *interp, f *frame) (any, error) {
	cond, err := vm.evalTruth(x.cond, f)
	switch {
	case err != nil:
		return nil, err
	case cond:
		return vm.eval(x.then, f)
	case x.otherwise != nil:
		return vm.eval(x.otherwise, f)
	}
	return &undefined{msg: "the inline if-expression evaluated to false and no else section was defined."}, nil
}

// evalTruth evaluates a condition.
func (vm *interp) evalTruth(x expr, f *frame) (bool, error) {
	v, err := vm.eval(x, f)
	if err != nil {
		return false, err
	}
	if u, ok := v.(*undefined); ok && u.unsafe {
		return false, u.fail()
	}
	return truth(v), nil
}

func (x *andExpr) eval(vm *interp, f *frame) (any, error) {
	a, err := vm.eval(x.a, f)
	if err != nil || !truth(a) {
		return a, err
	}
	return vm.eval(x.b, f)
}

func (x *orExpr) eval(vm *interp, f *frame) (any, error) {
	a, err := vm.eval(x.a, f)
	if err != nil || truth(a) {
		return a, err
	}
	return vm.eval(x.b, f)
}

func (x *notExpr) eval(vm *interp, f *frame) (any, error) {
	v, err := vm.evalTruth(x.x, f)
	return !v, err
}

func (x *signExpr) eval(vm *interp, f *frame) (any, error) {
	v, err := vm.eval(x.x, f)
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	i, fl, isInt, isFloat := number(v)
	switch {
	case isInt && x.neg && i == math.MinInt64:
		return nil, errOverflow
	case isInt && x.neg:
		return -i, nil
	case isInt:
		return i, nil
	case isFloat && x.neg:
		return -fl, nil
	case isFloat:
		return fl, nil
	}
	return nil, fmt.Errorf("bad operand type for a sign: '%s'", typeName(v))
}

func (x *binaryExpr) eval(vm *interp, f *frame) (any, error) {
	a, err := vm.eval(x.a, f)
	if err != nil {
		return nil, err
	}
	b, err := vm.eval(x.b, f)
	if err != nil {
		return nil, err
	}
	return vm.arith(x.op, a, b)
}

func (x *concatExpr) eval(vm *interp, f *frame) (any, error) {
	parts := make([]string, 0, len(x.parts))
	for _, p := range x.parts {
		v, err := vm.eval(p, f)
		if err != nil {
			return nil, err
		}
		s, err := vm.str(v)
		if err != nil {
			return nil, err
		}
		if err := vm.alloc(len(s)); err != nil {
			return nil, err
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ""), nil
}

func (x *compareExpr) eval(vm *interp, f *frame) (any, error) {
	a, err := vm.eval(x.first, f)
	if err != nil {
		return nil, err
	}
	for i, op := range x.ops {
		b, err := vm.eval(x.rest[i], f)
		if err != nil {
			return nil, err
		}
		if ok, err := vm.compare(op, a, b); err != nil || !ok {
			return false, err
		}
		a = b
	}
	return true, nil
}
