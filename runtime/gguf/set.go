package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
)

// Set is one model: a single file, or all parts of a split one. The metadata are those of the first
// part. It is never changed after it was opened.
type Set struct {
	Parts []*File

	// Tensors are those of all parts in order, with Part set.
	Tensors []Tensor

	byName map[string]int // index into Tensors
}

// OpenSet opens the model that the file at path belongs to: the file alone, or, when its header
// says that it is one of several, all the parts beside it. Any part may be named.
func OpenSet(path string) (*Set, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	count, err := f.UintOr("split.count", 0)
	if err != nil {
		return nil, err
	}
	base, no, of, named := splitName(path)
	switch {
	case count <= 1 && named && of > 1:
		return nil, fmt.Errorf("gguf: %s: named as part %d of %d but its header has no split.count: rename the file if it is a whole model", oneLine(path), no, of)
	case count <= 1:
		return NewSet([]*File{f})
	case count > maxParts:
		return nil, fmt.Errorf("gguf: %s: split.count %d, at most %d parts are allowed: the file is damaged", oneLine(path), count, maxParts)
	case !named:
		return nil, fmt.Errorf("gguf: %s: one of %d parts, but the name does not end in -00001-of-%05d.gguf: give every part its original name", oneLine(path), count, count)
	case of != int(count):
		return nil, fmt.Errorf("gguf: %s: named as one of %d parts, but its header says %d: give every part its original name", oneLine(path), of, count)
	}
	parts := make([]*File, count)
	for i := range parts {
		name := PartName(base, i, len(parts))
		if i == no-1 {
			parts[i] = f
			continue
		}
		if parts[i], err = Open(name); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("gguf: %s: part %d of %d is missing: put %s beside it: %w", oneLine(path), i+1, count, oneLine(filepath.Base(name)), fs.ErrNotExist)
		} else if err != nil {
			return nil, err
		}
	}
	return NewSet(parts)
}

// NewSet makes a model of its parts, in order. It checks that they belong together: each part of
// several says its number and how many there are, the first one how many tensors there are in all,
// and no tensor is in two.
func NewSet(parts []*File) (*Set, error) {
	if len(parts) == 0 {
		return nil, errors.New("gguf: a set of no parts")
	}
	n := 0
	for i, f := range parts {
		if err := checkPart(f, i, len(parts)); err != nil {
			return nil, err
		}
		n += len(f.Tensors)
	}
	meta := parts[0]
	want, err := meta.UintOr("split.tensors.count", uint64(n))
	if err != nil {
		return nil, err
	}
	if want != uint64(n) {
		return nil, fmt.Errorf("gguf: %s: split.tensors.count is %d but the %d parts have %d tensors: the parts are not of one model", oneLine(meta.Path), want, len(parts), n)
	}
	s := &Set{Parts: parts, Tensors: make([]Tensor, 0, n), byName: make(map[string]int, n)}
	for i, f := range parts {
		for _, t := range f.Tensors {
			if j, dup := s.byName[t.Name]; dup {
				return nil, fmt.Errorf("gguf: %s: tensor %s is also in %s: the parts are not of one model", oneLine(f.Path), quote(t.Name), oneLine(parts[s.Tensors[j].Part].Path))
			}
			t.Part = i
			s.byName[t.Name] = len(s.Tensors)
			s.Tensors = append(s.Tensors, t)
		}
	}
	return s, nil
}

// maxParts bounds split.count: names have five digits, gguf-split writes the count as uint16.
const maxParts = 1<<16 - 1

// checkPart checks that f says it is part i (from 0) of n.
func checkPart(f *File, i, n int) error {
	count, err := f.UintOr("split.count", 0)
	if err != nil {
		return err
	}
	no, err := f.UintOr("split.no", 0)
	if err != nil {
		return err
	}
	if n == 1 && count <= 1 && no == 0 {
		return nil
	}
	if count != uint64(n) || no != uint64(i) {
		return fmt.Errorf("gguf: %s: its header says part %d of %d, expected part %d of %d: the parts are misnamed or not of one model", oneLine(f.Path), no+1, count, i+1, n)
	}
	return nil
}

// Meta returns the file whose metadata describe the model.
func (s *Set) Meta() *File { return s.Parts[0] }

// Tensor returns the tensor called name, from whichever part. It belongs to s.
func (s *Set) Tensor(name string) (*Tensor, bool) {
	i, ok := s.byName[name]
	if !ok {
		return nil, false
	}
	return &s.Tensors[i], true
}

// Size returns the bytes of all parts together.
func (s *Set) Size() int64 {
	var n int64
	for _, f := range s.Parts {
		n += f.Size
	}
	return n
}

// PartName returns the name that gguf-split gives part i (from 0) of n: base-00001-of-00003.gguf.
func PartName(base string, i, n int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", base, i+1, n)
}

var splitPattern = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// splitName takes the name of a part to pieces; no counts from 1.
func splitName(path string) (base string, no, of int, ok bool) {
	dir, file := filepath.Split(path)
	m := splitPattern.FindStringSubmatch(file)
	if m == nil {
		return "", 0, 0, false
	}
	no, _ = strconv.Atoi(m[2])
	of, _ = strconv.Atoi(m[3])
	if no < 1 || no > of {
		return "", 0, 0, false
	}
	return dir + m[1], no, of, true
}
