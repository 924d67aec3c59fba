package template

import (
	"fmt"
	"strings"
	"unicode"
)

// testFunc is a test with no arguments: v is name.
type testFunc func(v any) bool

var tests = map[string]testFunc{
	"defined":   func(v any) bool { _, is := v.(*undefined); return !is },
	"undefined": func(v any) bool { _, is := v.(*undefined); return is },
	"none":      func(v any) bool { return v == nil },
	"boolean":   func(v any) bool { _, is := v.(bool); return is },
	"true":      func(v any) bool { return v == true },
	"false":     func(v any) bool { return v == false },
	"integer":   func(v any) bool { _, is := v.(int64); return is },
	"float":     func(v any) bool { _, is := v.(float64); return is },
	"number":    func(v any) bool { _, _, isInt, isFloat := number(v); return isInt || isFloat },
	"string":    func(v any) bool { _, is := v.(string); return is },
	"mapping":   func(v any) bool { _, is := v.(*Dict); return is },
	"escaped":   func(any) bool { return false },
	"callable": func(v any) bool {
		switch v.(type) {
		case *function, *joiner, *loopState:
			return true
		}
		return false
	},
	"iterable": func(v any) bool {
		switch v.(type) {
		case string, *list, *Dict, *undefined, *loopState:
			return true
		}
		return false
	},
	"sequence": func(v any) bool {
		switch v := v.(type) {
		case string, *Dict:
			return true
		case *list:
			return v.kind <= isTuple
		case *undefined: // it has a length and can be subscripted, which raises only then
			return true
		}
		return false
	},
}

// compareTests are tests that are operators.
var compareTests = map[string]string{
	"eq": "==", "equalto": "==", "==": "==", "ne": "!=", "!=": "!=",
	"lt": "<", "lessthan": "<", "<": "<", "le": "<=", "<=": "<=",
	"gt": ">", "greaterthan": ">", ">": ">", "ge": ">=", ">=": ">=", "in": "in",
}

// test applies the test of a name.
func (vm *interp) test(name string, v any, a args) (bool, error) {
	if u, ok := v.(*undefined); ok && u.unsafe && name != "defined" && name != "undefined" {
		return false, u.fail()
	}
	if f, ok := tests[name]; ok {
		_, err := a.bind(name, 0)
		return f(v), err
	}
	if op, ok := compareTests[name]; ok {
		other, err := a.bind(name, 1, "other")
		if err != nil {
			return false, err
		}
		return vm.compare(op, v, other[0])
	}
	switch name {
	case "odd", "even", "divisibleby":
		return divisible(name, v, a)
	case "lower", "upper":
		s, err := vm.str(v)
		if err != nil {
			return false, err
		}
		cases := map[string]stringMethod{"lower": cased(unicode.IsLower, unicode.IsUpper), "upper": cased(unicode.IsUpper, unicode.IsLower)}
		is, err := cases[name](vm, s, a)
		return is == true, err
	case "sameas":
		other, err := a.bind(name, 1, "other")
		return err == nil && v == other[0], err
	case "filter", "test":
		if _, err := a.bind(name, 0); err != nil {
			return false, err
		}
		s, _ := v.(string)
		if name == "filter" {
			_, ok := filters[s]
			return ok, nil
		}
		return isTest(s), nil
	}
	return false, fmt.Errorf("there is no test '%s'", name)
}

// isTest reports whether there is a test of that name.
func isTest(name string) bool {
	_, simple := tests[name]
	_, compares := compareTests[name]
	return simple || compares || strings.Contains(" odd even divisibleby lower upper sameas filter test ", " "+name+" ")
}

// divisible is the tests odd, even and divisibleby.
func divisible(name string, v any, a args) (bool, error) {
	by := int64(2)
	if name == "divisibleby" {
		other, err := a.bind(name, 1, "num")
		if err != nil {
			return false, err
		}
		n, _, isInt, _ := number(other[0])
		if !isInt {
			return false, fmt.Errorf("divisibleby needs an integer, not %s", typeName(other[0]))
		}
		by = n
	} else if _, err := a.bind(name, 0); err != nil {
		return false, err
	}
	if u, ok := v.(*undefined); ok {
		return false, u.fail()
	}
	r, err := intOrFloatMod(v, by)
	if err != nil {
		return false, err
	}
	return (r == 0) != (name == "odd"), nil
}

// intOrFloatMod is v % by as a float, exact where it matters: for zero.
func intOrFloatMod(v any, by int64) (float64, error) {
	i, f, isInt, isFloat := number(v)
	var m any
	var err error
	switch {
	case isInt:
		m, err = intArith("%", i, by)
	case isFloat:
		m, err = floatArith("%", f, float64(by))
	default:
		return 0, operandError("%", v, by)
	}
	_, r, _, _ := number(m)
	return r, err
}
