package kernels

import "math"

// FMA returns x*y+z, rounded once to float32 (nearest, ties to even), with the signs of zero, infinities and denormals
// of IEEE 754 fusedMultiplyAdd. Which NaN it returns is not specified.
//
// Method: the product of two float32 is exact in float64 (48 bits). Their sum with z, rounded to float64, rounds right
// to float32 unless it lies exactly half way between two float32 (its low 29 bits are 1 and 28 zeros) or near or
// below the normal range, where more bits are dropped. Those cases are decided by the sign of the float64 sum's error.
// (math.FMA on float64 and back is *not* this function: it rounds twice.)
func FMA(x, y, z float32) float32 {
	p := term(x, y)
	s := p + float64(z)
	if hard(s) {
		return fmaExact(p, float64(z), s)
	}
	return float32(s)
}

// hard reports whether a float64 sum may round wrongly to float32.
func hard(s float64) bool {
	b := math.Float64bits(s)
	return b&0x1fffffff == 0x10000000 || b<<1 < (1023-125)<<53
}

// hard4 reports whether one of four sums is hard. Loops that can't afford a call per step run four chains side by side:
// sums, hard4, then either conversions to float32 or fmaExact4.
func hard4(s0, s1, s2, s3 float64) bool {
	const mask, tie, small = 0x1fffffff, 0x10000000, (1023 - 125) << 53
	b0, b1, b2, b3 := math.Float64bits(s0), math.Float64bits(s1), math.Float64bits(s2), math.Float64bits(s3)
	return b0&mask == tie || b1&mask == tie || b2&mask == tie || b3&mask == tie || min(b0<<1, b1<<1, b2<<1, b3<<1) < small
}

// fmaExact4 is fmaExact for four products and summands.
//
//go:noinline
func fmaExact4(p0, p1, p2, p3 float64, z0, z1, z2, z3 float32) (r0, r1, r2, r3 float32) {
	w0, w1, w2, w3 := float64(z0), float64(z1), float64(z2), float64(z3)
	return fmaExact(p0, w0, p0+w0), fmaExact(p1, w1, p1+w1), fmaExact(p2, w2, p2+w2), fmaExact(p3, w3, p3+w3)
}

// term returns the exact product of two float32.
func term(x, y float32) float64 { return float64(float64(x) * float64(y)) }

// fmaExact rounds p+z once to float32; s is the sum rounded to float64. It replaces s by the neighbour with an odd last
// bit on the side of the exact sum, if s is not exact; such a value rounds to float32 as the exact sum does.
//
//go:noinline
func fmaExact(p, z, s float64) float32 {
	if math.IsNaN(s) || math.IsInf(s, 0) {
		return float32(s)
	}
	zz := s - p // Knuth's TwoSum: e is exactly p+z-s
	e := (p - (s - zz)) + (z - zz)
	if b := math.Float64bits(s); e != 0 && b&1 == 0 {
		if (e > 0) == (s > 0) {
			b++
		} else {
			b--
		}
		s = math.Float64frombits(b)
	}
	return float32(s)
}
