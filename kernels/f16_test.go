package kernels

import (
	"math"
	"sort"
	"testing"
)

// halfValue is the value of a finite half by its definition.
func halfValue(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10&31), float64(h&1023)
	if h>>15 == 1 {
		sign = -1
	}
	if exp == 0 {
		return sign * math.Ldexp(frac, -24)
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

func TestF16Widen(t *testing.T) {
	for i := 0; i < 1<<16; i++ {
		h := uint16(i)
		f := F16ToF32(h)
		switch {
		case h&0x7fff > 0x7c00:
			if f == f {
				t.Fatalf("%04x: %v, want NaN", h, f)
			}
			if g := F32ToF16(f); g&0x7fff <= 0x7c00 {
				t.Fatalf("%04x comes back as %04x, want NaN", h, g)
			}
			continue
		case h&0x7fff == 0x7c00:
			if !math.IsInf(float64(f), 1-2*int(h>>15)) {
				t.Fatalf("%04x: %v", h, f)
			}
		default:
			if v := halfValue(h); float64(f) != v || math.Signbit(v) != math.Signbit(float64(f)) {
				t.Fatalf("%04x: %v, want %v", h, f, v)
			}
		}
		if g := F32ToF16(f); g != h {
			t.Fatalf("%04x comes back as %04x", h, g)
		}
	}
}

// TestF16Narrow checks every sign, exponent and first thirteen bits of the mantissa with five values of its last ten, at
// and around the boundaries between two halves and between those and their middles.
func TestF16Narrow(t *testing.T) {
	finite := make([]float64, 0x7c00)
	for i := range finite {
		finite[i] = halfValue(uint16(i))
	}
	want := func(f float64) uint16 { // nearest even by search among all halves
		i := sort.SearchFloat64s(finite, f)
		if i == len(finite) {
			if f >= 65520 {
				return 0x7c00
			}
			return 0x7bff
		}
		if finite[i] == f {
			return uint16(i)
		}
		lo, hi := f-finite[i-1], finite[i]-f
		if lo < hi || lo == hi && i%2 == 1 {
			return uint16(i - 1)
		}
		return uint16(i)
	}
	tails := []uint32{0, 1, 2, 0x3ff, 0x400}
	for top := uint32(0); top < 0x7f800000>>10; top++ {
		for _, tail := range tails {
			b := min(top<<10+tail, 0x7f7fffff)
			f := math.Float32frombits(b)
			w := want(float64(f))
			if g := F32ToF16(f); g != w {
				t.Fatalf("%x: %04x, want %04x", f, g, w)
			}
			if g := F32ToF16(-f); g != w|0x8000 {
				t.Fatalf("%x: %04x, want %04x", -f, g, w|0x8000)
			}
			if g := clampF16(f); g != min(w, 0x7bff) {
				t.Fatalf("clamped %x: %04x, want %04x", f, g, min(w, 0x7bff))
			}
		}
	}
}

func TestClampF16(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		f float32
		h uint16
	}{{inf, 0x7bff}, {-inf, 0xfbff}, {65519.996, 0x7bff}, {65520, 0x7bff}, {-1e30, 0xfbff}, {float32(math.Copysign(0, -1)), 0x8000}, {1, 0x3c00}} {
		if h := clampF16(c.f); h != c.h {
			t.Errorf("clampF16(%v) = %04x, want %04x", c.f, h, c.h)
		}
	}
	if h := clampF16(float32(math.NaN())); h&0x7fff <= 0x7c00 {
		t.Errorf("clampF16(NaN) = %04x", h)
	}
}

func TestCheckFinite(t *testing.T) {
	x := make([]float32, 40)
	x[3], x[4], x[5] = math.MaxFloat32, -math.MaxFloat32, 0x1p-149
	if i := CheckFinite(x); i != -1 {
		t.Errorf("finite values: %d", i)
	}
	if i := CheckFinite(nil); i != -1 {
		t.Errorf("no values: %d", i)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for i := range x {
			old := x[i]
			x[i] = float32(bad)
			if got := CheckFinite(x); got != i {
				t.Errorf("%v at %d: %d", bad, i, got)
			}
			x[i] = old
		}
	}
}
