package kernels

import "math"

// FMA returns x*y+z, rounded once to float32 (nearest, ties to even), with the signs of zero, infinities and denormals
// of IEEE 754 fusedMultiplyAdd. Which NaN it returns is not specified.
//
// Method: the product of two float32 is exact in float64 (48 bits). Their sum with z, rounded to float64, rounds right
// to float32 unless it lies exactly half way between two float32 (its low 29 bits are 1 and 28 zeros) or near or
// below the normal range, where more bits are dropped. Those cases are decided by the sign of the float64 sum's error.
// (math.FMA on float64 and back is *not* this function: it rounds twice.)
func FMA(x, y, z float32) float32 { return fmaWide(float64(float64(x)*float64(y)), float64(z)) }

// fmaWide rounds p+z once to float32, where p is an exact product of two float32 and z holds a float32.
func fmaWide(p, z float64) float32 {
	s := p + z
	if b := math.Float64bits(s); b&0x1fffffff == 0x10000000 || b<<1 < (1023-125)<<53 {
		return fmaExact(p, z, s)
	}
	return float32(s)
}

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
