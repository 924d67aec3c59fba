package node

import (
	"os"
	"path/filepath"
	"testing"
)

// A file that can't be written leaves the old one.
func TestReplaceFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	for _, text := range []string{"old", "new"} {
		if err := replaceFile(dir, "f", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "f.new", "full"), 0o700); err != nil { // a folder can't be written
		t.Fatal(err)
	}
	if replaceFile(dir, "f", []byte("lost")) == nil {
		t.Error("no error")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "new" {
		t.Errorf("%q, %v", b, err)
	}
}
