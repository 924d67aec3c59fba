package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/node/control"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]size{"0": 0, "1048576": 1 << 20, "2GiB": 2 << 30, "2 gib": 2 << 30, "500MB": 500e6, "1.5kB": 1500, "7B": 7, "3TiB": 3 << 40} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%q is %d, %v; want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "-1", "GiB", "lots", "1e30", "NaN", "Inf", "9EiB", "99999999999TiB", "2 GiB x"} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, s)
		}
	}
}

func TestLayers(t *testing.T) {
	for text, want := range map[string]control.Layers{"0-9": {First: 0, Last: 9}, "4": {First: 4, Last: 4}, "10–19": {First: 10, Last: 19}, " 1 - 2 ": {First: 1, Last: 2}, "30-29": {First: 30, Last: 29}} {
		var l layers
		if err := l.UnmarshalText([]byte(text)); err != nil || l.r == nil || *l.r != want {
			t.Errorf("%q: %+v, %v", text, l.r, err)
		}
	}
	for _, text := range []string{"auto", "all"} {
		l := layers{r: &control.Layers{}}
		if err := l.UnmarshalText([]byte(text)); err != nil || l.r != nil {
			t.Errorf("%q: %+v, %v", text, l.r, err)
		}
	}
	for _, text := range []string{"", "-", "-1", "9-2", "0-9-3", "a-b", "0-99999999999", "1.5", "+1-2", "0x1-2"} {
		var l layers
		if err := l.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, l.r)
		}
	}
}

func TestTexts(t *testing.T) {
	for want, got := range map[string]string{
		"–":               layersText(nil),
		"layers 0–9 (10)": layersText(&control.Layers{First: 0, Last: 9}),
		"layer 3 (1)":     layersText(&control.Layers{First: 3, Last: 3}),
		"the head only":   layersText(&control.Layers{First: 6, Last: 5}),
		"0 B":             bytesText(0),
		"999 B":           bytesText(999),
		"1 kB":            bytesText(1000),
		"98.4 MB":         bytesText(98362432),
		"1.5 GB":          bytesText(1500e6),
		"12 ms":           durationText(12e6),
		"1m40s":           durationText(100e9),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestForeignText checks that text from other machines can't drive a terminal
// or add lines to an error.
func TestForeignText(t *testing.T) {
	if got := oneLine("a\n  b\r\n\n\x1b[2Jc\u009bd\te\n"); got != "a; b; \uFFFD[2Jc\uFFFDd\te" {
		t.Errorf("%q", got)
	}
	if got := printableLines("a\x1b\nb\a"); got != "a\uFFFD\nb\uFFFD" {
		t.Errorf("%q", got)
	}
}

func TestVerb(t *testing.T) {
	for command, want := range map[string]string{"": "", "status": "status", "run <text>": "run", "swarm join <invite-or-id> <address>": "swarm join", "pull": "pull"} {
		if got := strings.Join(verb(command), " "); got != want {
			t.Errorf("%q: %q", command, got)
		}
	}
}

func TestComplain(t *testing.T) {
	if complain(nil, "") != 0 || complain(errors.New("x"), "run") != exitFailure || complain(usageError(errors.New("x")), "run") != exitUsage {
		t.Error("wrong status")
	}
}

// FuzzConfig parses any bytes as a settings file.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{`{}`, `{"data":"/x","threads":3,"lan":true,"listen":["a","b"]}`, `{"a":null}`, `{"a":[]}`, `{"a":[[1]]}`, `{"a":-1.5e3}`, `[`, `{"a":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		values, err := parseConfig("file", b)
		if err != nil && (len(values) > 0 || !strings.HasPrefix(err.Error(), "settings file file: ")) {
			t.Errorf("%q: %v, %v", b, values, err)
		}
	})
}

func TestPositions(t *testing.T) {
	for text, want := range map[string]positions{"0": {0, 1}, "4-6": {4, 7}, " 4-4 ": {4, 5}, "70000-70001": {70000, 70002}} {
		var p positions
		if err := p.UnmarshalText([]byte(text)); err != nil || p != want {
			t.Errorf("positions %q: %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "-", "6-4", "-1", "1-", "a", "1-2-3", "4294967296", "all"} {
		var p positions
		if err := p.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("positions %q are %v", text, p)
		}
	}
}
