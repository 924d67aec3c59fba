package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// split describes the parts of a model that writeSplit writes. The zero fields mean well-formed.
type split struct {
	n int // parts

	name  func(part int) string     // file name
	meta  func(w *Writer, part int) // in place of the three split keys
	names func(part int) []string   // of the part's tensors
	skip  int                       // part not written, counted from 1
}

// splitKeys sets the keys that gguf-split sets, with its kinds.
func splitKeys(w *Writer, no, count, tensors int) {
	w.Set("split.no", ValueOf(uint16(no)))
	w.Set("split.count", ValueOf(uint16(count)))
	w.Set("split.tensors.count", ValueOf(int32(tensors)))
}

// writeSplit writes the parts into a new folder, which it returns. Part i holds two tensors.
func writeSplit(t *testing.T, s split) string {
	t.Helper()
	dir := t.TempDir()
	for i := range s.n {
		w := new(Writer)
		if i == 0 {
			w.Set("general.architecture", ValueOf("llama"))
		}
		if s.meta != nil {
			s.meta(w, i)
		} else {
			splitKeys(w, i, s.n, 2*s.n)
		}
		names := []string{fmt.Sprintf("blk.%d.a", i), fmt.Sprintf("blk.%d.b", i)}
		if s.names != nil {
			names = s.names(i)
		}
		for j, name := range names {
			w.AddTensor(name, F32, []uint64{4}, counting(16 + j)[j:])
		}
		file := PartName("model", i, s.n)
		if s.name != nil {
			file = s.name(i)
		}
		if s.skip == i+1 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file), bytesOf(t, w), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpenSet(t *testing.T) {
	dir := writeSplit(t, split{n: 3})
	for i := range 3 { // any part names the model
		s, err := OpenSet(filepath.Join(dir, PartName("model", i, 3)))
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Parts) != 3 || len(s.Tensors) != 6 || s.Meta() != s.Parts[0] {
			t.Fatalf("%d parts, %d tensors", len(s.Parts), len(s.Tensors))
		}
		if arch, err := s.Meta().String("general.architecture"); err != nil || arch != "llama" {
			t.Error("metadata are not those of the first part:", err)
		}
		var size int64
		for k, x := range s.Tensors {
			if want := fmt.Sprintf("blk.%d.%c", k/2, 'a'+k%2); x.Name != want || x.Part != k/2 {
				t.Errorf("tensor %d is %s of part %d, want %s of part %d", k, x.Name, x.Part, want, k/2)
			}
			if y, ok := s.Tensor(x.Name); !ok || y != &s.Tensors[k] {
				t.Errorf("Tensor(%s) = %+v", x.Name, y)
			}
			own, ok := s.Parts[x.Part].Tensor(x.Name)
			if !ok || own.Offset != x.Offset || own.Part != 0 {
				t.Errorf("%s: %+v in its part, %+v in the set", x.Name, own, x)
			}
		}
		for _, f := range s.Parts {
			info, err := os.Stat(f.Path)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if s.Size() != size {
			t.Errorf("Size = %d, the files have %d", s.Size(), size)
		}
		if err := s.Refuse(); err != nil {
			t.Error(err)
		}
		if _, ok := s.Tensor("none"); ok {
			t.Error("found a tensor that is not there")
		}
	}
}

// A first part without tensors is what gguf-split --no-tensor-first-split makes.
func TestOpenSetNoTensorFirst(t *testing.T) {
	dir := writeSplit(t, split{n: 2, names: func(i int) []string { return []string{"x", "y"}[:2*i] },
		meta: func(w *Writer, i int) { splitKeys(w, i, 2, 2) }})
	s, err := OpenSet(filepath.Join(dir, PartName("model", 0, 2)))
	if err != nil {
		t.Fatal(err)
	}
	if x, ok := s.Tensor("y"); !ok || x.Part != 1 {
		t.Errorf("%+v", x)
	}
	if err := s.Refuse(); err != nil {
		t.Error(err)
	}
}

// A single file is a set of one, whatever its name and with or without split keys.
func TestOpenSetSingle(t *testing.T) {
	for name, meta := range map[string]func(*Writer, int){
		"model.gguf":                func(*Writer, int) {},
		"model-00001-of-00001.gguf": func(w *Writer, _ int) { splitKeys(w, 0, 1, 2) },
		"part-00003-of-00002.gguf":  func(*Writer, int) {}, // not a name that gguf-split gives
		"no suffix":                 func(w *Writer, _ int) { splitKeys(w, 0, 0, 2) },
	} {
		dir := writeSplit(t, split{n: 1, name: func(int) string { return name }, meta: meta})
		s, err := OpenSet(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(s.Parts) != 1 || len(s.Tensors) != 2 {
			t.Errorf("%s: %d parts, %d tensors", name, len(s.Parts), len(s.Tensors))
		}
	}
}

func TestOpenSetRefused(t *testing.T) {
	for _, c := range []struct {
		defect string
		split  split
		open   int    // the part to open, from 0
		want   string // in the error
	}{
		{"a part is missing", split{n: 3, skip: 2}, 0, "part 2 of 3 is missing: put model-00002-of-00003.gguf beside it"},
		{"the first part is missing", split{n: 3, skip: 1}, 2, "part 1 of 3 is missing"},
		{"renamed", split{n: 2, name: func(i int) string { return fmt.Sprintf("part%d.gguf", i) }}, 0, "does not end in -00001-of-00002.gguf"},
		{"names swapped", split{n: 2, name: func(i int) string { return PartName("model", 1-i, 2) }}, 0, "its header says part 2 of 2, expected part 1 of 2"},
		{"names count differently", split{n: 2, name: func(i int) string { return PartName("model", i, 3) }}, 0, "named as one of 3 parts, but its header says 2"},
		{"no split keys", split{n: 2, meta: func(*Writer, int) {}}, 1, "named as part 2 of 2 but its header has no split.count"},
		{"the other part has no split keys", split{n: 2, meta: func(w *Writer, i int) {
			if i == 0 {
				splitKeys(w, 0, 2, 4)
			}
		}}, 0, "its header says part 1 of 0, expected part 2 of 2"},
		{"parts disagree on the count", split{n: 2, meta: func(w *Writer, i int) { splitKeys(w, i, 2+i, 4) }}, 0, "its header says part 2 of 3, expected part 2 of 2"},
		{"a part twice", split{n: 2, meta: func(w *Writer, _ int) { splitKeys(w, 0, 2, 4) }}, 0, "its header says part 1 of 2, expected part 2 of 2"},
		{"a tensor twice", split{n: 2, names: func(int) []string { return []string{"a", "b"} }}, 0, `tensor "a" is also in`},
		{"too few tensors", split{n: 2, meta: func(w *Writer, i int) { splitKeys(w, i, 2, 5) }}, 0, "split.tensors.count is 5 but the 2 parts have 4"},
		{"count not a number", split{n: 1, meta: func(w *Writer, _ int) { w.Set("split.count", ValueOf("2")) }}, 0, `"split.count" must be a non-negative integer`},
		{"count negative", split{n: 1, meta: func(w *Writer, _ int) { w.Set("split.count", ValueOf(int32(-2))) }}, 0, `"split.count" must be a non-negative integer`},
		{"count huge", split{n: 1, meta: func(w *Writer, _ int) { w.Set("split.count", ValueOf(uint64(1)<<62)) }}, 0, "at most 65535 parts"},
		{"number of a part that is alone", split{n: 1, meta: func(w *Writer, _ int) { splitKeys(w, 4, 1, 2) }}, 0, "its header says part 5 of 1, expected part 1 of 1"},
	} {
		t.Run(c.defect, func(t *testing.T) {
			dir := writeSplit(t, c.split)
			name := PartName("model", c.open, c.split.n)
			if c.split.name != nil {
				name = c.split.name(c.open)
			}
			_, err := OpenSet(filepath.Join(dir, name))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "gguf: "+dir) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want …%s…", err, c.want)
			}
			if c.split.skip > 0 && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v is not fs.ErrNotExist", err)
			}
		})
	}
	if _, err := NewSet(nil); err == nil {
		t.Error("a set of nothing")
	}
}

// A damaged part is reported as that part.
func TestOpenSetDamagedPart(t *testing.T) {
	dir := writeSplit(t, split{n: 3})
	bad := filepath.Join(dir, PartName("model", 1, 3))
	if err := os.Truncate(bad, 60); err != nil {
		t.Fatal(err)
	}
	_, err := OpenSet(filepath.Join(dir, PartName("model", 0, 3)))
	var e *Error
	if !errors.As(err, &e) || e.File != bad {
		t.Errorf("got %v", err)
	}
}

func TestRefuse(t *testing.T) {
	for _, c := range []struct {
		set  map[string]string
		want string // in the error; "" for none
	}{
		{map[string]string{"general.architecture": "llama"}, ""},
		{map[string]string{"general.architecture": "llama", "general.type": "model"}, ""},
		{map[string]string{"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}, "a LoRA adapter, not a model"},
		{map[string]string{"general.architecture": "clip"}, "multimodal projector"},
		{map[string]string{"general.architecture": "clip", "general.type": "mmproj"}, "multimodal projector"},
		{map[string]string{"general.type": "imatrix"}, "importance matrix"},
		{map[string]string{"general.architecture": "controlvector"}, "control vector"},
		{map[string]string{"general.architecture": "llama", "general.type": "song"}, `general.type is "song"`},
		{map[string]string{}, "general.architecture is missing"},
	} {
		f := mustRead(t, func(w *Writer) {
			for _, key := range []string{"general.type", "general.architecture", "adapter.type"} {
				if v, ok := c.set[key]; ok {
					w.Set(key, ValueOf(v))
				}
			}
		})
		err := f.Refuse()
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "m.gguf: ")) {
			t.Errorf("%v: got %v, want %q", c.set, err, c.want)
		}
	}
	f := mustRead(t, func(w *Writer) { w.Set("general.type", ValueOf(uint8(1))) })
	if err := f.Refuse(); err == nil {
		t.Error("took a general.type that is a number")
	}
	f = mustRead(t, func(w *Writer) { w.Set("general.architecture", ValueOf("llama")) })
	s, err := NewSet([]*File{f})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Refuse(); err == nil || !strings.Contains(err.Error(), "no tensors") {
		t.Errorf("a model without tensors: %v", err)
	}
}
