package gguf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzRead: no bytes make Read panic or answer in more than one line; what it accepts lies in the
// file, and survives being written and read again.
func FuzzRead(f *testing.F) {
	seeds, err := filepath.Glob(filepath.Join("testdata", "*", "*.gguf"))
	if err != nil || len(seeds) < 50 {
		f.Fatalf("%d seeds, %v", len(seeds), err)
	}
	for _, path := range seeds {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := read(b, "m.gguf")
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > int64(len(b)) || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%q", err)
			}
			return
		}
		for _, x := range file.Tensors {
			if x.Offset < file.DataOffset || x.Size <= 0 || x.Offset+x.Size > int64(len(b)) || x.RowSize()*int64(x.Rows()) != x.Size {
				t.Fatalf("%+v in a file of %d bytes", x, len(b))
			}
		}
		file.Refuse()
		if align := file.Alignment; align > 1<<12 {
			return // written again it may take MiBs of padding
		}
		roundTrip(t, file, b)
	})
}
