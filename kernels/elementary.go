package kernels

import "math"

// Exp returns e^x with an error below 0.9 units in the last place (denormal results: one unit). Exp(±0) = 1,
// Exp(-Inf) = +0, Exp(NaN) is NaN. Above 88.72284 it is +Inf, below -104 it is +0.
//
// Sequence (float32): n = nearest-even(round(x·log2 e)); r = x - n·ln2, in two parts, the first of which is exact;
// e^r = 1 + r + r²·P(r) by Horner's rule with [FMA], P of degree 4 fitted to the least largest relative error of e^r
// (3·10^-9 before rounding of the coefficients) over |r| <= 0.3467; then two products with powers of two, of which
// only the second can round, when the result is denormal.
func Exp(x float32) float32 {
	const (
		log2e = 0x1.715476p0
		hi    = 0x1.63p-1       // the first 9 bits of ln 2: n·hi is exact
		lo    = -0x1.bd0106p-13 // ln 2 - hi
		magic = 0x1.8p23        // |y| < 2^22: y + magic rounds y to an even-rounded integer
		most  = 88.72284        // above: e^x rounds to infinity
		least = -104            // below: e^x rounds to zero
	)
	if !(x <= most) {
		if x > most {
			return float32(math.Inf(1))
		}
		return x + x // NaN
	}
	if x < least {
		return 0
	}
	t := float32(x*log2e) + magic
	n := t - magic
	r := x - float32(n*hi)
	r = FMA(n, -lo, r)
	y := FMA(0x1.6a2414p-10, r, 0x1.123a2p-7)
	y = FMA(y, r, 0x1.5558f2p-5)
	y = FMA(y, r, 0x1.555492p-3)
	y = FMA(y, r, 0x1.fffffcp-2)
	y = FMA(y, r, 1)
	y = FMA(y, r, 1)
	k := int32(math.Float32bits(t)) - 0x4b400000
	return float32(float32(y*power2(k>>1)) * power2(k-k>>1))
}

// Exps writes Exp of each value of x to dst[:len(x)]. dst may be x.
func Exps(dst, x []float32) {
	dst = dst[:len(x)]
	n := 0
	if active.exps != nil {
		n = len(x) &^ 7
		active.exps(pointerTo(dst), pointerTo(x), n)
	}
	for i := n; i < len(x); i++ {
		dst[i] = Exp(x[i])
	}
}

// power2 returns 2^k for -126 <= k <= 127.
func power2(k int32) float32 { return math.Float32frombits(uint32(k+127) << 23) }

// SiLU returns x·sigmoid(x) as round(x / round(1 + Exp(-x))). Below -88.72284 it is -0.
func SiLU(x float32) float32 { return x / (1 + Exp(-x)) }

// Sigmoid returns round(1 / round(1 + Exp(-x))).
func Sigmoid(x float32) float32 { return 1 / (1 + Exp(-x)) }

// GELU returns the tanh form of the Gaussian error linear unit, ½x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), in the equal
// form x / (1 + e^-2u): z = round(x·x), u2 = round(x·FMA(z, c3, c1)), round(x / round(1 + Exp(-u2))), with
// c1 = 2·√(2/π) and c3 = 0.044715·c1.
func GELU(x float32) float32 {
	const (
		c1 = 1.5957691216057308
		c3 = 0.044715 * c1
	)
	u2 := float32(x * FMA(float32(x*x), c3, c1))
	return x / (1 + Exp(-u2))
}
