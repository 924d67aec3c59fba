package route

import (
	"fmt"
	"slices"
)

// Model is what planning needs to know of a model: sizes and costs as numbers, taken from its card.
type Model struct {
	// Layers is the number of layers; layer indexes below run from 0 to Layers−1.
	Layers int `json:"layers"`
	// LayerWeightBytes is the stored size of each layer, which one decoded token reads once. Length Layers.
	LayerWeightBytes []int64 `json:"layer_weight_bytes"`
	// HeadBytes is what one decoded token reads of the output head, tied or not.
	HeadBytes int64 `json:"head_bytes"`
	// EmbedBytes is the stored size of the token embedding table.
	EmbedBytes int64 `json:"embed_bytes"`
	// LayerFlops is FLOPs per token of each layer, attention to what the prompt's average token sees included. Length Layers.
	LayerFlops []float64 `json:"layer_flops"`
	// HeadFlops is FLOPs of the output head for one token.
	HeadFlops float64 `json:"head_flops"`
	// KVBytesPerToken is what one token adds to each layer's cache, in bytes. Length Layers.
	KVBytesPerToken []int64 `json:"kv_bytes_per_token"`
	// KVSentBytes is how many bytes that is on a link. Length Layers, or 0 where it is the same.
	KVSentBytes []int64 `json:"kv_sent_bytes,omitempty"`
	// KVPositions is for how many tokens, at most, each layer's cache has memory; 0: for all. Length Layers, or 0 where that is so
	// everywhere.
	KVPositions []int64 `json:"kv_positions,omitempty"`
	// TailBytes is what each layer's cache has beside that, whatever the tokens: every token changes it, so it goes to the
	// decoder anew with every chunk of the prompt. Length Layers, or 0 where every layer's cache is append-only.
	TailBytes []int64 `json:"tail_bytes,omitempty"`
	// TailEvery is how many decoded tokens' tails go to the decoder once; 0 is 1.
	TailEvery int `json:"tail_every,omitempty"`
	// HeldTails is of how many positions a session holds tails.
	HeldTails int `json:"held_tails,omitempty"`
	// SeamBytes is one token's hidden state between two layers, in bytes.
	SeamBytes int64 `json:"seam_bytes"`
	// Cuts are the layer indexes before which the model may be cut, ascending, without 0 and Layers.
	Cuts []int `json:"cuts"`
	// Context is the longest prompt plus answer in tokens; 0 is no limit.
	Context int `json:"context"`
}

// Limits on a model's figures: they come from a file header, and beyond these the sums below would lose exactness.
const (
	maxLayers     = 1 << 14
	maxBytes      = 1 << 50 // weights of one layer or table
	maxTokenBytes = 1 << 28 // one token's cache rows in all layers, or its seam
	maxTokens     = 1 << 27
	maxHeldTails  = 1 << 10
	maxFlops      = 1e18 // per token and layer
)

// check returns an error wrapping [ErrModel] when the figures are unusable.
func (m *Model) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrModel, fmt.Sprintf(format, args...))
	}
	if m.Layers < 1 || m.Layers > maxLayers {
		return bad("%d layers; 1 to %d are possible", m.Layers, maxLayers)
	}
	for _, f := range []struct {
		name string
		n    int
	}{
		{"layer weight sizes", len(m.LayerWeightBytes)},
		{"layer FLOPs", len(m.LayerFlops)},
		{"cache bytes per token", len(m.KVBytesPerToken)},
	} {
		if f.n != m.Layers {
			return bad("%d %s for %d layers", f.n, f.name, m.Layers)
		}
	}
	if n := len(m.TailBytes); n != 0 && n != m.Layers {
		return bad("%d tails for %d layers", n, m.Layers)
	}
	if m.TailEvery < 0 || m.TailEvery > maxTokens {
		return bad("tails every %d tokens; 0 to %d are possible", m.TailEvery, maxTokens)
	}
	if m.HeldTails < 0 || m.HeldTails > maxHeldTails {
		return bad("tails of %d positions; 0 to %d are possible", m.HeldTails, maxHeldTails)
	}
	if n := len(m.KVSentBytes); n != 0 && n != m.Layers {
		return bad("%d sizes of cache rows on links for %d layers", n, m.Layers)
	}
	if n := len(m.KVPositions); n != 0 && n != m.Layers {
		return bad("%d numbers of cached tokens for %d layers", n, m.Layers)
	}
	for _, n := range m.KVPositions {
		if n < 0 {
			return bad("a cache of %d tokens", n)
		}
	}
	for _, b := range slices.Concat(m.TailBytes, m.LayerWeightBytes, []int64{m.HeadBytes, m.EmbedBytes}) {
		if b < 0 || b > maxBytes {
			return bad("a size of %d bytes; 0 to %d are possible", b, int64(maxBytes))
		}
	}
	for _, list := range [][]int64{append(slices.Clone(m.KVBytesPerToken), m.SeamBytes), m.KVSentBytes} {
		var rows int64
		for _, b := range list {
			if rows += b; b < 0 || b > maxTokenBytes || rows > maxTokenBytes {
				return bad("cache rows or a seam of %d bytes per token; 0 to %d in all are possible", b, int64(maxTokenBytes))
			}
		}
	}
	for _, f := range append(slices.Clone(m.LayerFlops), m.HeadFlops) {
		if !(f >= 0 && f <= maxFlops) {
			return bad("%g FLOPs per token", f)
		}
	}
	for i, c := range m.Cuts {
		if c <= 0 || c >= m.Layers || i > 0 && c <= m.Cuts[i-1] {
			return bad("cuts %v are not ascending inside 1–%d", m.Cuts, m.Layers-1)
		}
	}
	if m.Context < 0 || m.Context > maxTokens {
		return bad("a context of %d tokens", m.Context)
	}
	return nil
}

// sent returns the bytes of one token's row of layer x on a link.
func (m *Model) sent(x int) int64 {
	if len(m.KVSentBytes) > 0 {
		return m.KVSentBytes[x]
	}
	return m.KVBytesPerToken[x]
}

// kept returns how many of so many tokens have memory in layer x's cache.
func (m *Model) kept(x int, tokens float64) float64 {
	if len(m.KVPositions) > 0 && m.KVPositions[x] > 0 {
		return min(tokens, float64(m.KVPositions[x]))
	}
	return tokens
}

// bounds returns every position where a range may begin or end: 0, the legal cuts, Layers.
func (m *Model) bounds() []int {
	b := make([]int, 0, len(m.Cuts)+2)
	b = append(b, 0)
	b = append(b, m.Cuts...)
	return append(b, m.Layers)
}

// Range is the layers First, …, Last−1 (half open). First == Last is an empty range.
type Range struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Len returns the number of layers in r.
func (r Range) Len() int { return r.Last - r.First }

// Contains reports whether every layer of o is in r. An empty o is in every range.
func (r Range) Contains(o Range) bool {
	return o.Len() == 0 || r.First <= o.First && o.Last <= r.Last
}

// String writes r the way people count: inclusive, with the number of layers, as in "layers 0–9 (10)".
func (r Range) String() string {
	switch {
	case r.Len() <= 0:
		return "no layers"
	case r.Len() == 1:
		return fmt.Sprintf("layer %d (1)", r.First)
	}
	return fmt.Sprintf("layers %d–%d (%d)", r.First, r.Last-1, r.Len())
}
