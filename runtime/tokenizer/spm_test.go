package tokenizer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// toySPM is a SentencePiece vocabulary: <unk>, <s>, </s>, the bytes (3 to 258), characters and a few merges from 259 on,
// then specials as control tokens.
func toySPM(specials ...string) Vocab {
	v := Defaults("llama", "")
	add := func(typ int32, score float32, text string) {
		v.Tokens, v.Types, v.Scores = append(v.Tokens, text), append(v.Types, typ), append(v.Scores, score)
	}
	add(typeUnknown, 0, "<unk>")
	add(typeControl, 0, "<s>")
	add(typeControl, 0, "</s>")
	for b := range 256 {
		add(typeByte, 0, fmt.Sprintf("<0x%02X>", b))
	}
	for i, s := range []string{"he", "ll", "llo", "hello", "▁hello", "▁", "h", "e", "l", "o", "é", "▁▁", "▁▁▁▁"} {
		add(typeNormal, float32(-i), s)
	}
	for _, s := range specials {
		add(typeControl, 0, s)
	}
	return v
}

// slowSPM is the algorithm as llama.cpp defines it, on the whole text at once: again and again the pair of neighbours
// whose text is the token of the highest score, the leftmost of equals.
func slowSPM(v Vocab, text string) (ids []int32) {
	if v.AddSpacePrefix {
		text = " " + text
	}
	find := func(s string) int32 {
		for i, tok := range v.Tokens {
			if tok == s && v.Types[i] == typeNormal {
				return int32(i)
			}
		}
		return -1
	}
	var parts []string
	for _, r := range strings.ReplaceAll(text, " ", "▁") {
		parts = append(parts, string(r))
	}
	for {
		best, at := float32(math.Inf(-1)), -1
		for i := 0; i+1 < len(parts); i++ {
			if id := find(parts[i] + parts[i+1]); id >= 0 && v.Scores[id] > best {
				best, at = v.Scores[id], i
			}
		}
		if at < 0 {
			break
		}
		parts = slices.Concat(parts[:at], []string{parts[at] + parts[at+1]}, parts[at+2:])
	}
	for _, p := range parts {
		if id := find(p); id >= 0 {
			ids = append(ids, id)
			continue
		}
		for _, b := range []byte(p) {
			ids = append(ids, 3+int32(b))
		}
	}
	return ids
}

// TestSPMAgainstDefinition compares with slowSPM on random vocabularies, some of which have tokens with spaces inside,
// so that words can't be told apart by them.
func TestSPMAgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	letters := []string{"a", "b", "é", "▁", "▁"}
	for range 300 {
		v := toySPM()
		v.Tokens, v.Types, v.Scores = v.Tokens[:259], v.Types[:259], v.Scores[:259]
		v.AddSpacePrefix = rng.IntN(2) == 0
		v.Tokens, v.Types, v.Scores = append(v.Tokens, "▁"), append(v.Types, typeNormal), append(v.Scores, 0)
		inside := rng.IntN(3) == 0
		for range 3 + rng.IntN(40) {
			s := ""
			for range 1 + rng.IntN(4) {
				s += letters[rng.IntN(len(letters))]
			}
			if slices.Contains(v.Tokens, s) || !inside && strings.Contains(strings.TrimLeft(s, "▁"), "▁") {
				continue
			}
			v.Tokens, v.Types = append(v.Tokens, s), append(v.Types, typeNormal)
			v.Scores = append(v.Scores, float32(rng.IntN(12)-6)/2) // equal ones too
		}
		tok := newToy(t, v)
		for range 20 {
			text := ""
			for range 1 + rng.IntN(25) {
				text += letters[rng.IntN(len(letters))]
			}
			text = strings.ReplaceAll(text, "▁", " ")
			got, want := tok.Encode(text, EncodeOptions{}), slowSPM(v, text)
			if !slices.Equal(got, want) {
				t.Fatalf("vocabulary %q, scores %v, prefix %v, text %q: got %v, want %v", v.Tokens[259:], v.Scores[259:], v.AddSpacePrefix, text, got, want)
			}
			if back := tok.Decode(got, true); back != text {
				t.Fatalf("%q came back as %q", text, back)
			}
		}
	}
}

func TestSPMSpecialTokens(t *testing.T) {
	v := toySPM("<a>")
	v.Tokens, v.Types, v.Scores = append(v.Tokens, "\n\n", "  "), append(v.Types, typeUserDefined, typeUserDefined), append(v.Scores, 0, 0)
	const hello, mark, a, breaks, blanks = 263, 264, 272, 273, 274
	tok := newToy(t, v)
	for _, c := range []struct {
		text string
		o    EncodeOptions
		want []int32
	}{
		{"", EncodeOptions{AddSpecial: true}, []int32{1}},
		{"hello", EncodeOptions{AddSpecial: true}, []int32{1, hello}},
		{" hello", EncodeOptions{}, []int32{mark, hello}},
		{"hello<a>hello", EncodeOptions{ParseSpecial: true}, []int32{hello, a, hello}},
		{"hello<a>", EncodeOptions{}, []int32{hello, '<' + 3, 'a' + 3, '>' + 3}},
		{"hello\n\nhello", EncodeOptions{}, []int32{hello, breaks, hello}},
		{"hello  <s>", EncodeOptions{ParseSpecial: true}, []int32{hello, blanks, 1}},
		{"<unk><0x41>", EncodeOptions{}, []int32{mark, '<' + 3, 'u' + 3, 'n' + 3, 'k' + 3, '>' + 3, '<' + 3, '0' + 3, 'x' + 3, '4' + 3, '1' + 3, '>' + 3}},
		{"é\xffß", EncodeOptions{}, []int32{mark, 269, 0xff + 3, 0xc3 + 3, 0x9f + 3}},
		{"▁hello", EncodeOptions{}, []int32{mark, hello}}, // as SentencePiece has it: a mark is a space
	} {
		got := tok.Encode(c.text, c.o)
		if !slices.Equal(got, c.want) {
			t.Errorf("Encode(%q, %+v) = %v, want %v", c.text, c.o, got, c.want)
		}
		if want := strings.ReplaceAll(c.text, "▁", " "); !c.o.AddSpecial && tok.Decode(got, true) != want {
			t.Errorf("%q came back as %q", c.text, tok.Decode(got, true))
		}
	}
	if got := tok.Decode([]int32{1, hello, 2, hello}, false); got != "hellohello" {
		t.Errorf("Decode without special tokens: %q", got)
	}
	s := tok.NewStream() // goes on where the prompt ended
	if got := s.Push(hello) + s.Push('!'+3) + s.Flush(); got != " hello!" {
		t.Errorf("stream: %q", got)
	}
	v.AddSpacePrefix, v.AddBOS = false, false
	if got := newToy(t, v).Encode("hello hello", EncodeOptions{AddSpecial: true}); !slices.Equal(got, []int32{262, hello}) {
		t.Errorf("without prefix and BOS: %v", got)
	}
}

// TestPhi3: special tokens of Phi-3, but for the oldest, swallow the white space behind them.
func TestPhi3(t *testing.T) {
	v := toySPM("<|user|>", "<|endoftext|>")
	v.Name = "Phi-3 Mini 4K Instruct"
	const hello, mark, user, end = 263, 264, 272, 273
	for text, want := range map[string][]int32{
		"<|user|>\n \thello":  {user, hello},
		"<|user|> \n":         {user},
		"<|user|> <|user|>":   {user, user},
		"</s> hello":          {2, hello},
		"<|endoftext|> hello": {end, mark, hello},
		"<s> hello":           {1, mark, hello},
	} {
		if got := newToy(t, v).Encode(text, EncodeOptions{ParseSpecial: true}); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// TestSPMBytes: what the vocabulary has no byte tokens for becomes UNK, or nothing where there is none; without any
// byte tokens, tokens of single bytes stand in.
func TestSPMBytes(t *testing.T) {
	v := toySPM()
	v.AddSpacePrefix = false
	for i := 3; i < 259; i++ {
		if i != 'x'+3 {
			v.Types[i] = typeControl
		}
	}
	tok := newToy(t, v)
	if got := tok.Encode("xzh", EncodeOptions{}); !slices.Equal(got, []int32{'x' + 3, 0, 265}) {
		t.Errorf("with UNK: %v", got)
	}
	v.UNK = -1
	if got := newToy(t, v).Encode("xzh", EncodeOptions{}); !slices.Equal(got, []int32{'x' + 3, 265}) {
		t.Errorf("without UNK: %v", got)
	}
	v.Types['x'+3] = typeControl
	v.Tokens['z'+3], v.Types['z'+3] = "\xc3", typeNormal
	if got := newToy(t, v).Encode("ß", EncodeOptions{}); !slices.Equal(got, []int32{'z' + 3}) {
		t.Errorf("a token of one byte: %v", got)
	}
}

func TestRankOf(t *testing.T) {
	scores := []float32{float32(math.Inf(1)), 3e38, 1, 1e-40, 0, -1e-40, -1, -255504, float32(math.Inf(-1))}
	for i := 1; i < len(scores); i++ {
		if rankOf(scores[i-1]) >= rankOf(scores[i]) {
			t.Errorf("%v does not come before %v", scores[i-1], scores[i])
		}
	}
	if rankOf(0) != rankOf(float32(math.Copysign(0, -1))) {
		t.Error("the two zeros differ")
	}
}

// TestSPMLinear bounds the work for hostile texts, as TestEncodeLinear does.
func TestSPMLinear(t *testing.T) {
	v := toySPM()
	for s := "a"; len(s) < 1024; s += s {
		v.Tokens, v.Types, v.Scores = append(v.Tokens, s), append(v.Types, typeNormal), append(v.Scores, float32(-len(s)))
	}
	v.Tokens, v.Types, v.Scores = append(v.Tokens, "a▁a"), append(v.Types, typeNormal), append(v.Scores, 0)
	tok := newToy(t, v)
	texts := hostile(1 << 16)
	for what, text := range hostile(1 << 20) {
		switch what {
		case "spaces", "one letter", "random letters", "emoji":
			texts[what] = text
		}
	}
	texts["letters, apart"] = strings.Repeat("a ", 1<<15)
	for what, text := range texts {
		var w work
		ids := tok.appendText(nil, text, true, &w)
		if w.merger.pushes > 3*len(text)+3 {
			t.Errorf("%s: %d candidates for %d bytes", what, w.merger.pushes, len(text))
		}
		if got := tok.Decode(ids, true); got != text {
			t.Errorf("%s: %d bytes came back as %d", what, len(text), len(got))
		}
	}
}

// FuzzSPM: what was encoded comes back but for U+2581, the work is bounded, and a stream of the tokens gives the same
// text with U+FFFD for what is not UTF-8.
func FuzzSPM(f *testing.F) {
	for _, s := range []string{"", "hello hello  llo", "<a>hello\nhé</s>", "\xff\xe4\xbd", "  \n\n 123 '''s 你好🙂", "▁ ▁hello"} {
		f.Add(s, true)
	}
	v := toySPM("<a>")
	v.Types[len(v.Types)-1] = typeUserDefined
	v.Tokens, v.Types, v.Scores = append(v.Tokens, "o▁h"), append(v.Types, typeNormal), append(v.Scores, 5)
	plain := v
	plain.AddSpacePrefix = false
	toks := []*Tokenizer{newToy(f, v), newToy(f, plain)}
	f.Fuzz(func(t *testing.T, text string, parse bool) {
		for _, tok := range toks {
			var w work
			ids := tok.appendText(nil, text, parse, &w)
			want := strings.ReplaceAll(text, "▁", " ")
			if got := tok.Decode(ids, true); got != want {
				t.Fatalf("%q came back as %q", text, got)
			}
			if w.merger.pushes > 6*len(text)+6 { // a prefix for each text between special tokens
				t.Fatalf("%d candidates for %d bytes", w.merger.pushes, len(text))
			}
			if tok.spacePrefix || parse {
				continue // the stream has the prefixes, and no control tokens
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
			if want := string([]rune(want)); b.String() != want {
				t.Fatalf("the stream of %q is %q", text, b.String())
			}
		}
	})
}
