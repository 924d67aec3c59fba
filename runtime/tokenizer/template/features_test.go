package template

import (
	"errors"
	"os"
	"testing"
)

// TestFeatures compares some 400 small templates with jinja2
// (testdata/features.py), which we must agree with on output and on refusal.
func TestFeatures(t *testing.T) {
	data, err := os.ReadFile("testdata/features.json")
	if err != nil {
		t.Fatal(err)
	}
	all, err := ParseJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]any{}
	given := field(all.(*Dict), "vars").(*Dict)
	for i, key := range given.keys {
		vars[key.(string)] = given.values[i]
	}
	rows := field(all.(*Dict), "rows").([]any)
	if len(rows) < 300 {
		t.Fatalf("only %d rows", len(rows))
	}
	for _, r := range rows {
		row := r.(*Dict)
		source := field(row, "template").(string)
		got, err := render(source, vars)
		want, ok := row.Get("output")
		switch {
		case !ok && err == nil:
			t.Errorf("%q: got %q, want an error", source, got)
		case ok && err != nil:
			t.Errorf("%q: %v, want %q", source, err, want)
		case ok && got != want:
			t.Errorf("%q:\n got %q\nwant %q", source, got, want)
		}
	}
}

// render parses and renders, and checks that errors are of the promised types.
func render(source string, vars map[string]any) (string, error) {
	tmpl, err := Parse(source)
	if err != nil {
		var se *SyntaxError
		var le *LimitError
		if !errors.As(err, &se) && !errors.As(err, &le) {
			panic("Parse returned an error of another type: " + err.Error())
		}
		return "", err
	}
	text, err := tmpl.Render(vars, Options{Now: goldenNow})
	var re *RuntimeError
	var le *LimitError
	var xe *RaisedError
	if err != nil && !errors.As(err, &re) && !errors.As(err, &le) && !errors.As(err, &xe) {
		panic("Render returned an error of another type: " + err.Error())
	}
	return text, err
}
