package runtime

import (
	"fmt"

	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/tokenizer"
)

// LoadTokenizer builds the tokenizer that a model's header describes (keys tokenizer.*). It reads no tensor.
func LoadTokenizer(set *gguf.Set) (*tokenizer.Tokenizer, error) {
	v, err := readVocab(set.Meta())
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.New(v)
	if err != nil {
		return nil, fmt.Errorf("runtime: %s: %w", set.Meta().Path, err)
	}
	return t, nil
}

// readVocab collects the tokenizer keys.
func readVocab(meta *gguf.File) (v tokenizer.Vocab, err error) {
	model, err := meta.String("tokenizer.ggml.model")
	if err != nil {
		return v, err
	}
	pre := ""
	if model == "gpt2" { // files from before May 2024 don't say how to split text into words, and families differ in it
		if pre, err = meta.String("tokenizer.ggml.pre"); err != nil {
			return v, err
		}
	}
	v = tokenizer.Defaults(model, pre)
	if v.Tokens, err = meta.Strings("tokenizer.ggml.tokens"); err != nil {
		return v, err
	}
	if v.Types, err = meta.Int32sOr("tokenizer.ggml.token_type", nil); err != nil {
		return v, err
	}
	if v.Merges, err = meta.StringsOr("tokenizer.ggml.merges", nil); err != nil {
		return v, err
	}
	if v.Scores, err = meta.Float32sOr("tokenizer.ggml.scores", nil); err != nil {
		return v, err
	}
	if v.ChatTemplate, err = meta.StringOr("tokenizer.chat_template", ""); err != nil {
		return v, err
	}
	if v.Name, err = meta.StringOr("general.name", ""); err != nil {
		return v, err
	}
	for _, id := range []struct {
		key string
		to  *int32
	}{
		{"bos_token_id", &v.BOS}, {"eos_token_id", &v.EOS}, {"eot_token_id", &v.EOT},
		{"padding_token_id", &v.PAD}, {"unknown_token_id", &v.UNK},
	} {
		if *id.to, err = readID(meta, "tokenizer.ggml."+id.key, *id.to); err != nil {
			return v, err
		}
	}
	if v.AddBOS, err = meta.BoolOr("tokenizer.ggml.add_bos_token", v.AddBOS); err != nil {
		return v, err
	}
	if v.AddEOS, err = meta.BoolOr("tokenizer.ggml.add_eos_token", false); err != nil {
		return v, err
	}
	v.AddSpacePrefix, err = meta.BoolOr("tokenizer.ggml.add_space_prefix", v.AddSpacePrefix)
	return v, err
}

// readID returns a token id: def when the key is absent, −1 when it holds all ones, as some files have it.
func readID(meta *gguf.File, key string, def int32) (int32, error) {
	if _, ok := meta.Lookup(key); !ok {
		return def, nil
	}
	id, err := meta.Uint(key)
	if err != nil {
		return -1, err
	}
	const none = 1<<32 - 1
	if id == none {
		return -1, nil
	}
	if id > 1<<31-1 {
		return -1, fmt.Errorf("runtime: %s: %s is %d, which is no token id", meta.Path, key, id)
	}
	return int32(id), nil
}
