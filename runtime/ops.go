package runtime

import (
	"strings"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// Ops are multiplications and additions, a pair counting as two, by the arithmetic that does them.
type Ops struct {
	Int8 float64 // products with quantised weights, which meet 8-bit activations
	F32  float64 // products with F32, F16 and BF16 weights
}

// CountOps returns the operations in the matrices of the model at path (any part of a split set): in all layers, per row,
// and in the head, per row whose logits are wanted. Together they are what Config.LayerFlops and HeadFlops say.
func CountOps(path string) (layers, head Ops, err error) {
	set, err := gguf.OpenSet(path)
	if err != nil {
		return Ops{}, Ops{}, err
	}
	cfg, err := InspectSet(set)
	if err != nil {
		return Ops{}, Ops{}, err
	}
	output := "output.weight"
	if cfg.Tied {
		output = "token_embd.weight"
	}
	for i := range set.Tensors {
		switch t := &set.Tensors[i]; {
		case t.Name == output:
			head.add(t, &cfg)
		case layerOf(t.Name) >= 0 && layerOf(t.Name) < cfg.Layers && t.Rows() > 1 && !strings.HasSuffix(t.Name, ".bias"):
			layers.add(t, &cfg)
		}
	}
	return layers, head, nil
}

// add counts the product of one row with a matrix.
func (o *Ops) add(t *gguf.Tensor, c *Config) {
	n := float64(2 * t.Rows() * t.Cols())
	if strings.Contains(t.Name, "_exps.") { // experts, of which a row uses some
		n = float64(n * (float64(c.UsedExperts) / float64(t.Dims[2])))
	}
	if kernels.Type(t.Type).Form() == kernels.Dense {
		o.F32 += n
	} else {
		o.Int8 += n
	}
}
