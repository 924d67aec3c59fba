package kernels

import (
	"encoding/binary"
	"math"
)

// The 4-bit codebook formats look their codes up in a table of sixteen signed bytes.
//
//	IQ4_NL  d, qs[16]                           value = d·codesIQ4[q]        blocks of 32
//	IQ4_XS  d, high[2], scales[4], qs[8][16]    value = (d·sc)·codesIQ4[q]   blocks of 256, sc for each 32
//	MXFP4   e, qs[16]                           value = 2^(e-128)·codesMX[q] blocks of 32
//
// d is a little-endian binary16. Of 32 elements, byte j of qs holds element j in its low half and element j+16 in its high
// half. IQ4_XS's sc is six bits around 32: of sub-block s the low four are a half of scales[s/2], low first, and the high
// two are bits 2s and 2s+1 of high. MXFP4 (OCP Microscaling Formats 1.0) has a power of two for a scale, and its codes'
// values are doubled to be integers; e = 255 is NaN.
const (
	bytesIQ4_NL = 2 + 16
	bytesIQ4_XS = 2 + 2 + 4 + 128
	bytesMXFP4  = 1 + 16
)

// codesIQ4 is ggml's kvalues_iq4nl, codesMX its kvalues_mxfp4 (ggml-common.h).
var (
	codesIQ4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	codesMX  = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

// exponentMX returns 2^(e-128), which is denormal for e < 2. The exponent 255, which is NaN, is refused elsewhere.
func exponentMX(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// unpackScalesIQ4 spreads bytes 2 to 7 of an IQ4_XS block, its scales.
func unpackScalesIQ4(b []byte) (sc [8]int8) {
	high := binary.LittleEndian.Uint16(b)
	for s := range sc {
		sc[s] = int8(b[2+s/2]>>(s%2*4)&15|byte(high>>(2*s))&3<<4) - 32
	}
	return sc
}

// lookUp sets 32 values to d times what codes has for the halves of 16 bytes.
func lookUp(dst []float32, d float32, codes *[16]int8, qs []byte) {
	for j, q := range qs[:16] {
		dst[j] = float32(d * float32(codes[q&15]))
		dst[j+16] = float32(d * float32(codes[q>>4]))
	}
}

func dequantIQ4_NL(dst []float32, row []byte) {
	for ; len(row) >= bytesIQ4_NL; row, dst = row[bytesIQ4_NL:], dst[32:] {
		lookUp(dst, halfAt(row), &codesIQ4, row[2:])
	}
}

func dequantIQ4_XS(dst []float32, row []byte) {
	for ; len(row) >= bytesIQ4_XS; row, dst = row[bytesIQ4_XS:], dst[256:] {
		d := halfAt(row)
		for s, sc := range unpackScalesIQ4(row[2:]) {
			lookUp(dst[32*s:], float32(d*float32(sc)), &codesIQ4, row[8+16*s:])
		}
	}
}

func dequantMXFP4(dst []float32, row []byte) {
	for ; len(row) >= bytesMXFP4; row, dst = row[bytesMXFP4:], dst[32:] {
		lookUp(dst, exponentMX(row[0]), &codesMX, row[1:])
	}
}
