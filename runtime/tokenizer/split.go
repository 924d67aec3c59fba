package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// stage is one regular expression of a pre-tokenizer, as a function: it reports
// where the match that begins at text[i:] ends, or (j, false) when no match
// begins in text[i:j], and j may be i to say that of one character. Text between
// matches is a word of its own. A stage sees one word of the stage before it as
// if there were nothing around it.
//
// A stage reads text[i:j], a constant number of characters beyond, and at most
// the run of white space there once more: this makes splitting linear.
type stage func(sc *scanner, text string, i int) (j int, match bool)

// pre is one kind of pre-tokenizer.
type pre struct {
	names      []string // values of tokenizer.ggml.pre
	stages     []stage
	wholeWords bool // a word that is a token is not merged ("ignore_merges")
	addBOS     bool // BOS is added unless the file says otherwise
}

// pres are the pre-tokenizers, with the names, rules and defaults that llama.cpp
// gives them (b11434, src/llama-vocab.cpp).
var pres = []pre{
	{
		names:  []string{"default"},
		stages: []stage{punctuationRun, gpt2Word, numberRun, digitTriple},
	}, {
		names:  []string{"gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "gigachat", "a.x-4.0", "mellum", "trillion", "granite-docling"},
		stages: []stage{gpt2Word},
	}, {
		names:  []string{"starcoder", "smollm", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
		stages: []stage{singleNumber, gpt2Word},
	}, {
		names:  []string{"falcon"},
		stages: []stage{punctuationOrBacktickRun, gpt2Word, digitTriple},
	}, {
		names:  []string{"qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2", "kormo", "f2llmv2", "bailingmoe", "bailingmoe2", "llada-moe"},
		stages: []stage{qwen2.match},
	}, {
		names:  []string{"qwen35"},
		stages: []stage{qwen35.match},
	}, {
		names:      []string{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
		stages:     []stage{llama3.match},
		wholeWords: true,
		addBOS:     true,
	}, {
		names:  []string{"smaug-bpe", "dbrx", "chatglm-bpe"},
		stages: []stage{llama3.match},
	}, {
		names:      []string{"glm4", "glm5"},
		stages:     []stage{llama3.match},
		wholeWords: true,
	}, {
		names:      []string{"tekken"},
		stages:     []stage{tekken.match},
		wholeWords: true,
		addBOS:     true,
	}, {
		names:  []string{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"},
		stages: []stage{gpt4o.match},
	}, {
		names:  []string{"kimi-k2"},
		stages: []stage{kimi.match},
	}, {
		names:  []string{"seed-coder"},
		stages: []stage{seedCoder.match},
	}, {
		names:  []string{"deepseek-llm"},
		stages: []stage{newline, deepseekLetters, deepseekPunctuation, trailingSpace, deepseekCJK, numberRun},
	}, {
		names:  []string{"deepseek-coder"},
		stages: []stage{newline, spaceAndLetters, spaceAndPunctuation, deepseekCJK, singleNumber},
	}, {
		names:  []string{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
		stages: []stage{numberTriple, deepseek3CJK, deepseek3.match},
	},
}

// lookupPre finds the pre-tokenizer of a name.
func lookupPre(name string) (pre, error) {
	if name == "" {
		name = "default"
	}
	var known []string
	for _, p := range pres {
		if slices.Contains(p.names, name) {
			return p, nil
		}
		known = append(known, p.names...)
	}
	return pre{}, fmt.Errorf("%w: tokenizer.ggml.pre is %s; known pre-tokenizers are %s", ErrUnsupported, quote(name), strings.Join(known, ", "))
}

// scanner classifies characters, counts how often it had to, and holds the
// memory for splitting.
type scanner struct {
	reads     int
	cur, next []int
}

// split returns the ends of the words of text, in order; the last is len(text).
// The slice is valid until the next call.
func (sc *scanner) split(stages []stage, text string) []int {
	if text == "" {
		return nil
	}
	sc.cur, sc.next = slices.Grow(sc.cur[:0], len(text)/4+1), slices.Grow(sc.next[:0], len(text)/4+1) // about what English takes
	sc.cur = append(sc.cur, len(text))
	for _, st := range stages {
		sc.next = sc.next[:0]
		start := 0
		for _, end := range sc.cur {
			sc.apply(st, text[start:end], start)
			start = end
		}
		sc.cur, sc.next = sc.next, sc.cur
	}
	return sc.cur
}

// apply appends to sc.next the ends of the words of one stage on word, which
// begins at offset base of the whole text.
func (sc *scanner) apply(st stage, word string, base int) {
	gap := 0
	for i := 0; i < len(word); {
		end, match := st(sc, word, i)
		if !match {
			if end == i {
				_, w := sc.at(word, i)
				end += w
			}
			i = end
			continue
		}
		if gap < i {
			sc.next = append(sc.next, base+i)
		}
		sc.next = append(sc.next, base+end)
		gap, i = end, end
	}
	if gap < len(word) {
		sc.next = append(sc.next, base+len(word))
	}
}

// class is what the regular expressions distinguish of a character, one bit
// each, so that sets of classes are classes too.
type class uint8

const (
	letter      class = 1 << iota // \p{L}
	mark                          // \p{M}
	number                        // \p{N}
	punctuation                   // \p{P}
	symbol                        // \p{S}
	space                         // \s: Unicode White_Space
	other                         // none of these; bytes that are not UTF-8 too

	end class = 0 // beyond the text

	// inked is [^\s\p{L}\p{N}].
	inked = mark | punctuation | symbol | other
)

var asciiClass = func() (m [utf8.RuneSelf]class) {
	for c := range m {
		m[c] = classify(rune(c))
	}
	return m
}()

func classify(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsMark(r):
		return mark
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	case unicode.IsPunct(r):
		return punctuation
	case unicode.IsSymbol(r):
		return symbol
	}
	return other
}

// at returns the class and width in bytes of the character at text[i:], and
// (end, 0) where there is none.
func (sc *scanner) at(text string, i int) (class, int) {
	if i >= len(text) {
		return end, 0
	}
	sc.reads++
	if c := text[i]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	r, w := utf8.DecodeRuneInString(text[i:])
	return classify(r), w
}

// run returns the end of the run of characters in set that begins at text[i:].
func (sc *scanner) run(text string, i int, set class) int {
	for {
		c, w := sc.at(text, i)
		if c&set == 0 {
			return i
		}
		i += w
	}
}

// runeIn reports the width of the character at text[i:] when in accepts it, else 0.
func (sc *scanner) runeIn(text string, i int, in func(rune) bool) int {
	if i >= len(text) {
		return 0
	}
	sc.reads++
	r, w := rune(text[i]), 1
	if r >= utf8.RuneSelf {
		r, w = utf8.DecodeRuneInString(text[i:])
	}
	if !in(r) {
		return 0
	}
	return w
}

// runOf returns the end of the run of characters accepted by in at text[i:].
func (sc *scanner) runOf(text string, i int, in func(rune) bool) int {
	for {
		w := sc.runeIn(text, i, in)
		if w == 0 {
			return i
		}
		i += w
	}
}
