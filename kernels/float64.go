package kernels

import "math"

// Float64 functions on fixed operation sequences, for the few places that need more than float32: rotary frequencies
// and angles, and logarithms. The package math's are not used because they differ between architectures.

// ln2 in two parts, and its inverse: k·ln2Hi is exact for |k| < 2^20.
const (
	ln2Hi  = 0x1.62e42feep-1
	ln2Lo  = math.Ln2 - ln2Hi
	log2E  = 1 / math.Ln2
	magic6 = 0x1.8p52 // |x| < 2^51: x + magic6 rounds x to the nearest even integer, left in the low bits
)

// atanhSeries returns log((1+s)/(1-s)) = 2s·(1 + s²/3 + s⁴/5 + … + s²²/23) by Horner's rule, for |s| <= 0.1716.
func atanhSeries(s float64) float64 {
	z := float64(s * s)
	y := 1.0 / 23
	for n := 21; n >= 1; n -= 2 {
		y = float64(y*z) + 1/float64(n)
	}
	return float64(float64(2*s) * y)
}

// Log64 returns the natural logarithm of a positive, finite, normal x, and NaN for others.
func Log64(x float64) float64 {
	if !(x >= 0x1p-1022 && x <= math.MaxFloat64) {
		return math.NaN()
	}
	return log64(x)
}

// log64 returns the natural logarithm of a positive, finite, normal x, to about 2 units in the last place: with
// x = 2^k·m, m in [√½, √2), it is k·ln2Hi + (log m + k·ln2Lo).
func log64(x float64) float64 {
	b := math.Float64bits(x)
	k := int(b>>52) - 1023
	m := math.Float64frombits(b&(1<<52-1) | 1023<<52)
	if m > math.Sqrt2 {
		m, k = m/2, k+1
	}
	fk := float64(k)
	return float64(fk*ln2Hi) + (atanhSeries((m-1)/(m+1)) + float64(fk*ln2Lo))
}

// expInverse holds 1/n!.
var expInverse = func() (t [14]float64) {
	t[0] = 1
	for n := 1; n < len(t); n++ {
		t[n] = t[n-1] / float64(n)
	}
	return t
}()

// exp64 returns e^x for |x| < 700, to about 2 units in the last place: n = nearest-even(x·log2E), r = x - n·ln2, then the
// Taylor polynomial of degree 13 by Horner's rule, times 2^n.
func exp64(x float64) float64 {
	n := float64(x*log2E) + magic6 - magic6
	r := (x - float64(n*ln2Hi)) - float64(n*ln2Lo)
	y := expInverse[13]
	for i := 12; i >= 0; i-- {
		y = float64(y*r) + expInverse[i]
	}
	return float64(y * math.Float64frombits(uint64(int64(n)+1023)<<52))
}

// Pow64 returns base^exp = exp64(exp·log64(base)) for a finite base >= 2^-1022, to a relative error near 2^-52 times
// 1 + |exp·log(base)|. It returns NaN for other bases, for a NaN exponent and where |exp·log(base)| >= 700.
// It is meant for rotary frequencies, base^(-2i/d).
func Pow64(base, exp float64) float64 {
	if !(base >= 0x1p-1022 && base <= math.MaxFloat64) {
		return math.NaN()
	}
	y := float64(exp * log64(base))
	if !(y > -700 && y < 700) {
		return math.NaN()
	}
	return exp64(y)
}

// Log returns the natural logarithm of x, computed in float64 and rounded. Log(0) is -Inf, Log of a negative x NaN.
func Log(x float32) float32 {
	switch {
	case x > 0 && x <= math.MaxFloat32:
		return float32(log64(float64(x)))
	case x == 0:
		return float32(math.Inf(-1))
	case x > 0:
		return x
	}
	return float32(math.NaN())
}

// Softplus returns log(1+e^x) = max(x, 0) + log1p(e^-|x|), computed in float64 and rounded.
func Softplus(x float32) float32 {
	w := float64(x)
	size := math.Abs(w)
	switch {
	case !(size < 128): // e^-128 vanishes beside x, and below float32
		return max(x, 0)
	case w < 0:
		w = 0
	}
	t := exp64(-size)
	if t > math.Sqrt2-1 {
		return float32(w + log64(1+t))
	}
	return float32(w + atanhSeries(t/(2+t)))
}

// π/2 in three parts; the first two have 25 bits, so their products with n < 2^28 are exact.
const (
	halfPi1 = 0x1.921fb5p0
	halfPi2 = 0x1.110b46p-26
	halfPi3 = math.Pi/2 - halfPi1 - halfPi2
)

// sinSeries and cosSeries hold the Taylor coefficients ±1/n! of sin (from r³) and cos (from r²), highest first.
var (
	sinSeries = [...]float64{1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6}
	cosSeries = [...]float64{-1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -1.0 / 2}
)

// SinCos returns the sine and cosine of an angle in radians, computed in float64 and rounded; for |angle| <= 2^28 they
// are right to one unit in the last place. Larger angles and NaN give NaN.
//
// n = nearest-even(angle·2/π), r = ((angle - n·halfPi1) - n·halfPi2) - n·halfPi3, the two Taylor polynomials in z = r² by
// Horner's rule, sin = r + r·z·P(z), cos = 1 + z·Q(z), and n mod 4 picks which is which.
func SinCos(angle float64) (sin, cos float32) {
	if !(angle >= -0x1p28 && angle <= 0x1p28) {
		nan := float32(math.NaN())
		return nan, nan
	}
	n := float64(angle*(2/math.Pi)) + magic6 - magic6
	r := ((angle - float64(n*halfPi1)) - float64(n*halfPi2)) - float64(n*halfPi3)
	z := float64(r * r)
	p, q := 0.0, 0.0
	for _, c := range sinSeries {
		p = float64(p*z) + c
	}
	for _, c := range cosSeries {
		q = float64(q*z) + c
	}
	s, c := r+float64(float64(r*z)*p), 1+float64(z*q)
	switch int64(n) & 3 {
	case 1:
		s, c = c, -s
	case 2:
		s, c = -s, -c
	case 3:
		s, c = -c, s
	}
	return float32(s), float32(c)
}
