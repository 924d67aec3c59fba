package tokenizer

import (
	"fmt"
	"slices"
)

// eogTexts are the tokens that end a generation whatever the file says
// (llama.cpp b11434, llama_vocab::impl::load). They also are control tokens,
// however the file types them.
var eogTexts = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
	"<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
	"<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
	"<｜end▁of▁sentence｜>", "[e~[",
}

// fillInEnds are groups of fill-in-the-middle tokens that end a generation and
// are control tokens: of each group the first one present.
var fillInEnds = [][]string{
	{"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"},
	{"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
	{"<|file_sep|>"},
}

// eotTexts are the tokens that end a turn, for files that do not name theirs.
var eotTexts = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
	"<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
}

// markEOG returns the set of ids that end a generation, and corrects types where
// llama.cpp corrects them: the tokens above become control tokens, and the ones
// that gpt-oss and solar-open use inside a message become user-defined.
func markEOG(byText *lexicon, types []int32, eos, eot int32) map[int32]bool {
	eog := make(map[int32]bool)
	mark := func(text string) bool {
		id := byText.find(text)
		if id >= 0 {
			eog[id] = true
			types[id] = typeControl
		}
		return id >= 0
	}
	for _, group := range fillInEnds {
		_ = slices.ContainsFunc(group, mark) // stops at the first
	}
	for _, text := range eogTexts {
		mark(text)
	}
	for _, id := range []int32{eos, eot} {
		if id >= 0 {
			eog[id] = true
		}
	}
	for _, text := range []string{"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"} {
		if id := byText.find(text); id >= 0 {
			types[id] = typeUserDefined
		}
	}
	has := byText.has
	if end := byText.find("<|end|>"); end >= 0 && (has("<|call|>") || has("<|calls|>")) && (has("<|return|>") || has("<|flush|>")) {
		delete(eog, end)
		types[end] = typeUserDefined
	}
	if s := byText.find("</s>"); s >= 0 && has("<|tool_response>") {
		delete(eog, s)
		types[s] = typeNormal
	}
	return eog
}

// findEOT returns the id of the first of eotTexts that the vocabulary has, or -1.
func findEOT(byText *lexicon) int32 {
	for _, text := range eotTexts {
		if id := byText.find(text); id >= 0 {
			return id
		}
	}
	return -1
}

// eatsSpace returns the special tokens of a Phi-3 vocabulary that swallow the white
// space behind them: all but those that its base, Llama 2, and its pre-training
// had (llama.cpp b11434, llama_vocab::impl::load, per token attributes).
func eatsSpace(tokens []string, types []int32) map[int32]bool {
	eats := make(map[int32]bool)
	for id, text := range tokens {
		if special(types[id]) || text == "</s>" {
			eats[int32(id)] = text != "<unk>" && text != "<s>" && text != "<|endoftext|>"
		}
	}
	return eats
}

// special reports whether tokens of that type are looked for in texts as a whole.
func special(typ int32) bool {
	return typ == typeControl || typ == typeUnknown || typ == typeUserDefined
}

// trie finds the longest special token at a position of a text.
type trie struct {
	root  [256]int32 // node after the first byte, 0 for none
	nodes []trieNode // nodes[0] is unused, so that 0 can mean "none"
	types []int32
}

type trieNode struct {
	labels []byte
	next   []int32 // node after each of labels
	id     int32   // token that ends here, or -1
}

// newTrie indexes the tokens that are looked for in texts: control, unknown and
// user-defined ones.
func newTrie(tokens []string, types []int32) (trie, error) {
	t := trie{nodes: []trieNode{{id: -1}}, types: types}
	for i, s := range tokens {
		if !special(types[i]) {
			continue
		}
		if len(s) > maxSpecialLen {
			return trie{}, fmt.Errorf("tokenizer.ggml.tokens[%d] is a special token of %d bytes, more than the limit of %d", i, len(s), maxSpecialLen)
		}
		if s == "" {
			continue
		}
		at := t.root[s[0]]
		if at == 0 {
			at = t.add()
			t.root[s[0]] = at
		}
		for _, c := range []byte(s[1:]) {
			to := t.step(at, c)
			if to == 0 {
				to = t.add()
				n := &t.nodes[at]
				n.labels, n.next = append(n.labels, c), append(n.next, to)
			}
			at = to
		}
		t.nodes[at].id = int32(i)
	}
	return t, nil
}

func (t *trie) add() int32 {
	t.nodes = append(t.nodes, trieNode{id: -1})
	return int32(len(t.nodes) - 1)
}

func (t *trie) step(at int32, c byte) int32 {
	n := &t.nodes[at]
	if i := slices.Index(n.labels, c); i >= 0 {
		return n.next[i]
	}
	return 0
}

// begins reports whether special tokens begin with c.
func (t *trie) begins(c byte) bool { return t.root[c] != 0 }

// match returns the longest special token that text begins with, and its length
// in bytes, or -1. Without control, control and unknown tokens do not count.
func (t *trie) match(text string, control bool) (id int32, length int) {
	id = -1
	if text == "" {
		return id, 0
	}
	at := t.root[text[0]]
	for i := 1; at != 0; i++ {
		if n := t.nodes[at]; n.id >= 0 && (control || t.types[n.id] == typeUserDefined) {
			id, length = n.id, i
		}
		if i == len(text) {
			break
		}
		at = t.step(at, text[i])
	}
	return id, length
}
