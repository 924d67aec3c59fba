package kernels

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

var narrowTypes = []Type{F32, F16, BF16, Q8_0}

// narrowRow returns a row whose magnitudes span what a residual stream has, and more.
func narrowRow(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	scale := math.Exp2(float64(r.IntN(40) - 30))
	for i := range x {
		x[i] = float32(r.NormFloat64() * scale)
		if r.IntN(9) == 0 {
			x[i] = float32(math.Copysign(0, -1))
		}
	}
	return x
}

// TestNarrow checks that a rounded row is rounded to itself, whatever its length, and how far it is from what it was.
func TestNarrow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		x := narrowRow(r, 1+r.IntN(100))
		for _, typ := range narrowTypes {
			size := NarrowBytes(typ, len(x))
			once, twice := make([]byte, size), make([]byte, size)
			if bad := Narrow(once, x, typ); bad >= 0 {
				t.Fatalf("%v: value %d, %v, is refused", typ, bad, x[bad])
			}
			y := make([]float32, len(x))
			Widen(y, once, typ)
			if bad := Narrow(twice, y, typ); bad >= 0 || !bytes.Equal(once, twice) {
				t.Fatalf("%v: % x, once more % x (%d)", typ, once, twice, bad)
			}
			for i := range x {
				bound := map[Type]float64{F32: 0, F16: 0x1p-11, BF16: 0x1p-8, Q8_0: 0}[typ] * math.Abs(float64(x[i]))
				switch typ {
				case F16:
					bound = max(bound, 0x1p-25)
				case Q8_0: // half a code, and what a scale loses as binary16 (if denormal, all of half its last place)
					amax := float64(largest(x[i/32*32 : min(i/32*32+32, len(x))]))
					bound = amax/254*1.01 + amax*0x1p-11 + 127*0x1p-25
				}
				if math.Abs(float64(y[i])-float64(x[i])) > bound {
					t.Fatalf("%v: %v became %v", typ, x[i], y[i])
				}
			}
		}
	}
}

// TestNarrowRefuses has values that a type cannot hold.
func TestNarrowRefuses(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		typ Type
		v   float32
		bad bool
	}{
		{F32, inf, true}, {F32, nan, true}, {F32, math.MaxFloat32, false},
		{F16, inf, true}, {F16, nan, true}, {F16, 65519, false}, {F16, -65520, true},
		{BF16, -inf, true}, {BF16, nan, true}, {BF16, math.MaxFloat32, true}, {BF16, 0x1.fep127, false},
		{Q8_0, inf, true}, {Q8_0, nan, true}, {Q8_0, 65504 * 127, false}, {Q8_0, -65520 * 127, true},
	} {
		x := make([]float32, 40)
		x[35] = c.v
		got := Narrow(make([]byte, NarrowBytes(c.typ, len(x))), x, c.typ)
		want := -1
		if c.bad {
			if want = 35; c.typ == Q8_0 {
				want = 32
			}
		}
		if got != want {
			t.Errorf("%v with %v: index %d, want %d", c.typ, c.v, got, want)
		}
	}
}

// TestNarrowQ8_0 compares a block with the formulas in the naive way, and its shape with Q8_0 of weight files.
func TestNarrowQ8_0(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		x := narrowRow(r, 32)
		b := make([]byte, NarrowBytes(Q8_0, 32))
		Narrow(b, x, Q8_0)
		amax := float32(0)
		for _, v := range x {
			amax = max(amax, float32(math.Abs(float64(v))))
		}
		d := F32ToF16(amax / 127)
		if got := binary.LittleEndian.Uint16(b); got != d {
			t.Fatalf("scale %#x, want %#x", got, d)
		}
		for i, v := range x {
			want := int8(0)
			if d != 0 {
				want = int8(math.RoundToEven(float64(float32(v * float32(127/amax)))))
			}
			if got := int8(b[2+i]); got != want {
				t.Fatalf("code of %v is %d, want %d", v, got, want)
			}
		}
		y, z := make([]float32, 32), make([]float32, 32)
		Widen(y, b, Q8_0)
		dequantQ8_0(z, b)
		for i := range y {
			if math.Float32bits(y[i]) != math.Float32bits(z[i]) {
				t.Fatalf("widened %v, as weights %v", y[i], z[i])
			}
		}
	}
}

// TestRoundQ8_0 takes cache rows to bytes and back: of every scale that a block of halves may have, and of any values.
func TestRoundQ8_0(t *testing.T) {
	check := func(x []float32) {
		t.Helper()
		RoundQ8_0(x)
		halves, back := make([]byte, 2*len(x)), make([]byte, 2*len(x))
		for i, v := range x {
			h := F32ToF16(v)
			if F16ToF32(h) != v || h&0x7c00 == 0x7c00 {
				t.Fatalf("%v is no finite half", v)
			}
			binary.LittleEndian.PutUint16(halves[2*i:], h)
		}
		b := make([]byte, NarrowBytes(Q8_0, len(x)))
		if n := NarrowHalves(b, halves); n != len(b) {
			t.Fatalf("%d bytes of %d", n, len(b))
		}
		if !WidenHalves(back, b, len(x)) || !bytes.Equal(back, halves) {
			t.Fatalf("halves % x came back as % x", halves, back)
		}
		again := append([]float32(nil), x...)
		RoundQ8_0(again)
		for i := range x {
			if math.Float32bits(again[i]) != math.Float32bits(x[i]) {
				t.Fatalf("%v, once more %v", x[i], again[i])
			}
		}
	}
	for h := range uint16(0x7c00) { // every finite half as the largest of a block
		x := []float32{F16ToF32(h), -F16ToF32(h), F16ToF32(h) / 3, F16ToF32(h) * 0.7, -F16ToF32(h) / 90}
		check(x)
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 4000 {
		check(narrowRow(r, 1+r.IntN(100)))
	}
	check([]float32{1e9, -1e30, 5})
	for _, scale := range []uint16{0x7c00, 0xfc00, 0x7e01} {
		if WidenHalves(make([]byte, 2), []byte{byte(scale), byte(scale >> 8), 1}, 1) {
			t.Errorf("a scale of %#x is taken", scale)
		}
	}
}
