package gguf

import (
	"bytes"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/accepted and testdata/refused anew from the tables in the tests")

// forge builds a file byte by byte, so that it can be wrong anywhere.
type forge struct{ b []byte }

// header appends magic, version 3 and the counts.
func (f *forge) header(nTensors, nKV uint64) *forge {
	return f.raw("GGUF").u32(3).u64(nTensors).u64(nKV)
}

func (f *forge) raw(s string) *forge { f.b = append(f.b, s...); return f }

func (f *forge) u8(v uint8) *forge { f.b = append(f.b, v); return f }

func (f *forge) u32(v uint32) *forge { f.b = binary.LittleEndian.AppendUint32(f.b, v); return f }

func (f *forge) u64(v uint64) *forge { f.b = binary.LittleEndian.AppendUint64(f.b, v); return f }

func (f *forge) str(s string) *forge { return f.u64(uint64(len(s))).raw(s) }

// kv appends a metadata pair.
func (f *forge) kv(key string, v Value) *forge {
	f.str(key)
	f.b = appendValue(f.b, v)
	return f
}

// tensor appends an entry of the tensor table.
func (f *forge) tensor(name string, t Type, offset uint64, dims ...uint64) *forge {
	f.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		f.u64(d)
	}
	return f.u32(uint32(t)).u64(offset)
}

// pad appends zeros up to a multiple of n.
func (f *forge) pad(n int) *forge {
	for len(f.b)%n != 0 {
		f.b = append(f.b, 0)
	}
	return f
}

// zeros appends n zero bytes.
func (f *forge) zeros(n int) *forge { f.b = append(f.b, make([]byte, n)...); return f }

// read reads b as a file called name.
func read(b []byte, name string) (*File, error) {
	return Read(bytes.NewReader(b), int64(len(b)), name)
}

// bytesOf returns what w writes.
func bytesOf(t testing.TB, w *Writer) []byte {
	t.Helper()
	var out bytes.Buffer
	n, err := w.WriteTo(&out)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(out.Len()) {
		t.Fatalf("WriteTo says %d bytes, wrote %d", n, out.Len())
	}
	return out.Bytes()
}

// golden compares b with testdata/dir/name.gguf, or writes that file under -rewrite.
func golden(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	path := filepath.Join("testdata", dir, strings.ReplaceAll(name, " ", "-")+".gguf")
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -rewrite writes it)", err)
	}
	if !bytes.Equal(have, b) {
		t.Errorf("%s differs from what the test builds (go test -rewrite writes it anew)", path)
	}
}

// shared returns the path of a file handed to the project beside the repository, or skips.
func shared(t testing.TB, path ...string) string {
	t.Helper()
	p := filepath.Join(append([]string{"..", "..", "..", "shared"}, path...)...)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("needs %s: %v", p, err)
	}
	return p
}
