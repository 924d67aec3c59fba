package runtime

import (
	"errors"
	"fmt"
	"sync"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// tensorSpec is one tensor that a family's file has: a matrix of rows × cols, or a vector of cols where rows is 0.
type tensorSpec struct {
	name       string
	rows, cols int
	optional   bool
}

// checkTensors compares a model's tensor table with what its family has: every needed one is there, each has the shape
// and a type that can be computed with, and there is no other (an unknown tensor means an unknown term in the model).
func checkTensors(set *gguf.Set, family string, specs []tensorSpec) error {
	path := set.Meta().Path
	known := make(map[string]bool, len(specs))
	for _, spec := range specs {
		known[spec.name] = true
		t, ok := set.Tensor(spec.name)
		if !ok {
			if spec.optional {
				continue
			}
			return fmt.Errorf("runtime: %s: tensor %s is missing: the file is incomplete or not of the %s family", path, spec.name, family)
		}
		if err := spec.check(t); err != nil {
			return fmt.Errorf("runtime: %s: tensor %s: %w", path, spec.name, err)
		}
	}
	for i := range set.Tensors {
		if name := set.Tensors[i].Name; !known[name] {
			return fmt.Errorf("runtime: %s: tensor %q is not part of the %s family as supported here: this variant of the model cannot be run", path, name, family)
		}
	}
	return nil
}

// check compares a tensor's shape and type.
func (spec tensorSpec) check(t *gguf.Tensor) error {
	typ := kernels.Type(t.Type)
	if !typ.Supported() {
		return fmt.Errorf("weight type %v is not supported (supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K)", t.Type)
	}
	rows := max(spec.rows, 1)
	if t.Cols() != uint64(spec.cols) || t.Rows() != uint64(rows) {
		return fmt.Errorf("%d rows of %d, the header's sizes ask for %d of %d", t.Rows(), t.Cols(), rows, spec.cols)
	}
	if spec.rows == 0 && typ.Form() != kernels.Dense {
		return fmt.Errorf("a vector of type %v: only F32, F16 and BF16 are supported", t.Type)
	}
	return nil
}

// loader turns tensors into matrices over mapped memory.
type loader struct {
	set    *gguf.Set
	maps   []*mapping // by part; nil until needed
	checks []check
}

// check is a matrix whose scales are still to be looked at.
type check struct {
	name string
	m    kernels.Matrix
}

// matrix returns a tensor that checkTensors has approved.
func (ld *loader) matrix(name string) (kernels.Matrix, error) {
	t, ok := ld.set.Tensor(name)
	if !ok {
		return kernels.Matrix{}, fmt.Errorf("runtime: tensor %s is missing", name)
	}
	if ld.maps == nil {
		ld.maps = make([]*mapping, len(ld.set.Parts))
	}
	if ld.maps[t.Part] == nil {
		part := ld.set.Parts[t.Part]
		m, err := mapFile(part.Path, part.Size)
		if err != nil {
			return kernels.Matrix{}, err
		}
		ld.maps[t.Part] = m
	}
	data, err := ld.maps[t.Part].bytes(t.Offset, t.Size)
	if err != nil {
		return kernels.Matrix{}, err
	}
	m, err := kernels.NewMatrix(kernels.Type(t.Type), int(t.Rows()), int(t.Cols()), data)
	if err != nil {
		return kernels.Matrix{}, fmt.Errorf("runtime: tensor %s: %w", name, err)
	}
	ld.checks = append(ld.checks, check{name, m})
	return m, nil
}

// vector returns a tensor of one row as float32.
func (ld *loader) vector(name string) ([]float32, error) {
	m, err := ld.matrix(name)
	if err != nil {
		return nil, err
	}
	v := make([]float32, m.Cols)
	m.Row(v, 0)
	return v, nil
}

// verify looks for NaN and infinity in everything loaded so far, on several threads. It reads all the weights, which
// also brings them into memory.
func (ld *loader) verify(threads int) error {
	const rows = 1024 // per unit of work
	type unit struct {
		check
		first int
	}
	var units []unit
	for _, c := range ld.checks {
		for first := 0; first < c.m.Rows; first += rows {
			units = append(units, unit{c, first})
		}
	}
	errs := make([]error, len(units))
	next := make(chan int)
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			for i := range next {
				u := &units[i]
				if err := u.m.CheckScales(u.first, min(u.first+rows, u.m.Rows)); err != nil {
					errs[i] = fmt.Errorf("runtime: %s: tensor %s: %w: the file is damaged", ld.set.Meta().Path, u.name, err)
				}
			}
		})
	}
	for i := range units {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// close unmaps everything.
func (ld *loader) close() error {
	var errs []error
	for _, m := range ld.maps {
		if m != nil {
			errs = append(errs, m.close())
		}
	}
	ld.maps = nil
	return errors.Join(errs...)
}
