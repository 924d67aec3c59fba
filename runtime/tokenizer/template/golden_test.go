package template

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const goldenDir = "../../../../shared/golden/templates"

// goldenNow is the time the golden outputs were made at.
func goldenNow() time.Time { return time.Date(2026, 11, 29, 12, 34, 56, 0, time.UTC) }

// failing are the templates that do not yet give all their golden outputs.
var failing = []string{}

// TestGolden renders the templates of two dozen models and compares with what
// jinja2 under transformers makes of them, byte by byte; where that refuses,
// so must we, with its message.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob(goldenDir + "/*.jinja")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Skipf("no golden data in %s", goldenDir)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".jinja")
		t.Run(name, func(t *testing.T) {
			bad := runGolden(t, path)
			listed := slices.Contains(failing, name)
			switch {
			case len(bad) > 0 && !listed:
				t.Errorf("%d rows are wrong; the first: %s", len(bad), bad[0])
			case len(bad) == 0 && listed:
				t.Errorf("all rows are right: remove %q from the list of failing templates", name)
			}
		})
	}
}

// runGolden returns a description of every row that is wrong.
func runGolden(t *testing.T, path string) (bad []string) {
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(strings.TrimSuffix(path, ".jinja") + ".json")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := ParseJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(rows.([]any)); n < 20 {
		t.Fatalf("only %d rows", n)
	}
	tmpl, err := Parse(string(source))
	if err != nil {
		return []string{err.Error()}
	}
	for i, r := range rows.([]any) {
		row := r.(*Dict)
		vars := map[string]any{"messages": field(row, "messages"), "tools": field(row, "tools")}
		given := field(row, "vars").(*Dict)
		for k, key := range given.keys {
			vars[key.(string)] = given.values[k]
		}
		got, err := tmpl.Render(vars, Options{Now: goldenNow})
		if want, refused := row.Get("error"); refused {
			if msg := errorText(err); msg != want {
				bad = append(bad, fmt.Sprintf("row %d (%v): error %q, want %q", i, field(row, "case"), msg, want))
			}
			continue
		}
		if err != nil {
			bad = append(bad, fmt.Sprintf("row %d (%v): %v", i, field(row, "case"), err))
		} else if want := field(row, "output").(string); got != want {
			bad = append(bad, fmt.Sprintf("row %d (%v):\n got %q\nwant %q", i, field(row, "case"), got, want))
		}
	}
	return bad
}

func field(d *Dict, name string) any {
	v, _ := d.Get(name)
	return v
}

// errorText writes an error as the golden files do: Python's class and message.
func errorText(err error) string {
	var raised *RaisedError
	var wrong *RuntimeError
	switch {
	case errors.As(err, &raised):
		return "TemplateError: " + raised.Msg
	case errors.As(err, &wrong) && strings.Contains(wrong.Err.Error(), "is unsafe"):
		return "SecurityError: " + wrong.Err.Error()
	}
	return fmt.Sprint(err)
}
