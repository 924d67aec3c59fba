package tokenizer

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// TestNewRefuses: every way in which a vocabulary can be wrong gives one line
// that names the key.
func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Vocab)
		want   string
	}{
		{"unigram", func(v *Vocab) { v.Model = "t5" }, `tokenizer.ggml.model is "t5"`},
		{"no model", func(v *Vocab) { v.Model = "" }, `tokenizer.ggml.model is ""`},
		{"unknown pre", func(v *Vocab) { v.Pre = "bloom" }, `tokenizer.ggml.pre is "bloom"; known pre-tokenizers are default, gpt-2`},
		{"no tokens", func(v *Vocab) { v.Tokens, v.Types = nil, nil }, "tokenizer.ggml.tokens is missing"},
		{"types short", func(v *Vocab) { v.Types = v.Types[:3] }, "token_type has 3 entries"},
		{"type 9", func(v *Vocab) { v.Types[7] = 9 }, "token_type[7] is 9"},
		{"type -1", func(v *Vocab) { v.Types[7] = -1 }, "token_type[7] is -1"},
		{"duplicate", func(v *Vocab) { v.Tokens[9] = v.Tokens[8] }, "tokens[8] and [9] are the same"},
		{"bos out of range", func(v *Vocab) { v.BOS = 261 }, "bos_token_id is 261, but"},
		{"eos out of range", func(v *Vocab) { v.EOS = 1 << 30 }, "eos_token_id is"},
		{"eot out of range", func(v *Vocab) { v.EOT = 261 }, "eot_token_id is"},
		{"pad out of range", func(v *Vocab) { v.PAD = 261 }, "padding_token_id is"},
		{"unk out of range", func(v *Vocab) { v.UNK = 261 }, "unknown_token_id is"},
		{"no bos to add", func(v *Vocab) { v.AddBOS = true }, "add_bos_token is set"},
		{"no eos to add", func(v *Vocab) { v.AddEOS = true }, "add_eos_token is set"},
		{"no merges", func(v *Vocab) { v.Merges = nil }, `merges is missing or empty, and without them no text becomes tokens[256], "he"`},
		{"empty merge", func(v *Vocab) { v.Merges[1] = "" }, "merges[1]"},
		{"merge without space", func(v *Vocab) { v.Merges[1] = "ll" }, "merges[1]"},
		{"merge without left", func(v *Vocab) { v.Merges[1] = " ll" }, "merges[1]"},
		{"merge without right", func(v *Vocab) { v.Merges[1] = "ll " }, "merges[1]"},
		{"merge of a space", func(v *Vocab) { v.Merges[1] = "l l l" }, "outside the byte alphabet"},
		{"merge of SentencePiece", func(v *Vocab) { v.Merges[1] = "▁ l" }, "outside the byte alphabet"},
		{"byte -1", func(v *Vocab) { v.Tokens[7], v.Types[7] = "<0x-1>", typeByte }, `tokens[7]: "<0x-1>" has type 6`},
		{"byte ZZ", func(v *Vocab) { v.Tokens[7], v.Types[7] = "<0xZZ>", typeByte }, "tokens[7]"},
		{"byte 100", func(v *Vocab) { v.Tokens[7], v.Types[7] = "<0x100>", typeByte }, "tokens[7]"},
		{"byte empty", func(v *Vocab) { v.Tokens[7], v.Types[7] = "", typeByte }, "tokens[7]"},
		{"long special token", func(v *Vocab) { v.Tokens[7], v.Types[7] = strings.Repeat("x", 300), typeControl }, "tokens[7] is a special token of 300 bytes"},
	} {
		v := toy()
		c.change(&v)
		_, err := New(v)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q in one line", c.what, err, c.want)
		}
		if unsupported := c.what == "unigram" || c.what == "no model" || c.what == "unknown pre"; errors.Is(err, ErrUnsupported) != unsupported {
			t.Errorf("%s: ErrUnsupported is wrong for %v", c.what, err)
		}
	}
}

// TestNewRefusesSPM is TestNewRefuses for what only SentencePiece vocabularies have.
func TestNewRefusesSPM(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Vocab)
		want   string
	}{
		"no scores":     {func(v *Vocab) { v.Scores = nil }, "tokenizer.ggml.scores is missing"},
		"scores short":  {func(v *Vocab) { v.Scores = v.Scores[:9] }, "tokenizer.ggml.scores has 9 entries for"},
		"NaN score":     {func(v *Vocab) { v.Scores[7] = float32(math.NaN()) }, "tokenizer.ggml.scores[7] is not a number"},
		"not a byte":    {func(v *Vocab) { v.Tokens[7] = "<0x0G>" }, `tokens[7]: "<0x0G>" has type 6`},
		"no bos to add": {func(v *Vocab) { v.BOS = -1 }, "add_bos_token is set"},
	} {
		v := toySPM()
		c.change(&v)
		if _, err := New(v); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q in one line", what, err, c.want)
		}
	}
}

func TestNewAccepts(t *testing.T) {
	v := toy("<|eot_id|>")
	v.Tokens, v.Types = append(v.Tokens, "", "", "<0x0a>", "[PAD]"), append(v.Types, typeUnused, typeUnused, typeByte, typeUnused)
	v.Pre, v.BOS, v.EOS = "", -5, 0
	tok := newToy(t, v)
	if tok.Size() != 266 || tok.BOS() != -1 || tok.EOS() != 0 || tok.EOT() != 261 || tok.PAD() != -1 || tok.UNK() != -1 || tok.AddBOS() {
		t.Error("an accessor is wrong")
	}
	if p := tok.Piece(264); string(p) != "\n" {
		t.Errorf("byte token's piece: %q", p)
	}
	if p := tok.Piece(262); len(p) != 0 {
		t.Errorf("unused token's piece: %q", p)
	}
	if !tok.IsEOG(0) || !tok.IsEOG(261) || tok.IsEOG(5) || tok.IsEOG(-1) || tok.IsEOG(1<<30) {
		t.Error("IsEOG is wrong")
	}
	v.Types = nil
	if tok := newToy(t, v); tok.Decode([]int32{262, 'a'}, false) != "a" {
		t.Error("no types: not all normal")
	}
}

// TestEOG covers llama.cpp's exceptions for the vocabularies of gpt-oss and of
// Gemma 4, where a token that usually ends a turn does not.
func TestEOG(t *testing.T) {
	eog := func(specials ...string) (ended []string) {
		tok := newToy(t, toy(specials...))
		for i, s := range specials {
			if tok.IsEOG(int32(261 + i)) {
				ended = append(ended, s)
			}
		}
		return ended
	}
	for _, c := range []struct{ specials, want []string }{
		{[]string{"<|end|>", "<|user|>"}, []string{"<|end|>"}},
		{[]string{"<|end|>", "<|return|>", "<|call|>", "<|start|>"}, []string{"<|return|>", "<|call|>"}},
		{[]string{"</s>", "<turn|>"}, []string{"</s>", "<turn|>"}},
		{[]string{"</s>", "<turn|>", "<|tool_response>"}, []string{"<turn|>", "<|tool_response>"}},
		{[]string{"<|fim_pad|>", "[PAD]", "<|file_sep|>", "<|repo_name|>"}, []string{"<|fim_pad|>", "<|file_sep|>", "<|repo_name|>"}},
	} {
		if got := eog(c.specials...); strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("of %q end a generation %q, want %q", c.specials, got, c.want)
		}
	}
}

// FuzzNew: no vocabulary makes New or the tokenizer it returns panic.
func FuzzNew(f *testing.F) {
	f.Add("gpt-2", "a\nb\nab\n<s>", []byte{1, 1, 1, 3}, "a b", int32(3), int32(-1), "ab<s>")
	f.Add("spm", "a\nb\nab\n▁\n<0x41>\n<s>", []byte{1, 1, 1, 1, 6, 3}, "", int32(5), int32(-1), "a b\xffA<s>")
	f.Add("llama-bpe", "Ġ\n<0x41>\n", []byte{1, 6, 5}, "Ġ Ġ\nx", int32(0), int32(9), " \xff")
	f.Fuzz(func(t *testing.T, pre, tokens string, types []byte, merges string, bos, unk int32, text string) {
		v := Vocab{Model: modelBPE, Pre: pre, Tokens: strings.Split(tokens, "\n"), BOS: bos, EOS: -1, EOT: -1, PAD: -1, UNK: unk}
		for _, ty := range types {
			v.Types = append(v.Types, int32(int8(ty)))
		}
		if merges != "" {
			v.Merges = strings.Split(merges, "\n")
		}
		if pre == "spm" {
			v.Model, v.AddSpacePrefix = modelSPM, bos&1 == 0
			for i := range v.Tokens { // any scores will do
				v.Scores = append(v.Scores, float32(i*7%5)-2)
			}
		}
		tok, err := New(v)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("the error has several lines: %v", err)
			}
			return
		}
		ids := tok.Encode(text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Size() {
				t.Fatalf("id %d of %d", id, tok.Size())
			}
		}
		tok.Decode(ids, false)
	})
}
