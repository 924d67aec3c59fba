package meta

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each package has exactly one package comment, in doc.go, and it begins the way godoc expects.
func checkPackageComments(sources []source) (findings []string) {
	type found struct{ name, doc string }
	packages := make(map[string][]found) // by folder; only the package itself, not its external tests
	for _, s := range sources {
		if strings.HasSuffix(s.Name.Name, "_test") {
			if s.Doc != nil {
				findings = append(findings, fmt.Sprintf("%s: a package comment on tests; leave a blank line before the package clause", s.name))
			}
			continue
		}
		list := packages[s.dir]
		if s.Doc != nil {
			list = append(list, found{s.name, s.Doc.Text()})
		}
		packages[s.dir] = list
	}
	for dir, docs := range packages {
		switch {
		case len(docs) == 0:
			findings = append(findings, fmt.Sprintf("%s: no package comment; write one in %s/doc.go", dir, dir))
		case len(docs) > 1:
			for _, d := range docs {
				if path.Base(d.name) != "doc.go" {
					findings = append(findings, fmt.Sprintf("%s: a second package comment; %s/doc.go has the one", d.name, dir))
				}
			}
		case path.Base(docs[0].name) != "doc.go":
			findings = append(findings, fmt.Sprintf("%s: the package comment belongs in %s/doc.go", docs[0].name, dir))
		}
		start := "Package " + path.Base(dir) + " "
		if strings.HasPrefix(dir, "cmd/") {
			start = "Command " + path.Base(dir) + " "
		}
		for _, d := range docs {
			if path.Base(d.name) == "doc.go" && !strings.HasPrefix(d.doc, start) {
				findings = append(findings, fmt.Sprintf("%s: the package comment doesn't begin with %q", d.name, start))
			}
		}
	}
	return findings
}

func TestPackageComments(t *testing.T) { report(t, checkPackageComments(repository(t).parse(t))) }

func TestPackageCommentsFindsWhatIsWrong(t *testing.T) {
	r := sample(t, map[string]string{
		"a/doc.go":      "// Package a is fine.\npackage a",
		"a/a.go":        "// A licence.\n\npackage a",
		"a/b.go":        "// Package a again.\npackage a",
		"a/x_test.go":   "// Tests of a.\npackage a_test",
		"b/b.go":        "package b",
		"c/c.go":        "// Package c is in the wrong file.\npackage c",
		"d/doc.go":      "// This package is d.\npackage d",
		"cmd/e/doc.go":  "// Command e is fine.\npackage main",
		"cmd/e/main.go": "package main",
	})
	expect(t, checkPackageComments(r.parse(t)),
		"a/b.go: a second", "a/x_test.go: a package comment on tests", "b: no package comment", "c/c.go: the package comment belongs", "d/doc.go: the package comment doesn't begin",
	)
}

// Every Go file is as gofmt writes it, those of generators and other modules included.
func checkFormat(t *testing.T, r tree) (findings []string) {
	for _, name := range r.files {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		b := r.read(t, name)
		if want, err := format.Source(b); err != nil {
			findings = append(findings, fmt.Sprintf("%s: %v", name, err))
		} else if !bytes.Equal(b, want) {
			findings = append(findings, fmt.Sprintf("%s: not formatted; run gofmt -w %s", name, name))
		}
	}
	return findings
}

func TestFormat(t *testing.T) { report(t, checkFormat(t, repository(t))) }

func TestFormatFindsWhatIsWrong(t *testing.T) {
	r := sample(t, map[string]string{"a.go": "package a\n", "b.go": "package  b\n", "c.go": "pakage c\n", "d.txt": "package  d"})
	expect(t, checkFormat(t, r), "b.go: not formatted", "c.go: ")
}

// maxLines is where a file is too long to be one concept.
const maxLines = 600

// long lists the files that may be longer, each with its reason.
var long = map[string]string{}

func checkSizes(t *testing.T, r tree, long map[string]string) (findings []string) {
	seen := make(map[string]bool)
	for _, name := range r.goFiles() {
		n := bytes.Count(r.read(t, name), []byte("\n"))
		if _, ok := long[name]; n > maxLines && !ok {
			findings = append(findings, fmt.Sprintf("%s: %d lines, and %d is the limit; split it, or list it with a reason in internal/meta/source_test.go", name, n, maxLines))
		} else if ok && n <= maxLines {
			findings = append(findings, fmt.Sprintf("%s: %d lines; it needs no exception any more", name, n))
		}
		seen[name] = true
	}
	return findings
}

func TestSizes(t *testing.T) { report(t, checkSizes(t, repository(t), long)) }

func TestSizesFindsWhatIsWrong(t *testing.T) {
	big := "package a\n" + strings.Repeat("\n", maxLines)
	r := sample(t, map[string]string{"a.go": big, "b.go": big, "c.go": "package a\n", "testdata/d.go": big})
	expect(t, checkSizes(t, r, map[string]string{"b.go": "reason", "c.go": "reason", "gone.go": "reason"}), "a.go: 601 lines", "c.go: 1 lines; it needs no exception")
}

// inexact are the functions of package math whose results differ by architecture.
var inexact = []string{
	"Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cbrt", "Cos", "Cosh", "Erf", "Erfc", "Erfcinv", "Erfinv", "Exp", "Exp2", "Expm1",
	"Gamma", "Hypot", "J0", "J1", "Jn", "Lgamma", "Log", "Log10", "Log1p", "Log2", "Pow", "Pow10", "Sin", "Sincos", "Sinh", "Tan", "Tanh", "Y0", "Y1", "Yn",
}

// checkMath finds inexact functions in packages whose numbers must be the same bits everywhere. kernels has a stricter
// lint of its own, with types; this one also sees what is built for other platforms.
func checkMath(sources []source) (findings []string) {
	for _, s := range sources {
		if s.test || !pathHas(s.dir, "kernels") && !pathHas(s.dir, "runtime") {
			continue
		}
		name := ""
		for _, spec := range s.Imports {
			if p, _ := strconv.Unquote(spec.Path.Value); p == "math" {
				name = "math"
				if spec.Name != nil {
					name = spec.Name.Name
				}
			}
		}
		if name == "." {
			findings = append(findings, fmt.Sprintf("%s: imports math into its own names, where this rule can't see it", s.name))
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && name != "" && x.Name == name && slices.Contains(inexact, sel.Sel.Name) {
				findings = append(findings, fmt.Sprintf("%v: math.%s differs by architecture; kernels has fixed sequences for elementary functions", s.fset.Position(n.Pos()), sel.Sel.Name))
			}
			return true
		})
	}
	return findings
}

func TestMath(t *testing.T) { report(t, checkMath(repository(t).parse(t))) }

func TestMathFindsWhatIsWrong(t *testing.T) {
	r := sample(t, map[string]string{
		"kernels/a.go":       "package kernels\nimport \"math\"\nvar x = math.Exp(1) + math.Sqrt(2)",
		"runtime/b_arm64.go": "package runtime\nimport m \"math\"\nvar f = m.Tanh",
		"runtime/gguf/c.go":  "package gguf\nimport . \"math\"",
		"kernels/d_test.go":  "package kernels\nimport \"math\"\nvar x = math.Exp(1)",
		"route/e.go":         "package route\nimport \"math\"\nvar x = math.Exp(1)",
		"kernels/f.go":       "package kernels\nvar math struct{ Exp int }\nvar x = math.Exp",
	})
	expect(t, checkMath(r.parse(t)), "kernels/a.go:3:9: math.Exp", "runtime/b_arm64.go:3:9: math.Tanh", "runtime/gguf/c.go: imports math into")
}

// sequential are the packages that start no goroutines: callers own all concurrency there.
var sequential = []string{"kernels", "route", "swarm/wire", "runtime/gguf", "runtime/tokenizer"}

func checkGoroutines(sources []source) (findings []string) {
	for _, s := range sources {
		if s.test || !slices.ContainsFunc(sequential, func(dir string) bool { return pathHas(s.dir, dir) }) {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			starts := false
			switch n := n.(type) {
			case *ast.GoStmt:
				starts = true
			case *ast.CallExpr: // wg.Go(f), and the like of other packages
				method, ok := n.Fun.(*ast.SelectorExpr)
				starts = ok && method.Sel.Name == "Go"
			}
			if starts {
				findings = append(findings, fmt.Sprintf("%v: starts a goroutine; %s leaves that to its caller", s.fset.Position(n.Pos()), s.dir))
			}
			return true
		})
	}
	return findings
}

func TestGoroutines(t *testing.T) { report(t, checkGoroutines(repository(t).parse(t))) }

func TestGoroutinesFindsWhatIsWrong(t *testing.T) {
	r := sample(t, map[string]string{
		"kernels/a.go": "package kernels\nfunc f() { go f() }",
		"runtime/b.go": "package runtime\nfunc f() { go f() }",
		"route/c.go":   "package route\nimport \"sync\"\nfunc f() { var wg sync.WaitGroup; wg.Go(f) }",
	})
	expect(t, checkGoroutines(r.parse(t)), "kernels/a.go:2:12: starts a goroutine", "route/c.go:3:35: starts a goroutine")
}
