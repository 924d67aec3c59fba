package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Rows of numbers as others get them: of the residual stream ([Narrow], [Widen]) and of caches whose rows travel as q8_0
// ([RoundQ8_0], [NarrowHalves], [WidenHalves]). Blocks of Q8_0 have 32 values, the last of a row what is left: a scale D in
// binary16, then a code of 8 bits for each value.

// narrowBlock is how many values share a scale in Q8_0.
const narrowBlock = 32

// NarrowBytes returns the size of a row of n values in t: F32, F16, BF16 or Q8_0.
func NarrowBytes(t Type, n int) int {
	switch t {
	case F32:
		return 4 * n
	case F16, BF16:
		return 2 * n
	case Q8_0:
		return n + 2*((n+narrowBlock-1)/narrowBlock)
	}
	panic(fmt.Sprintf("kernels: rows are not narrowed to %v", t))
}

// Narrow writes a row in t, little endian, to dst, NarrowBytes of it. F16 and BF16 are rounded to nearest even. Of a block
// of Q8_0, in float32:
//
//	amax = max |x|;  D = binary16(round(amax/127))
//	D = 0:      every q = 0
//	otherwise:  id = round(127/amax), q = nearest-even(round(x·id))
//
// It returns the index of the first value that is not finite or that would not be (of Q8_0: the first of its block), or −1.
// Narrow of what Widen gives is the same bytes again.
func Narrow(dst []byte, x []float32, t Type) int {
	dst = dst[:NarrowBytes(t, len(x))]
	switch t {
	case F32:
		for i, v := range x {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
		return CheckFinite(x)
	case F16:
		for i, v := range x {
			h := F32ToF16(v)
			if h&0x7c00 == 0x7c00 {
				return i
			}
			binary.LittleEndian.PutUint16(dst[2*i:], h)
		}
		return -1
	case BF16:
		for i, v := range x {
			b := math.Float32bits(v)
			b += 0x7fff + b>>16&1
			if b&0x7f800000 == 0x7f800000 || math.Float32bits(v)&0x7f800000 == 0x7f800000 {
				return i
			}
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(b>>16))
		}
		return -1
	}
	for at := 0; at < len(x); at += narrowBlock {
		block := x[at:min(at+narrowBlock, len(x))]
		amax := largest(block)
		scale := F32ToF16(amax / 127)
		if scale&0x7c00 == 0x7c00 {
			return at
		}
		dst = putBlock(dst, block, scale, amax)
	}
	return -1
}

// largest returns the largest magnitude of x; NaN or +Inf where x has one.
func largest(x []float32) float32 {
	bits := uint32(0)
	for _, v := range x {
		bits = max(bits, math.Float32bits(v)&0x7fffffff)
	}
	return math.Float32frombits(bits)
}

// putBlock writes a block of Q8_0 and returns what of dst is behind it.
func putBlock(dst []byte, x []float32, scale uint16, amax float32) []byte {
	binary.LittleEndian.PutUint16(dst, scale)
	codes := dst[2 : 2+len(x)]
	if scale == 0 {
		clear(codes)
		return dst[2+len(x):]
	}
	id := 127 / amax
	for i, v := range x {
		codes[i] = byte(code8(v, id))
	}
	return dst[2+len(x):]
}

// code8 returns nearest-even(round(v·id)), which is within ±127.
func code8(v, id float32) int8 {
	const magic = 0x1.8p23 // see actBlock.quantise
	return int8(math.Float32bits(float32(v*id)+magic) - 0x4b400000)
}

// Widen reads a row that Narrow wrote: exactly, of Q8_0 as D·q. Other bytes may give values that are not finite.
func Widen(dst []float32, b []byte, t Type) {
	if t != Q8_0 {
		widenDense(dst, b, t)
		return
	}
	for len(dst) > 0 {
		n := min(narrowBlock, len(dst))
		d := halfAt(b)
		for i, q := range b[2 : 2+n] {
			dst[i] = float32(d * float32(int8(q)))
		}
		dst, b = dst[n:], b[2+n:]
	}
}

// RoundQ8_0 rounds x to what a cache keeps of it whose rows travel as Q8_0: half(D·q), so that such a cache is one of halves
// in everything else. half is binary16 to nearest even, clamped to ±65504; x is clamped likewise first. D is that of Narrow, then
//
//	D = binary16(round(half(round(127·D))/127))
//
// a scale that is found again from the largest of the halves, and q = nearest-even(round(x·round(127/amax))), 0 where D is 0.
// x must be finite.
func RoundQ8_0(x []float32) {
	for len(x) > 0 {
		block := x[:min(narrowBlock, len(x))]
		x = x[len(block):]
		amax := min(largest(block), maxF16)
		d := F16ToF32(F32ToF16(amax / 127))
		d = F16ToF32(F32ToF16(F16ToF32(clampF16(float32(127*d))) / 127))
		if d == 0 {
			clear(block)
			continue
		}
		id := 127 / amax
		for i, v := range block {
			q := code8(max(min(v, maxF16), -maxF16), id)
			block[i] = F16ToF32(clampF16(float32(d * float32(q))))
		}
	}
}

// NarrowHalves writes a row of halves, little endian, which RoundQ8_0 has made, as Q8_0 to dst, and returns its bytes: Narrow of
// the halves, and nothing is lost.
func NarrowHalves(dst, halves []byte) int {
	var x [narrowBlock]float32
	whole := len(dst)
	for len(halves) > 0 {
		block := x[:min(narrowBlock, len(halves)/2)]
		widenF16Bytes(block, halves)
		halves = halves[2*len(block):]
		amax := largest(block)
		dst = putBlock(dst, block, F32ToF16(amax/127), amax)
	}
	return whole - len(dst)
}

// WidenHalves reads a row of n values that NarrowHalves wrote as halves: half(D·q). It returns false, and no row, where a
// scale is not finite.
func WidenHalves(halves, b []byte, n int) bool {
	for n > 0 {
		block := min(narrowBlock, n)
		if b[1]&0x7c == 0x7c {
			return false
		}
		d := halfAt(b)
		for i, q := range b[2 : 2+block] {
			binary.LittleEndian.PutUint16(halves[2*i:], clampF16(float32(d*float32(int8(q)))))
		}
		halves, b, n = halves[2*block:], b[2+block:], n-block
	}
	return true
}
