package runtime

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/tokenizer"
)

// Description is what the header of a model says, whether or not this build can run it. Counts are 0, and texts empty,
// where the header does not say.
type Description struct {
	Path    string `json:"path"`
	Parts   int    `json:"parts"` // files
	Bytes   int64  `json:"bytes"` // of all parts
	Name    string `json:"name"`
	Arch    string `json:"architecture"`
	Layers  int    `json:"layers"`
	Context int    `json:"context"` // positions the model was made for
	Rope    string `json:"rope_scaling,omitempty"`

	Parameters   uint64       `json:"parameters"` // elements of all tensors
	Types        []TypeWeight `json:"types"`      // most bytes first
	LayerBytes   []int64      `json:"layer_bytes"`
	ExpertBytes  int64        `json:"expert_bytes"`           // of LayerBytes, all layers together
	Experts      int          `json:"experts,omitempty"`      // of a layer
	UsedExperts  int          `json:"used_experts,omitempty"` // … that a row uses
	OutsideBytes int64        `json:"outside_bytes"`          // of the embedding table, the head and what else is in no layer

	Tokenizer TokenizerFacts `json:"tokenizer"`

	// Cache says by layer what is kept: "append-only", "window of N" or "latent" rows of each position, or a "state" of all.
	// CacheBytes has a row's bytes, by layer, in half precision (twice as many in single), CacheRows how many rows are kept at most,
	// 0 meaning all, and TailBytes what it keeps beside rows of one position. All are nil where the model cannot run.
	Cache      []string `json:"cache,omitempty"`
	CacheBytes []int64  `json:"cache_bytes,omitempty"`
	CacheRows  []int64  `json:"cache_rows,omitempty"`
	TailBytes  []int64  `json:"tail_bytes,omitempty"`

	// Unsupported says what keeps this build from running the model, one line each; none means that it can.
	Unsupported []string `json:"unsupported"`
}

// TypeWeight is what a model has in one weight type.
type TypeWeight struct {
	Type      string `json:"type"`
	Tensors   int    `json:"tensors"`
	Bytes     int64  `json:"bytes"`
	Supported bool   `json:"supported"`
}

// TokenizerFacts are those of a model's tokenizer.
type TokenizerFacts struct {
	Model   string            `json:"model"`             // tokenizer.ggml.model
	Pre     string            `json:"pre,omitempty"`     // tokenizer.ggml.pre
	Size    int               `json:"size"`              // tokens
	Special map[string]string `json:"special,omitempty"` // text by role: "bos", "eos", "eot", "pad", "unk"
	AddBOS  bool              `json:"add_bos"`
	// Template says whether there is a chat template, TemplateError why it cannot render a question and an answer.
	Template      bool   `json:"chat_template"`
	TemplateError string `json:"chat_template_error,omitempty"`
	// Tools and Thinking say whether the template names them.
	Tools    bool `json:"tools"`
	Thinking bool `json:"thinking"`
}

// Describe reads the header of the model at path (any part of a split set); it reads no weights. It fails only for what is
// no GGUF file.
func Describe(path string) (*Description, error) {
	set, err := gguf.OpenSet(path)
	if err != nil {
		return nil, err
	}
	meta := set.Meta()
	d := &Description{Path: path, Parts: len(set.Parts), Bytes: set.Size(), Unsupported: []string{}}
	d.Name, d.Arch = lookup(meta, "general.name", gguf.Value.Text), lookup(meta, "general.architecture", gguf.Value.Text)
	count := func(name string) int { return int(min(lookup(meta, d.Arch+"."+name, gguf.Value.Uint), 1<<31-1)) }
	d.Layers, d.Context, d.Experts, d.UsedExperts = count("block_count"), count("context_length"), count("expert_count"), count("expert_used_count")
	d.Rope = lookup(meta, d.Arch+".rope.scaling.type", gguf.Value.Text)
	if f := lookup(meta, d.Arch+".rope.scaling.factor", gguf.Value.Float); d.Rope != "" && f != 0 {
		d.Rope = fmt.Sprintf("%s, factor %g", d.Rope, f)
	}
	d.weigh(set)

	refuse := func(err error) {
		text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "runtime: "), "gguf: ")
		d.Unsupported = append(d.Unsupported, strings.TrimPrefix(text, meta.Path+": "))
	}
	if err := set.Refuse(); err != nil {
		refuse(err)
	}
	if _, err := familyOf(d.Arch); err != nil {
		refuse(err)
	}
	if len(d.Unsupported) == 0 {
		c, err := InspectSet(set)
		if err != nil {
			refuse(err)
		} else {
			d.cache(&c)
		}
	}
	for _, t := range d.Types {
		said := fmt.Sprintf("weight type %s is not supported (supported: %s)", t.Type, kernels.SupportedTypes())
		named := func(text string) bool { return strings.Contains(text, said) } // InspectSet has, the first that it met
		if !t.Supported && !slices.ContainsFunc(d.Unsupported, named) {
			d.Unsupported = append(d.Unsupported, said)
		}
	}
	if err := d.Tokenizer.read(set); err != nil {
		refuse(err)
	}
	return d, nil
}

// cache takes over what a model that can run keeps of each position.
func (d *Description) cache(c *Config) {
	d.Layers, d.Context = c.Layers, c.Context
	for l := range c.Layers {
		d.Cache = append(d.Cache, c.cacheKind(l))
		d.CacheBytes = append(d.CacheBytes, int64(c.KVRowBytes(l, KVF16)))
		rows := 0
		if c.Cache[l].Window > 0 {
			rows = c.Cache[l].Positions(maxContext)
		}
		d.CacheRows = append(d.CacheRows, int64(rows))
		d.TailBytes = append(d.TailBytes, int64(c.Cache[l].TailBytes()))
	}
}

// SessionBytes returns what a session of so many tokens takes in the caches of all layers.
func (d *Description) SessionBytes(tokens int64, kv KVType) (sum int64) {
	unbounded, tail := int64(0), int64(0) // of all layers
	for l, each := range d.CacheBytes {
		if tail += d.TailBytes[l]; d.CacheRows[l] == 0 {
			unbounded += each / int64(KVF16.size()) * int64(kv.size())
		}
	}
	tails := int64(SnapshotsOf(unbounded, tail, int(tokens)).Tails())
	for l, each := range d.CacheBytes {
		rows := tokens
		if most := d.CacheRows[l]; most > 0 {
			rows = min(rows, most)
		}
		sum += rows*each/int64(KVF16.size())*int64(kv.size()) + tails*d.TailBytes[l]
	}
	return sum
}

// lookup returns a key's value, the zero value where it is missing or of another kind.
func lookup[T any](f *gguf.File, key string, as func(gguf.Value) (T, bool)) (v T) {
	if x, ok := f.Lookup(key); ok {
		v, _ = as(x)
	}
	return v
}

// weigh counts parameters and bytes.
func (d *Description) weigh(set *gguf.Set) {
	types := map[string]*TypeWeight{}
	for i := range set.Tensors {
		t := &set.Tensors[i]
		d.Parameters += t.Elems()
		name := t.Type.String()
		if types[name] == nil {
			types[name] = &TypeWeight{Type: name, Supported: kernels.Type(t.Type).Supported()}
		}
		types[name].Tensors++
		types[name].Bytes += t.Size
		var l int
		if n, _ := fmt.Sscanf(t.Name, "blk.%d.", &l); n != 1 || l < 0 || l > len(set.Tensors) { // every layer has a tensor
			d.OutsideBytes += t.Size
			continue
		}
		for len(d.LayerBytes) <= l {
			d.LayerBytes = append(d.LayerBytes, 0)
		}
		d.LayerBytes[l] += t.Size
		if strings.Contains(t.Name, "_exps.") {
			d.ExpertBytes += t.Size
		}
	}
	for _, t := range types {
		d.Types = append(d.Types, *t)
	}
	slices.SortFunc(d.Types, func(a, b TypeWeight) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Type, b.Type)) })
}

// cacheKind returns the Cache of a layer's description.
func (c *Config) cacheKind(l int) string {
	switch {
	case c.Cache[l].RowElems() == 0:
		return "state"
	case c.Cache[l].Latent:
		return "latent"
	case c.Cache[l].Window > 0:
		return fmt.Sprintf("window of %d", c.Cache[l].Window)
	}
	return "append-only"
}

// read reads the tokenizer's keys; it fails where LoadTokenizer does.
func (f *TokenizerFacts) read(set *gguf.Set) error {
	meta := set.Meta()
	f.Model, f.Pre = lookup(meta, "tokenizer.ggml.model", gguf.Value.Text), lookup(meta, "tokenizer.ggml.pre", gguf.Value.Text)
	template := lookup(meta, "tokenizer.chat_template", gguf.Value.Text)
	f.Template, f.Tools, f.Thinking = template != "", strings.Contains(template, "tools"), strings.Contains(template, "think")
	if v, ok := meta.Lookup("tokenizer.ggml.tokens"); ok {
		f.Size = v.Len()
	}
	tok, err := LoadTokenizer(set)
	if err != nil {
		return err
	}
	f.AddBOS, f.Special = tok.AddBOS(), map[string]string{}
	for role, id := range map[string]int32{"bos": tok.BOS(), "eos": tok.EOS(), "eot": tok.EOT(), "pad": tok.PAD(), "unk": tok.UNK()} {
		if id >= 0 {
			f.Special[role] = tok.Decode([]int32{id}, true)
		}
	}
	if f.Template {
		chat := []tokenizer.Message{{Role: "user", Content: "Question"}, {Role: "assistant", Content: "Answer"}, {Role: "user", Content: "Why?"}}
		if _, err := tok.RenderChat(chat, true, nil); err != nil {
			f.TemplateError = err.Error()
		}
	}
	return nil
}
