package meta

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// module is this repository's import path.
const module = "github.com/starling-swarm/starling"

// tree is the files that a rule looks at, by slash-separated path.
type tree struct {
	fs.FS
	files []string
}

// repository returns the committed files; without git, all files but hidden ones.
func repository(t *testing.T) tree {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("the repository isn't at %s: %v", "../..", err)
	}
	r := tree{FS: os.DirFS(root)}
	_, _ = os.ReadFile(filepath.Join(root, ".git", "index")) // so that go test's cache notices a commit
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		for _, f := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if info, err := fs.Stat(r, f); err == nil && info.Mode().IsRegular() {
				r.files = append(r.files, f)
			}
		}
	} else {
		t.Logf("git doesn't list the files (%v); looking at all that aren't hidden", err)
		r.walk(t)
	}
	if len(r.files) == 0 {
		t.Fatal("no files")
	}
	return r
}

// walk fills in the files that lie there.
func (r *tree) walk(t *testing.T) {
	err := fs.WalkDir(r, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); p != "." && strings.HasPrefix(name, ".") && name != ".ci" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() {
			r.files = append(r.files, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sample returns a tree of the given files.
func sample(t *testing.T, files map[string]string) tree {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	r := tree{FS: m}
	r.walk(t)
	return r
}

// read returns a file's bytes.
func (r tree) read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := fs.ReadFile(r, name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goFiles returns the product's Go files: without testdata, folders that start with _, and other modules.
func (r tree) goFiles() []string {
	var other []string
	for _, f := range r.files {
		if path.Base(f) == "go.mod" && f != "go.mod" {
			other = append(other, path.Dir(f)+"/")
		}
	}
	var out []string
	for _, f := range r.files {
		foreign := slices.ContainsFunc(other, func(dir string) bool { return strings.HasPrefix(f, dir) })
		hidden := strings.HasPrefix(f, "_") || strings.Contains(f, "/_") || strings.Contains("/"+f, "/testdata/")
		if strings.HasSuffix(f, ".go") && !foreign && !hidden {
			out = append(out, f)
		}
	}
	return out
}

// texts returns the files without zero bytes.
func (r tree) texts(t *testing.T) map[string]string {
	out := make(map[string]string)
	for _, f := range r.files {
		if b := r.read(t, f); !bytes.Contains(b, []byte{0}) {
			out[f] = string(b)
		}
	}
	return out
}

// source is one parsed Go file.
type source struct {
	*ast.File
	fset *token.FileSet
	name string // path in the tree
	dir  string // its folder: the package's path in the module
	test bool
}

// parse parses the product's Go files, whatever platform they are for.
func (r tree) parse(t *testing.T) []source {
	t.Helper()
	fset := token.NewFileSet()
	var out []source
	for _, name := range r.goFiles() {
		f, err := parser.ParseFile(fset, name, r.read(t, name), parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, source{f, fset, name, path.Dir(name), strings.HasSuffix(name, "_test.go")})
	}
	return out
}

// report fails the test with one line per finding.
func report(t *testing.T, findings []string) {
	t.Helper()
	slices.Sort(findings)
	for _, f := range slices.Compact(findings) {
		t.Error(f)
	}
}

// expect checks that a rule finds in a bad sample what it should, and nothing else. Findings are matched by their start.
func expect(t *testing.T, findings []string, want ...string) {
	t.Helper()
	slices.Sort(findings)
	findings = slices.Compact(findings)
	slices.Sort(want)
	if len(findings) != len(want) {
		t.Errorf("%d findings instead of %d: %q", len(findings), len(want), findings)
		return
	}
	for i, w := range want {
		if !strings.HasPrefix(findings[i], w) {
			t.Errorf("finding %q where %q was expected", findings[i], w)
		}
	}
}
