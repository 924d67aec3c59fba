package runtime

import "github.com/starling-swarm/starling/kernels"

// Config is what the header of a model says, and the sizes that follow from it. Sizes and costs describe the whole model.
type Config struct {
	Arch    string // general.architecture
	Name    string // general.name; may be empty
	Layers  int
	Width   int // elements of the residual stream per position: the seam between two layers
	Heads   int // query heads
	KVHeads int // key and value heads; Heads is a multiple
	HeadDim int // elements of a query, key or value head
	RopeDim int // leading elements of a head that are rotated; even
	FFN     int // hidden elements of a feed-forward block without experts
	// Latent has sizes of latent attention; its Rank is 0 where there is none.
	Latent Latent
	// Delta has sizes of gated delta nets; all are 0 where no layer has one.
	Delta DeltaNet
	// GatedAttn says that queries come with a gate each, which multiplies what their head attends to.
	GatedAttn bool
	// Cache has, by layer, what is kept of each position.
	Cache []LayerCache
	// Experts is how many feed-forward blocks a layer has, of which each row uses UsedExperts; 0 where there is one for all.
	Experts, UsedExperts int
	ExpertFFN            int  // hidden elements of each
	SharedFFN            int  // … and of one that every row uses beside them; 0: there is none
	SharedGated          bool // … times the sigmoid of a product of its own
	LeadingDense         int  // layers before the first one with experts
	Router               Router
	// Drafts is how many layers the file has beyond Layers. They guess further tokens, and are not run.
	Drafts  int
	Vocab   int // rows of the embedding table = elements of the logits
	Context int // positions the model was made for

	Eps      float32 // of every RMS norm
	RopeBase float64 // rope frequency i is RopeBase^(−2i/RopeDim), divided by RopeScale and by the model's own factors
	// RopeScale divides every position, with YaRN those of some pairs; 1 when the model asks for no scaling.
	RopeScale float64
	Yarn      Yarn
	LongRope  LongRope
	Temper    Temper
	// LocalRopeBase is the base by which layers with a window rotate, not divided by anything; 0: they rotate as the others.
	LocalRopeBase float64

	EmbedScale float32 // multiplies rows of the embedding table; 1 in most families
	AttnScale  float32 // multiplies the products of queries and keys
	Tied       bool    // the head reads the embedding table

	LayerBytes []int64 // [Layers] bytes of weights
	EmbedBytes int64   // bytes of the embedding table
	// ExpertBytes is how many of LayerBytes, in all layers together, are experts'; a row reads UsedExperts of Experts of them.
	ExpertBytes int64
	HeadBytes   int64 // bytes of the final norm and the head's matrix (the embedding table's where Tied)

	LayerFlops []float64 // [Layers] floating point operations per row in a layer's matrices (2 per weight that a row uses)
	AttnFlops  float64   // … and per cached position that the row attends to in one layer
	HeadFlops  float64   // … and per row whose logits are wanted
}

// Yarn says which rotated pairs RopeScale is for, where the model asks for YaRN (Peng et al. 2023, arXiv:2309.00071): all
// of those that turn at most BetaSlow times in Original positions, none of those that turn at least BetaFast times, and a
// share, falling linearly, of the pairs in between.
type Yarn struct {
	Original           int     // positions that the model was trained on before it was stretched; 0: no YaRN
	BetaFast, BetaSlow float64 // turns
	Amplitude          float64 // multiplies cosines and sines
	Exact              bool    // the bounds are not rounded to whole pairs
}

// LongRope says that the model has two sets of factors that divide rope frequencies (Ding et al. 2024, arXiv:2402.13753). One set
// is for all positions of a sequence: rope_factors_short where it has room for at most Original positions, else rope_factors_long.
// A sequence's capacity is what its plan reserves, prompt and answer together, so all peers of a session choose alike.
type LongRope struct {
	Original  int     // positions that the model was trained on before it was stretched; 0: no such factors
	Amplitude float64 // multiplies cosines and sines
}

// Temper says that queries far from the start are multiplied, too: at position pos, counted from 0, by
// round(1 + Scale·ln(1 + ⌊pos/Original⌋)), in float64.
type Temper struct {
	Original int // 0: they are not
	Scale    float64
}

// at returns the factor at a position.
func (t Temper) at(pos int) float32 {
	return float32(1 + float64(t.Scale*kernels.Log64(float64(1+pos/t.Original))))
}

// Latent has the sizes of multi-head latent attention, in which a query head has Nope elements and RopeDim rotated ones. All
// heads share one key, Rank elements of a latent and RopeDim rotated ones, and the latent is their value.
type Latent struct {
	Rank  int // elements of the latent
	QRank int // … of the latent that queries are made of; 0: they are made of the residual stream
	Nope  int
	Value int // elements of a head's output
}

// Router says how a row's experts are chosen and what they contribute.
type Router struct {
	Sigmoid bool // probabilities are the sigmoids of scores, not their softmax
	// Experts are chosen from the best UsedGroups of Groups runs of them, by the best of each, of sigmoids by the two best; 1 of 1:
	// from all.
	Groups, UsedGroups int
	Normed             bool    // shares are probabilities divided by their sum
	Scale              float32 // … and multiplied by this
}

// LayerCache is what one layer keeps: of each position a key and a value of every KV head, and State.
type LayerCache struct {
	Heads      int  // of keys and values; as many query heads share one as Config.Heads is a multiple
	Key, Value int  // elements of a key, of a value
	Latent     bool // a value is the first Value elements of the key, and not kept beside it
	// Window is how many of the latest positions a row sees, its own included, so that rows of no others are kept; 0: all.
	Window int
	// State is the layer's tail: elements of float32 that every position changes, kept once whatever the number of positions.
	State int
}

// TailBytes returns the bytes of the layer's tail.
func (s LayerCache) TailBytes() int { return 4 * s.State }

// RowElems returns the elements of a position's row.
func (s LayerCache) RowElems() int {
	if s.Latent {
		return s.Heads * s.Key
	}
	return s.Heads * (s.Key + s.Value)
}

// rowBytes returns the bytes of a canonical row.
func (s LayerCache) rowBytes(t KVType) int {
	if s.Latent {
		return s.Heads * t.Bytes(s.Key)
	}
	return s.Heads * (t.Bytes(s.Key) + t.Bytes(s.Value))
}

// block returns the shape of a head's part of a page.
func (s LayerCache) block() kernels.KVBlock {
	return kernels.KVBlock{Key: s.Key, Value: s.Value, Latent: s.Latent}
}

// KVRowBytes returns the bytes of one position's cache row in a layer (see Sequence.RowBytes).
func (c *Config) KVRowBytes(layer int, t KVType) int { return c.Cache[layer].rowBytes(t) }
