package runtime

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
	FFN     int // hidden elements of the feed-forward block
	Vocab   int // rows of the embedding table = elements of the logits
	Context int // positions the model was made for

	Eps      float32 // of every RMS norm
	RopeBase float64 // rope frequency i is RopeBase^(−2i/RopeDim), divided by RopeScale and by the model's own factors
	// RopeScale divides every position (linear scaling); 1 when the model asks for none.
	RopeScale float64
	// Windows has, by layer, how many of the latest positions a row attends to, its own included; 0 means all. It is nil
	// where that is so in every layer. Layers with a window rotate by LocalRopeBase, not divided by anything.
	Windows       []int
	LocalRopeBase float64

	EmbedScale float32 // multiplies rows of the embedding table; 1 in most families
	AttnScale  float32 // multiplies the products of queries and keys
	Tied       bool    // the head reads the embedding table

	LayerBytes []int64 // [Layers] bytes of weights
	EmbedBytes int64   // bytes of the embedding table
	HeadBytes  int64   // bytes of the final norm and the head's matrix (the embedding table's where Tied)

	LayerFlops float64 // floating point operations per row in one layer's matrices (2 per weight)
	AttnFlops  float64 // … and per cached position that the row attends to
	HeadFlops  float64 // … and per row whose logits are wanted
}

// window returns Windows of a layer.
func (c *Config) window(l int) int {
	if c.Windows == nil {
		return 0
	}
	return c.Windows[l]
}

// KVRowBytes returns the bytes of one position's cache row in one layer (see Sequence.RowBytes).
func (c *Config) KVRowBytes(t KVType) int { return 2 * c.KVHeads * c.HeadDim * t.Size() }
