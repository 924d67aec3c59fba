package template

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// filterFunc is a filter: in | name(a…).
type filterFunc func(vm *interp, in any, a args) (any, error)

// filters are Jinja's filters, but for those that make HTML or are random.
// Those on sequences are in filters_seq.go, those on text in filters_text.go.
var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		"abs": absFilter, "int": intFilter, "float": floatFilter, "round": roundFilter,
		"default": defaultFilter, "d": defaultFilter, "string": stringFilter, "safe": stringFilter, "tojson": tojson,
		"attr": attrFilter, "items": itemsFilter, "dictsort": dictSortFilter,

		"length": lengthFilter, "count": lengthFilter, "first": firstFilter, "last": lastFilter,
		"list": listFilter, "reverse": reverseFilter, "join": joinFilter, "sum": sumFilter,
		"min": extremeFilter(-1), "max": extremeFilter(1), "sort": sortFilter, "unique": uniqueFilter,
		"groupby": groupByFilter, "batch": batchFilter, "slice": sliceFilter, "map": mapFilter,
		"select": selectFilter(true, false), "reject": selectFilter(false, false),
		"selectattr": selectFilter(true, true), "rejectattr": selectFilter(false, true),

		"upper": textFilter(upper), "lower": textFilter(strings.ToLower), "capitalize": textFilter(capitalize),
		"title": textFilter(titleFilter), "trim": trimFilter, "replace": replaceFilter, "indent": indentFilter,
		"center": centerFilter, "truncate": truncateFilter, "wordcount": wordCountFilter, "format": formatFilter,
		"escape": escapeFilter, "e": escapeFilter, "forceescape": escapeFilter, "urlencode": urlEncodeFilter,
	}
}

// filter applies the filter of a name.
func (vm *interp) filter(name string, in any, a args) (any, error) {
	f, ok := filters[name]
	if !ok {
		return nil, fmt.Errorf("there is no filter '%s'", name)
	}
	if u, ok := in.(*undefined); ok && u.unsafe {
		return nil, u.fail()
	}
	return f(vm, in, a)
}

func absFilter(_ *interp, in any, a args) (any, error) {
	if _, err := a.bind("abs", 0); err != nil {
		return nil, err
	}
	i, f, isInt, isFloat := number(in)
	switch {
	case isInt && i == math.MinInt64:
		return nil, errOverflow
	case isInt:
		return max(i, -i), nil
	case isFloat:
		return math.Abs(f), nil
	}
	return nil, fmt.Errorf("bad operand type for abs(): '%s'", typeName(in))
}

func intFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("int", 0, "default", "base")
	if err != nil {
		return nil, err
	}
	base, err := integer("int", or(v[1], int64(10)), 36)
	if err != nil {
		return nil, err
	}
	def := or(v[0], int64(0))
	switch x := in.(type) {
	case string:
		if err := vm.scan(len(x)); err != nil {
			return nil, err
		}
		s := strings.TrimFunc(x, isSpace)
		if base != 10 && base >= 2 {
			if n, err := strconv.ParseInt(trimBase(s, base), base, 64); err == nil {
				return n, nil
			}
			return def, nil
		}
		if n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64); err == nil {
			return n, nil
		}
		if f, ok := parseFloat(s); ok && math.Abs(f) < 1<<63 {
			return int64(f), nil
		}
		return def, nil
	case *undefined:
		return nil, x.fail()
	}
	i, f, isInt, isFloat := number(in)
	switch {
	case isInt:
		return i, nil
	case isFloat && math.Abs(f) < 1<<63:
		return int64(f), nil
	}
	return def, nil
}

// trimBase removes the prefix that Python allows for a base.
func trimBase(s string, base int) string {
	if prefix := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]; prefix != "" && len(s) > 2 && strings.EqualFold(s[:2], prefix) {
		return s[2:]
	}
	return s
}

// parseFloat reads a float as Python's float(s) does.
func parseFloat(s string) (float64, bool) {
	if strings.ContainsAny(s, "xXpP") { // Go's hexadecimal floats are not Python's
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0) && s != ""
}

func floatFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("float", 0, "default")
	if err != nil {
		return nil, err
	}
	switch x := in.(type) {
	case string:
		if f, ok := parseFloat(strings.TrimFunc(x, isSpace)); ok {
			return f, vm.scan(len(x))
		}
	case *undefined:
		return nil, x.fail()
	}
	if _, f, isInt, isFloat := number(in); isInt || isFloat {
		return f, nil
	}
	return or(v[0], 0.0), nil
}

func roundFilter(_ *interp, in any, a args) (any, error) {
	v, err := a.bind("round", 0, "precision", "method")
	if err != nil {
		return nil, err
	}
	_, f, isInt, isFloat := number(in)
	if !isInt && !isFloat {
		return nil, fmt.Errorf("round needs a number, not %s", typeName(in))
	}
	prec, err := integer("round", or(v[0], int64(0)), 300)
	if err != nil {
		return nil, err
	}
	var scale float64 = 1
	for range max(prec, -prec) {
		scale *= 10
	}
	method, _ := or(v[1], "common").(string)
	apply := map[string]func(float64) float64{"ceil": math.Ceil, "floor": math.Floor}[method]
	switch {
	case method == "common" && prec >= 0:
		if isInt || math.IsInf(f, 0) || math.IsNaN(f) {
			return in, nil
		}
		// Formatting rounds the exact value half to even, as Python does.
		f, err = strconv.ParseFloat(strconv.FormatFloat(f, 'f', prec, 64), 64)
		return f, err
	case method == "common":
		f = math.RoundToEven(f/scale) * scale
	case apply == nil:
		return nil, fmt.Errorf("method must be common, ceil or floor")
	case prec >= 0:
		return apply(f*scale) / scale, nil
	default:
		return apply(f/scale) * scale, nil
	}
	if isInt {
		return int64(f), nil
	}
	return f, nil
}

func defaultFilter(_ *interp, in any, a args) (any, error) {
	v, err := a.bind("default", 0, "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	_, missing := in.(*undefined)
	if missing || truth(or(v[1], false)) && !truth(in) {
		return or(v[0], ""), nil
	}
	return in, nil
}

func stringFilter(vm *interp, in any, a args) (any, error) {
	if _, err := a.bind("string", 0); err != nil {
		return nil, err
	}
	return vm.str(in)
}

func attrFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("attr", 1, "name")
	if err != nil {
		return nil, err
	}
	name, err := vm.str(v[0])
	if err != nil {
		return nil, err
	}
	if u, ok := in.(*undefined); ok {
		return nil, u.fail()
	}
	if value, ok := vm.attribute(in, name); ok {
		return value, nil
	}
	return missing(in, name), nil
}

func itemsFilter(vm *interp, in any, a args) (any, error) {
	if _, err := a.bind("items", 0); err != nil {
		return nil, err
	}
	switch x := in.(type) {
	case *undefined:
		return newIter(nil), nil
	case *Dict:
		items, err := vm.pairs(x)
		return newIter(items), err
	}
	return nil, fmt.Errorf("can only get item pairs from a mapping, not %s", typeName(in))
}

func dictSortFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("dictsort", 0, "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	d, ok := in.(*Dict)
	if !ok {
		return nil, fmt.Errorf("dictsort needs a dict, not %s", typeName(in))
	}
	by := slices.Index([]any{"key", "value"}, or(v[1], "key"))
	if by < 0 {
		return nil, fmt.Errorf("dictsort: by must be 'key' or 'value'")
	}
	pairs, err := vm.pairs(d)
	if err != nil {
		return nil, err
	}
	fold := !truth(or(v[0], false))
	err = sortBy(vm, pairs, truth(or(v[2], false)), func(pair any) any {
		return foldCase(pair.(*list).items[by], fold)
	})
	return newList(pairs...), err
}

// foldCase lowers strings where comparing ignores case.
func foldCase(v any, fold bool) any {
	if s, ok := v.(string); ok && fold {
		return strings.ToLower(s)
	}
	return v
}
