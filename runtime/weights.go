package runtime

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// tensorSpec is one tensor that a family's file has: a matrix of rows × cols, or a vector of cols where rows is 0.
type tensorSpec struct {
	name       string
	rows, cols int
	count      int  // where not 0, the tensor is so many matrices of rows × cols
	expert     bool // they are experts, of which a row uses some
	transposed bool // it is used transposed, which only F32, F16 and BF16 can be
	optional   bool
}

// checkTensors compares a model's tensor table with what its family has: every needed one is there, each has the shape
// and a type that can be computed with, and there is no other (an unknown tensor means an unknown term in the model) but for
// those of ignored layers.
func checkTensors(set *gguf.Set, family string, specs []tensorSpec, ignored Range) error {
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
		if name := set.Tensors[i].Name; !known[name] && !ignored.Contains(layerOf(name)) {
			return fmt.Errorf("runtime: %s: tensor %q is not part of the %s family as supported here: this variant of the model cannot be run", path, name, family)
		}
	}
	return nil
}

// check compares a tensor's shape and type.
func (spec tensorSpec) check(t *gguf.Tensor) error {
	typ := kernels.Type(t.Type)
	if !typ.Supported() {
		return fmt.Errorf("weight type %v is not supported (supported: %s)", t.Type, kernels.SupportedTypes())
	}
	rows := max(spec.rows, 1) * max(spec.count, 1)
	if t.Cols() != uint64(spec.cols) || t.Rows() != uint64(rows) || spec.count > 0 && (len(t.Dims) < 2 || t.Dims[1] != uint64(spec.rows)) {
		return fmt.Errorf("%d rows of %d, the header's sizes ask for %d of %d", t.Rows(), t.Cols(), rows, spec.cols)
	}
	if spec.transposed && typ.Form() != kernels.Dense {
		return fmt.Errorf("weight type %v: the file is older than attn_k_b and attn_v_b, which stand for it since llama.cpp of April 2025, and only F32,"+
			" F16 and BF16 can be run to the same bits: convert the model anew or get a newer file", t.Type)
	}
	if spec.rows == 0 && typ.Form() != kernels.Dense {
		return fmt.Errorf("a vector of type %v: only F32, F16 and BF16 are supported", t.Type)
	}
	return nil
}

// weight is a matrix of the model, in use. The file's bytes are looked at for NaN and infinite scales exactly once, group of
// rows by group, before they are first multiplied or packed: a separate look at everything when the model is opened would
// read the whole file a second time. So a damaged file may open, but no product with a bad scale leaves Run.
type weight struct {
	kernels.Matrix
	name    string
	source  *mapping        // of Data; nil where that is a copy
	packed  bool            // products use a packed copy
	checked []atomic.Uint32 // bit g%32 of element g/32: group g has been looked at and is sound
	doubts  atomic.Int64    // groups that have not
}

// newWeight returns a weight of which nothing has been looked at.
func newWeight(name string, m kernels.Matrix, source *mapping) *weight {
	w := &weight{Matrix: m, name: name, source: source, checked: make([]atomic.Uint32, (m.Groups()+31)/32)}
	w.doubts.Store(int64(m.Groups()))
	return w
}

// rows returns the file's bytes of rows [first, last).
func (w *weight) rows(first, last int) []byte {
	size := len(w.Data) / w.Rows
	return w.Data[first*size : last*size]
}

// trusted reports whether all groups have been looked at.
func (w *weight) trusted() bool { return w.doubts.Load() == 0 }

// sound reports whether the scales of rows [first, last) are finite; both are multiples of groupRows, or last is Rows.
func (w *weight) sound(first, last int) bool {
	if w.trusted() {
		return true
	}
	for g := first / groupRows; g*groupRows < last; g++ {
		bit := uint32(1) << (g % 32)
		if w.checked[g/32].Load()&bit != 0 {
			continue
		}
		if w.CheckScales(g*groupRows, min((g+1)*groupRows, w.Rows)) != nil {
			return false
		}
		if w.checked[g/32].Or(bit)&bit == 0 {
			w.doubts.Add(-1)
		}
	}
	return true
}

// check looks at one row, which is about to be dequantised, whether or not its group has been looked at.
func (w *weight) check(row int) error {
	if err := w.CheckScales(row, row+1); err != nil {
		return &WeightError{Tensor: w.name, Err: err}
	}
	return nil
}

// workOf is the time in nanoseconds that a core needs, by the crude model of multiply, for some rows of w by n rows of
// activations.
func (w *weight) workOf(rows, n int) int {
	return len(w.Data) / w.Rows * rows * (4 + n) / (4 * 15)
}

// loader turns tensors into matrices over mapped memory.
type loader struct {
	set     *gguf.Set
	maps    []*mapping // by part; nil until needed
	weights []*weight  // in the order of loading
}

// matrix returns a tensor that checkTensors has approved.
func (ld *loader) matrix(name string) (*weight, error) {
	m, source, err := ld.read(name)
	if err != nil {
		return nil, err
	}
	w := newWeight(name, m, source)
	ld.weights = append(ld.weights, w)
	return w, nil
}

// has reports whether the model has a tensor.
func (ld *loader) has(name string) bool {
	_, ok := ld.set.Tensor(name)
	return ok
}

// matrices returns a tensor that is n matrices of as many rows each.
func (ld *loader) matrices(name string, n int) ([]*weight, error) {
	all, source, err := ld.read(name)
	if err != nil {
		return nil, err
	}
	list, size := make([]*weight, n), len(all.Data)/n
	for i := range list {
		m, err := kernels.NewMatrix(all.Type, all.Rows/n, all.Cols, all.Data[i*size:(i+1)*size:(i+1)*size])
		if err != nil {
			return nil, fmt.Errorf("runtime: tensor %s, matrix %d of %d: %w", name, i, n, err)
		}
		list[i] = newWeight(fmt.Sprintf("%s[%d]", name, i), m, source)
	}
	ld.weights = append(ld.weights, list...)
	return list, nil
}

// part is some rows of a tensor, and where they go.
type part struct {
	rows int
	to   **weight
}

// parts splits a tensor's rows, of which there are as many as the parts have together.
func (ld *loader) parts(name string, parts ...part) error {
	all, source, err := ld.read(name)
	if err != nil {
		return err
	}
	size, data := len(all.Data)/all.Rows, all.Data
	for i, p := range parts {
		n := p.rows * size
		m, err := kernels.NewMatrix(all.Type, p.rows, all.Cols, data[:n:n])
		if err != nil {
			return fmt.Errorf("runtime: tensor %s, part %d of %d: %w", name, i, len(parts), err)
		}
		*p.to, data = newWeight(fmt.Sprintf("%s[%d]", name, i), m, source), data[n:]
		ld.weights = append(ld.weights, *p.to)
	}
	return nil
}

// read maps a tensor.
func (ld *loader) read(name string) (kernels.Matrix, *mapping, error) {
	t, ok := ld.set.Tensor(name)
	if !ok {
		return kernels.Matrix{}, nil, fmt.Errorf("runtime: tensor %s is missing", name)
	}
	if ld.maps == nil {
		ld.maps = make([]*mapping, len(ld.set.Parts))
	}
	if ld.maps[t.Part] == nil {
		part := ld.set.Parts[t.Part]
		m, err := mapFile(part.Path, part.Size)
		if err != nil {
			return kernels.Matrix{}, nil, err
		}
		ld.maps[t.Part] = m
	}
	source := ld.maps[t.Part]
	data, err := source.bytes(t.Offset, t.Size)
	if err != nil {
		return kernels.Matrix{}, nil, err
	}
	m, err := kernels.NewMatrix(kernels.Type(t.Type), int(t.Rows()), int(t.Cols()), data)
	if err != nil {
		return kernels.Matrix{}, nil, fmt.Errorf("runtime: tensor %s: %w", name, err)
	}
	return m, source, nil
}

// vector returns a tensor of one row as float32. It is looked at right away.
func (ld *loader) vector(name string) ([]float32, error) {
	m, _, err := ld.read(name)
	if err != nil {
		return nil, err
	}
	if err := m.CheckScales(0, 1); err != nil {
		return nil, &WeightError{Tensor: name, Err: err}
	}
	v := make([]float32, m.Cols)
	m.Row(v, 0)
	return v, nil
}

// columns returns the columns of a small matrix as float32.
func (ld *loader) columns(name string) ([][]float32, error) {
	m, _, err := ld.read(name)
	if err != nil {
		return nil, err
	}
	if err := m.CheckScales(0, m.Rows); err != nil {
		return nil, &WeightError{Tensor: name, Err: err}
	}
	columns, row := make([][]float32, m.Cols), make([]float32, m.Cols)
	for j := range columns {
		columns[j] = make([]float32, m.Rows)
	}
	for i := range m.Rows {
		m.Row(row, i)
		for j, x := range row {
			columns[j][i] = x
		}
	}
	return columns, nil
}

// rows returns a tensor of several rows as float32. It is looked at right away.
func (ld *loader) rows(name string) ([][]float32, error) {
	m, _, err := ld.read(name)
	if err != nil {
		return nil, err
	}
	if err := m.CheckScales(0, m.Rows); err != nil {
		return nil, &WeightError{Tensor: name, Err: err}
	}
	all := make([][]float32, m.Rows)
	for i := range all {
		all[i] = make([]float32, m.Cols)
		m.Row(all[i], i)
	}
	return all, nil
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
