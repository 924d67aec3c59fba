package kernels

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// bigFMA is x*y+z by exact arithmetic, rounded once by math/big.
func bigFMA(x, y, z float32) float32 {
	p := float64(x) * float64(y) // exact
	if math.IsNaN(p) || math.IsInf(p, 0) || z-z != 0 {
		return float32(p + float64(z)) // decided by the special values alone
	}
	if p == 0 && z == 0 || p == -float64(z) {
		return float32(p + float64(z)) // a sum of zeros, or exact cancellation: IEEE signs
	}
	exact := func(v float64) *big.Float { return new(big.Float).SetPrec(1200).SetFloat64(v) }
	r, _ := exact(0).Add(exact(p), exact(float64(z))).Float32()
	return r
}

func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func checkFMA(t *testing.T, x, y, z float32) {
	t.Helper()
	if got, want := FMA(x, y, z), bigFMA(x, y, z); !sameFloat(got, want) {
		t.Fatalf("FMA(%x, %x, %x) = %x, want %x", x, y, z, got, want)
	}
}

func anyFloat(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32()) }

// withExponent returns a random float of about 2^e, denormal if need be.
func withExponent(r *rand.Rand, e int) float32 {
	f := math.Ldexp(1+float64(r.Uint32()>>9)/(1<<23), e)
	if r.IntN(2) == 0 {
		f = -f
	}
	return float32(f)
}

func TestFMARandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		checkFMA(t, anyFloat(r), anyFloat(r), anyFloat(r))
		// Summands of comparable size, anywhere in the range down to denormals.
		e, f := r.IntN(250)-149, r.IntN(60)-30
		checkFMA(t, withExponent(r, f), withExponent(r, e-f), withExponent(r, e+r.IntN(60)-30))
	}
}

func TestFMASpecial(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	negZero := float32(math.Copysign(0, -1))
	values := []float32{0, negZero, 1, -1, 1 + 0x1p-23, 1 - 0x1p-24, 0x1p-149, -0x1p-149, 0x1p-126, 0x1p-127, -0x1p-126,
		0x1p-75, 0x1p-74, math.MaxFloat32, -math.MaxFloat32, 0x1p127, 0x1p64, inf, -inf, nan, 3, 0x1p-24, 0x1p-25, 0x1.000002p-24, 0x1.fffffep-25}
	for _, x := range values {
		for _, y := range values {
			for _, z := range values {
				checkFMA(t, x, y, z)
			}
		}
	}
}

// TestFMANearTies adds to z a product that is half a unit in the last place, more or less a trifle that float64 can't
// see. Rounding twice fails on many of these; the test insists that it does.
func TestFMANearTies(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	twice := 0
	for range 100_000 {
		e := r.IntN(200) - 120
		z := withExponent(r, e)
		if r.IntN(8) == 0 {
			z = float32(math.Ldexp(1, e)) // a power of two: half units differ on its two sides
		}
		f := r.IntN(20) - 10
		x := float32(math.Ldexp(1+float64(r.IntN(5)-2)*0x1p-23, f))
		y := float32(math.Ldexp(1+float64(r.IntN(5)-2)*0x1p-23, e-24-r.IntN(2)-f))
		if r.IntN(2) == 0 {
			x = -x
		}
		checkFMA(t, x, y, z)
		if float32(math.FMA(float64(x), float64(y), float64(z))) != FMA(x, y, z) {
			twice++
		}
	}
	if twice < 1000 {
		t.Errorf("only %d of these cases round wrongly when rounded twice: too easy", twice)
	}
}

// TestFMADenormalTies is the same below 2^-126, where the last place is always 2^-149.
func TestFMADenormalTies(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 50_000 {
		z := math.Float32frombits(r.Uint32N(1 << (1 + r.IntN(24))))
		f := r.IntN(60) - 30
		x := float32(math.Ldexp(1+float64(r.IntN(5)-2)*0x1p-23, f))
		y := float32(math.Ldexp(float64(2*r.IntN(8)+1)+float64(r.IntN(5)-2)*0x1p-20, -90-f))
		x = float32(math.Ldexp(float64(x), -60))
		checkFMA(t, x, y, z)
		checkFMA(t, -x, y, z)
		checkFMA(t, x, y, -z)
	}
}
