package main

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"testing"
)

// TestConstants compares what the generator and package kernels both know.
func TestConstants(t *testing.T) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range []string{"matmul_group.go", "records.go"} {
		f, err := parser.ParseFile(fset, "../"+name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	lenient := types.Config{Error: func(error) {}} // the rest of the package isn't there
	pkg, _ := lenient.Check("kernels", fset, files, nil)
	for name, want := range map[string]int64{
		"panelBytes": panelBytes, "fewRows": fewRows,
		"record256": recK, "record256Sum16": recKSum16, "record256Sum32": recKSum32, "record256D": recKD,
		"record32": rec32, "record32D": rec32D, "record32DSum": rec32Dsum, "record32S": rec32S,
	} {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok {
			t.Errorf("package kernels has no constant %s", name)
			continue
		}
		if got, exact := constant.Int64Val(c.Val()); got != want || !exact {
			t.Errorf("%s is %v, the generator takes it for %d", name, c.Val(), want)
		}
	}
}
