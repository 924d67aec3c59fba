package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// words splits text with the pre-tokenizer of a name.
func words(t testing.TB, name, text string) []string {
	t.Helper()
	p, err := lookupPre(name)
	if err != nil {
		t.Fatal(err)
	}
	var sc scanner
	var out []string
	start := 0
	for _, end := range sc.split(p.stages, text) {
		out = append(out, text[start:end])
		start = end
	}
	return out
}

// TestSplitGolden compares the splitters with the regular expressions they stand
// for, run by Python's regex module (testdata/splits.py).
func TestSplitGolden(t *testing.T) {
	var rows []struct {
		Text string
		Ends map[string][]int
	}
	loadJSON(t, "testdata/splits.json", &rows)
	if len(rows) < 200 {
		t.Fatalf("only %d rows", len(rows))
	}
	var sc scanner
	for _, row := range rows {
		for _, p := range pres {
			name := "llama-bpe" // whose expression those without their own have
			for _, n := range p.names {
				if row.Ends[n] != nil {
					name = n
				}
			}
			if got, want := sc.split(p.stages, row.Text), row.Ends[name]; !slices.Equal(got, want) {
				t.Errorf("%s: %q is split at %v, want %v", p.names[0], row.Text, got, want)
			}
		}
	}
}

// TestSplitLlama3 has the split vector of ollama's tokenizer tests, and its
// digit runs: threes from the left.
func TestSplitLlama3(t *testing.T) {
	for text, want := range map[string]string{
		"In 2024 there are 366 days": "In| |202|4| there| are| |366| days",
		"3":                          "3",
		"33333333":                   "333|333|33",
		"00000000000000000":          "000|000|000|000|000|00",
		"hello world":                "hello| world",
		"What is 3333+777?":          "What| is| |333|3|+|777|?",
		"A B!":                       "A| B|!",
	} {
		if got := strings.Join(words(t, "llama-bpe", text), "|"); got != want {
			t.Errorf("%q is split %q, want %q", text, got, want)
		}
	}
}

// TestPresUnique: a name must not stand for two pre-tokenizers.
func TestPresUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range pres {
		for _, name := range p.names {
			if seen[name] {
				t.Errorf("%q occurs twice", name)
			}
			seen[name] = true
		}
	}
	if !Defaults("gpt2", "llama-bpe").AddBOS || Defaults("gpt2", "gpt-2").AddBOS || Defaults("gpt2", "nonsense").AddBOS {
		t.Error("Defaults' AddBOS is wrong")
	}
}

// hostile are texts of n bytes and more that make splitting by backtracking slow.
func hostile(n int) map[string]string {
	rep := func(unit string) string { return strings.Repeat(unit, n/len(unit)) }
	random := make([]byte, n)
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range random {
		random[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[rng.IntN(52)]
	}
	return map[string]string{
		"spaces":              rep(" "),
		"spaces, then a word": rep(" ") + "x",
		"spaces, then CJK":    rep(" ") + "中",
		"space and tab":       rep(" \t"),
		"line breaks":         rep("\n"),
		"breaks and spaces":   rep("\n "),
		"spaces after words":  rep("a      ") + "b",
		"CJK then spaces":     rep("\t中") + rep(" "),
		"one letter":          rep("a"),
		"letters and accents": rep("aé"),
		"random letters":      string(random),
		"emoji":               rep("🙂👩\u200d🚀"),
		"one emoji":           rep("🙂"),
		"alternating classes": rep("a1!\u0301 "),
		"marks":               rep("\u0301"),
		"capitals":            rep("éABC"),
		"digits":              rep("7"),
		"punctuation":         rep("!"),
		"apostrophes":         rep("'"),
		"half contractions":   rep("'r'v'l"),
		"brackets":            rep("<|im_start|"),
		"not UTF-8":           rep("\xff\xc3"),
		"ideographic spaces":  rep("\u3000"),
	}
}

// TestSplitLinear bounds the characters looked at, for every pre-tokenizer.
func TestSplitLinear(t *testing.T) {
	for what, text := range hostile(1 << 15) {
		for _, p := range pres {
			var sc scanner
			got := sc.split(p.stages, text)
			// Four looks at a byte and stage: at itself, as its neighbour's
			// lookahead, and twice more within white space.
			if limit := 4*len(p.stages)*len(text) + 100; sc.reads > limit {
				t.Errorf("%s, %s: %d characters read for %d bytes, limit %d", p.names[0], what, sc.reads, len(text), limit)
			}
			if got[len(got)-1] != len(text) || !slices.IsSorted(got) {
				t.Errorf("%s, %s: bad cuts", p.names[0], what)
			}
		}
	}
}

// FuzzSplit: cuts are ordered, complete, within characters' bounds, and linear.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"", "It's 12345  \n\n x", " \u3000。\t中   ", "'LL \xff\xfe"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range pres {
			var sc scanner
			start := 0
			for _, end := range sc.split(p.stages, text) {
				if end <= start || end > len(text) {
					t.Fatalf("%s: cut at %d after %d", p.names[0], end, start)
				}
				if utf8.ValidString(text) && !utf8.ValidString(text[start:end]) {
					t.Fatalf("%s: a character is cut in %q", p.names[0], text)
				}
				start = end
			}
			if start != len(text) {
				t.Fatalf("%s: %d of %d bytes are in words", p.names[0], start, len(text))
			}
			if limit := 4*len(p.stages)*len(text) + 100; sc.reads > limit {
				t.Fatalf("%s: %d reads for %d bytes", p.names[0], sc.reads, len(text))
			}
		}
	})
}
