package template

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestErrorsNameTheLine(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"a\n{{ 1 +\n\n }}", "chat template, line 4: expected an expression, found }}"},
		{"{% if x %}\n\n", "chat template, line 2: the template ends where {% endif %} is due"},
		{"\n{% include 'x' %}", "chat template, line 2: the tag 'include' is not supported in chat templates"},
		{"a\nb{{ 1 / 0 }}", "chat template, line 2: division by zero"},
		{"{% for x in [1] %}\n{% if x %}\n{{ y.z }}{% endif %}{% endfor %}", "chat template, line 3: 'y' is undefined"},
		{"{% macro f() %}\n\n{{ none | length }}{% endmacro %}\n{{ f() }}", "chat template, line 3: object of type 'NoneType' has no len()"},
		{"\n{{ raise_exception('not like this') }}", "the chat template refuses this conversation: not like this"},
		{"{{ l.append(1) }}", "chat template, line 1: access to attribute 'append' of 'list' object is unsafe."},
		{"{{ raise_exception('a\\nb\\x1b[1m\\n') }}", "the chat template refuses this conversation: a b [1m "},
		{"{{ d['x\\n' * 1000].y }}", "chat template, line 1: 'dict object' has no attribute '" + strings.Repeat("x ", 184) + "…"},
		{"{{ 9223372036854775807 + 1 }}", "chat template, line 1: integer overflow"},
		{"{{ 99999999999999999999 }}", "chat template, line 1: the integer 99999999999999999999 is out of range"},
		{"{{ -9223372036854775807 - 2 }}", "chat template, line 1: integer overflow"},
		{"{{ 4611686018427387904 * 2 }}", "chat template, line 1: integer overflow"},
		{"{{ (-9223372036854775807 - 1) // -1 }}", "chat template, line 1: integer overflow"},
		{"{{ 2 ** 64 }}", "chat template, line 1: integer overflow"},
	} {
		_, err := render(c.source, map[string]any{"l": []any{}, "d": NewDict()})
		if err == nil || err.Error() != c.want {
			t.Errorf("%q: error %v, want %s", c.source, err, c.want)
		}
	}
}

func TestGoValues(t *testing.T) {
	ordered := NewDict()
	ordered.Set("z", 1)
	ordered.Set("a", []string{"x"})
	ordered.Set("z", 2)
	var zero Dict
	zero.Set("k", nil)
	vars := map[string]any{
		"i": 3, "i32": int32(-3), "u32": uint32(4), "f32": float32(0.5), "num": json.Number("12"), "flt": json.Number("1.50"),
		"m": map[string]any{"b": 1, "a": nil}, "ms": map[string]string{"k": "v"}, "s": []any{1, "x"},
		"maps": []map[string]any{{"q": true}}, "dicts": []*Dict{ordered}, "zero": &zero, "bad": "a\xffb",
	}
	got, err := render("{{ [i, i32, u32, f32, num, flt, m, ms, s, maps, dicts, zero, bad] }}", vars)
	want := "[3, -3, 4, 0.5, 12, 1.5, {'a': None, 'b': 1}, {'k': 'v'}, [1, 'x'], [{'q': True}], [{'z': 2, 'a': ['x']}], {'k': None}, 'a\uFFFDb']"
	if err != nil || got != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	tmpl, err := Parse("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render(map[string]any{"ch": make(chan int)}, Options{}); err == nil {
		t.Error("a channel was accepted")
	}
	loop := NewDict()
	loop.Set("self", loop)
	var limit *LimitError
	if _, err := tmpl.Render(map[string]any{"loop": loop}, Options{}); !errors.As(err, &limit) {
		t.Errorf("a dict that contains itself: %v", err)
	}
}

func TestParseJSON(t *testing.T) {
	for _, bad := range []string{"", "{", "[1,]", "1 2", `{"a":1}{`, "nul", strings.Repeat("[", 200) + strings.Repeat("]", 200)} {
		if v, err := ParseJSON([]byte(bad)); err == nil {
			t.Errorf("%.20q: accepted as %v", bad, v)
		}
	}
	v, err := ParseJSON([]byte(` {"b": [1, 2.50, "x", null, true], "a": {}, "b2": 1e2} `))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := render("{{ v }}", map[string]any{"v": v}); err != nil || got != "{'b': [1, 2.5, 'x', None, True], 'a': {}, 'b2': 100.0}" {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestStrftime has the values of Python's strftime in the C locale.
func TestStrftime(t *testing.T) {
	tmpl, err := Parse("{{ strftime_now(f) }}")
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Date(2024, 3, 5, 7, 8, 9, 123456789, time.UTC) }
	for format, want := range map[string]string{
		"%Y-%m-%d %H:%M:%S": "2024-03-05 07:08:09", "%d %b %Y": "05 Mar 2024", "%A, %B %-d, %Y": "Tuesday, March 5, 2024",
		"%a %e|%j|%y|%I %p": "Tue  5|065|24|07 AM", "%f %% %w %u %z %Z": "123456 % 2 2 +0000 UTC", "%D %F %T %R": "03/05/24 2024-03-05 07:08:09 07:08",
		"%c": "Tue Mar  5 07:08:09 2024", "%-H:%-M": "7:8", "100%": "100%", "": "",
	} {
		got, err := tmpl.Render(map[string]any{"f": format}, Options{Now: now})
		if err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", format, got, err, want)
		}
	}
	if _, err := tmpl.Render(map[string]any{"f": "%Q"}, Options{}); err == nil {
		t.Error("%Q was accepted")
	}
}

// TestConcurrent: one template, many renderings; each has its own state.
func TestConcurrent(t *testing.T) {
	tmpl, err := Parse("{% set ns = namespace(n=0) %}{% for i in range(50) %}{% set ns.n = ns.n + i * k %}{% endfor %}{{ ns.n }}")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			got, err := tmpl.Render(map[string]any{"k": k}, Options{})
			if want, _ := fmtInt(1225 * k); err != nil || got != want {
				t.Errorf("k=%d: %s, %v", k, got, err)
			}
		})
	}
	wg.Wait()
}

func fmtInt(n int) (string, error) {
	b, err := json.Marshal(n)
	return string(b), err
}

// TestLlama3Turns is llama.cpp's rendering of a Llama-3 chat.
func TestLlama3Turns(t *testing.T) {
	source := "{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}" +
		"{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
	got, err := render(source, map[string]any{"add_generation_prompt": true, "messages": []map[string]any{
		{"role": "system", "content": "Book"}, {"role": "user", "content": "What is the best book"},
	}})
	want := "<|start_header_id|>system<|end_header_id|>\n\nBook<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhat is the best book<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
	if err != nil || got != want {
		t.Errorf("got %q, %v", got, err)
	}
}
