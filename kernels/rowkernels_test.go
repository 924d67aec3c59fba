package kernels

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// specials are values at which arithmetic changes its ways.
var specials = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0x1p-149, -0x1p-149, 0x1p-126, -0x1p-127, 0x1p-100, 127, 0.5, -1.5, 65504, 65520, -65519.99,
	1e-30, -1e30, math.MaxFloat32, -math.MaxFloat32, 88.7, -88.73, -103.9, -104.5, 104, 2049, 1.0009765625,
}

// rowOf returns n values: for kind 0 normal ones, for 1 those of all exponents, for 2 specials, mixed with normal ones.
// They start at an address that is a multiple of 4 only.
func rowOf(r *rand.Rand, n, kind int) []float32 {
	x := make([]float32, n+1)[1:]
	for i := range x {
		switch {
		case kind == 1:
			x[i] = withExponent(r, r.IntN(250)-126)
		case kind == 2 && r.IntN(2) == 0:
			x[i] = specials[r.IntN(len(specials))]
		default:
			x[i] = float32(r.NormFloat64())
		}
	}
	return x
}

// fenced is memory for n values between canaries.
type fenced struct {
	all  []float32
	data []float32
}

func fence(n int) fenced {
	f := fenced{all: make([]float32, n+2*16+1)}
	for i := range f.all {
		f.all[i] = canary
	}
	f.data = f.all[17 : 17+n]
	return f
}

// intact reports whether nothing was written outside of the data.
func (f *fenced) intact() bool {
	for i, v := range f.all {
		if (i < 17 || i >= 17+len(f.data)) && math.Float32bits(v) != math.Float32bits(canary) {
			return false
		}
	}
	return true
}

// sameBits reports whether a and b are the same bit for bit, where one NaN is like another.
func sameBits(a, b []float32) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d values, want %d", len(a), len(b))
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return fmt.Errorf("element %d of %d: %v (%x), want %v (%x)", i, len(a), a[i], math.Float32bits(a[i]), b[i], math.Float32bits(b[i]))
		}
	}
	return nil
}

// underGeneric runs f with the specification.
func underGeneric(f func()) {
	before := active
	active = implementations[Generic]
	f()
	active = before
}

// TestQuantiseRows compares whole records, of rows at all places among others, with those of the Go code.
func TestQuantiseRows(t *testing.T) {
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(60, 60))
		for _, form := range []Form{Q8x32, Q8x256} {
			quantise := active.quantise[form]
			if quantise == nil {
				continue
			}
			size, used := form.record(), form.record()
			if form == Q8x256 {
				used = record256D + 4
			}
			for cols := form.block(); cols <= 6*256; cols += form.block() {
				for kind := range 3 {
					x := rowOf(r, cols, kind)
					if kind == 2 {
						clear(x[r.IntN(cols):]) // blocks of zeros
					}
					const rows, row = 3, 1
					got := bytes.Repeat([]byte{0xa5}, (superblocks(cols)*rows)*size)
					want := bytes.Clone(got)
					if largest := quantise(&got[row*size], rows*size, &x[0], cols); largest >= 0x7f800000 {
						t.Fatalf("%v of %d finite columns: largest magnitude %x", form, cols, largest)
					}
					for c := 0; c < cols; c += 256 {
						rec := want[(c/256*rows+row)*size:]
						if i := quantiseRecord(rec[:size], x[c:min(c+256, cols)], form); i >= 0 {
							t.Fatal(i)
						}
						for i := used; i < size; i++ {
							rec[i] = got[(c/256*rows+row)*size+i]
						}
					}
					if !bytes.Equal(got, want) {
						t.Fatalf("%v of %d columns, kind %d: records differ", form, cols, kind)
					}
					for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
						at := r.IntN(cols)
						was := x[at]
						x[at] = float32(bad)
						if largest := quantise(&got[row*size], rows*size, &x[0], cols); largest < 0x7f800000 {
							t.Fatalf("%v of %d columns: %v in column %d was not found", form, cols, bad, at)
						}
						x[at] = was
					}
				}
			}
		}
	})
}
