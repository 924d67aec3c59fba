package gguf

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// The bytes that the format's description asks for, spelled out.
func TestWriterBytes(t *testing.T) {
	w := new(Writer)
	w.Set("a", ValueOf(uint16(0x1234)))
	w.Set("b", ArrayOf([]string{"xy", ""}))
	w.AddTensor("t", I8, []uint64{3}, []byte{7, 8, 9})
	w.AddTensor("u", F16, []uint64{1, 1}, []byte{1, 2})
	want := "GGUF\x03\x00\x00\x00" +
		"\x02\x00\x00\x00\x00\x00\x00\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" +
		"\x01\x00\x00\x00\x00\x00\x00\x00a" + "\x02\x00\x00\x00" + "\x34\x12" +
		"\x01\x00\x00\x00\x00\x00\x00\x00b" + "\x09\x00\x00\x00" + "\x08\x00\x00\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" +
		"\x02\x00\x00\x00\x00\x00\x00\x00xy" + "\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x01\x00\x00\x00\x00\x00\x00\x00t" + "\x01\x00\x00\x00" + "\x03\x00\x00\x00\x00\x00\x00\x00" +
		"\x18\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x01\x00\x00\x00\x00\x00\x00\x00u" + "\x02\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" +
		"\x01\x00\x00\x00" + "\x20\x00\x00\x00\x00\x00\x00\x00"
	want += strings.Repeat("\x00", 160-len(want))
	want += "\x07\x08\x09" + strings.Repeat("\x00", 29) + "\x01\x02" + strings.Repeat("\x00", 30)
	if got := bytesOf(t, w); string(got) != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The Writer refuses what Read would.
func TestWriterRefuses(t *testing.T) {
	for defect, set := range map[string]func(*Writer){
		"key empty":           func(w *Writer) { w.Set("", ValueOf(true)) },
		"key too long":        func(w *Writer) { w.Set(strings.Repeat("k", MaxKey+1), ValueOf(true)) },
		"key twice":           func(w *Writer) { w.Set("k", ValueOf(true)); w.Set("k", ValueOf(true)) },
		"no value":            func(w *Writer) { w.Set("k", Value{}) },
		"string too long":     func(w *Writer) { w.Set("k", ValueOf(strings.Repeat("s", MaxString+1))) },
		"element too long":    func(w *Writer) { w.Set("k", ArrayOf([]string{strings.Repeat("s", MaxString+1)})) },
		"array too long":      func(w *Writer) { w.Set("k", ArrayOf(make([]uint8, MaxArray+1))) },
		"alignment 3":         func(w *Writer) { w.Set("general.alignment", ValueOf(uint32(3))) },
		"alignment of uint64": func(w *Writer) { w.Set("general.alignment", ValueOf(uint64(32))) },
		"name empty":          func(w *Writer) { w.AddTensor("", I8, []uint64{1}, []byte{1}) },
		"name of 64":          func(w *Writer) { w.AddTensor(strings.Repeat("n", 64), I8, []uint64{1}, []byte{1}) },
		"name twice": func(w *Writer) {
			w.AddTensor("t", I8, []uint64{1}, []byte{1})
			w.AddTensor("t", I8, []uint64{1}, []byte{1})
		},
		"five dims":        func(w *Writer) { w.AddTensor("t", I8, []uint64{1, 1, 1, 1, 1}, []byte{1}) },
		"dim 0":            func(w *Writer) { w.AddTensor("t", I8, []uint64{0}, nil) },
		"half a block":     func(w *Writer) { w.AddTensor("t", Q8_0, []uint64{16}, make([]byte, 17)) },
		"unknown type":     func(w *Writer) { w.AddTensor("t", 1000, []uint64{1}, []byte{1}) },
		"too few bytes":    func(w *Writer) { w.AddTensor("t", F32, []uint64{2}, make([]byte, 7)) },
		"too many bytes":   func(w *Writer) { w.AddTensor("t", F32, []uint64{2}, make([]byte, 9)) },
		"later mistake":    func(w *Writer) { w.Set("k", ValueOf(true)); w.AddTensor("t", I8, nil, nil) },
		"mistake, then ok": func(w *Writer) { w.Set("", ValueOf(true)); w.Set("k", ValueOf(true)) },
	} {
		w := new(Writer)
		set(w)
		var out bytes.Buffer
		if n, err := w.WriteTo(&out); err == nil || n != 0 || out.Len() != 0 || !strings.HasPrefix(err.Error(), "gguf: writing: ") {
			t.Errorf("%s: wrote %d bytes, error %v", defect, n, err)
		}
	}
}

// A writer that fails is reported, and WriteTo stops.
func TestWriterPassesErrorsOn(t *testing.T) {
	w := new(Writer)
	w.AddTensor("t", I8, []uint64{1 << 20}, make([]byte, 1<<20))
	full := errors.New("disk full")
	for _, room := range []int{0, 10, 100, 70000} {
		if _, err := w.WriteTo(&limited{room, full}); !errors.Is(err, full) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
	}
}

// limited is a writer with room for left bytes.
type limited struct {
	left int
	err  error
}

func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.left {
		n := l.left
		l.left = 0
		return n, l.err
	}
	l.left -= len(b)
	return len(b), nil
}
