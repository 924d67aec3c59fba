package tokenizer

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/starling-swarm/starling/runtime/tokenizer/template"
)

// ErrUnsupported is wrapped by [New]'s error when the vocabulary is well formed
// but of a kind this package cannot run: another tokenizer model, or an unknown
// pre-tokenizer.
var ErrUnsupported = errors.New("unsupported tokenizer")

// The values of tokenizer.ggml.model.
const (
	modelBPE = "gpt2"
	modelSPM = "llama"
)

// The values of tokenizer.ggml.token_type.
const (
	typeUndefined   = 0
	typeNormal      = 1
	typeUnknown     = 2
	typeControl     = 3
	typeUserDefined = 4
	typeUnused      = 5
	typeByte        = 6
)

const (
	// maxTokens bounds the vocabulary: about ten times the largest one known.
	maxTokens = 4 << 20
	// maxSpecialLen bounds the text of a token that is looked for in the input,
	// in bytes. Finding special tokens costs up to this many steps per input
	// byte; the longest in use have fewer than 100 bytes.
	maxSpecialLen = 256
)

// Vocab is what a GGUF header says about the model's tokenizer, under the keys
// tokenizer.ggml.* and tokenizer.chat_template. [New] keeps parts of the
// slices; the caller must not change them afterwards.
type Vocab struct {
	Model string // tokenizer.ggml.model: the kind of tokenizer; "gpt2" (byte-level BPE) and "llama" (SentencePiece) are supported
	Pre   string // tokenizer.ggml.pre: the pre-tokenizer of byte-level BPE; "" means "default", as in llama.cpp

	Tokens []string  // token texts by id; byte-level ones in GPT-2's byte alphabet, SentencePiece's with U+2581 for a space
	Types  []int32   // tokenizer.ggml.token_type by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty: all normal
	Merges []string  // byte-level BPE: "left right", best first
	Scores []float32 // SentencePiece: tokenizer.ggml.scores by id; a merge into a token of higher score comes first

	BOS, EOS, EOT, PAD, UNK int32 // ids of the special tokens, -1 when absent

	AddBOS         bool // tokenizer.ggml.add_bos_token
	AddEOS         bool // tokenizer.ggml.add_eos_token
	AddSpacePrefix bool // tokenizer.ggml.add_space_prefix: text begins with a space; has no meaning for byte-level BPE and is ignored by it

	ChatTemplate string // tokenizer.chat_template, Jinja; "" when absent

	Name string // general.name; Phi-3 is known by it, whose special tokens swallow the white space behind them
}

// Defaults returns a Vocab of that kind with what it means that a header has no
// key for a special token or for adding one (llama.cpp b11434,
// llama_vocab::impl::load).
func Defaults(model, pre string) Vocab {
	v := Vocab{Model: model, Pre: pre, BOS: -1, EOS: -1, EOT: -1, PAD: -1, UNK: -1}
	if model == modelSPM {
		v.BOS, v.EOS, v.UNK, v.AddBOS, v.AddSpacePrefix = 1, 2, 0, true, true
	} else if p, err := lookupPre(pre); err == nil {
		v.AddBOS = p.addBOS
	}
	return v
}

// Tokenizer encodes and decodes one model's text. It is immutable and safe for
// concurrent use. Ids it returns are in [0, Size()).
type Tokenizer struct {
	tokens  []string // by id, as the file has them
	types   []int32
	spaced  bool // tokens have U+2581 for a space; else they are in the byte alphabet
	model   model
	special trie
	eog     map[int32]bool
	eats    map[int32]bool // special tokens that swallow the white space behind them; nil but for Phi-3

	bos, eos, eot, pad, unk int32
	addBOS, addEOS          bool
	spacePrefix             bool // a space is in front of every text between special tokens

	chatSource string
	chat       func() (*template.Template, error) // parses chatSource, once
}

// New checks v and builds its tokenizer. Errors are one line and name the GGUF
// key at fault; those about a kind of tokenizer this package does not have wrap
// [ErrUnsupported].
func New(v Vocab) (*Tokenizer, error) {
	if v.Model != modelBPE && v.Model != modelSPM {
		return nil, fmt.Errorf("%w: tokenizer.ggml.model is %s; only \"gpt2\" (byte-level BPE) and \"llama\" (SentencePiece) can be run", ErrUnsupported, quote(v.Model))
	}
	n := len(v.Tokens)
	switch {
	case n == 0:
		return nil, errors.New("tokenizer.ggml.tokens is missing or empty")
	case n > maxTokens:
		return nil, fmt.Errorf("tokenizer.ggml.tokens has %d entries, more than the limit of %d", n, maxTokens)
	case len(v.Types) != 0 && len(v.Types) != n:
		return nil, fmt.Errorf("tokenizer.ggml.token_type has %d entries for %d tokens", len(v.Types), n)
	}

	t := &Tokenizer{
		tokens: v.Tokens, types: make([]int32, n), spaced: v.Model == modelSPM,
		bos: v.BOS, eos: v.EOS, eot: v.EOT, pad: v.PAD, unk: v.UNK,
		addBOS: v.AddBOS, addEOS: v.AddEOS,
		spacePrefix: v.Model == modelSPM && v.AddSpacePrefix,
		chatSource:  v.ChatTemplate,
	}
	if len(v.Types) == 0 {
		for i := range t.types {
			t.types[i] = typeNormal
		}
	} else {
		copy(t.types, v.Types)
	}
	for i, ty := range t.types {
		if ty < typeUndefined || ty > typeByte {
			return nil, fmt.Errorf("tokenizer.ggml.token_type[%d] is %d; known types are 0 to 6", i, ty)
		}
	}
	byText, err := newLexicon(v.Tokens)
	if err != nil {
		return nil, err
	}
	if err := t.checkIDs(); err != nil {
		return nil, err
	}
	t.eog = markEOG(&byText, t.types, t.eos, t.eot)
	if t.eot < 0 {
		t.eot = findEOT(&byText)
	}
	if err := t.checkBytes(); err != nil {
		return nil, err
	}
	if t.model, err = newModel(v, t.types, byText); err != nil {
		return nil, err
	}
	if t.special, err = newTrie(v.Tokens, t.types); err != nil {
		return nil, err
	}
	if name := strings.ToLower(v.Name); strings.Contains(name, "phi-3") || strings.Contains(name, "phi3") {
		t.eats = eatsSpace(v.Tokens, t.types)
	}
	if t.chatSource == "" && byText.has("<|im_start|>") && byText.has("<|im_end|>") {
		t.chatSource = chatML
	}
	t.chat = sync.OnceValues(func() (*template.Template, error) { return template.Parse(t.chatSource) })
	return t, nil
}

// newModel builds what turns text into ids.
func newModel(v Vocab, types []int32, byText lexicon) (model, error) {
	if v.Model == modelSPM {
		return newSPM(v, types, byText)
	}
	pre, err := lookupPre(v.Pre)
	if err != nil {
		return nil, err
	}
	if len(v.Merges) == 0 {
		if i := firstMerged(v.Tokens, types); i >= 0 {
			return nil, fmt.Errorf("tokenizer.ggml.merges is missing or empty, and without them no text becomes tokens[%d], %s", i, quote(v.Tokens[i]))
		}
	}
	b, err := newBPE(v, types, byText, pre.wholeWords)
	return &byteLevel{pre.stages, b}, err
}

// firstMerged returns the first normal token of more than one byte, or -1.
func firstMerged(tokens []string, types []int32) int {
	for i, text := range tokens {
		if types[i] == typeNormal && utf8.RuneCountInString(text) > 1 {
			return i
		}
	}
	return -1
}

// checkIDs checks that the special ids are absent (negative, made -1) or in range.
func (t *Tokenizer) checkIDs() error {
	for _, f := range []struct {
		key string
		id  *int32
	}{
		{"bos_token_id", &t.bos}, {"eos_token_id", &t.eos}, {"eot_token_id", &t.eot},
		{"padding_token_id", &t.pad}, {"unknown_token_id", &t.unk},
	} {
		if *f.id < 0 {
			*f.id = -1
		} else if int(*f.id) >= len(t.types) {
			return fmt.Errorf("tokenizer.ggml.%s is %d, but the vocabulary has %d tokens", f.key, *f.id, len(t.types))
		}
	}
	if t.addBOS && t.bos < 0 {
		return errors.New("tokenizer.ggml.add_bos_token is set, but there is no tokenizer.ggml.bos_token_id")
	}
	if t.addEOS && t.eos < 0 {
		return errors.New("tokenizer.ggml.add_eos_token is set, but there is no tokenizer.ggml.eos_token_id")
	}
	return nil
}

// checkBytes checks that byte tokens name a byte.
func (t *Tokenizer) checkBytes() error {
	for i, ty := range t.types {
		if ty == typeByte {
			if _, err := parseByteToken(t.tokens[i]); err != nil {
				return fmt.Errorf("tokenizer.ggml.tokens[%d]: %w", i, err)
			}
		}
	}
	return nil
}

// parseByteToken reads "<0xHH>", two hexadecimal digits exactly.
func parseByteToken(s string) (byte, error) {
	if len(s) == 6 && strings.HasPrefix(s, "<0x") && s[5] == '>' && isHex(s[3]) && isHex(s[4]) {
		b, err := strconv.ParseUint(s[3:5], 16, 8)
		return byte(b), err
	}
	return 0, fmt.Errorf("%s has type 6 (byte) but is not of the form <0xHH>", quote(s))
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// quote renders foreign text for an error message, shortened.
func quote(s string) string {
	if len(s) > 40 {
		return strconv.Quote(s[:40]) + "…"
	}
	return strconv.Quote(s)
}

// Size returns the number of tokens in the vocabulary.
func (t *Tokenizer) Size() int { return len(t.types) }

// Hash tells vocabularies apart: it is equal where the same ids mean the same texts. Unused ids, with which files of a family fill their
// vocabularies up to different sizes, don't count.
func (t *Tokenizer) Hash() (sum [32]byte) {
	h := sha256.New()
	for id, text := range t.tokens {
		if t.types[id] != typeUnused {
			h.Write(binary.LittleEndian.AppendUint32(nil, uint32(id)))
			h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
			h.Write([]byte(text))
		}
	}
	h.Sum(sum[:0])
	return sum
}

// BOS returns the beginning-of-sequence id, or -1.
func (t *Tokenizer) BOS() int32 { return t.bos }

// EOS returns the end-of-sequence id, or -1.
func (t *Tokenizer) EOS() int32 { return t.eos }

// EOT returns the end-of-turn id, or -1. Where the file does not name one it is
// found by its text, as in llama.cpp.
func (t *Tokenizer) EOT() int32 { return t.eot }

// PAD returns the padding id, or -1.
func (t *Tokenizer) PAD() int32 { return t.pad }

// UNK returns the id for what the vocabulary cannot express, or -1.
func (t *Tokenizer) UNK() int32 { return t.unk }

// AddBOS reports whether [Tokenizer.Encode] with AddSpecial begins with BOS.
func (t *Tokenizer) AddBOS() bool { return t.addBOS }

// IsEOG reports whether id ends a generation: the end-of-sequence and
// end-of-turn tokens and those that are so by their text.
func (t *Tokenizer) IsEOG(id int32) bool { return t.eog[id] }
