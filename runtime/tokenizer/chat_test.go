package tokenizer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime/tokenizer/template"
)

func TestRenderChatSmolLM2(t *testing.T) {
	tok := loadTokenizer(t, shared(t, "models/smollm2-135m-instruct-q4_1.gguf"))
	text, err := tok.RenderChat([]Message{{"user", "What is the capital of France?"}}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n" +
		"<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
	if text != want {
		t.Errorf("got  %q\nwant %q", text, want)
	}
	ids := tok.EncodeChat(text)
	if ids[0] != 1 || tok.Decode(ids, true) != want {
		t.Errorf("EncodeChat gave %v", ids)
	}
	if got := tok.Decode(ids, false); strings.Contains(got, "<|im_") {
		t.Errorf("Decode without special tokens has %q", got)
	}
	for text, want := range map[string]bool{"<|im_end|>": true, "<|endoftext|>": true, "<|im_start|>": false} {
		ids := tok.Encode(text, EncodeOptions{ParseSpecial: true})
		if len(ids) != 1 || tok.IsEOG(ids[0]) != want {
			t.Errorf("%s: ids %v, end of generation %v", text, ids, !want)
		}
	}
}

// toy is a vocabulary of all bytes, one merge, and the given special tokens.
func toy(specials ...string) Vocab {
	v := Vocab{Model: "gpt2", Pre: "gpt-2", BOS: -1, EOS: -1, EOT: -1, PAD: -1, UNK: -1}
	alphabet := make([]string, 256)
	for r, b := range byteOf {
		if b >= 0 {
			alphabet[b] = string(rune(r))
		}
	}
	v.Tokens = append(v.Tokens, alphabet...)
	v.Tokens = append(v.Tokens, "he", "ll", "llo", "hello", "Ġhello")
	v.Merges = []string{"h e", "l l", "ll o", "he llo", "Ġ hello"}
	for range v.Tokens {
		v.Types = append(v.Types, typeNormal)
	}
	for _, s := range specials {
		v.Tokens, v.Types = append(v.Tokens, s), append(v.Types, typeControl)
	}
	return v
}

func newToy(t testing.TB, v Vocab) *Tokenizer {
	t.Helper()
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestRenderChatDefaults(t *testing.T) {
	msgs := []Message{{"user", "hi"}}
	if _, err := newToy(t, toy()).RenderChat(msgs, true, nil); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("no template, no ChatML tokens: error %v", err)
	}
	got, err := newToy(t, toy("<|im_start|>", "<|im_end|>")).RenderChat(msgs, true, nil)
	if want := "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"; err != nil || got != want {
		t.Errorf("ChatML: %q, %v", got, err)
	}

	v := toy("<s>", "</s>")
	v.BOS, v.EOS = 261, 262
	v.ChatTemplate = "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }}{% endfor %}{{ extra }}{{ strftime_now('%Y') }}{{ now }}"
	got, err = newToy(t, v).RenderChat(msgs, true, map[string]any{"extra": 7, "now": time.Date(1999, 1, 2, 3, 4, 5, 0, time.UTC)})
	if want := "<s>user:hi</s>71999"; err != nil || got != want {
		t.Errorf("variables: %q, %v", got, err)
	}

	v.ChatTemplate = "{{ raise_exception('no ' ~ messages[0].role) }}"
	var raised *template.RaisedError
	if _, err = newToy(t, v).RenderChat(msgs, true, nil); !errors.As(err, &raised) || raised.Msg != "no user" {
		t.Errorf("raise_exception: %v", err)
	}
	v.ChatTemplate = "{% if %}"
	var syntax *template.SyntaxError
	if _, err = newToy(t, v).RenderChat(msgs, true, nil); !errors.As(err, &syntax) || !strings.Contains(err.Error(), "tokenizer.chat_template") {
		t.Errorf("bad template: %v", err)
	}
	v.ChatTemplate = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"
	var limit *template.LimitError
	if _, err = newToy(t, v).RenderChat(msgs, true, nil); !errors.As(err, &limit) {
		t.Errorf("endless template: %v", err)
	}
}

// TestOneBOS: a template that writes BOS itself must not lead to two.
func TestOneBOS(t *testing.T) {
	v := toy("<s>")
	v.BOS, v.AddBOS = 261, true
	tok := newToy(t, v)
	for _, text := range []string{"<s>hello", "hello"} {
		if ids := tok.EncodeChat(text); len(ids) != 2 || ids[0] != 261 || ids[1] == 261 {
			t.Errorf("EncodeChat(%q) = %v", text, ids)
		}
	}
	v.AddBOS = false
	if ids := newToy(t, v).EncodeChat("hello"); len(ids) != 1 {
		t.Errorf("a BOS was added though the vocabulary wants none: %v", ids)
	}
	if ids := newToy(t, v).EncodeChat("<s>hello"); len(ids) != 2 {
		t.Errorf("the template's BOS was lost: %v", ids)
	}
}
