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

// fenced is memory for values between canaries, at an address that is a multiple of 4 only.
type fenced struct{ all, data []float32 }

// fence returns memory that holds x, or its length of canaries.
func fence(n int, x []float32) fenced {
	f := fenced{all: make([]float32, n+33)}
	for i := range f.all {
		f.all[i] = canary
	}
	f.data = f.all[17 : 17+n]
	copy(f.data, x)
	return f
}

// intact reports whether nothing was written outside of the data.
func (f *fenced) intact() bool {
	for i, v := range f.all {
		if (i < 17 || i >= 17+len(f.data)) && !isCanary(v) {
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
					recordsGo(form)(&want[row*size], rows*size, &x[0], cols)
					for sb := range superblocks(cols) {
						at := (sb*rows + row) * size
						copy(want[at+used:at+size], got[at+used:])
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

// lengths are those at which row kernels are tested: all up to 70, and some that run every loop many times.
var lengths = func() (n []int) {
	for i := range 71 {
		n = append(n, i)
	}
	return append(n, 127, 128, 576, 1000, 4096, 5003)
}()

// TestRows compares every kernel on rows with the Go code, at all lengths, on all kinds of values, into fresh memory
// and in place, with infinities and NaN where they are no error.
func TestRows(t *testing.T) {
	ops := []struct {
		name   string
		wild   bool // takes NaN and infinities
		binary bool // may be done in the place of its second argument
		run    func(dst, x, y []float32)
	}{
		{"RMSNorm", false, false, func(dst, x, y []float32) {
			if len(x) > 0 {
				RMSNorm(dst, x, y, 1e-5)
			}
		}},
		{"Add", true, true, Add},
		{"Exps", true, false, func(dst, x, _ []float32) { Exps(dst, x) }},
		{"MulSiLU", true, true, MulSiLU},
		{"MulGELU", true, true, MulGELU},
		{"MulSigmoid", true, true, MulSigmoid},
		{"SiLUs", true, false, func(dst, x, _ []float32) { SiLUs(dst, x) }},
		{"Scale", true, false, func(dst, x, y []float32) {
			if len(x) > 0 {
				Scale(dst, x, y[0])
			}
		}},
	}
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(61, 61))
		for _, op := range ops {
			for _, n := range lengths {
				for kind := range 3 {
					x, y := rowOf(r, n, kind), rowOf(r, n, kind)
					if op.wild && kind == 2 && n > 0 {
						x[r.IntN(n)], y[r.IntN(n)] = float32(math.Inf(1)), float32(math.Inf(-1))
						x[r.IntN(n)], x[r.IntN(n)] = float32(math.NaN()), float32(math.Inf(-1))
					}
					want := make([]float32, n)
					underGeneric(func() { op.run(want, x, y) })
					got := fence(n, nil)
					op.run(got.data, x, y)
					if err := sameBits(got.data, want); err != nil {
						t.Fatalf("%s, kind %d: %v", op.name, kind, err)
					}
					inX, inY := fence(n, x), fence(n, y)
					op.run(inX.data, inX.data, y)
					op.run(inY.data, x, inY.data)
					for _, in := range []fenced{got, inX, inY} {
						if !in.intact() {
							t.Fatalf("%s of %d values wrote outside", op.name, n)
						}
					}
					if err := sameBits(inX.data, want); err != nil {
						t.Fatalf("%s in its first argument's place, kind %d: %v", op.name, kind, err)
					}
					if err := sameBits(inY.data, want); err != nil && op.binary {
						t.Fatalf("%s in its second argument's place, kind %d: %v", op.name, kind, err)
					}
				}
			}
		}
	})
}

// TestGatesDense takes the gates through a fine grid of arguments, where their exponential underflows, overflows and
// turns denormal, and through every exponent.
func TestGatesDense(t *testing.T) {
	var x []float32
	for v := float32(-110); v < 110; v += 0x1p-7 {
		x = append(x, v)
	}
	r := rand.New(rand.NewPCG(62, 62))
	for range 1 << 17 {
		if v := math.Float32frombits(r.Uint32()); v == v {
			x = append(x, v)
		}
	}
	ones, want := make([]float32, len(x)), make([]float32, len(x))
	for i := range ones {
		ones[i] = 1
	}
	for _, gate := range []func(dst, gate, up []float32){MulSiLU, MulGELU, MulSigmoid, func(dst, x, _ []float32) { Exps(dst, x) }} {
		underGeneric(func() { gate(want, x, ones) })
		eachVariant(t, func(t *testing.T) {
			got := make([]float32, len(x))
			gate(got, x, ones)
			if err := sameBits(got, want); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRopes compares rotations with the Go code: heads and dimensions that take the fast way and that don't, with
// dimensions that stay.
func TestRopes(t *testing.T) {
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(63, 63))
		for _, rope := range []func(x []float32, heads, headDim, ropeDim int, cos, sin []float32){RopeInterleaved, RopeHalf} {
			for heads := range 4 {
				for _, shape := range [][2]int{{8, 8}, {16, 16}, {20, 16}, {32, 20}, {64, 64}, {80, 80}, {96, 32}, {128, 128}, {256, 256}, {64, 0}} {
					for kind := range 3 {
						x := rowOf(r, heads*shape[0], kind)
						cos, sin := rowOf(r, shape[1]/2, kind), rowOf(r, shape[1]/2, kind)
						got := fence(len(x), x)
						rope(got.data, heads, shape[0], shape[1], cos, sin)
						underGeneric(func() { rope(x, heads, shape[0], shape[1], cos, sin) })
						if err := sameBits(got.data, x); err != nil || !got.intact() {
							t.Fatalf("%d heads, %d of %d dimensions: %v, intact: %t", heads, shape[1], shape[0], err, got.intact())
						}
					}
				}
			}
		}
	})
}

// TestHalfRows compares conversions from and to 16-bit floats of whole rows with those of single values: all 65,536
// halves, and values round every one of them.
func TestHalfRows(t *testing.T) {
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(64, 64))
		halves := make([]uint16, 1<<16)
		raw := make([]byte, 0, 1<<17)
		for i := range halves {
			halves[i] = uint16(i)
			raw = append(raw, byte(i), byte(i>>8))
		}
		got, want := make([]float32, 1<<16), make([]float32, 1<<16)
		check := func(what string) {
			t.Helper()
			if err := sameBits(got, want); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		for i, h := range halves {
			want[i] = F16ToF32(h)
		}
		widenF16(got, halves)
		check("widenF16")
		clear(got)
		widenF16Bytes(got, raw)
		check("binary16 bytes")
		for i, h := range halves {
			want[i] = bf16ToF32(h)
		}
		widenBF16(got, raw)
		check("bfloat16 bytes")

		var x []float32
		for _, h := range halves {
			f := F16ToF32(h)
			for d := -2; d <= 2; d++ {
				x = append(x, math.Float32frombits(uint32(int(math.Float32bits(f))+d<<12)), math.Float32frombits(uint32(int(math.Float32bits(f))+d<<12+d)))
			}
		}
		for range 1 << 16 {
			x = append(x, math.Float32frombits(r.Uint32()))
		}
		clamped := make([]uint16, len(x))
		clampF16s(clamped, x)
		for i, v := range x {
			if w := clampF16(v); clamped[i] != w {
				t.Fatalf("clampF16s(%v = %x) = %x, want %x", v, math.Float32bits(v), clamped[i], w)
			}
		}

		for _, n := range lengths {
			y := rowOf(r, n, 1)
			out := make([]uint16, n+32)
			for i := range out {
				out[i] = 0xa5a5
			}
			clampF16s(out[15:][:n], y)
			wide := fence(n, nil)
			widenF16(wide.data, out[15:][:n])
			for i, h := range out {
				if i >= 15 && i < 15+n {
					if h != clampF16(y[i-15]) || math.Float32bits(wide.data[i-15]) != math.Float32bits(F16ToF32(h)) {
						t.Fatalf("element %d of %d: %x", i-15, n, h)
					}
				} else if h != 0xa5a5 {
					t.Fatalf("clampF16s of %d values wrote outside", n)
				}
			}
			if !wide.intact() {
				t.Fatalf("widenF16 of %d values wrote outside", n)
			}
		}
	})
}

// TestCheckFiniteRows puts each kind of bad value at every place.
func TestCheckFiniteRows(t *testing.T) {
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(65, 65))
		for _, n := range lengths[:71] {
			x := rowOf(r, n, 2)
			if i := CheckFinite(x); i >= 0 {
				t.Fatalf("element %d of %d finite values was refused", i, n)
			}
			for at := range x {
				was := x[at]
				for _, bad := range []uint32{0x7f800000, 0xff800000, 0x7f800001, 0xffc00000} {
					x[at] = math.Float32frombits(bad)
					if i := CheckFinite(x); i != at {
						t.Fatalf("%x at %d of %d: got %d", bad, at, n, i)
					}
				}
				x[at] = was
			}
		}
	})
}

// TestArgMax compares with a plain search, among values with many equals.
func TestArgMax(t *testing.T) {
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(66, 66))
		if i := ArgMax(nil); i != -1 {
			t.Errorf("of nothing: %d", i)
		}
		for _, n := range lengths {
			for kind := range 4 {
				x := rowOf(r, n, kind%3)
				if kind == 3 {
					for i := range x {
						x[i] = []float32{-1, 0, float32(math.Copysign(0, -1)), -2}[r.IntN(4)]
					}
				}
				want := -1
				for i, v := range x {
					if want < 0 || v > x[want] {
						want = i
					}
				}
				if got := ArgMax(x); got != want {
					t.Fatalf("of %d values, kind %d: %d, want %d", n, kind, got, want)
				}
				least := float32(r.NormFloat64() * 3)
				want = -1
				for i, v := range x {
					if v >= least {
						want = i
						break
					}
				}
				if got := IndexAtLeast(x, least); got != want {
					t.Fatalf("at least %v among %d values, kind %d: %d, want %d", least, n, kind, got, want)
				}
			}
		}
	})
}
