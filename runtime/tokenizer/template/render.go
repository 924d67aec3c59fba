package template

import (
	"maps"
	"slices"
	"time"
)

// Options says how to render.
type Options struct {
	Limits Limits
	Now    func() time.Time // what strftime_now reads; nil: time.Now
}

// Render runs the template with the given variables: booleans, numbers,
// strings, nil, slices and maps of these, [*Dict], and what [ParseJSON]
// returns. Errors are [*RaisedError] when the template refuses its input,
// [*LimitError] when it costs too much, and [*RuntimeError] for its mistakes.
func (t *Template) Render(vars map[string]any, o Options) (string, error) {
	vm := &interp{meter: meter{limits: o.Limits.withDefaults()}, now: o.Now}
	if vm.now == nil {
		vm.now = time.Now
	}
	context := &frame{}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		v, err := vm.fromGo(vars[name])
		if err != nil {
			return "", err
		}
		context.set(name, v)
	}
	out := &output{}
	if _, err := vm.block(t.body, context.child(), out); err != nil {
		return "", err
	}
	return string(out.text), nil
}

// interp is the state of one rendering.
type interp struct {
	meter
	now func() time.Time
}

// frame is a scope: names it does not have are looked up in its parent. There
// are few names in one, so they are searched in order.
type frame struct {
	names  []string
	values []any
	parent *frame
}

func (f *frame) child() *frame { return &frame{parent: f} }

func (f *frame) set(name string, v any) {
	if i := slices.Index(f.names, name); i >= 0 {
		f.values[i] = v
		return
	}
	f.names, f.values = append(f.names, name), append(f.values, v)
}

// lookup returns the value of a name, or undefined.
func (vm *interp) lookup(f *frame, name string) (any, error) {
	for ; f != nil; f = f.parent {
		if err := vm.step(1 + len(f.names)/16); err != nil {
			return nil, err
		}
		if i := slices.Index(f.names, name); i >= 0 {
			return f.values[i], nil
		}
	}
	if v, ok := globals[name]; ok {
		return v, nil
	}
	return &undefined{msg: "'" + name + "' is undefined"}, nil
}

// output collects the text of the template or of a part of it.
type output struct{ text []byte }

// write appends text. Each part is bounded by the limit of the whole.
func (vm *interp) write(out *output, text string) error {
	if len(text) > vm.limits.Output-len(out.text) {
		return &LimitError{What: "output", Limit: vm.limits.Output}
	}
	if err := vm.alloc(len(text)); err != nil {
		return err
	}
	out.text = append(out.text, text...)
	return nil
}
