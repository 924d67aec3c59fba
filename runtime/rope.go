package runtime

import "github.com/starling-swarm/starling/kernels"

// ropeTable holds the angle per position of each rotated pair, in float64:
//
//	freq[i] = base^(−2i/RopeDim) / factor[i] / scale
//
// in that order of operations, each rounded. factor is the model's rope_freqs.weight (Llama 3's scaling is stored so)
// or 1.
type ropeTable struct {
	freq []float64 // [RopeDim/2]
}

// newRopeTable makes the table for heads of which dim elements are rotated. factors may be nil.
func newRopeTable(dim int, base, scale float64, factors []float32) ropeTable {
	freq := make([]float64, dim/2)
	for i := range freq {
		f := kernels.Pow64(base, -float64(2*i)/float64(dim))
		if factors != nil {
			f /= float64(factors[i])
		}
		freq[i] = f / scale
	}
	return ropeTable{freq}
}

// ropes are the tables that a range of layers needs: of layers that see every position, and of layers with a window. A
// kind of layers that is not in the range has an empty one.
type ropes struct{ full, local ropeTable }

func newRopes(c *Config, layers Range, factors []float32) (t ropes) {
	for l := layers.First; l < layers.Last; l++ {
		switch windowed := c.window(l) > 0; {
		case windowed && t.local.freq == nil:
			t.local = newRopeTable(c.RopeDim, c.LocalRopeBase, 1, nil)
		case !windowed && t.full.freq == nil:
			t.full = newRopeTable(c.RopeDim, c.RopeBase, c.RopeScale, factors)
		}
	}
	return t
}

// angles are the cosine and sine of every pair at one position, [RopeDim/2] each; empty where no layer needs them.
type angles struct{ cos, sin []float32 }

// fill computes a at a position: of round(pos·freq[i]) in float64.
func (t ropeTable) fill(a angles, pos int) {
	for i, f := range t.freq {
		a.sin[i], a.cos[i] = kernels.SinCos(float64(float64(pos) * f))
	}
}

// cut takes the memory of one position's angles from the front of buf and returns the rest.
func (t ropeTable) cut(buf []float32) (a angles, rest []float32) {
	n := len(t.freq)
	return angles{buf[:n:n], buf[n : 2*n : 2*n]}, buf[2*n:]
}
