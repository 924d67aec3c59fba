package template

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// TestLimits runs templates that would never end or would fill the memory. Each
// must end in a LimitError of the kind given, having allocated no more than a
// small multiple of the memory limit. The limits are a sixteenth of the default
// ones, to keep the test short; one template runs under the default limits.
func TestLimits(t *testing.T) {
	long := strings.Repeat("a b", 1<<16/3)
	small := Limits{Steps: defaultSteps / 16, Memory: defaultMemory / 16, Output: defaultOutput / 16}
	for _, c := range []struct{ what, template, limit string }{
		{"loops in loops", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "steps or memory"},
		{"deep loops", "{% for a in range(99) %}{% for b in range(99) %}{% for c in range(99) %}{% for d in range(99) %}{{ a }}{% endfor %}{% endfor %}{% endfor %}{% endfor %}", "steps or memory"},
		{"endless macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "depth"},
		{"two macros", "{% macro f(n) %}{{ g(n) }}{% endmacro %}{% macro g(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "depth"},
		{"doubling macro", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% else %}{{ 'x' * 10000 }}{% endif %}{% endmacro %}{{ f(60) }}", "memory"},
		{"macro as default", "{% macro f(a=f()) %}{% endmacro %}{{ f() }}", "depth"},
		{"recursive loop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "depth"},
		{"much output", "{% for a in range(1000) %}{{ 'xxxxxxxxxx' * 100000 }}{% endfor %}", "output"},
		{"doubling a string", "{% set ns = namespace(s='ab') %}{% for a in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "memory"},
		{"doubling by plus", "{% set ns = namespace(s='ab') %}{% for a in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "memory"},
		{"doubling a list", "{% set ns = namespace(s=[1]) %}{% for a in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "memory"},
		{"doubling by set block", "{% set ns = namespace(s='ab') %}{% for a in range(100) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}", "memory"},
		{"doubling by format", "{% set ns = namespace(s='ab') %}{% for a in range(100) %}{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}", "memory"},
		{"doubling by join", "{% set ns = namespace(s='ab') %}{% for a in range(100) %}{% set ns.s = [ns.s, ns.s] | join(ns.s) %}{% endfor %}", "memory"},
		{"doubling by replace", "{% set ns = namespace(s='a') %}{% for a in range(100) %}{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}", "memory"},
		{"doubling by repr", "{% set ns = namespace(s='\\x01') %}{% for a in range(100) %}{% set ns.s = [ns.s, ns.s] | string %}{% endfor %}", "memory"},
		{"doubling by tojson", "{% set ns = namespace(s='\"') %}{% for a in range(100) %}{% set ns.s = ns.s | tojson %}{% endfor %}", "memory"},
		{"long string", "{{ 'x' * 9000000000000000000 }}", "memory"},
		{"long list", "{{ [1] * 9000000000 }}", "memory"},
		{"long padding", "{{ 'x'.center(1000000000) }}", "memory"},
		{"many columns", "{% for a in range(10000) %}{% set x = [1] | slice(100000) %}{% endfor %}", "memory"},
		{"wide batch", "{% set x = [1] | batch(1000000000, 'x') %}", "memory"},
		{"values in values", "{% set ns = namespace(x=1) %}{% for a in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "depth"},
		{"comparing values in values", "{% set ns = namespace(x=1, y=1) %}{% for a in range(9999) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}", "depth"},
		{"ordering values in values", "{% set ns = namespace(x=1, y=1) %}{% for a in range(9999) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x < ns.y }}", "depth"},
		{"JSON of values in values", "{% set ns = namespace(x=1) %}{% for a in range(9999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x | tojson }}", "depth"},
		{"namespace of itself", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "depth"},
		{"shared values", "{% set ns = namespace(x=1) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", "steps or memory"},
		{"comparing shared values", "{% set ns = namespace(x=1, y=1) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}", "steps"},
		{"JSON of shared values", "{% set ns = namespace(x=1) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}", "steps"},
		{"searching", "{% for a in range(100000) %}{% if 'zz' in long %}{% endif %}{% endfor %}", "steps"},
		{"trimming", "{% for a in range(100000) %}{% set x = long.strip(long) %}{% endfor %}", "steps"},
		{"splitting", "{% for a in range(100000) %}{% set x = long.split() %}{% endfor %}", "memory"},
		{"characters", "{% for a in range(100000) %}{% set x = long[-1] %}{% endfor %}", "steps"},
		{"searching lists", "{% set l = range(100000) | list %}{% for a in range(100000) %}{% if -1 in l %}{% endif %}{% endfor %}", "steps"},
		{"sorting", "{% set l = range(100000) | list %}{% for a in range(100000) %}{% set x = l | sort(reverse=true) %}{% endfor %}", "steps"},
		{"many variables", "{% for a in range(100000) %}{% for k in range(1000) %}{% set x = [a] %}{% endfor %}{% endfor %}", "steps or memory"},
		{"hex padding", "{% for a in range(100000) %}{% for b in range(1000) %}{% set x = '%999d' % a %}{% endfor %}{% endfor %}", "memory"},
		{"cycling through filters", "{% for a in range(100000) %}{% set x = range(1000) | map('string') | list %}{% endfor %}", "steps or memory"},
	} {
		t.Run(c.what, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			tmpl, err := Parse(c.template)
			if err != nil {
				t.Fatal(err)
			}
			limits := small
			if c.what == "loops in loops" {
				limits = Limits{}.withDefaults()
			}
			text, err := tmpl.Render(map[string]any{"long": long}, Options{Limits: limits})
			runtime.ReadMemStats(&after)
			var limit *LimitError
			if !errors.As(err, &limit) {
				t.Fatalf("got %.50q and error %v, want a LimitError", text, err)
			}
			if !strings.Contains(c.limit, limit.What) {
				t.Errorf("limit %q was met, want %q", limit.What, c.limit)
			}
			if total := after.TotalAlloc - before.TotalAlloc; total > uint64(8*limits.Memory) {
				t.Errorf("%d MB were allocated", total>>20)
			}
		})
	}
}

// TestOwnLimits: what a caller asks for is kept.
func TestOwnLimits(t *testing.T) {
	tmpl, err := Parse("{% for i in range(100) %}{{ 'abcdefghij' * 10 }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	for what, l := range map[string]Limits{"steps": {Steps: 100}, "memory": {Memory: 2000}, "output": {Output: 500}} {
		_, err := tmpl.Render(nil, Options{Limits: l})
		var limit *LimitError
		if !errors.As(err, &limit) || limit.What != what {
			t.Errorf("%s: %v", what, err)
		}
	}
	if text, err := tmpl.Render(nil, Options{Limits: Limits{Steps: 10000, Memory: 100000, Output: 10000}}); err != nil || len(text) != 10000 {
		t.Errorf("within the limits: %d bytes, %v", len(text), err)
	}
}

// TestSourceLimits: hostile sources are refused by the parser, without deep recursion.
func TestSourceLimits(t *testing.T) {
	rep := strings.Repeat
	for what, source := range map[string]string{
		"parentheses":             "{{ " + rep("(", 100000) + "1" + rep(")", 100000) + " }}",
		"lists":                   "{{ " + rep("[", 100000) + rep("]", 100000) + " }}",
		"dicts":                   "{{ " + rep("{1:", 100000) + "1" + rep("}", 100000) + " }}",
		"calls":                   "{{ " + rep("f(", 100000) + rep(")", 100000) + " }}",
		"not":                     "{{ " + rep("not ", 100000) + "1 }}",
		"signs":                   "{{ " + rep("-", 100000) + "1 }}",
		"sums":                    "{{ 1" + rep("+1", 100000) + " }}",
		"ors":                     "{{ 1" + rep(" or 1", 100000) + " }}",
		"powers":                  "{{ 1" + rep("**1", 100000) + " }}",
		"inline ifs":              "{{ 1" + rep(" if 1 else 1", 100000) + " }}",
		"inline ifs without else": "{{ 1" + rep(" if 1", 100000) + " }}",
		"filters":                 "{{ 1" + rep("|abs", 100000) + " }}",
		"tests":                   "{{ 1" + rep(" is odd", 100000) + " }}",
		"attributes":              "{{ a" + rep(".a", 100000) + " }}",
		"subscripts":              "{{ a" + rep("[0]", 100000) + " }}",
		"call chain":              "{{ a" + rep("()", 100000) + " }}",
		"ifs":                     rep("{% if 1 %}", 10000) + rep("{% endif %}", 10000),
		"fors":                    rep("{% for a in b %}", 10000),
		"macros":                  rep("{% macro f() %}", 10000),
		"targets":                 "{% set " + rep("(", 10000) + "a" + rep(")", 10000) + " = 1 %}",
		"set filters":             "{% set a " + rep("|abs", 100000) + " %}{% endset %}",
		"dotted filter":           "{{ a|b" + rep(".b", 100000) + " }}",
		"parameters":              "{% macro f(" + rep("a,", 100000) + ") %}{% endmacro %}",
		"size":                    rep("x", maxSource+1),
	} {
		if _, err := Parse(source); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	// What is long but flat is fine.
	for what, source := range map[string]string{
		"elifs":   "{% if 0 %}" + rep("{% elif 0 %}", 10000) + "{% endif %}",
		"tags":    rep("{{ 1 }}", 10000),
		"list":    "{{ [" + rep("1,", 10000) + "] | length }}",
		"strings": "{{ " + rep("'ab' ", 100000) + "}}",
		"concat":  "{{ 1" + rep("~1", 10000) + " }}",
		"compare": "{{ 1" + rep("==1", 10000) + " }}",
	} {
		if _, err := render(source, nil); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestNotUTF8 takes texts with bytes that are no UTF-8 apart: each such byte is a character.
func TestNotUTF8(t *testing.T) {
	for source, want := range map[string]string{
		"{{ s[2] }}":                            "\xe7",
		"{{ s[-1] }}":                           "\xe7",
		"{{ s[1] }}":                            "b",
		"{% for c in s %}<{{ c }}>{% endfor %}": "<a><b><\xe7>",
		"{{ s|length }} {{ (s|list)|length }}":  "3 3",
	} {
		tmpl, err := Parse("{% set s = 'ab\xe7' %}" + source)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tmpl.Render(nil, Options{})
		if err != nil || got != want {
			t.Errorf("%s: %q (%v), want %q", source, got, err, want)
		}
	}
}
