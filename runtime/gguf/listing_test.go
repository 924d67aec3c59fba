package gguf

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// listing is what tools/golden/gguf_list.py says about a file, read by llama.cpp's gguf package.
type listing struct {
	Size      int64
	Alignment uint64
	Data      int64
	Keys      [][]any // name, kind, element kind, elements, sha256 of the value's bytes
	Tensors   [][]any // name, type, dims, offset, bytes
}

// list returns f's listing as the JSON decoder would make it.
func list(f *File) listing {
	l := listing{Size: f.Size, Alignment: f.Alignment, Data: f.DataOffset, Keys: [][]any{}, Tensors: [][]any{}}
	for _, key := range f.Keys() {
		v, _ := f.Lookup(key)
		raw := appendValue(nil, v)[4:] // after the kind
		if v.Kind() == KindArray {
			raw = raw[12:]
		}
		sum := sha256.Sum256(raw)
		l.Keys = append(l.Keys, []any{key, v.Kind().String(), v.Elem().String(), float64(v.Len()), hex.EncodeToString(sum[:])})
	}
	for _, x := range f.Tensors {
		dims := []any{}
		for _, d := range x.Dims {
			dims = append(dims, float64(d))
		}
		l.Tensors = append(l.Tensors, []any{x.Name, x.Type.String(), dims, float64(x.Offset), float64(x.Size)})
	}
	return l
}

// compare fails for every line in which f's listing differs from want.
func compare(t *testing.T, f *File, want listing) {
	t.Helper()
	got := list(f)
	if got.Size != want.Size || got.Alignment != want.Alignment {
		t.Errorf("%d bytes, alignment %d; want %d, %d", got.Size, got.Alignment, want.Size, want.Alignment)
	}
	if len(want.Tensors) > 0 && got.Data != want.Data {
		t.Errorf("data from %d on, want %d", got.Data, want.Data)
	}
	if len(got.Keys) != len(want.Keys) || len(got.Tensors) != len(want.Tensors) {
		t.Fatalf("%d keys, %d tensors; want %d, %d", len(got.Keys), len(got.Tensors), len(want.Keys), len(want.Tensors))
	}
	for i := range want.Keys {
		if !reflect.DeepEqual(got.Keys[i], want.Keys[i]) {
			t.Errorf("key %v, want %v", got.Keys[i], want.Keys[i])
		}
	}
	for i := range want.Tensors {
		if !reflect.DeepEqual(got.Tensors[i], want.Tensors[i]) {
			t.Errorf("tensor %v, want %v", got.Tensors[i], want.Tensors[i])
		}
	}
}

// Every key, value, type, shape and offset is as llama.cpp's own gguf package reads it.
func TestListings(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "listings.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]listing
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if len(want) < 9 {
		t.Fatalf("only %d listings", len(want))
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		t.Run(path, func(t *testing.T) {
			if rest, ok := strings.CutPrefix(path, "../shared/"); ok {
				shared(t, strings.Split(rest, "/")...)
			}
			f, err := Open(filepath.Join("..", "..", path))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, f, want[path])
		})
	}
}

// Every file handed to the project is accepted, has its tensors where llama.cpp requires them (one
// behind the other, each rounded up to the alignment) and none of them past its end.
func TestShared(t *testing.T) {
	dir := shared(t)
	var paths []string
	for _, pattern := range []string{"models/*.gguf", "golden/*.gguf", "golden/*/*.gguf", "golden/*/*/*.gguf"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		t.Skipf("no .gguf files under %s", dir)
	}
	for _, path := range paths {
		s, err := OpenSet(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := s.Meta().Refuse(); err != nil {
			t.Error(err)
		}
		if err := s.Refuse(); (err != nil) != (len(s.Tensors) == 0) {
			t.Errorf("%s: %d tensors, %v", path, len(s.Tensors), err)
		}
		for _, f := range s.Parts {
			next := f.DataOffset
			for _, x := range f.Tensors {
				if x.Offset != next {
					t.Errorf("%s: %s at %d, want %d", f.Path, x.Name, x.Offset, next)
				}
				next = int64(alignUp(uint64(x.Offset+x.Size), f.Alignment))
			}
		}
	}
	t.Logf("%d files", len(paths))
}

// What the Writer writes, llama.cpp's gguf package reads as it was meant.
func TestPythonReadsWriter(t *testing.T) {
	if out, err := exec.Command("python3", "-c", "import gguf").CombinedOutput(); err != nil {
		t.Skipf("needs python3 with the gguf package (pip install gguf): %v %s", err, lastLine(out))
	}
	w := new(Writer)
	all := every()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		// The package decodes strings as UTF-8 and cannot show an empty array.
		if v := all[key]; v.Len() != 0 && !strings.Contains(v.String(), `\xff`) {
			w.Set(key, v)
		}
	}
	w.Set("general.alignment", ValueOf(uint32(64)))
	for id := range Type(64) {
		// gguf 0.19.0 takes Q8_1 for 40 bytes, which it was until ggml halved its two scales.
		if elems, size, ok := id.Block(); ok && id != Q8_1 && id <= NVFP4 {
			w.AddTensor(id.String(), id, []uint64{2 * uint64(elems), 3}, counting(6*size))
		}
	}
	path := filepath.Join(t.TempDir(), "written.gguf")
	if err := os.WriteFile(path, bytesOf(t, w), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", filepath.Join("..", "..", "tools", "golden", "gguf_list.py"), "list", path)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]listing
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, f, want[path])
}

// lastLine returns the last line of a program's output.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
