package template

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// FuzzRender: no source makes the parser or the interpreter panic, hang, or
// return an error of a type that is not promised.
func FuzzRender(f *testing.F) {
	data, err := os.ReadFile("testdata/features.json")
	if err != nil {
		f.Fatal(err)
	}
	all, err := ParseJSON(data)
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range field(all.(*Dict), "rows").([]any) {
		f.Add(field(r.(*Dict), "template").(string))
	}
	f.Add("{{ 'ab\xe7'[2] }}{% for c in 'ab\xe7' %}{{ c }}{% endfor %}{{ ('ab\xe7'|list)[-1] }}{{ 'ab\xe7'|last }}") // no UTF-8 at the end
	golden, _ := filepath.Glob(goldenDir + "/*.jinja")                                                               // more seeds where they are there
	for _, path := range golden {
		if source, err := os.ReadFile(path); err == nil {
			f.Add(string(source))
		}
	}
	vars := map[string]any{
		"messages": []map[string]any{{"role": "user", "content": "hé\n"}, {"role": "assistant", "content": "x</think>y"}},
		"tools":    []map[string]any{{"type": "function", "function": map[string]any{"name": "f", "parameters": map[string]any{"type": "object"}}}},
		"s":        "Hello, World", "n": 7, "f": 2.5, "l": []any{3, 1, 2}, "d": map[string]any{"b": 1, "a": []any{nil, true}}, "add_generation_prompt": true,
	}
	limits := Limits{Steps: 100_000, Memory: 8 << 20, Output: 1 << 20}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse(source)
		if err != nil {
			var se *SyntaxError
			var le *LimitError
			if !errors.As(err, &se) && !errors.As(err, &le) {
				t.Fatalf("Parse returned %T", err)
			}
			return
		}
		text, err := tmpl.Render(vars, Options{Limits: limits, Now: goldenNow})
		if err != nil {
			var re *RuntimeError
			var le *LimitError
			var xe *RaisedError
			if !errors.As(err, &re) && !errors.As(err, &le) && !errors.As(err, &xe) {
				t.Fatalf("Render returned %T", err)
			}
			return
		}
		if utf8.ValidString(source) && !utf8.ValidString(text) {
			t.Fatalf("the output is not UTF-8: %q", text)
		}
		again, err := tmpl.Render(vars, Options{Limits: limits, Now: goldenNow})
		if err != nil || again != text {
			t.Fatalf("a second rendering differs: %q, %v", again, err)
		}
	})
}

// FuzzParseJSON: what is read can be written and read again to the same.
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x",null,true],"b":{}}`, `"\ud83d\ude00"`, `[1e400]`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	dump, err := Parse("{{ v | tojson }}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseJSON(data)
		if err != nil {
			return
		}
		text, err := dump.Render(map[string]any{"v": v}, Options{})
		if err != nil {
			return // a number out of range
		}
		again, err := ParseJSON([]byte(text))
		if err != nil {
			t.Fatalf("%q was written as %q: %v", data, text, err)
		}
		text2, err := dump.Render(map[string]any{"v": again}, Options{})
		if err != nil || text2 != text {
			t.Fatalf("%q, then %q, %v", text, text2, err)
		}
	})
}
