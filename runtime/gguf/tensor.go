package gguf

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Tensor is one entry of the tensor table. Its data are Size bytes from Offset on of its part.
type Tensor struct {
	Name string
	Type Type

	// Dims are the dimensions in ggml's order, ne[0] first: Dims[0] elements lie next to each
	// other and make a row. One to four, none zero; a scalar has none.
	Dims []uint64

	Part   int   // which file of a Set holds the data, from 0; 0 in a File
	Offset int64 // of the data, from the start of the part's file
	Size   int64 // bytes of the data
}

// Cols returns the elements of one row, Dims[0]; 1 for a scalar.
func (t *Tensor) Cols() uint64 {
	if len(t.Dims) == 0 {
		return 1
	}
	return t.Dims[0]
}

// Rows returns the number of rows: the product of the dimensions but the first.
func (t *Tensor) Rows() uint64 {
	rows := uint64(1)
	if len(t.Dims) > 1 {
		for _, d := range t.Dims[1:] {
			rows *= d
		}
	}
	return rows
}

// Elems returns the number of elements.
func (t *Tensor) Elems() uint64 { return t.Cols() * t.Rows() }

// RowSize returns the bytes of one row.
func (t *Tensor) RowSize() int64 { return t.Size / int64(t.Rows()) }

// Tensor returns the tensor called name. It belongs to f.
func (f *File) Tensor(name string) (*Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return nil, false
	}
	return &f.Tensors[i], true
}

// dataSize returns the bytes that a tensor takes, or why there can be no such tensor: bad is the
// index of the dimension at fault, -1 when none alone is.
func dataSize(t Type, dims []uint64) (size int64, bad int, err error) {
	if err := t.refuse(); err != nil {
		return 0, -1, err
	}
	rows := uint64(1)
	cols := uint64(1)
	for i, d := range dims {
		if d == 0 {
			return 0, i, fmt.Errorf("0: a tensor without elements")
		}
		if d > math.MaxInt64 {
			return 0, i, fmt.Errorf("%d is negative or too large: the file is damaged", d)
		}
		if i == 0 {
			cols = d
			continue
		}
		var ok bool
		if rows, ok = mul64(rows, d); !ok {
			return 0, -1, fmt.Errorf("dims %v: the number of elements overflows", dims)
		}
	}
	if n, ok := mul64(cols, rows); !ok || n > math.MaxInt64 {
		return 0, -1, fmt.Errorf("dims %v: the number of elements overflows", dims)
	}
	elems, _, _ := t.Block()
	if cols%uint64(elems) != 0 {
		return 0, 0, fmt.Errorf("%d is not a multiple of %d, the block of %v", cols, elems, t)
	}
	row, ok := t.rowSize(cols)
	if ok {
		row, ok = mul64(row, rows)
	}
	if !ok || row > math.MaxInt64 {
		return 0, -1, fmt.Errorf("dims %v of %v: the number of bytes overflows", dims, t)
	}
	return int64(row), -1, nil
}

// readTensors reads the table of n tensors and sets HeaderSize and DataOffset.
func (f *File) readTensors(s *scanner, n int) error {
	f.Tensors = make([]Tensor, 0, min(n, 4096))
	f.byName = make(map[string]int, min(n, 4096))
	offsets := make([]int64, 0, min(n, 4096)) // where each offset field lies, for errors
	for i := range n {
		at, err := f.readTensor(s, i, n)
		if err != nil {
			return err
		}
		offsets = append(offsets, at)
	}
	f.HeaderSize = s.offset()
	f.DataOffset = int64(alignUp(uint64(f.HeaderSize), f.Alignment))
	return f.place(s, offsets)
}

// readTensor reads entry i and appends it, with its Offset still relative to the data. It returns
// where in the file the offset field lies.
func (f *File) readTensor(s *scanner, i, n int) (offsetAt int64, err error) {
	at := s.offset()
	field := fmt.Sprintf("name of tensor %d of %d", i, n)
	name, err := s.str(MaxName, field)
	if err != nil {
		return 0, err
	}
	if name == "" {
		return 0, s.fail(at, field, "empty: the file is damaged")
	}
	if _, dup := f.byName[name]; dup {
		return 0, s.fail(at, field, "%s appears twice: the file is damaged", quote(name))
	}
	what := "tensor " + quote(name)
	at = s.offset()
	nDims, err := s.u32(what + " n_dims")
	if err != nil {
		return 0, err
	}
	if nDims > MaxDims {
		return 0, s.fail(at, what+" n_dims", "%d, at most %d are allowed: the file is damaged", nDims, MaxDims)
	}
	dimsAt := s.offset()
	raw, err := s.take(8*int(nDims), what+" dims")
	if err != nil {
		return 0, err
	}
	dims := make([]uint64, nDims)
	for d := range dims {
		dims[d] = le64(raw[8*d:])
	}
	typeAt := s.offset()
	typ, err := s.u32(what + " type")
	if err != nil {
		return 0, err
	}
	if err := Type(typ).refuse(); err != nil {
		return 0, s.fail(typeAt, what+" type", "%v", err)
	}
	size, bad, err := dataSize(Type(typ), dims)
	switch {
	case err != nil && bad >= 0:
		return 0, s.fail(dimsAt+8*int64(bad), fmt.Sprintf("%s dims[%d]", what, bad), "%v", err)
	case err != nil:
		return 0, s.fail(dimsAt, what+" dims", "%v", err)
	}
	offsetAt = s.offset()
	off, err := s.u64(what + " offset")
	if err != nil {
		return 0, err
	}
	if off > math.MaxInt64 {
		return 0, s.fail(offsetAt, what+" offset", "%d is negative or too large: the file is damaged", off)
	}
	f.byName[name] = len(f.Tensors)
	f.Tensors = append(f.Tensors, Tensor{Name: name, Type: Type(typ), Dims: dims, Offset: int64(off), Size: size})
	return offsetAt, nil
}

// place makes the tensors' offsets absolute and checks that each is aligned, lies in the file and
// shares no byte with another. offsetAt[i] is where the offset of tensor i was read.
func (f *File) place(s *scanner, offsetAt []int64) error {
	data := max(f.Size-f.DataOffset, 0)
	order := make([]int, len(f.Tensors))
	for i := range f.Tensors {
		order[i] = i
		t := &f.Tensors[i]
		field := "tensor " + quote(t.Name) + " offset"
		switch {
		case uint64(t.Offset)%f.Alignment != 0:
			return s.fail(offsetAt[i], field, "%d is not a multiple of the alignment %d: the file is damaged", t.Offset, f.Alignment)
		case t.Offset > data || t.Size > data-t.Offset:
			return s.fail(offsetAt[i], field, "%d bytes from %d on, but the file has only %d bytes of data: it is cut short or damaged, download it again", t.Size, t.Offset, data)
		}
		t.Offset += f.DataOffset
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(f.Tensors[a].Offset, f.Tensors[b].Offset) })
	for i := 1; i < len(order); i++ {
		before, t := &f.Tensors[order[i-1]], &f.Tensors[order[i]]
		if t.Offset < before.Offset+before.Size {
			return s.fail(offsetAt[order[i]], "tensor "+quote(t.Name)+" offset", "its data overlap those of %s: the file is damaged", quote(before.Name))
		}
	}
	return nil
}
