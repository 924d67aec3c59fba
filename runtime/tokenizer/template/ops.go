package template

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

var (
	errOverflow   = errors.New("integer overflow")
	errZeroDivide = errors.New("division by zero")
)

// number returns v as an int or a float: exactly one of isInt, isFloat is true
// when v is a number. Booleans are numbers, as in Python.
func number(v any) (i int64, f float64, isInt, isFloat bool) {
	switch v := v.(type) {
	case bool:
		return boolInt(v), float64(boolInt(v)), true, false
	case int64:
		return v, float64(v), true, false
	case float64:
		return 0, v, false, true
	}
	return 0, 0, false, false
}

// arith applies a binary operator.
func (vm *interp) arith(op string, a, b any) (any, error) {
	for _, v := range []any{a, b} {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
	}
	ai, af, aInt, aFloat := number(a)
	bi, bf, bInt, bFloat := number(b)
	switch {
	case aInt && bInt:
		return intArith(op, ai, bi)
	case (aInt || aFloat) && (bInt || bFloat):
		return floatArith(op, af, bf)
	}
	switch op {
	case "+":
		return vm.add(a, b)
	case "*":
		if aInt {
			return vm.repeat(b, ai, a)
		}
		if bInt {
			return vm.repeat(a, bi, b)
		}
	case "%":
		if format, ok := a.(string); ok {
			return vm.percent(format, b)
		}
	}
	return nil, operandError(op, a, b)
}

func operandError(op string, a, b any) error {
	return fmt.Errorf("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

// add joins strings, lists or tuples.
func (vm *interp) add(a, b any) (any, error) {
	if s, ok := a.(string); ok {
		t, ok := b.(string)
		if !ok {
			return nil, fmt.Errorf("can only concatenate str (not \"%s\") to str", typeName(b))
		}
		return s + t, vm.alloc(len(s) + len(t))
	}
	x, ok1 := a.(*list)
	y, ok2 := b.(*list)
	if !ok1 || !ok2 || x.kind != y.kind || x.kind > isTuple {
		return nil, operandError("+", a, b)
	}
	if err := vm.allocItems(len(x.items) + len(y.items)); err != nil {
		return nil, err
	}
	items := make([]any, 0, len(x.items)+len(y.items))
	return &list{kind: x.kind, items: append(append(items, x.items...), y.items...)}, nil
}

// repeat is v * n for strings, lists and tuples; by is n as the template has it.
func (vm *interp) repeat(v any, n int64, by any) (any, error) {
	n = max(n, 0)
	size := func(one int) (int, error) {
		if one > 0 && n > int64(vm.limits.Memory/one) {
			return 0, &LimitError{What: "memory", Limit: vm.limits.Memory}
		}
		return one * int(n), nil
	}
	switch v := v.(type) {
	case string:
		total, err := size(len(v))
		if err == nil {
			err = vm.alloc(total)
		}
		if err != nil || total == 0 {
			return "", err
		}
		return strings.Repeat(v, int(n)), nil
	case *list:
		if v.kind > isTuple {
			break
		}
		total, err := size(len(v.items))
		if err == nil {
			err = vm.allocItems(total)
		}
		if err != nil {
			return nil, err
		}
		items := make([]any, 0, total)
		for len(items) < total {
			items = append(items, v.items...)
		}
		return &list{kind: v.kind, items: items}, nil
	}
	return nil, operandError("*", v, by)
}

func intArith(op string, a, b int64) (any, error) {
	switch op {
	case "+":
		if c := a + b; (c > a) == (b > 0) {
			return c, nil
		}
		return nil, errOverflow
	case "-":
		if c := a - b; (c < a) == (b > 0) {
			return c, nil
		}
		return nil, errOverflow
	case "*":
		return mulInt(a, b)
	case "/":
		if b == 0 {
			return nil, errZeroDivide
		}
		return float64(a) / float64(b), nil
	case "//", "%":
		if b == 0 {
			return nil, errZeroDivide
		}
		if b == -1 { // the only divisor that overflows
			if op == "%" {
				return int64(0), nil
			}
			return intArith("-", 0, a)
		}
		q, r := a/b, a%b
		if r != 0 && (r < 0) != (b < 0) {
			q, r = q-1, r+b
		}
		if op == "%" {
			return r, nil
		}
		return q, nil
	}
	return powInt(a, b)
}

func mulInt(a, b int64) (any, error) {
	c := a * b
	if a != 0 && (c/a != b || a == -1 && b == math.MinInt64) {
		return nil, errOverflow
	}
	return c, nil
}

func powInt(a, b int64) (any, error) {
	if b < 0 {
		return floatArith("**", float64(a), float64(b))
	}
	if a >= -1 && a <= 1 { // any exponent is fine
		if b%2 == 0 {
			a *= a
		}
		if b == 0 {
			a = 1
		}
		return a, nil
	}
	result := int64(1)
	for ; b > 0; b-- { // at most 63 rounds before it overflows
		v, err := mulInt(result, a)
		if err != nil {
			return nil, err
		}
		result = v.(int64)
	}
	return result, nil
}

func floatArith(op string, a, b float64) (any, error) {
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	}
	if op != "**" && b == 0 {
		return nil, errZeroDivide
	}
	switch op {
	case "/":
		return a / b, nil
	case "//":
		return math.Floor(a / b), nil
	case "%":
		r := math.Mod(a, b)
		if r != 0 && (r < 0) != (b < 0) {
			r += b
		}
		return r, nil
	}
	if b != math.Trunc(b) || math.Abs(b) > 1024 {
		return nil, errors.New("** of floats is supported for whole exponents up to 1024 only")
	}
	result := 1.0
	for range int(math.Abs(b)) {
		result *= a
	}
	if b < 0 {
		if result == 0 {
			return nil, errZeroDivide
		}
		result = 1 / result
	}
	return result, nil
}

// equal is Python's a == b.
func (vm *interp) equal(a, b any) (bool, error) {
	if err := vm.enter(); err != nil {
		return false, err
	}
	defer vm.leave()
	if err := vm.step(1); err != nil {
		return false, err
	}
	ai, af, aInt, aFloat := number(a)
	bi, bf, bInt, bFloat := number(b)
	switch {
	case aInt && bInt:
		return ai == bi, nil
	case (aInt || aFloat) && (bInt || bFloat):
		return af == bf, nil
	}
	switch x := a.(type) {
	case nil:
		return b == nil, nil
	case string:
		y, ok := b.(string)
		return ok && x == y, vm.scan(len(x))
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	case *list:
		y, ok := b.(*list)
		if !ok || x.kind != y.kind || x.kind > isTuple || len(x.items) != len(y.items) {
			return ok && x == y, nil
		}
		for i := range x.items {
			if eq, err := vm.equal(x.items[i], y.items[i]); err != nil || !eq {
				return false, err
			}
		}
		return true, nil
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x.Len() != y.Len() {
			return false, nil
		}
		for i, key := range x.keys {
			hash, err := hashKey(key)
			if err != nil {
				return false, err
			}
			other, ok := y.get(hash)
			if !ok {
				return false, nil
			}
			if eq, err := vm.equal(x.values[i], other); err != nil || !eq {
				return false, err
			}
		}
		return true, nil
	}
	return a == b, nil
}

// order compares a and b where Python orders them: -1, 0 or 1. op is for the error.
func (vm *interp) order(op string, a, b any) (int, error) {
	if err := vm.enter(); err != nil {
		return 0, err
	}
	defer vm.leave()
	if err := vm.step(1); err != nil {
		return 0, err
	}
	for _, v := range []any{a, b} {
		if u, ok := v.(*undefined); ok {
			return 0, u.fail()
		}
	}
	ai, af, aInt, aFloat := number(a)
	bi, bf, bInt, bFloat := number(b)
	switch {
	case aInt && bInt:
		return sign(ai < bi, ai > bi), nil
	case (aInt || aFloat) && (bInt || bFloat):
		return sign(af < bf, af > bf), nil
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), vm.scan(min(len(x), len(y)))
		}
	case *list:
		y, ok := b.(*list)
		if !ok || x.kind != y.kind || x.kind > isTuple {
			break
		}
		for i := range min(len(x.items), len(y.items)) {
			if eq, err := vm.equal(x.items[i], y.items[i]); err != nil {
				return 0, err
			} else if !eq {
				return vm.order(op, x.items[i], y.items[i])
			}
		}
		return sign(len(x.items) < len(y.items), len(x.items) > len(y.items)), nil
	}
	return 0, fmt.Errorf("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
}

func sign(less, more bool) int {
	switch {
	case less:
		return -1
	case more:
		return 1
	}
	return 0
}

// compare applies a comparison operator.
func (vm *interp) compare(op string, a, b any) (bool, error) {
	switch op {
	case "==", "!=":
		eq, err := vm.equal(a, b)
		return eq == (op == "=="), err
	case "in", "not in":
		in, err := vm.contains(b, a)
		return in == (op == "in"), err
	}
	_, af, aInt, aFloat := number(a)
	_, bf, bInt, bFloat := number(b)
	if (aInt || aFloat) && (bInt || bFloat) && (math.IsNaN(af) || math.IsNaN(bf)) {
		return false, nil
	}
	c, err := vm.order(op, a, b)
	switch op {
	case "<":
		return c < 0, err
	case "<=":
		return c <= 0, err
	case ">":
		return c > 0, err
	}
	return c >= 0, err
}

// contains is Python's item in of.
func (vm *interp) contains(of, item any) (bool, error) {
	switch of := of.(type) {
	case string:
		s, ok := item.(string)
		if !ok {
			return false, fmt.Errorf("'in <string>' requires string as left operand, not %s", typeName(item))
		}
		return strings.Contains(of, s), vm.scan(len(of))
	case *Dict:
		hash, err := hashKey(item)
		if err != nil {
			return false, err
		}
		_, ok := of.get(hash)
		return ok, vm.step(1)
	case *list, *undefined:
		items, err := vm.iterate(of)
		if err != nil {
			return false, err
		}
		for _, x := range items {
			if eq, err := vm.equal(x, item); err != nil || eq {
				return eq, err
			}
		}
		return false, nil
	}
	return false, fmt.Errorf("argument of type '%s' is not iterable", typeName(of))
}
