package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestEncodeLinear encodes 1 MB of hostile text and bounds the work: candidates
// queued per byte in the merges, characters read in the splitter.
func TestEncodeLinear(t *testing.T) {
	v := toy("<|im_start|>", "<|im_end|>")
	// Merges that double runs of "a" and of spaces: words of any length merge.
	for _, c := range []string{"a", "Ġ"} {
		for s := c; len(s) <= 1024; s += s {
			if !slices.Contains(v.Tokens, s+s) {
				v.Tokens, v.Types = append(v.Tokens, s+s), append(v.Types, typeNormal)
			}
			v.Merges = append(v.Merges, s+" "+s)
		}
	}
	for _, pre := range []string{"gpt-2", "deepseek-llm"} {
		v.Pre = pre
		tok := newToy(t, v)
		large := hostile(1 << 20)
		for what, text := range hostile(1 << 15) {
			switch what {
			case "spaces", "one letter", "random letters", "emoji", "one emoji", "alternating classes", "spaces, then CJK", "brackets":
				text = large[what]
			}
			var w work
			ids := tok.appendText(nil, text, true, &w)
			if w.merger.pushes > 3*len(text) {
				t.Errorf("%s: %d candidates for %d bytes", what, w.merger.pushes, len(text))
			}
			if w.scanner.reads > 24*len(text)+100 {
				t.Errorf("%s: %d characters read for %d bytes", what, w.scanner.reads, len(text))
			}
			if got := tok.Decode(ids, true); got != text {
				t.Errorf("%s: %d bytes came back as %d", what, len(text), len(got))
			}
		}
	}
}

// slowEncode is byte-pair encoding as it is defined: again and again the merge of
// lowest rank, the leftmost of equals.
func slowEncode(v Vocab, word string) []string {
	parts := make([]string, len(word))
	for i := range len(word) {
		parts[i] = v.Tokens[word[i]]
	}
	for {
		best, at := len(v.Merges), 0
		for i := 0; i+1 < len(parts); i++ {
			if r := slices.Index(v.Merges, parts[i]+" "+parts[i+1]); r >= 0 && r < best {
				best, at = r, i
			}
		}
		if best == len(v.Merges) {
			return parts
		}
		parts = slices.Concat(parts[:at], []string{parts[at] + parts[at+1]}, parts[at+2:])
	}
}

// TestMergesAgainstDefinition compares with slowEncode on random merge tables,
// some of whose symbols are no tokens, and some of whose merges are there twice.
func TestMergesAgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		v := toy()
		v.Tokens, v.Types, v.Merges = v.Tokens[:256], v.Types[:256], nil
		symbols := []string{"a", "b", "c"}
		for range 12 {
			l, r := symbols[rng.IntN(len(symbols))], symbols[rng.IntN(len(symbols))]
			if len(l+r) > 12 {
				continue
			}
			v.Merges = append(v.Merges, l+" "+r)
			if !slices.Contains(symbols, l+r) {
				symbols = append(symbols, l+r)
				if rng.IntN(4) > 0 {
					v.Tokens, v.Types = append(v.Tokens, l+r), append(v.Types, typeNormal)
				}
			}
		}
		tok := newToy(t, v)
		for range 20 {
			word := make([]byte, 1+rng.IntN(30))
			for i := range word {
				word[i] = "abc"[rng.IntN(3)]
			}
			var want []int32
			for _, s := range slowEncode(v, string(word)) {
				if id := slices.Index(v.Tokens, s); id >= 0 {
					want = append(want, int32(id))
					continue
				}
				for _, c := range []byte(s) { // not a token: byte by byte
					want = append(want, int32(c))
				}
			}
			if got := tok.Encode(string(word), EncodeOptions{}); !slices.Equal(got, want) {
				t.Fatalf("merges %q, word %q: got %v, want %v", v.Merges, word, got, want)
			}
		}
	}
}

func TestSpecialTokens(t *testing.T) {
	v := toy("<a>", "<a><b>", "<s>")
	v.Tokens, v.Types = append(v.Tokens, "é!", "<unk>"), append(v.Types, typeUserDefined, typeUnknown)
	v.BOS, v.EOS, v.UNK, v.AddBOS, v.AddEOS = 263, 263, 265, true, true
	tok := newToy(t, v)
	hello := tok.Encode("hello", EncodeOptions{})
	if !slices.Equal(hello, []int32{259}) {
		t.Fatalf("hello is %v", hello)
	}
	for _, c := range []struct {
		text string
		o    EncodeOptions
		want []int32
	}{
		{"<a>hello<a><b>hello", EncodeOptions{ParseSpecial: true}, []int32{261, 259, 262, 259}},
		{"<a><a", EncodeOptions{ParseSpecial: true}, []int32{261, '<', 'a'}},
		{"<a>", EncodeOptions{}, []int32{'<', 'a', '>'}},
		{"é!<unk>", EncodeOptions{}, []int32{264, '<', 'u', 'n', 'k', '>'}},
		{"é!<unk>", EncodeOptions{ParseSpecial: true}, []int32{264, 265}},
		{"", EncodeOptions{AddSpecial: true}, []int32{263, 263}},
		{"hello", EncodeOptions{AddSpecial: true}, []int32{263, 259, 263}},
	} {
		if got := tok.Encode(c.text, c.o); !slices.Equal(got, c.want) {
			t.Errorf("Encode(%q, %+v) = %v, want %v", c.text, c.o, got, c.want)
		}
	}
	ids := []int32{263, 259, 264, 265, -1, 99999}
	if got := tok.Decode(ids, false); got != "helloé!" {
		t.Errorf("Decode without special tokens: %q", got)
	}
	if got := tok.Decode(ids, true); got != "<s>helloé!<unk>" {
		t.Errorf("Decode with special tokens: %q", got)
	}
}

// TestNoControlFromMerges: spelling a control token must not make one unless asked.
func TestNoControlFromMerges(t *testing.T) {
	for _, pre := range []string{"gpt-2", "llama-bpe"} {
		v := toy("xyz", "<a>")
		v.Pre = pre
		v.Merges = append(v.Merges, "x y", "xy z", "< a", "<a >")
		tok := newToy(t, v)
		for id, text := range map[int32]string{261: "xyz", 262: "<a>"} {
			if got := tok.Encode(text, EncodeOptions{}); slices.Contains(got, id) {
				t.Errorf("%s: Encode(%q) = %v has the control token", pre, text, got)
			}
		}
	}
}

func TestLlama3WholeWords(t *testing.T) {
	v := toy()
	v.Tokens, v.Types = append(v.Tokens, "xyzzy", "ĠxyzzyÃ©"), append(v.Types, typeNormal, typeNormal)
	for id, text := range map[int32]string{261: "xyzzy", 262: " xyzzyé"} {
		v.Pre = "gpt-2"
		if got := newToy(t, v).Encode(text, EncodeOptions{}); len(got) != len(text) {
			t.Errorf("gpt-2: a token of %q that no merge leads to came out: %v", text, got)
		}
		v.Pre = "llama-bpe"
		if got := newToy(t, v).Encode(text, EncodeOptions{}); !slices.Equal(got, []int32{id}) {
			t.Errorf("llama-bpe: %q gives %v, want the whole word", text, got)
		}
	}
}

func TestMissingBytes(t *testing.T) {
	v := toy()
	v.Tokens = slices.Clone(v.Tokens)
	v.Tokens['z'] = "<other>"
	if got := newToy(t, v).Encode("azb", EncodeOptions{}); !slices.Equal(got, []int32{'a', 'b'}) {
		t.Errorf("without UNK: %v", got)
	}
	v.UNK = 0
	if got := newToy(t, v).Encode("azb", EncodeOptions{}); !slices.Equal(got, []int32{'a', 0, 'b'}) {
		t.Errorf("with UNK: %v", got)
	}
}

// FuzzEncodeDecode: what was encoded comes back, for every pre-tokenizer, and a
// stream of the tokens gives the same text with U+FFFD for what is not UTF-8.
func FuzzEncodeDecode(f *testing.F) {
	for _, s := range []string{"", "hello hello  llo", "<user>user\nhé<end>", "\xff\xe4\xbd", "  \n\n 123 '''s 你好🙂",
		"camelCase HTTPServer's ÉCOLEé /a//\r\n", "12345678 \u0661\u0662 e\u0301 \u0301\u0301", "\u2028\u00a0 \u3000x漢字かな", "!na\xc3ïve #Tag\xed\xa0\x80"} {
		f.Add(s, true)
	}
	var toks []*Tokenizer
	for _, p := range pres {
		v := toy("<user>", "<end>")
		v.Pre = p.names[0]
		v.Types[261], v.Types[262] = typeUserDefined, typeUserDefined // so that streams show them
		toks = append(toks, newToy(f, v))
	}
	f.Fuzz(func(t *testing.T, text string, parse bool) {
		for _, tok := range toks {
			var w work
			ids := tok.appendText(nil, text, parse, &w)
			if got := tok.Decode(ids, true); got != text {
				t.Fatalf("%q came back as %q", text, got)
			}
			if w.merger.pushes > 3*len(text) {
				t.Fatalf("%d candidates for %d bytes", w.merger.pushes, len(text))
			}
			s := tok.NewStream()
			var b strings.Builder
			for _, id := range ids {
				part := s.Push(id)
				if !utf8.ValidString(part) {
					t.Fatalf("the stream emitted %q", part)
				}
				b.WriteString(part)
			}
			b.WriteString(s.Flush())
			if want := string([]rune(text)); b.String() != want {
				t.Fatalf("the stream of %q is %q", text, b.String())
			}
		}
	})
}
