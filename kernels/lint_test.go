package kernels_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The compiler may fuse a float product with a sum that it meets, in the same expression or statements later, on
// machines that have the instruction; only an explicit conversion of the product itself prevents it. So every float
// product in kernels and runtime is the operand of a conversion. Packages below runtime, which compute no model
// numbers, are only held to the plainest case, a product that is an operand of + or -.
// Functions of package math are allowed only if they are exact or correctly rounded, since the others differ by
// architecture. amd64 tests can't see either mistake, hence this lint.

// exactMath are the functions of package math that give the same bits everywhere.
var exactMath = map[string]bool{
	"Abs": true, "Ceil": true, "Copysign": true, "Float32bits": true, "Float32frombits": true, "Float64bits": true,
	"Float64frombits": true, "Floor": true, "Frexp": true, "Inf": true, "IsInf": true, "IsNaN": true, "Ldexp": true,
	"Max": true, "Min": true, "Mod": true, "Modf": true, "NaN": true, "Nextafter": true, "Nextafter32": true, "Round": true,
	"RoundToEven": true, "Signbit": true, "Sqrt": true, "Trunc": true,
}

// exempt lists the functions of package runtime whose products may stay as they are, with the reason.
var exempt = map[string]string{
	"Measure":        "reports a measured speed",
	"measureMachine": "likewise",
	"fewest":         "compares measured speeds",
	"uniform":        "a 53-bit integer times 2^-53 is exact, fused or not",
}

// finding is one place that the lint objects to.
type finding struct {
	at   token.Position
	fn   string // the function around it, without receiver
	text string
}

func (f finding) String() string { return fmt.Sprintf("%v: %s", f.at, f.text) }

// lintFloats returns what is wrong with a type-checked file. Unless it is to be strict, it finds only products that
// are operands of + and -.
func lintFloats(fset *token.FileSet, file *ast.File, info *types.Info, strict bool) (found []finding) {
	fn := ""
	report := func(n ast.Node, format string, args ...any) {
		found = append(found, finding{fset.Position(n.Pos()), fn, fmt.Sprintf(format, args...)})
	}
	converted, added := map[ast.Expr]bool{}, map[ast.Expr]bool{}
	add := func(e ast.Expr) {
		e = ast.Unparen(e)
		for u, ok := e.(*ast.UnaryExpr); ok; u, ok = e.(*ast.UnaryExpr) {
			e = ast.Unparen(u.X)
		}
		added[e] = true
	}
	visit := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr: // seen before its arguments
			if info.Types[n.Fun].IsType() && len(n.Args) == 1 {
				converted[ast.Unparen(n.Args[0])] = true
			}
		case *ast.BinaryExpr:
			if n.Op == token.ADD || n.Op == token.SUB {
				add(n.X)
				add(n.Y)
			}
			if n.Op == token.MUL && info.Types[n].Value == nil && isFloat(info.TypeOf(n)) && !converted[n] && (strict || added[n]) {
				report(n, "float product without a conversion: write %s(%s)", info.TypeOf(n), types.ExprString(n))
			}
		case *ast.AssignStmt:
			if n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN {
				add(n.Rhs[0])
			}
			if strict && n.Tok == token.MUL_ASSIGN && isFloat(info.TypeOf(n.Lhs[0])) {
				report(n, "float *=: write %s = %s(%s * …)", types.ExprString(n.Lhs[0]), info.TypeOf(n.Lhs[0]), types.ExprString(n.Lhs[0]))
			}
		case *ast.SelectorExpr:
			if f, ok := info.Uses[n.Sel].(*types.Func); ok && f.Pkg() != nil && f.Pkg().Path() == "math" && !exactMath[f.Name()] {
				report(n, "math.%s gives different bits on different architectures", f.Name())
			}
		}
		return true
	}
	for _, decl := range file.Decls {
		fn = ""
		if f, ok := decl.(*ast.FuncDecl); ok {
			fn = f.Name.Name
		}
		ast.Inspect(decl, visit)
	}
	return found
}

// isFloat reports whether a value of type t may be a float or complex number, type parameters included.
func isFloat(t types.Type) bool {
	switch u := t.Underlying().(type) {
	case *types.Basic:
		return u.Info()&(types.IsFloat|types.IsComplex) != 0
	case *types.Interface: // of a type parameter
		for i := range u.NumEmbeddeds() {
			if union, ok := u.EmbeddedType(i).Underlying().(*types.Union); ok {
				for j := range union.Len() {
					if isFloat(union.Term(j).Type()) {
						return true
					}
				}
			} else if isFloat(u.EmbeddedType(i)) {
				return true
			}
		}
	}
	return false
}

// lintPackage parses and checks the files of one package.
func lintPackage(path string, imports types.Importer, fset *token.FileSet, files []*ast.File, strict bool) ([]finding, error) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: imports}
	if _, err := conf.Check(path, fset, files, info); err != nil {
		return nil, err
	}
	var found []finding
	for _, f := range files {
		found = append(found, lintFloats(fset, f, info, strict)...)
	}
	return found, nil
}

// exported returns an importer that reads the compiler's export data of the packages' dependencies. What doesn't build
// is missing there.
func exported(t *testing.T, fset *token.FileSet, patterns ...string) types.Importer {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("go", append([]string{"list", "-e", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, patterns...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	file := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, export, _ := strings.Cut(strings.TrimSpace(line), "\t")
		file[path] = export
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if file[path] == "" {
			return nil, fmt.Errorf("%s doesn't build", path)
		}
		return os.Open(file[path])
	})
}

// TestFloats lints kernels, and runtime with all below it.
func TestFloats(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is not there")
	}
	dirs := []string{"."}
	filepath.WalkDir("../runtime", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() != "testdata" {
			dirs = append(dirs, path)
		}
		return nil
	})
	fset := token.NewFileSet()
	packages := map[string][]*ast.File{}
	patterns := []string{}
	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			match, err := build.Default.MatchFile(dir, filepath.Base(name))
			if err != nil {
				t.Fatal(err)
			}
			if !match || strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			packages[dir] = append(packages[dir], f)
		}
		if packages[dir] != nil {
			patterns = append(patterns, "./"+filepath.ToSlash(dir))
		}
	}
	imports := exported(t, fset, patterns...)
	for dir, files := range packages {
		found, err := lintPackage(dir, imports, fset, files, dir == "." || dir == "../runtime")
		switch {
		case err != nil && dir == ".":
			t.Error(err)
		case err != nil: // its own build and tests say so louder
			t.Logf("%s is not linted: %v", dir, err)
		}
		for _, f := range found {
			if dir == "../runtime" && exempt[f.fn] != "" {
				t.Logf("%v (exempt: %s)", f, exempt[f.fn])
				continue
			}
			t.Error(f)
		}
	}
	if len(packages["."]) < 10 {
		t.Errorf("only %d files of kernels were seen", len(packages["."]))
	}
}

// TestFloatsFinds checks the lint itself: each line of the source that ends in "// bad" or "// fuses" must be found, and
// no other; those that end in "// fuses" also when it isn't strict.
func TestFloatsFinds(t *testing.T) {
	const source = `package p

import (
	"math"
	m "math"
)

type real float32

type number interface{ ~int | ~float64 }

const k = 2.0 * 3.0

func f(x, y, z float32, a, b float64, i, j int, r real, s []float32) {
	_ = x*y + z                          // fuses
	_ = float32(x*y) + z
	_ = float32((x * y)) + z
	_ = float32(x*y + z)                 // fuses
	x += y * z                           // fuses
	x -= (y * z)                         // fuses
	_ = x - -(y * z)                     // fuses
	_ = z - x*y                          // fuses
	_ = -(x * y)                         // bad
	_ = float32(-(x * y))                // bad
	_ = 2 * x                            // bad
	_ = float32(float32(x*y) * z)
	_ = float32(x * y * z)               // bad
	_ = float64(a*b) - 1
	_ = float64(x*y) + a
	_ = i*j + 1
	_ = float32(i*j) + x
	_ = float32(int(a*b)) + x
	_ = k * 2.0
	_ = r * r                            // bad
	_ = real(r*r) + r
	p := a * b                           // bad
	_ = p + 1
	x *= y                               // bad
	s[0] *= 2                            // bad
	i *= j
	_ = g(x * y)                         // bad
	_ = complex(x, y) * complex(y, x)    // bad
	_ = x / y * z                        // bad
	_ = 1 / x
	_ = math.Sqrt(a) + math.Abs(b) + math.Pi
	_ = math.Exp(a)                      // fuses
	_ = m.FMA(a, b, 1)                   // fuses
	_ = math.Float32bits(x) * 3
	h := math.Sin                        // fuses
	_ = h
}

func g(x float32) float32 { return x }

func sum[T number](x, y T) T { return x*y + x } // fuses

func ok[T ~int | ~uint](x, y T) T { return x*y + x }
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	imports := exported(t, fset, "math")
	for _, strict := range []bool{true, false} {
		found, err := lintPackage("p", imports, fset, []*ast.File{file}, strict)
		if err != nil {
			t.Fatal(err)
		}
		lines := map[int]finding{}
		for _, f := range found {
			lines[f.at.Line] = f
		}
		for i, text := range strings.Split(source, "\n") {
			bad := strings.HasSuffix(text, "// fuses") || strict && strings.HasSuffix(text, "// bad")
			if _, got := lines[i+1]; got != bad {
				t.Errorf("strict %v, line %d, %q: found %v, want %v", strict, i+1, text, got, bad)
			}
		}
	}
}
