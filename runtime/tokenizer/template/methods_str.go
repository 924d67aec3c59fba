package template

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// stringMethods are the methods of Python's str. Each is charged for reading
// its receiver; those that make new text are charged for that as well.
var stringMethods map[string]func(vm *interp, s string, a args) (any, error)

func init() {
	stringMethods = map[string]func(vm *interp, s string, a args) (any, error){
		"strip":        stripper(strings.Trim, strings.TrimFunc),
		"lstrip":       stripper(strings.TrimLeft, strings.TrimLeftFunc),
		"rstrip":       stripper(strings.TrimRight, strings.TrimRightFunc),
		"removeprefix": stripper(strings.TrimPrefix, nil),
		"removesuffix": stripper(strings.TrimSuffix, nil),
		"split":        splitMethod,
		"rsplit":       rsplitMethod,
		"splitlines":   splitLinesMethod,
		"partition":    partitioner(strings.Index, false),
		"rpartition":   partitioner(strings.LastIndex, true),
		"startswith":   affix(strings.HasPrefix),
		"endswith":     affix(strings.HasSuffix),
		"find":         finder(strings.Index, false),
		"rfind":        finder(strings.LastIndex, false),
		"index":        finder(strings.Index, true),
		"rindex":       finder(strings.LastIndex, true),
		"count":        countMethod,
		"replace":      replaceMethod,
		"join":         joinMethod,
		"format":       formatMethod,
		"upper":        mapper(upper),
		"lower":        mapper(strings.ToLower),
		"casefold":     mapper(strings.ToLower),
		"title":        mapper(title),
		"capitalize":   mapper(capitalize),
		"swapcase":     mapper(swapCase),
		"ljust":        justifier(func(pad, _ int) (int, int) { return 0, pad }),
		"rjust":        justifier(func(pad, _ int) (int, int) { return pad, 0 }),
		"center":       justifier(center),
		"zfill":        zfillMethod,
		"isdigit":      allRunes(unicode.IsDigit),
		"isdecimal":    allRunes(unicode.IsDigit),
		"isnumeric":    allRunes(unicode.IsNumber),
		"isalpha":      allRunes(unicode.IsLetter),
		"isalnum":      allRunes(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
		"isspace":      allRunes(isSpace),
		"isupper":      cased(unicode.IsUpper, unicode.IsLower),
		"islower":      cased(unicode.IsLower, unicode.IsUpper),
	}
}

type stringMethod = func(vm *interp, s string, a args) (any, error)

// text returns an argument that must be a string.
func text(fn string, v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("%s() needs a string, not %s", fn, typeName(v))
	}
	return s, nil
}

// integer returns an argument that must be an integer, within ±limit.
func integer(fn string, v any, limit int64) (int, error) {
	n, _, isInt, _ := number(v)
	if !isInt {
		return 0, fmt.Errorf("%s() needs an integer, not %s", fn, typeName(v))
	}
	return int(min(max(n, -limit), limit)), nil
}

// stripper makes a method that takes a set of characters or, given none, white
// space; with a nil space function the argument is required and a whole string.
func stripper(cut func(s, set string) string, space func(string, func(rune) bool) string) stringMethod {
	return func(vm *interp, s string, a args) (any, error) {
		v, err := a.bind("strip", 0, "chars")
		if err != nil {
			return nil, err
		}
		chars := or(v[0], nil)
		if chars == nil && space != nil {
			return space(s, isSpace), vm.scan(len(s))
		}
		set, err := text("strip", chars)
		if err != nil {
			return nil, err
		}
		work := 1 + len(s)/32
		if space != nil { // the set is searched for every character
			work += len(s) * len(set) / 64
		}
		if err := vm.step(work); err != nil {
			return nil, err
		}
		return cut(s, set), nil
	}
}

// splitArgs binds the arguments of split: the separator, "" for white space,
// and the number of cuts, -1 for any.
func splitArgs(a args) (sep string, cuts int, err error) {
	v, err := a.bind("split", 0, "sep", "maxsplit")
	if err != nil {
		return "", 0, err
	}
	if s := or(v[0], nil); s != nil {
		if sep, err = text("split", s); err == nil && sep == "" {
			err = fmt.Errorf("empty separator")
		}
	}
	if err == nil {
		cuts, err = integer("split", or(v[1], int64(-1)), 1<<30)
	}
	return sep, max(cuts, -1), err
}

// strs makes a list of strings.
func (vm *interp) strs(parts []string) (any, error) {
	if err := vm.allocItems(2 * len(parts)); err != nil {
		return nil, err
	}
	items := make([]any, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return newList(items...), nil
}

func splitMethod(vm *interp, s string, a args) (any, error) {
	sep, cuts, err := splitArgs(a)
	if err != nil {
		return nil, err
	}
	if err := vm.scan(len(s)); err != nil {
		return nil, err
	}
	if sep != "" {
		n := cuts + 1
		if cuts < 0 {
			n = -1
		}
		return vm.strs(strings.SplitN(s, sep, n))
	}
	var parts []string
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		end := strings.IndexFunc(s, isSpace)
		if cuts >= 0 && len(parts) == cuts {
			parts = append(parts, s) // the rest, with the white space at its end
			break
		}
		if end < 0 {
			end = len(s)
		}
		parts = append(parts, s[:end])
		s = s[end:]
	}
	return vm.strs(parts)
}

func rsplitMethod(vm *interp, s string, a args) (any, error) {
	sep, cuts, err := splitArgs(a)
	if err != nil {
		return nil, err
	}
	if cuts < 0 {
		return splitMethod(vm, s, a)
	}
	if err := vm.scan(len(s)); err != nil {
		return nil, err
	}
	var parts []string // last first
	for {
		if sep == "" {
			if s = strings.TrimRightFunc(s, isSpace); s == "" {
				break
			}
		}
		end, next := strings.LastIndex(s, sep), 0
		if sep == "" {
			end = strings.LastIndexFunc(s, isSpace)
			if end >= 0 {
				_, w := utf8.DecodeRuneInString(s[end:])
				next = end + w
			}
		} else {
			next = end + len(sep)
		}
		if end < 0 || len(parts) == cuts {
			parts = append(parts, s) // the rest, with the white space at its start
			break
		}
		parts = append(parts, s[next:])
		s = s[:end]
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return vm.strs(parts)
}

// splitLines is Python's str.splitlines.
func splitLines(s string, keep bool) []string {
	var lines []string
	for s != "" {
		i := strings.IndexFunc(s, func(r rune) bool {
			return r >= '\n' && r <= '\r' || r >= 0x1C && r <= 0x1E || r == 0x85 || r == 0x2028 || r == 0x2029
		})
		if i < 0 {
			return append(lines, s)
		}
		_, w := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			w = 2
		}
		if keep {
			lines = append(lines, s[:i+w])
		} else {
			lines = append(lines, s[:i])
		}
		s = s[i+w:]
	}
	return lines
}

func splitLinesMethod(vm *interp, s string, a args) (any, error) {
	v, err := a.bind("splitlines", 0, "keepends")
	if err != nil {
		return nil, err
	}
	if err := vm.scan(len(s)); err != nil {
		return nil, err
	}
	return vm.strs(splitLines(s, truth(or(v[0], false))))
}

func partitioner(index func(s, sep string) int, last bool) stringMethod {
	return func(vm *interp, s string, a args) (any, error) {
		v, err := a.bind("partition", 1, "sep")
		if err != nil {
			return nil, err
		}
		sep, err := text("partition", v[0])
		if err == nil && sep == "" {
			err = fmt.Errorf("empty separator")
		}
		if err == nil {
			err = vm.scan(len(s))
		}
		if err != nil {
			return nil, err
		}
		switch i := index(s, sep); {
		case i >= 0:
			return newTuple(s[:i], sep, s[i+len(sep):]), nil
		case last:
			return newTuple("", "", s), nil
		}
		return newTuple(s, "", ""), nil
	}
}

// affix makes startswith and endswith, which take a string or a tuple of them.
func affix(has func(s, part string) bool) stringMethod {
	return func(vm *interp, s string, a args) (any, error) {
		v, err := a.bind("startswith", 1, "prefix", "start", "end")
		if err != nil {
			return nil, err
		}
		if (v[1] != absent{}) {
			cut, err := vm.slice(s, v[1], or(v[2], nil), nil)
			if err != nil {
				return nil, err
			}
			s = cut.(string)
		}
		options := []any{v[0]}
		if l, ok := v[0].(*list); ok && l.kind == isTuple {
			options = l.items
		}
		for _, o := range options {
			part, err := text("startswith", o)
			if err != nil {
				return nil, err
			}
			if err := vm.scan(len(part)); err != nil {
				return nil, err
			}
			if has(s, part) {
				return true, nil
			}
		}
		return false, nil
	}
}

// finder makes find and its kin; with must, not finding is an error.
func finder(index func(s, sub string) int, must bool) stringMethod {
	return func(vm *interp, s string, a args) (any, error) {
		v, err := a.bind("find", 1, "sub", "start", "end")
		if err != nil {
			return nil, err
		}
		sub, err := text("find", v[0])
		if err != nil {
			return nil, err
		}
		if err := vm.scan(len(s)); err != nil {
			return nil, err
		}
		n := utf8.RuneCountInString(s)
		lo, _, _, err := sliceBounds(n, or(v[1], nil), nil, nil)
		if err != nil {
			return nil, err
		}
		cut, err := vm.slice(s, or(v[1], nil), or(v[2], nil), nil)
		if err != nil {
			return nil, err
		}
		window := cut.(string)
		i := index(window, sub)
		if i >= 0 {
			return int64(lo + utf8.RuneCountInString(window[:i])), nil
		}
		if must {
			return nil, fmt.Errorf("substring not found")
		}
		return int64(-1), nil
	}
}

func countMethod(vm *interp, s string, a args) (any, error) {
	v, err := a.bind("count", 1, "sub")
	if err != nil {
		return nil, err
	}
	sub, err := text("count", v[0])
	if err != nil {
		return nil, err
	}
	return int64(strings.Count(s, sub)), vm.scan(len(s))
}

func replaceMethod(vm *interp, s string, a args) (any, error) {
	v, err := a.bind("replace", 2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	old, err := text("replace", v[0])
	if err != nil {
		return nil, err
	}
	with, err := text("replace", v[1])
	if err != nil {
		return nil, err
	}
	n := -1
	if c := or(v[2], nil); c != nil {
		if n, err = integer("replace", c, 1<<30); err != nil {
			return nil, err
		}
	}
	return vm.replace(s, old, with, n)
}

// replace is strings.Replace, counted.
func (vm *interp) replace(s, old, with string, n int) (any, error) {
	if err := vm.scan(len(s)); err != nil {
		return nil, err
	}
	found := strings.Count(s, old)
	if n >= 0 {
		found = min(found, n)
	}
	grow := max(len(with)-len(old), 0)
	if grow > 0 && found > vm.limits.Memory/grow {
		return nil, &LimitError{What: "memory", Limit: vm.limits.Memory}
	}
	if err := vm.alloc(len(s) + found*grow); err != nil {
		return nil, err
	}
	return strings.Replace(s, old, with, n), nil
}

func joinMethod(vm *interp, s string, a args) (any, error) {
	v, err := a.bind("join", 1, "iterable")
	if err != nil {
		return nil, err
	}
	items, err := vm.iterate(v[0])
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	for i, item := range items {
		if parts[i], err = text("join", item); err != nil {
			return nil, err
		}
	}
	return vm.joinStrings(parts, s)
}

// joinStrings is strings.Join, counted.
func (vm *interp) joinStrings(parts []string, sep string) (any, error) {
	if len(parts) > 1 && len(sep) > vm.limits.Memory/len(parts) {
		return nil, &LimitError{What: "memory", Limit: vm.limits.Memory}
	}
	total := len(parts) * len(sep)
	for _, p := range parts {
		if total += len(p); total > vm.limits.Memory {
			break
		}
	}
	if err := vm.alloc(total); err != nil {
		return nil, err
	}
	return strings.Join(parts, sep), nil
}

func mapper(f func(string) string) stringMethod {
	return func(vm *interp, s string, a args) (any, error) {
		if _, err := a.bind("method", 0); err != nil {
			return nil, err
		}
		if err := vm.alloc(2 * len(s)); err != nil {
			return nil, err
		}
		return f(s), nil
	}
}

// upper is Python's, which unlike Go's has a capital ß of two letters.
func upper(s string) string { return strings.ReplaceAll(strings.ToUpper(s), "ß", "SS") }

// title is Python's str.title: the first letter of every run of letters is upper case.
func title(s string) string {
	inWord := false
	return strings.Map(func(r rune) rune {
		was := inWord
		inWord = unicode.IsLetter(r)
		switch {
		case !inWord:
			return r
		case was:
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

func capitalize(s string) string {
	_, w := utf8.DecodeRuneInString(s)
	return upper(s[:w]) + strings.ToLower(s[w:])
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

// justifier makes a method that pads to a width; sides says how much of the
// padding goes left and right.
func justifier(sides func(pad, width int) (int, int)) stringMethod {
	return func(vm *interp, s string, a args) (any, error) {
		v, err := a.bind("center", 1, "width", "fillchar")
		if err != nil {
			return nil, err
		}
		width, err := integer("center", v[0], 1<<30)
		if err != nil {
			return nil, err
		}
		fill, err := text("center", or(v[1], " "))
		if err == nil && utf8.RuneCountInString(fill) != 1 {
			err = fmt.Errorf("the fill character must be exactly one character long")
		}
		if err != nil {
			return nil, err
		}
		left, right := sides(max(width-utf8.RuneCountInString(s), 0), width)
		if err := vm.alloc(len(s) + (left+right)*len(fill)); err != nil {
			return nil, err
		}
		return strings.Repeat(fill, left) + s + strings.Repeat(fill, right), nil
	}
}

// center divides padding as Python's str.center does: an odd one goes right for
// even widths and left for odd ones.
func center(pad, width int) (int, int) {
	left := pad/2 + pad&width&1
	return left, pad - left
}

func zfillMethod(vm *interp, s string, a args) (any, error) {
	v, err := a.bind("zfill", 1, "width")
	if err != nil {
		return nil, err
	}
	width, err := integer("zfill", v[0], 1<<30)
	if err != nil {
		return nil, err
	}
	pad := max(width-utf8.RuneCountInString(s), 0)
	if err := vm.alloc(len(s) + pad); err != nil {
		return nil, err
	}
	prefix := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		prefix, s = s[:1], s[1:]
	}
	return prefix + strings.Repeat("0", pad) + s, nil
}

// allRunes makes a method that asks whether a string has characters, all of a kind.
func allRunes(is func(rune) bool) stringMethod {
	return func(vm *interp, s string, a args) (any, error) {
		if _, err := a.bind("method", 0); err != nil {
			return nil, err
		}
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0, vm.scan(len(s))
	}
}

// cased makes isupper and islower: some letter of the case and none of the other.
func cased(is, other func(rune) bool) stringMethod {
	return func(vm *interp, s string, a args) (any, error) {
		if _, err := a.bind("method", 0); err != nil {
			return nil, err
		}
		return strings.ContainsFunc(s, is) && !strings.ContainsFunc(s, other), vm.scan(len(s))
	}
}
