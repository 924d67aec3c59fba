package template

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func lengthFilter(vm *interp, in any, a args) (any, error) {
	if _, err := a.bind("length", 0); err != nil {
		return nil, err
	}
	n, err := vm.length(in)
	return int64(n), err
}

func firstFilter(vm *interp, in any, a args) (any, error) {
	if _, err := a.bind("first", 0); err != nil {
		return nil, err
	}
	if s, ok := in.(string); ok && s != "" {
		return vm.character(s, 0)
	}
	items, err := vm.iterate(in)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return &undefined{msg: "No first item, sequence was empty."}, nil
	}
	return items[0], nil
}

func lastFilter(vm *interp, in any, a args) (any, error) {
	if _, err := a.bind("last", 0); err != nil {
		return nil, err
	}
	if s, ok := in.(string); ok && s != "" {
		return vm.character(s, -1)
	}
	items, err := vm.iterate(in)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return &undefined{msg: "No last item, sequence was empty."}, nil
	}
	return items[len(items)-1], nil
}

func listFilter(vm *interp, in any, a args) (any, error) {
	if _, err := a.bind("list", 0); err != nil {
		return nil, err
	}
	items, err := vm.iterate(in)
	return newList(slices.Clip(items)...), err
}

func reverseFilter(vm *interp, in any, a args) (any, error) {
	if _, err := a.bind("reverse", 0); err != nil {
		return nil, err
	}
	items, err := vm.iterate(in)
	if err == nil {
		err = vm.allocItems(len(items))
	}
	if err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	if _, ok := in.(string); ok {
		var b strings.Builder
		for _, item := range items {
			b.WriteString(item.(string))
		}
		return b.String(), nil
	}
	return newIter(items), nil
}

// attrPath is the attribute of a filter's argument: names and numbers with dots
// between, as in map(attribute="a.0.b").
type attrPath []any

// newAttrPath makes a path of an argument; nil for None.
func newAttrPath(v any) (attrPath, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case int64:
		return attrPath{v}, nil
	case string:
		var path attrPath
		for _, part := range strings.Split(v, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil && n >= 0 {
				path = append(path, n)
			} else {
				path = append(path, part)
			}
		}
		return path, nil
	}
	return nil, fmt.Errorf("an attribute must be a name or a number, not %s", typeName(v))
}

// get follows the path. Where def is not nil it replaces what is missing.
func (p attrPath) get(vm *interp, v any, def any) (any, error) {
	for _, key := range p {
		if err := vm.step(1); err != nil {
			return nil, err
		}
		var err error
		if v, err = vm.item(v, key); err != nil {
			return nil, err
		}
		if _, missing := v.(*undefined); missing && def != nil {
			v = def
		}
	}
	return v, nil
}

// getAll returns what the path leads to for each item, with strings lowered if
// fold is set.
func (p attrPath) getAll(vm *interp, items []any, fold bool) ([]any, error) {
	if err := vm.allocItems(len(items)); err != nil {
		return nil, err
	}
	values := make([]any, len(items))
	for i, item := range items {
		v, err := p.get(vm, item, nil)
		if err != nil {
			return nil, err
		}
		values[i] = foldCase(v, fold)
	}
	return values, nil
}

func joinFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("join", 0, "d", "attribute")
	if err != nil {
		return nil, err
	}
	sep, err := vm.str(or(v[0], ""))
	if err != nil {
		return nil, err
	}
	path, err := newAttrPath(or(v[1], nil))
	if err != nil {
		return nil, err
	}
	items, err := vm.iterate(in)
	if err != nil {
		return nil, err
	}
	if items, err = path.getAll(vm, items, false); err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	for i, item := range items {
		if parts[i], err = vm.str(item); err != nil {
			return nil, err
		}
	}
	return vm.joinStrings(parts, sep)
}

func sumFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("sum", 0, "attribute", "start")
	if err != nil {
		return nil, err
	}
	path, err := newAttrPath(or(v[0], nil))
	if err != nil {
		return nil, err
	}
	items, err := vm.iterate(in)
	if err != nil {
		return nil, err
	}
	total := or(v[1], int64(0))
	for _, item := range items {
		x, err := path.get(vm, item, nil)
		if err != nil {
			return nil, err
		}
		if total, err = vm.arith("+", total, x); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// extremeFilter makes min (-1) and max (1).
func extremeFilter(want int) filterFunc {
	return func(vm *interp, in any, a args) (any, error) {
		v, err := a.bind("min", 0, "case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		path, err := newAttrPath(or(v[1], nil))
		if err != nil {
			return nil, err
		}
		items, err := vm.iterate(in)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return &undefined{msg: "No aggregated item, sequence was empty."}, nil
		}
		keys, err := path.getAll(vm, items, !truth(or(v[0], false)))
		if err != nil {
			return nil, err
		}
		best := 0
		for i := range keys {
			c, err := vm.order("<", keys[i], keys[best])
			if err != nil {
				return nil, err
			}
			if c == want {
				best = i
			}
		}
		return items[best], nil
	}
}

// sortBy sorts items by key, stably. Every comparison is counted; after an error
// the order is unspecified.
func sortBy[T any](vm *interp, items []T, reverse bool, key func(T) any) error {
	var failed error
	slices.SortStableFunc(items, func(a, b T) int {
		if failed != nil {
			return 0
		}
		if reverse {
			a, b = b, a
		}
		c, err := vm.order("<", key(a), key(b))
		if err != nil {
			failed = err
		}
		return c
	})
	return failed
}

func sortFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := vm.iterate(in)
	if err != nil {
		return nil, err
	}
	var paths []attrPath // several attributes may be given with commas
	if s, ok := or(v[2], nil).(string); ok {
		for _, one := range strings.Split(s, ",") {
			path, err := newAttrPath(one)
			if err != nil {
				return nil, err
			}
			paths = append(paths, path)
		}
	} else {
		path, err := newAttrPath(or(v[2], nil))
		if err != nil {
			return nil, err
		}
		paths = []attrPath{path}
	}
	if err := vm.allocItems(3 * len(items)); err != nil {
		return nil, err
	}
	type keyed struct{ key, item any }
	rows := make([]keyed, len(items))
	fold := !truth(or(v[1], false))
	for i, item := range items {
		keys := make([]any, len(paths))
		for k, path := range paths {
			x, err := path.get(vm, item, nil)
			if err != nil {
				return nil, err
			}
			keys[k] = foldCase(x, fold)
		}
		rows[i] = keyed{newList(keys...), item}
	}
	if err := sortBy(vm, rows, truth(or(v[0], false)), func(r keyed) any { return r.key }); err != nil {
		return nil, err
	}
	sorted := make([]any, len(rows))
	for i, r := range rows {
		sorted[i] = r.item
	}
	return newList(sorted...), nil
}

func uniqueFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("unique", 0, "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	path, err := newAttrPath(or(v[1], nil))
	if err != nil {
		return nil, err
	}
	items, err := vm.iterate(in)
	if err != nil {
		return nil, err
	}
	keys, err := path.getAll(vm, items, !truth(or(v[0], false)))
	if err != nil {
		return nil, err
	}
	seen := map[any]bool{}
	var kept []any
	for i, key := range keys {
		hash, err := hashKey(key)
		if err != nil {
			return nil, err
		}
		if !seen[hash] {
			seen[hash] = true
			kept = append(kept, items[i])
		}
	}
	return newIter(kept), nil
}

func groupByFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("groupby", 1, "attribute", "default", "case_sensitive")
	if err != nil {
		return nil, err
	}
	path, err := newAttrPath(v[0])
	if err != nil {
		return nil, err
	}
	items, err := vm.iterate(in)
	if err != nil {
		return nil, err
	}
	if err := vm.allocItems(4 * len(items)); err != nil {
		return nil, err
	}
	type row struct{ key, folded, item any }
	rows := make([]row, len(items))
	fold := !truth(or(v[2], false))
	for i, item := range items {
		key, err := path.get(vm, item, or(v[1], nil))
		if err != nil {
			return nil, err
		}
		rows[i] = row{key, foldCase(key, fold), item}
	}
	if err := sortBy(vm, rows, false, func(r row) any { return r.folded }); err != nil {
		return nil, err
	}
	groups := newList()
	for i := 0; i < len(rows); {
		group := newList()
		first := rows[i]
		for ; i < len(rows); i++ {
			eq, err := vm.equal(rows[i].folded, first.folded)
			if err != nil {
				return nil, err
			}
			if !eq {
				break
			}
			group.items = append(group.items, rows[i].item)
		}
		// Jinja's groups are named tuples; grouper and list are reached by index.
		groups.items = append(groups.items, newTuple(first.key, group))
	}
	return groups, nil
}

// batchFilter makes rows of n items; the last is filled up if asked for.
func batchFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("batch", 1, "linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	n, err := integer("batch", v[0], 1<<30)
	if err != nil {
		return nil, err
	}
	if n <= 0 {
		return nil, fmt.Errorf("batch needs a positive number")
	}
	items, err := vm.iterate(in)
	if err != nil {
		return nil, err
	}
	if err := vm.allocItems(2*len(items) + 1); err != nil {
		return nil, err
	}
	var rows []any
	for len(items) > 0 {
		row := slices.Clone(items[:min(n, len(items))])
		items = items[len(row):]
		if fill := or(v[1], nil); fill != nil && len(row) < n {
			if err := vm.allocItems(n - len(row)); err != nil {
				return nil, err
			}
			row = append(row, slices.Repeat([]any{fill}, n-len(row))...)
		}
		rows = append(rows, newList(row...))
	}
	return newIter(rows), nil
}

// sliceFilter makes n columns of items, the first ones longer by one.
func sliceFilter(vm *interp, in any, a args) (any, error) {
	v, err := a.bind("slice", 1, "slices", "fill_with")
	if err != nil {
		return nil, err
	}
	n, err := integer("slice", v[0], maxRange)
	if err != nil {
		return nil, err
	}
	if n <= 0 {
		return nil, fmt.Errorf("slice needs a positive number")
	}
	items, err := vm.iterate(in)
	if err != nil {
		return nil, err
	}
	if err := vm.allocItems(len(items) + 3*n); err != nil {
		return nil, err
	}
	per, extra := len(items)/n, len(items)%n
	var columns []any
	for i := range n {
		size := per
		if i < extra {
			size++
		}
		column := slices.Clone(items[:size])
		items = items[size:]
		if fill := or(v[1], nil); fill != nil && i >= extra {
			column = append(column, fill)
		}
		columns = append(columns, newList(column...))
	}
	return newIter(columns), nil
}

// mapFilter applies a filter by name, or looks up an attribute, of each item. Of what is false, none among it, it makes nothing,
// as jinja does, whatever its arguments are; so does selectFilter.
func mapFilter(vm *interp, in any, a args) (any, error) {
	if !truth(in) {
		return newIter(nil), nil
	}
	items, err := vm.iterate(in)
	if err != nil {
		return nil, err
	}
	if err := vm.allocItems(len(items)); err != nil {
		return nil, err
	}
	apply, err := mapping(vm, a)
	if err != nil {
		return nil, err
	}
	mapped := make([]any, len(items))
	for i, item := range items {
		if err := vm.step(1); err != nil {
			return nil, err
		}
		if mapped[i], err = apply(item); err != nil {
			return nil, err
		}
	}
	return newIter(mapped), nil
}

// mapping is the function that map's arguments stand for.
func mapping(vm *interp, a args) (func(any) (any, error), error) {
	if attribute, ok := a.take("attribute"); ok && len(a.pos) == 0 {
		def, _ := a.take("default")
		path, err := newAttrPath(attribute)
		if err != nil {
			return nil, err
		}
		if len(a.names) > 0 {
			return nil, fmt.Errorf("unexpected keyword argument '%s'", a.names[0])
		}
		return func(item any) (any, error) { return path.get(vm, item, def) }, nil
	}
	if len(a.pos) == 0 {
		return nil, fmt.Errorf("map requires a filter argument")
	}
	name, err := text("map", a.pos[0])
	if err != nil {
		return nil, err
	}
	a.pos = a.pos[1:]
	return func(item any) (any, error) { return vm.filter(name, item, a) }, nil
}

// selectFilter makes select and its kin: they keep the items, or the items an
// attribute of which, passes a test, by default that of truth.
func selectFilter(want, byAttr bool) filterFunc {
	return func(vm *interp, in any, a args) (any, error) {
		if !truth(in) {
			return newIter(nil), nil
		}
		var path attrPath
		if byAttr {
			if len(a.pos) == 0 {
				return nil, fmt.Errorf("missing parameter for attribute name")
			}
			var err error
			if path, err = newAttrPath(a.pos[0]); err != nil {
				return nil, err
			}
			a.pos = a.pos[1:]
		}
		name := ""
		if len(a.pos) > 0 {
			var err error
			if name, err = text("select", a.pos[0]); err != nil {
				return nil, err
			}
			a.pos = a.pos[1:]
		}
		items, err := vm.iterate(in)
		if err != nil {
			return nil, err
		}
		if err := vm.allocItems(len(items)); err != nil {
			return nil, err
		}
		var kept []any
		for _, item := range items {
			if err := vm.step(1); err != nil {
				return nil, err
			}
			v, err := path.get(vm, item, nil)
			if err != nil {
				return nil, err
			}
			ok := truth(v)
			if name != "" {
				if ok, err = vm.test(name, v, a); err != nil {
					return nil, err
				}
			}
			if ok == want {
				kept = append(kept, item)
			}
		}
		return newIter(kept), nil
	}
}
