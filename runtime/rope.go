package runtime

import (
	"math"

	"github.com/starling-swarm/starling/kernels"
)

// ropeTable holds the angle per position of each rotated pair, in float64:
//
//	freq[i] = base^(−2i/RopeDim) / factor[i] / scale
//
// in that order of operations, each rounded. factor is the model's rope_freqs.weight (Llama 3's scaling is stored so)
// or 1. With YaRN, of f = base^(−2i/RopeDim) / factor[i] and the share s of pair i (Yarn.share):
//
//	freq[i] = f/scale·s + f·(1−s)
type ropeTable struct {
	freq      []float64 // [RopeDim/2]
	amplitude float32   // multiplies cosines and sines
}

// newRopeTable makes the table for heads of which dim elements are rotated. factors may be nil.
func newRopeTable(dim int, base, scale float64, factors []float32, y Yarn) ropeTable {
	t := ropeTable{make([]float64, dim/2), 1}
	for i := range t.freq {
		f := kernels.Pow64(base, -float64(2*i)/float64(dim))
		if factors != nil {
			f /= float64(factors[i])
		}
		t.freq[i] = f / scale
		if y.Original > 0 {
			s := y.share(i, dim, base)
			t.freq[i] = float64(t.freq[i]*s) + float64(f*(1-s))
		}
	}
	if y.Original > 0 {
		t.amplitude = float32(y.Amplitude)
	}
	return t
}

// share is how much of pair i, of dim elements rotated, is scaled: 0 up to pair low, 1 from pair high on, where
//
//	low  = max(⌊pair(BetaFast)⌋, 0), high = min(⌈pair(BetaSlow)⌉, dim−1)
//	pair(turns) = dim·ln(Original / (turns·2π)) / (2·ln(base))
//
// Where they are Exact, ⌊⌋ and ⌈⌉ are left out.
func (y *Yarn) share(i, dim int, base float64) float64 {
	pair := func(turns float64) float64 {
		return float64(float64(dim)*kernels.Log64(float64(y.Original)/float64(turns*(2*math.Pi)))) / float64(2*kernels.Log64(base))
	}
	low, high := pair(y.BetaFast), pair(y.BetaSlow)
	if !y.Exact {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dim-1))
	return min(max((float64(i)-low)/max(high-low, 0.001), 0), 1)
}

// ropes are the tables that a range of layers needs: full, and local for layers with a window where they have frequencies of
// their own. A table that no layer of the range needs is empty.
type ropes struct {
	full, local ropeTable
	long        ropeTable // instead of full, for sequences with room for more than original positions
	original    int       // 0: full is for all
}

// ropeFactors are the model's own divisors of frequencies, [RopeDim/2] each, or nil: for all sequences, or for short and long ones.
type ropeFactors struct{ all, short, long []float32 }

// Tensors of a LongRope.
const (
	ropeFactorsShort = "rope_factors_short.weight"
	ropeFactorsLong  = "rope_factors_long.weight"
)

func newRopes(c *Config, layers Range, factors ropeFactors) (t ropes) {
	for l := layers.First; l < layers.Last; l++ {
		switch local := c.Cache[l].Window > 0 && c.LocalRopeBase > 0; {
		case local && t.local.freq == nil:
			t.local = newRopeTable(c.RopeDim, c.LocalRopeBase, 1, nil, Yarn{})
		case !local && t.full.freq == nil && c.LongRope.Original > 0:
			t.full = newRopeTable(c.RopeDim, c.RopeBase, c.RopeScale, factors.short, c.Yarn)
			t.long = newRopeTable(c.RopeDim, c.RopeBase, c.RopeScale, factors.long, c.Yarn)
			t.full.amplitude = float32(c.LongRope.Amplitude)
			t.long.amplitude, t.original = t.full.amplitude, c.LongRope.Original
		case !local && t.full.freq == nil:
			t.full = newRopeTable(c.RopeDim, c.RopeBase, c.RopeScale, factors.all, c.Yarn)
		}
	}
	return t
}

// fullFor returns the table of layers without their own, for a sequence with room for so many positions.
func (t *ropes) fullFor(capacity int) *ropeTable {
	if t.original > 0 && capacity > t.original {
		return &t.long
	}
	return &t.full
}

// angles are the cosine and sine of every pair at one position, [RopeDim/2] each; empty where no layer needs them.
type angles struct{ cos, sin []float32 }

// fill computes a at a position: of round(pos·freq[i]) in float64, rounded to float32, times the amplitude.
func (t ropeTable) fill(a angles, pos int) {
	for i, f := range t.freq {
		sin, cos := kernels.SinCos(float64(float64(pos) * f))
		a.sin[i], a.cos[i] = float32(sin*t.amplitude), float32(cos*t.amplitude)
	}
}

// cut takes the memory of one position's angles from the front of buf and returns the rest.
func (t ropeTable) cut(buf []float32) (a angles, rest []float32) {
	n := len(t.freq)
	return angles{buf[:n:n], buf[n : 2*n : 2*n]}, buf[2*n:]
}
