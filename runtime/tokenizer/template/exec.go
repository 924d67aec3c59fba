package template

import (
	"fmt"
	"slices"
)

// flow says how a statement ended.
type flow uint8

const (
	goOn flow = iota
	breakLoop
	continueLoop
)

// block runs statements in scope f until one ends the flow.
func (vm *interp) block(b block, f *frame, out *output) (flow, error) {
	for i, s := range b.stmts {
		if err := vm.step(1); err != nil {
			return goOn, err
		}
		fl, err := s.exec(vm, f, out)
		if err != nil {
			return goOn, atLine(b.lines[i], err)
		}
		if fl != goOn {
			return fl, nil
		}
	}
	return goOn, nil
}

func (s *textStmt) exec(vm *interp, _ *frame, out *output) (flow, error) {
	return goOn, vm.write(out, s.text)
}

func (s *outputStmt) exec(vm *interp, f *frame, out *output) (flow, error) {
	v, err := vm.eval(s.x, f)
	if err != nil {
		return goOn, err
	}
	return goOn, vm.writeValue(out, v)
}

func (vm *interp) writeValue(out *output, v any) error {
	text, err := vm.str(v)
	if err != nil {
		return err
	}
	return vm.write(out, text)
}

func (s *ifStmt) exec(vm *interp, f *frame, out *output) (flow, error) {
	for i, cond := range s.conds {
		ok, err := vm.evalTruth(cond, f)
		if err != nil {
			return goOn, err
		}
		if ok {
			return vm.block(s.bodies[i], f, out)
		}
	}
	return vm.block(s.otherwise, f, out)
}

func (s *loopControl) exec(*interp, *frame, *output) (flow, error) { return s.flow, nil }

func (s *setStmt) exec(vm *interp, f *frame, _ *output) (flow, error) {
	v, err := vm.eval(s.value, f)
	if err != nil {
		return goOn, err
	}
	return goOn, vm.assign(s.target, f, v)
}

func (s *setBlockStmt) exec(vm *interp, f *frame, _ *output) (flow, error) {
	v, err := vm.capture(s.body, f.child())
	if err == nil && s.filter != nil {
		v, err = vm.applyChain(s.filter, f, v)
	}
	if err != nil {
		return goOn, err
	}
	return goOn, vm.assign(s.target, f, v)
}

// applyChain applies the filters of a block to its text.
func (vm *interp) applyChain(x expr, f *frame, text any) (any, error) {
	chain := x.(*filterExpr)
	if chain.of != nil {
		var err error
		if text, err = vm.applyChain(chain.of, f, text); err != nil {
			return nil, err
		}
	}
	return chain.apply(vm, f, text)
}

func (s *filterStmt) exec(vm *interp, f *frame, out *output) (flow, error) {
	v, err := vm.capture(s.body, f.child())
	if err != nil {
		return goOn, err
	}
	if v, err = vm.applyChain(s.filter, f, v); err != nil {
		return goOn, err
	}
	return goOn, vm.writeValue(out, v)
}

// assign assigns v to t in scope f.
func (vm *interp) assign(t target, f *frame, v any) error {
	if err := vm.alloc(64); err != nil {
		return err
	}
	if err := vm.step(len(f.names) / 16); err != nil { // to find the name
		return err
	}
	switch {
	case t.parts != nil:
		items, err := vm.iterate(v)
		if err != nil {
			return err
		}
		if len(items) != len(t.parts) {
			return fmt.Errorf("cannot unpack %d values into %d names", len(items), len(t.parts))
		}
		for i, part := range t.parts {
			if err := vm.assign(part, f, items[i]); err != nil {
				return err
			}
		}
	case t.attr != "":
		of, err := vm.lookup(f, t.name)
		if err != nil {
			return err
		}
		ns, ok := of.(*namespace)
		if !ok {
			return fmt.Errorf("cannot assign attribute '%s' on '%s', which is not a namespace", t.attr, t.name)
		}
		ns.attrs.Set(t.attr, v)
	default:
		f.set(t.name, v)
	}
	return nil
}

func (s *macroStmt) exec(_ *interp, f *frame, _ *output) (flow, error) {
	f.set(s.macro.name, newMacro(s.macro, f))
	return goOn, nil
}

func (s *callStmt) exec(vm *interp, f *frame, out *output) (flow, error) {
	v, err := s.call.call(vm, f, newMacro(s.caller, f))
	if err != nil {
		return goOn, err
	}
	return goOn, vm.writeValue(out, v)
}

func (s *withStmt) exec(vm *interp, f *frame, out *output) (flow, error) {
	inner := f.child()
	for i, t := range s.targets {
		v, err := vm.eval(s.values[i], f)
		if err != nil {
			return goOn, err
		}
		inner.set(t.name, v)
	}
	return vm.block(s.body, inner, out)
}

func (s *scopeStmt) exec(vm *interp, f *frame, out *output) (flow, error) {
	return vm.block(s.body, f.child(), out)
}

func (s *forStmt) exec(vm *interp, f *frame, out *output) (flow, error) {
	seq, err := vm.eval(s.seq, f)
	if err != nil {
		return goOn, err
	}
	return s.run(vm, f, out, seq, 0)
}

// run goes through seq; depth counts the recursive loops around this one.
func (s *forStmt) run(vm *interp, f *frame, out *output, seq any, depth int) (flow, error) {
	items, err := vm.iterate(seq)
	if err != nil {
		return goOn, err
	}
	if s.filter != nil {
		if items, err = s.filterItems(vm, f, items); err != nil {
			return goOn, err
		}
	}
	if len(items) == 0 {
		return vm.block(s.otherwise, f.child(), out)
	}
	loop := &loopState{items: items, depth: depth}
	if s.recursive {
		loop.again = func(vm *interp, seq any) (any, error) {
			if err := vm.enter(); err != nil {
				return nil, err
			}
			defer vm.leave()
			inner := &output{}
			if _, err := s.run(vm, f, inner, seq, depth+1); err != nil {
				return nil, err
			}
			return string(inner.text), nil
		}
	}
	for i, item := range items {
		loop.i = i
		scope := f.child()
		scope.set("loop", loop)
		if err := vm.assign(s.target, scope, item); err != nil {
			return goOn, err
		}
		fl, err := vm.block(s.body, scope, out)
		if err != nil {
			return goOn, err
		}
		if fl == breakLoop {
			break
		}
	}
	return goOn, nil
}

// filterItems keeps the items for which the loop's condition holds.
func (s *forStmt) filterItems(vm *interp, f *frame, items []any) ([]any, error) {
	if err := vm.allocItems(len(items)); err != nil {
		return nil, err
	}
	var kept []any
	for _, item := range items {
		scope := f.child()
		if err := vm.assign(s.target, scope, item); err != nil {
			return nil, err
		}
		ok, err := vm.evalTruth(s.filter, scope)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, item)
		}
	}
	return slices.Clip(kept), nil
}
