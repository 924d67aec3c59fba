package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// ulps returns the distance of got from the exact value in units of the last place of float32 at that value.
func ulps(got float32, exact float64) float64 {
	_, e := math.Frexp(exact)
	unit := math.Ldexp(1, max(e-24, -149))
	return math.Abs(float64(got)-exact) / unit
}

// worst runs f over n inputs from next and fails where it is further than limit ulps from exact.
func worst(t *testing.T, name string, limit float64, n int, next func() float32, f func(float32) float32, exact func(float64) float64) {
	t.Helper()
	most, at := 0.0, float32(0)
	for range n {
		x := next()
		if u := ulps(f(x), exact(float64(x))); !(u <= most) {
			most, at = u, x
		}
	}
	t.Logf("%s: at most %.3f units in the last place (at %v)", name, most, at)
	if !(most <= limit) {
		t.Errorf("%s(%v) = %v, want %v: %.3f units, limit %v", name, at, f(at), exact(float64(at)), most, limit)
	}
}

func within(r *rand.Rand, lo, hi float64) func() float32 {
	return func() float32 { return float32(lo + (hi-lo)*r.Float64()) }
}

func TestExp(t *testing.T) {
	r := rand.New(rand.NewPCG(30, 30))
	worst(t, "Exp", 0.9, 200_000, within(r, -87.3, 88.72), Exp, math.Exp)
	worst(t, "Exp near 0", 0.9, 50_000, within(r, -1, 0.1), Exp, math.Exp)
	worst(t, "Exp of denormal results", 1, 50_000, within(r, -104, -87.3), Exp, math.Exp)
	worst(t, "Exp tiny", 0.5, 1000, func() float32 { return withExponent(r, -30-r.IntN(119)) }, Exp, math.Exp)
	inf := float32(math.Inf(1))
	for _, c := range []struct{ x, want float32 }{{0, 1}, {float32(math.Copysign(0, -1)), 1}, {inf, inf}, {-inf, 0}, {1e30, inf}, {-1e30, 0}, {88.8, inf}, {-104.1, 0}} {
		if got := Exp(c.x); math.Float32bits(got) != math.Float32bits(c.want) {
			t.Errorf("Exp(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	// The two thresholds lie where the function itself overflows and vanishes.
	if got := Exp(88.72283); math.IsInf(float64(got), 0) || got < 3.4e38 {
		t.Errorf("Exp(88.72283) = %v", got)
	}
	if got := Exp(-103.97); got != 0x1p-149 {
		t.Errorf("Exp(-103.97) = %v", got)
	}
	if got := Exp(float32(math.NaN())); got == got {
		t.Errorf("Exp(NaN) = %v", got)
	}
	last := float32(0)
	for x := float32(-104.5); x < 89; x += 0x1p-8 {
		if y := Exp(x); y < last {
			t.Fatalf("Exp falls at %v", x)
		} else {
			last = y
		}
	}
}

func TestSiLU(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 31))
	exact := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	worst(t, "SiLU", 3, 100_000, within(r, -80, 100), SiLU, exact)
	worst(t, "SiLU near 0", 3, 50_000, within(r, -2, 2), SiLU, exact)
	for _, x := range []float32{-1e30, -89, float32(math.Inf(1)), 1e30, 0} {
		want := max(x, 0)
		if got := SiLU(x); got != want {
			t.Errorf("SiLU(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestGELU(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 32))
	exact := func(x float64) float64 {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	for range 100_000 {
		x := float32(r.NormFloat64() * 3)
		if got, want := GELU(x), exact(float64(x)); math.Abs(float64(got)-want) > 4e-7*max(1, math.Abs(want)) {
			t.Fatalf("GELU(%v) = %v, want %v", x, got, want)
		}
	}
	for _, x := range []float32{-1e30, -50, 1e30, 50, 0, math.MaxFloat32} {
		if got := GELU(x); got != max(x, 0) {
			t.Errorf("GELU(%v) = %v", x, got)
		}
	}
}

func TestSoftplusAndLog(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 33))
	worst(t, "Softplus", 0.51, 100_000, within(r, -87, 140), Softplus, func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) })
	positive := func() float32 { return float32(math.Abs(float64(withExponent(r, r.IntN(250)-140)))) }
	worst(t, "Log", 0.51, 100_000, positive, Log, math.Log)
	worst(t, "Log near 1", 0.51, 100_000, within(r, 0.7, 1.5), Log, math.Log)
	inf := float32(math.Inf(1))
	for _, c := range []struct{ got, want float32 }{
		{Log(1), 0}, {Log(0), -inf}, {Log(inf), inf}, {Softplus(inf), inf}, {Softplus(-inf), 0}, {Softplus(-200), 0}, {Softplus(200), 200},
	} {
		if math.Float32bits(c.got) != math.Float32bits(c.want) {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	for _, f := range []float32{Log(-1), Log(float32(math.NaN())), Softplus(float32(math.NaN()))} {
		if f == f {
			t.Errorf("got %v, want NaN", f)
		}
	}
}

func TestSinCos(t *testing.T) {
	r := rand.New(rand.NewPCG(34, 34))
	check := func(x float64) {
		t.Helper()
		sin, cos := SinCos(x)
		if a, b := ulps(sin, math.Sin(x)), ulps(cos, math.Cos(x)); a > 0.51 || b > 0.51 {
			t.Fatalf("SinCos(%v) = %v (%.3f units off), %v (%.3f units off)", x, sin, a, cos, b)
		}
	}
	for range 100_000 {
		x := math.Ldexp(r.Float64()*2-1, r.IntN(29))
		check(x)
		check(float64(r.IntN(1 << 28)))               // positions at frequency 1
		check(float64(r.IntN(1<<27)) * (math.Pi / 2)) // closest to the zeros
	}
	for _, x := range []float64{0, math.Pi / 4, -math.Pi / 4, math.Pi / 2, math.Pi, 1 << 28, -1 << 28, 1e-300, 0x1p-140} {
		check(x)
	}
	if sin, cos := SinCos(math.Copysign(0, -1)); sin != 0 || cos != 1 {
		t.Errorf("SinCos(-0) = %v, %v", sin, cos)
	}
	for _, x := range []float64{1<<28 + 1, math.Inf(1), math.NaN()} {
		if sin, cos := SinCos(x); sin == sin || cos == cos {
			t.Errorf("SinCos(%v) = %v, %v, want NaN", x, sin, cos)
		}
	}
}

func TestPow64(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 35))
	for range 100_000 {
		base := math.Exp(r.Float64() * 20)
		exp := -r.Float64()
		got, want := Pow64(base, exp), math.Pow(base, exp)
		if math.Abs(got/want-1) > 6e-15 {
			t.Fatalf("Pow64(%v, %v) = %v, want %v", base, exp, got, want)
		}
	}
	for _, c := range []struct{ base, exp, want float64 }{{10000, 0, 1}, {1, 5, 1}, {2, 10, 1024}, {2, -3, 0.125}, {0x1p-1022, 0.5, 0x1p-511}} {
		if got := Pow64(c.base, c.exp); math.Abs(got/c.want-1) > 2e-13 || c.want == 1 && got != 1 {
			t.Errorf("Pow64(%v, %v) = %v, want %v", c.base, c.exp, got, c.want)
		}
	}
	for _, c := range [][2]float64{{0, 1}, {-2, 2}, {math.NaN(), 1}, {2, math.NaN()}, {math.Inf(1), 1}, {2, 2000}, {2, math.Inf(-1)}, {0x1p-1023, 1}} {
		if got := Pow64(c[0], c[1]); got == got {
			t.Errorf("Pow64(%v, %v) = %v, want NaN", c[0], c[1], got)
		}
	}
}

// TestLog64 compares with math.Log, and asks for NaN outside the domain.
func TestLog64(t *testing.T) {
	for _, x := range []float64{0x1p-1022, 1e-300, 0.1, 0.999, 1, 1.5, 64 / (2 * math.Pi), 1e6, math.MaxFloat64} {
		if got, want := Log64(x), math.Log(x); math.Abs(got-want) > 1e-15*max(1, math.Abs(want)) {
			t.Errorf("Log64(%v) = %v, want %v", x, got, want)
		}
	}
	for _, x := range []float64{0, -1, 0x1p-1030, math.Inf(1), math.NaN()} {
		if got := Log64(x); !math.IsNaN(got) {
			t.Errorf("Log64(%v) = %v, want NaN", x, got)
		}
	}
}
