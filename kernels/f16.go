package kernels

import (
	"math"
	"unsafe"
)

// maxF16 is the largest finite 16-bit float; stored keys and values are clamped to it.
const maxF16 = 65504

// F16ToF32 widens an IEEE 754 binary16 value. It is exact; NaN payloads move along.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	em := uint32(h & 0x7fff)
	if em >= 0x7c00 {
		return math.Float32frombits(sign | 0x7f800000 | em<<13)
	}
	// The half's bits read as a float32 are too small by 2^(127-15); the product is exact, for denormals too.
	f := float32(math.Float32frombits(em<<13) * 0x1p112)
	return math.Float32frombits(sign | math.Float32bits(f))
}

// F32ToF16 rounds to IEEE 754 binary16, to nearest, ties to even. Values of 65520 and more in size become infinite;
// NaN becomes a quiet NaN with the upper bits of its payload.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13)&0x3ff
	case b >= 0x477ff000: // 65520
		return sign | 0x7c00
	case b >= 0x38800000: // 2^-14: a normal half
		b += 0xfff + b>>13&1
		return sign | uint16((b-0x38000000)>>13)
	}
	// Adding 0.5 puts the last place of the sum at 2^-24, that of a denormal half: the addition rounds.
	return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
}

// clampF16 is F32ToF16 with everything beyond ±65504, infinities included, clamped to ±65504: what keys and values are
// stored as. NaN stays NaN; callers refuse it before (see CheckFinite).
func clampF16(f float32) uint16 {
	if f > maxF16 {
		f = maxF16
	} else if f < -maxF16 {
		f = -maxF16
	}
	return F32ToF16(f)
}

// bf16ToF32 widens a bfloat16 value. It is exact.
func bf16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// widenF16 writes [F16ToF32] of each value of src to dst[:len(src)]. Which NaN a NaN becomes is not specified.
func widenF16(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	n := 0
	if active.widenF16 != nil {
		n = len(src) &^ 7
		active.widenF16(pointerTo(dst), (*byte)(unsafe.Pointer(pointerTo(src))), n)
	}
	for i := n; i < len(src); i++ {
		dst[i] = F16ToF32(src[i])
	}
}

// clampF16s writes clampF16 of each value of src to dst[:len(src)].
func clampF16s(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	n := 0
	if active.clampF16 != nil {
		n = len(src) &^ 7
		active.clampF16(pointerTo(dst), pointerTo(src), n)
	}
	for i := n; i < len(src); i++ {
		dst[i] = clampF16(src[i])
	}
}

// CheckFinite returns the index of the first NaN or infinity of x, or -1.
func CheckFinite(x []float32) int {
	n := 0
	if active.largestBits != nil {
		n = len(x) &^ 7
		if active.largestBits(pointerTo(x), n) >= 0x7f800000 {
			n = 0
		}
	}
	for i := n; i < len(x); i++ {
		if math.Float32bits(x[i])&0x7f800000 == 0x7f800000 {
			return i
		}
	}
	return -1
}
