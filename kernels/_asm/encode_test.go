package main

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var encoded = regexp.MustCompile(`WORD \$(0x[0-9a-f]{8}) // (.*)`)

// TestEncodings assembles the text beside every word of the committed arm64 files with GNU as, which must give that word.
func TestEncodings(t *testing.T) {
	as, err := exec.LookPath("aarch64-linux-gnu-as")
	if err != nil {
		t.Skip("not run: there is no aarch64-linux-gnu-as (Debian's binutils-aarch64-linux-gnu has it)")
	}
	files, err := filepath.Glob("../*_arm64.s")
	if err != nil || len(files) == 0 {
		t.Fatalf("no arm64 files: %v", err)
	}
	var lines [][2]string // text, word
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range encoded.FindAllStringSubmatch(string(source), -1) {
			lines = append(lines, [2]string{m[2], m[1]})
		}
	}
	slices.SortFunc(lines, func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) })
	lines = slices.Compact(lines)
	if len(lines) < 1000 {
		t.Fatalf("only %d different instructions found", len(lines))
	}
	var source strings.Builder
	for _, l := range lines {
		source.WriteString(l[0] + "\n")
	}
	object := filepath.Join(t.TempDir(), "all.o")
	cmd := exec.Command(as, "-march=armv8.6-a", "-o", object, "-")
	cmd.Stdin = strings.NewReader(source.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := f.Section(".text").Data()
	if err != nil || len(text) != 4*len(lines) {
		t.Fatalf("%d bytes for %d instructions, %v", len(text), len(lines), err)
	}
	for i, l := range lines {
		if want := sprintf("0x%08x", binary.LittleEndian.Uint32(text[4*i:])); l[1] != want {
			t.Errorf("%s is encoded as %s, want %s", l[0], l[1], want)
		}
	}
}
