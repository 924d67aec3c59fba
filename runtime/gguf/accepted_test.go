package gguf

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// every is a value of every kind, with the extremes, and an array of every kind.
func every() map[string]Value {
	return map[string]Value{
		"a.uint8":    ValueOf(uint8(math.MaxUint8)),
		"a.int8":     ValueOf(int8(math.MinInt8)),
		"a.uint16":   ValueOf(uint16(math.MaxUint16)),
		"a.int16":    ValueOf(int16(math.MinInt16)),
		"a.uint32":   ValueOf(uint32(math.MaxUint32)),
		"a.int32":    ValueOf(int32(math.MinInt32)),
		"a.uint64":   ValueOf(uint64(math.MaxUint64)),
		"a.int64":    ValueOf(int64(math.MinInt64)),
		"a.float32":  ValueOf(float32(math.MaxFloat32)),
		"a.float64":  ValueOf(math.SmallestNonzeroFloat64),
		"a.true":     ValueOf(true),
		"a.false":    ValueOf(false),
		"a.string":   ValueOf("héllo\nworld\x00\xff"),
		"a.empty":    ValueOf(""),
		"b.uint8":    ArrayOf([]uint8{0, 255}),
		"b.int8":     ArrayOf([]int8{-128, 127}),
		"b.uint16":   ArrayOf([]uint16{0, 65535}),
		"b.int16":    ArrayOf([]int16{-32768, 32767}),
		"b.uint32":   ArrayOf([]uint32{0, math.MaxUint32}),
		"b.int32":    ArrayOf([]int32{math.MinInt32, math.MaxInt32}),
		"b.uint64":   ArrayOf([]uint64{0, math.MaxUint64}),
		"b.int64":    ArrayOf([]int64{math.MinInt64, math.MaxInt64}),
		"b.float32":  ArrayOf([]float32{0, -1.5}),
		"b.float64":  ArrayOf([]float64{0, -1.5}),
		"b.bool":     ArrayOf([]bool{true, false, true}),
		"b.string":   ArrayOf([]string{"", "a", "▁b", "\xff"}),
		"b.none":     ArrayOf([]int32{}),
		"b.nostring": ArrayOf([]string{}),
	}
}

// counting returns n bytes 0, 1, 2, …
func counting(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// acceptedFiles returns well-formed files by name.
func acceptedFiles(t testing.TB) map[string][]byte {
	write := func(set func(*Writer)) []byte {
		w := new(Writer)
		set(w)
		return bytesOf(t, w)
	}
	kvs := func(w *Writer) {
		all := every()
		for _, key := range slices.Sorted(maps.Keys(all)) {
			w.Set(key, all[key])
		}
	}
	tensors := func(w *Writer) {
		w.AddTensor("a", F32, []uint64{3}, counting(12))
		w.AddTensor(strings.Repeat("n", 63), Q4_K, []uint64{512, 2}, counting(576))
		w.AddTensor("four.dims", Q8_0, []uint64{32, 2, 3, 1}, counting(204))
		w.AddTensor("scalar", F16, nil, counting(2))
		w.AddTensor("last", I8, []uint64{1}, counting(1))
	}
	return map[string][]byte{
		"header only":  write(func(*Writer) {}),
		"kvs only":     write(kvs),
		"tensors only": write(tensors),
		"full file":    write(func(w *Writer) { kvs(w); tensors(w) }),
		"alignment 1":  write(func(w *Writer) { w.Set("general.alignment", ValueOf(uint32(1))); tensors(w) }),
		"alignment 64": write(func(w *Writer) { w.Set("general.alignment", ValueOf(uint32(64))); tensors(w) }),
		"every type": write(func(w *Writer) {
			for id := range Type(64) {
				if elems, size, ok := id.Block(); ok {
					w.AddTensor(id.String(), id, []uint64{2 * uint64(elems), 3}, counting(6*size))
				}
			}
		}),
		// What a Writer does not make.
		"version 2": append(append([]byte("GGUF\x02\x00\x00\x00"), make([]byte, 8)...), new(forge).u64(1).kv("k", ValueOf(uint8(1))).b...),
		"any order": new(forge).header(2, 0).tensor("b", I8, 32, 1).tensor("a", I8, 0, 32).pad(32).zeros(33).b,
		"gap":       new(forge).header(2, 0).tensor("a", I8, 0, 1).tensor("b", I8, 64, 1).pad(32).zeros(65).b,
		"bool 7":    new(forge).header(0, 1).str("k").u32(uint32(KindBool)).u8(7).b,
		"no layers": write(func(w *Writer) {
			w.Set("general.architecture", ValueOf("llama"))
			w.Set("llama.block_count", ValueOf(uint32(0)))
		}),
	}
}

func TestAccepted(t *testing.T) {
	for name, b := range acceptedFiles(t) {
		t.Run(name, func(t *testing.T) {
			golden(t, "accepted", name, b)
			f, err := read(b, "m.gguf")
			if err != nil {
				t.Fatal(err)
			}
			roundTrip(t, f, b)
		})
	}
}

// roundTrip writes what f holds and reads it back: the same metadata, tensors and data.
func roundTrip(t *testing.T, f *File, b []byte) {
	t.Helper()
	w := new(Writer)
	for _, key := range f.Keys() {
		v, _ := f.Lookup(key)
		w.Set(key, v)
	}
	for _, x := range f.Tensors {
		w.AddTensor(x.Name, x.Type, x.Dims, b[x.Offset:x.Offset+x.Size])
	}
	again := bytesOf(t, w)
	g, err := read(again, "again.gguf")
	if err != nil {
		t.Fatalf("what was written is refused: %v", err)
	}
	if !slices.Equal(f.keys, g.keys) || f.Alignment != g.Alignment || len(f.Tensors) != len(g.Tensors) {
		t.Fatalf("keys, alignment or tensors differ:\n%+v\n%+v", f, g)
	}
	for _, key := range f.keys {
		// As bytes, because a NaN is not equal to itself.
		if x, y := appendValue(nil, f.values[key]), appendValue(nil, g.values[key]); !bytes.Equal(x, y) {
			t.Errorf("%s: %v, then %v", key, f.values[key], g.values[key])
		}
	}
	for i, x := range f.Tensors {
		y := g.Tensors[i]
		if x.Name != y.Name || x.Type != y.Type || !slices.Equal(x.Dims, y.Dims) || x.Size != y.Size {
			t.Errorf("tensor %+v, then %+v", x, y)
		}
		if !bytes.Equal(b[x.Offset:x.Offset+x.Size], again[y.Offset:y.Offset+y.Size]) {
			t.Errorf("the data of %s differ", x.Name)
		}
	}
	third := new(Writer)
	for _, key := range g.Keys() {
		v, _ := g.Lookup(key)
		third.Set(key, v)
	}
	for _, x := range g.Tensors {
		third.AddTensor(x.Name, x.Type, x.Dims, again[x.Offset:x.Offset+x.Size])
	}
	if !bytes.Equal(bytesOf(t, third), again) {
		t.Error("writing the same file twice gives different bytes")
	}
}

func TestRead(t *testing.T) {
	b := acceptedFiles(t)["full file"]
	f, err := read(b, "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if f.Path != "m.gguf" || f.Version != 3 || f.Size != int64(len(b)) || f.Alignment != 32 {
		t.Errorf("%s v%d, %d bytes, alignment %d", f.Path, f.Version, f.Size, f.Alignment)
	}
	if f.DataOffset%32 != 0 || f.DataOffset < f.HeaderSize || f.DataOffset-f.HeaderSize >= 32 {
		t.Errorf("header of %d bytes, data at %d", f.HeaderSize, f.DataOffset)
	}
	want := every()
	if keys := slices.Sorted(maps.Keys(want)); !slices.Equal(f.Keys(), keys) {
		t.Errorf("keys %v, want %v", f.Keys(), keys)
	}
	for key, v := range want {
		got, ok := f.Lookup(key)
		if !ok || !reflect.DeepEqual(got.Any(), v.Any()) {
			t.Errorf("%s = %v (%v), want %v", key, got, ok, v)
		}
	}
	x, ok := f.Tensor("four.dims")
	if !ok {
		t.Fatal("no tensor four.dims")
	}
	if x.Cols() != 32 || x.Rows() != 6 || x.Elems() != 192 || x.RowSize() != 34 || x.Size != 204 || x.Part != 0 {
		t.Errorf("%+v: %d × %d, rows of %d bytes", x, x.Cols(), x.Rows(), x.RowSize())
	}
	if !bytes.Equal(b[x.Offset:x.Offset+x.Size], counting(204)) {
		t.Error("the data of four.dims are elsewhere")
	}
	if s, _ := f.Tensor("scalar"); s.Cols() != 1 || s.Rows() != 1 || s.Elems() != 1 || s.Size != 2 {
		t.Errorf("%+v", s)
	}
	if _, ok := f.Tensor("none"); ok {
		t.Error("found a tensor that is not there")
	}
}

// The header of a file whose data are elsewhere is read from the header's bytes alone.
func TestReadHeaderAlone(t *testing.T) {
	b := acceptedFiles(t)["full file"]
	f, err := read(b, "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	g, err := Read(bytes.NewReader(b[:f.HeaderSize]), f.Size, "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f, g) {
		t.Error("the header alone reads differently")
	}
	_, err = Read(bytes.NewReader(b[:f.HeaderSize-1]), f.Size, "m.gguf")
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a header one byte short: %v", err)
	}
}

// Arrays and strings longer than a chunk, and strings that cross from one into the next.
func TestReadAcrossChunks(t *testing.T) {
	tokens := make([]string, 40_000)
	scores := make([]float32, len(tokens))
	for i := range tokens {
		tokens[i] = strings.Repeat(string(rune('a'+i%26)), i%17)
		scores[i] = -float32(i)
	}
	long := strings.Repeat("0123456789", 3*chunkSize/10)
	bools := make([]bool, 2*chunkSize+1)
	bools[2*chunkSize] = true
	f := mustRead(t, func(w *Writer) {
		w.Set("tokens", ArrayOf(tokens))
		w.Set("scores", ArrayOf(scores))
		w.Set("template", ValueOf(long))
		w.Set("bools", ArrayOf(bools))
		w.Set("end", ValueOf(uint32(7)))
	})
	if got, err := f.Strings("tokens"); err != nil || !slices.Equal(got, tokens) {
		t.Error("tokens differ", err)
	}
	if got, err := f.Float32s("scores"); err != nil || !slices.Equal(got, scores) {
		t.Error("scores differ", err)
	}
	if got, err := f.String("template"); err != nil || got != long {
		t.Error("template differs", err)
	}
	if got, err := f.Bools("bools"); err != nil || !slices.Equal(got, bools) {
		t.Error("bools differ", err)
	}
	if got, err := f.Uint("end"); err != nil || got != 7 {
		t.Error(got, err)
	}
}

// mustRead reads what a Writer set up by set writes.
func mustRead(t testing.TB, set func(*Writer)) *File {
	t.Helper()
	w := new(Writer)
	set(w)
	f, err := read(bytesOf(t, w), "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestReadErrors(t *testing.T) {
	broken := errors.New("disk on fire")
	_, err := Read(readerFunc(func([]byte, int64) (int, error) { return 0, broken }), 100, "m.gguf")
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := Read(bytes.NewReader(nil), -1, "m.gguf"); err == nil {
		t.Error("read a file of negative size")
	}
	dir := t.TempDir()
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("opening a directory: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none.gguf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening nothing: %v", err)
	}
	// A name cannot break the line.
	_, err = read(nil, "a\nb.gguf")
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q", err)
	}
}

type readerFunc func([]byte, int64) (int, error)

func (f readerFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }
