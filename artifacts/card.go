package artifacts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// Card is what a model's GGUF header tells: what it is, what its layers cost and where their bytes
// lie. It is plain data, derived again by everyone who has the header; one that was received as
// JSON is its sender's claim.
//
// Costs are for planning: FLOPs count a multiplication and an addition as two, over the weights
// that one token uses (of a mixture of experts only the chosen ones), without attention over the
// context.
type Card struct {
	Name         string `json:"name"`         // general.name, printable, may be empty
	Architecture string `json:"architecture"` // general.architecture
	Quant        string `json:"quant"`        // the tensor type that most bytes have
	License      string `json:"license"`      // general.license, may be empty
	Parameters   int64  `json:"parameters"`   // elements of all tensors

	Layers  int `json:"layers"`
	Width   int `json:"width"`   // of the residual stream
	Vocab   int `json:"vocab"`   // tokens
	Context int `json:"context"` // positions the model was trained for
	// Cuts are the legal boundaries between stages: c means between layers c-1 and c. The ends (0
	// and Layers) are not in it.
	Cuts []int `json:"cuts"`

	KVBytesPerToken   []int64 `json:"kv_bytes_per_token"`   // per layer, f16 keys and values
	KVWindow          []int64 `json:"kv_window"`            // per layer: how many of the latest tokens are seen, so that no others are kept; 0: all
	TailBytes         []int64 `json:"tail_bytes"`           // per layer, f32: what every token changes in place; 0: the cache is append-only
	SeamBytesPerToken int64   `json:"seam_bytes_per_token"` // f32 residual stream

	TotalBytes int64     `json:"total_bytes"` // all parts
	LayerBytes []int64   `json:"layer_bytes"` // weights, per layer
	EmbedBytes int64     `json:"embed_bytes"` // token embedding table
	HeadBytes  int64     `json:"head_bytes"`  // output norm and matrix; the table again when Tied
	LayerFlops []float64 `json:"layer_flops"` // per token, per layer, in matrices
	AttnFlops  []float64 `json:"attn_flops"`  // per token and each earlier one that it attends to, per layer
	HeadFlops  float64   `json:"head_flops"`  // per token
	Tied       bool      `json:"tied"`        // the output matrix is the token embedding table

	// Where the bytes lie; see [Card.Spans].
	PartSizes   []int64  `json:"part_sizes"`
	HeaderSpans []Span   `json:"header_spans"` // metadata, tokenizer, tensor tables; what no layer owns
	LayerSpans  [][]Span `json:"layer_spans"`
	EmbedSpans  []Span   `json:"embed_spans"`
	HeadSpans   []Span   `json:"head_spans"`
}

// NewCard derives the card of a model from its header. Only metadata and tensor tables are looked
// at. An error names the file and the key or tensor.
func NewCard(set *gguf.Set) (*Card, error) {
	if err := set.Refuse(); err != nil {
		return nil, err
	}
	f := set.Meta()
	c := &Card{TotalBytes: set.Size(), PartSizes: make([]int64, len(set.Parts))}
	for i, p := range set.Parts {
		c.PartSizes[i] = p.Size
	}
	if err := c.readMetadata(f, len(set.Tensors)); err != nil {
		return nil, err
	}
	if err := c.readTensors(set); err != nil {
		return nil, err
	}
	return c, nil
}

// readMetadata fills what the key-value pairs tell. tensors is how many the model has.
func (c *Card) readMetadata(f *gguf.File, tensors int) error {
	r := reader{f: f}
	c.Name = printable(r.text("general.name"))
	c.License = printable(r.text("general.license"))
	arch := r.text("general.architecture")
	c.Architecture = printable(arch)
	c.Layers = r.count(arch+".block_count", 1, tensors)
	drafts := r.uintOr(arch+".nextn_predict_layers", 0) // blocks past the last layer, for guesses
	if r.err == nil && drafts >= uint64(c.Layers) {
		r.fail(fmt.Errorf("%s: %s.nextn_predict_layers is %d of %d blocks: the metadata are damaged", f.Path, arch, drafts, c.Layers))
	}
	blocks := c.Layers
	c.Layers -= int(drafts)
	c.Width = r.count(arch+".embedding_length", 1, 1<<20)
	c.Context = r.count(arch+".context_length", 1, 1<<30)
	if r.err != nil {
		return r.err
	}
	heads := r.perLayer(arch+".attention.head_count", blocks, nil)
	kvHeads := r.perLayer(arch+".attention.head_count_kv", blocks, heads)
	tail, recurrent := r.recurrent(arch, c.Layers)
	c.KVWindow = r.windows(arch, c.Layers, c.Context)
	latent := r.uintOr(arch+".attention.kv_lora_rank", 0)
	for i := range c.Layers {
		headDim := uint64(0)
		if heads[i] > 0 {
			headDim = uint64(c.Width) / heads[i]
		}
		k := r.uintOr(arch+".attention.key_length", headDim)
		v := r.uintOr(arch+".attention.value_length", headDim)
		if kvHeads[i] > 1<<16 || heads[i] > 1<<16 || k > 1<<20 || v > 1<<20 {
			r.fail(fmt.Errorf("%s: layer %d would have %d heads and %d KV heads of %d and %d elements: the metadata are damaged", f.Path, i, heads[i], kvHeads[i], k, v))
		}
		elems := kvHeads[i] * (k + v)
		if latent > 0 { // one latent for all heads, and the rotated part of a key
			elems = latent + r.uintOr(arch+".rope.dimension_count", 0)
			k, v = elems, latent
		}
		attn := 2 * float64(heads[i]) * float64(k+v)
		if recurrent[i] { // a state in place of rows
			elems, attn = 0, 0
			c.TailBytes = append(c.TailBytes, tail)
		} else {
			c.TailBytes = append(c.TailBytes, 0)
		}
		if elems > 1<<37 {
			r.fail(fmt.Errorf("%s: layer %d would keep %d elements a token: the metadata are damaged", f.Path, i, elems))
		}
		c.KVBytesPerToken = append(c.KVBytesPerToken, int64(2*elems))
		c.AttnFlops = append(c.AttnFlops, attn)
	}
	c.SeamBytesPerToken = 4 * int64(c.Width)
	for i := 1; i < c.Layers; i++ {
		c.Cuts = append(c.Cuts, i)
	}
	if v, ok := f.Lookup("tokenizer.ggml.tokens"); ok {
		c.Vocab = v.Len()
	} else {
		c.Vocab = int(min(r.uintOr(arch+".vocab_size", 0), 1<<30))
	}
	return r.err
}

// windows returns each layer's window, of families that the engine runs with one: of gemma3 all layers but every sixth, of gpt-oss
// every second one, unless the header says otherwise, of phi3 all, if it is smaller than the context.
func (r *reader) windows(arch string, layers, context int) []int64 {
	list := make([]int64, layers)
	size := r.uintOr(arch+".attention.sliding_window", 0)
	period, ok := map[string]uint64{"gemma3": 6, "gpt-oss": 2, "phi3": 0}[arch]
	if !ok || size == 0 || size > 1<<30 || arch == "phi3" && size >= uint64(context) {
		return list
	}
	key := arch + ".attention.sliding_window_pattern"
	which, err := r.f.Bools(key)
	switch {
	case err == nil && len(which) != layers:
		r.fail(fmt.Errorf("%s: %s has %d elements for %d layers: the metadata are damaged", r.f.Path, key, len(which), layers))
		return list
	case err != nil && period > 0:
		period = max(r.uintOr(key, period), 1)
	}
	for i := range list {
		switch n := uint64(i); {
		case err == nil && !which[i]:
		case err != nil && period > 0 && n%period == period-1:
		default:
			list[i] = int64(size)
		}
	}
	return list
}

// recurrent returns which layers have a gated delta net, and what its state takes in bytes: the last inputs of a convolution
// over queries, keys and values, and a matrix for each value head.
func (r *reader) recurrent(arch string, layers int) (tail int64, which []bool) {
	which = make([]bool, layers)
	inner := r.uintOr(arch+".ssm.inner_size", 0)
	if inner == 0 {
		return 0, which
	}
	kernel, keys, dim := r.uintOr(arch+".ssm.conv_kernel", 1), r.uintOr(arch+".ssm.group_count", 0), r.uintOr(arch+".ssm.state_size", 0)
	if inner > 1<<20 || kernel < 1 || kernel > 1<<10 || keys > 1<<16 || dim > 1<<16 {
		r.fail(fmt.Errorf("%s: %s.ssm: a state of %d heads of %d and a convolution over %d positions of %d: the metadata are damaged", r.f.Path, arch, keys, dim, kernel, inner))
		return 0, which
	}
	tail = 4 * int64((kernel-1)*(2*keys*dim+inner)+inner*dim)
	key := arch + ".attention.recurrent_layers"
	if _, ok := r.f.Lookup(key); ok {
		said, err := r.f.Bools(key)
		if err != nil || len(said) < layers {
			r.fail(fmt.Errorf("%s: %s is not true or false for each of %d layers: the metadata are damaged", r.f.Path, key, layers))
		}
		copy(which, said)
		return tail, which
	}
	interval := int(max(min(r.uintOr(arch+".full_attention_interval", 4), uint64(layers)+1), 1))
	for i := range which {
		which[i] = i%interval != interval-1
	}
	return tail, which
}

// readTensors fills what the tensor tables tell.
func (c *Card) readTensors(set *gguf.Set) error {
	f := set.Meta()
	used, of, err := expertShare(f, c.Architecture)
	if err != nil {
		return err
	}
	c.LayerBytes = make([]int64, c.Layers)
	c.LayerFlops = make([]float64, c.Layers)
	layers := make([][]Span, c.Layers)
	var header, embed, head []Span
	for i, p := range set.Parts {
		header = append(header, Span{Part: i, Length: p.HeaderSize})
	}
	_, untied := set.Tensor("output.weight")
	c.Tied = !untied
	byType := map[gguf.Type]int64{}
	for i := range set.Tensors {
		t := &set.Tensors[i]
		s := Span{Part: t.Part, Offset: t.Offset, Length: t.Size}
		byType[t.Type] += t.Size
		c.Parameters += int64(t.Elems())
		flops := 0.0
		if len(t.Dims) >= 2 {
			flops = 2 * float64(t.Elems())
		}
		switch layer, isLayer := layerOf(t.Name); {
		case isLayer && layer < c.Layers:
			layers[layer] = append(layers[layer], s)
			c.LayerBytes[layer] += t.Size
			if strings.Contains(t.Name, "_exps.") && of > 0 {
				flops *= used / of
			}
			c.LayerFlops[layer] += flops
		case isLayer: // blocks past the last layer (multi-token prediction) are not run: they come with the whole model only
		case strings.HasPrefix(t.Name, "token_embd"):
			embed = append(embed, s)
			c.EmbedBytes += t.Size
			if c.Tied && t.Name == "token_embd.weight" {
				head = append(head, s)
				c.HeadBytes += t.Size
				c.HeadFlops += flops
			}
		case strings.HasPrefix(t.Name, "output"):
			head = append(head, s)
			c.HeadBytes += t.Size
			c.HeadFlops += flops
		default: // small tables for all layers, such as rope_freqs
			header = append(header, s)
		}
	}
	for i := range layers {
		if len(layers[i]) == 0 {
			return fmt.Errorf("%s: %s.block_count is %d but there is no tensor blk.%d.*: the file is damaged or a part of the model is missing", f.Path, c.Architecture, c.Layers, i)
		}
		layers[i] = mergeSpans(layers[i], int64(f.Alignment))
	}
	c.LayerSpans = layers
	c.HeaderSpans = mergeSpans(header, int64(f.Alignment))
	c.EmbedSpans = mergeSpans(embed, int64(f.Alignment))
	c.HeadSpans = mergeSpans(head, int64(f.Alignment))
	most := int64(-1)
	for t, n := range byType {
		if n > most || n == most && t.String() < c.Quant {
			most, c.Quant = n, t.String()
		}
	}
	return nil
}

// expertShare returns how many of how many experts a token uses; 0 of 0 without experts.
func expertShare(f *gguf.File, arch string) (used, of float64, err error) {
	r := reader{f: f}
	n := r.uintOr(arch+".expert_count", 0)
	k := r.uintOr(arch+".expert_used_count", n)
	return float64(min(k, n)), float64(n), r.err
}

// layerOf returns the layer that a tensor called blk.N.… belongs to.
func layerOf(name string) (layer int, ok bool) {
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return 0, false
	}
	num, _, ok := strings.Cut(rest, ".")
	if !ok || num == "" || len(num) > 6 || strings.Trim(num, "0123456789") != "" {
		return 0, false
	}
	layer, err := strconv.Atoi(num)
	return layer, err == nil
}

// CheckRange returns an error that says what is wrong with r when it is not a range of the model's
// layers. An empty range at either end is one: it stands for the embedding table or the head alone.
func (c *Card) CheckRange(r LayerRange) error {
	if r.First < 0 || r.Last < r.First || r.Last > c.Layers {
		return fmt.Errorf("layers %d–%d: the model has layers 0–%d (%d)", r.First, r.Last-1, c.Layers-1, c.Layers)
	}
	return nil
}

// Spans returns the bytes that a peer needs which runs the layers r: header and tokenizer always,
// the layers, the embedding table when r begins with layer 0 or ends a model with tied embeddings,
// the output norm and matrix when r ends the model. They are merged, ascending, in as many runs as
// the file's order of tensors makes. All layers are the whole model, padding included. A range that
// [Card.CheckRange] refuses has no spans.
func (c *Card) Spans(r LayerRange) []Span {
	if c.CheckRange(r) != nil {
		return nil
	}
	if r.Len() == c.Layers {
		spans := make([]Span, len(c.PartSizes))
		for i, n := range c.PartSizes {
			spans[i] = Span{Part: i, Length: n}
		}
		return spans
	}
	spans := slices.Clone(c.HeaderSpans)
	for _, l := range c.LayerSpans[r.First:r.Last] {
		spans = append(spans, l...)
	}
	if r.First == 0 {
		spans = append(spans, c.EmbedSpans...)
	}
	if r.Last == c.Layers {
		spans = append(spans, c.HeadSpans...)
	}
	return mergeSpans(spans, 0)
}

// reader reads metadata and keeps the first error.
type reader struct {
	f   *gguf.File
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) text(key string) string {
	s, err := r.f.StringOr(key, "")
	if err != nil {
		r.fail(err)
	}
	return s
}

func (r *reader) uintOr(key string, def uint64) uint64 {
	n, err := r.f.UintOr(key, def)
	if err != nil {
		r.fail(err)
	}
	return n
}

// count reads an integer that must be there and in [least, most].
func (r *reader) count(key string, least, most int) int {
	n, err := r.f.Uint(key)
	switch {
	case err != nil:
		r.fail(err)
	case n < uint64(least) || n > uint64(most):
		r.fail(fmt.Errorf("%s: %s is %d, expected %d to %d: the metadata are damaged", r.f.Path, key, n, least, most))
	}
	return int(n)
}

// perLayer reads a number that is given once for all n layers or once for each. Absent, it is def,
// or 0 for each layer without a def.
func (r *reader) perLayer(key string, n int, def []uint64) []uint64 {
	out := make([]uint64, n)
	v, ok := r.f.Lookup(key)
	if !ok {
		copy(out, def)
		return out
	}
	if v.Kind() == gguf.KindArray {
		all, ok := v.Uints()
		if !ok || len(all) != n {
			r.fail(fmt.Errorf("%s: %s has %d elements for %d layers: the metadata are damaged", r.f.Path, key, v.Len(), n))
			return out
		}
		return all
	}
	one := r.uintOr(key, 0)
	for i := range out {
		out[i] = one
	}
	return out
}

// printable makes foreign text fit for one line of a terminal: control characters become spaces,
// and it ends after 120 characters.
func printable(s string) string {
	var b strings.Builder
	n := 0
	for _, c := range s {
		if n++; n > 120 {
			b.WriteRune('…')
			break
		}
		if !unicode.IsPrint(c) {
			c = ' '
		}
		b.WriteRune(c)
	}
	return strings.TrimSpace(b.String())
}
