package kernels

import (
	"encoding/binary"
	"encoding/hex"
)

// The grid formats hold 256 elements, whose values come from a table of vectors (the grid): an index stands for the magnitudes of
// eight elements, or of four (IQ3). All numbers are little endian; d is a binary16; index, sign and scale fields are of unsigned bits,
// lowest first.
//
//	IQ2_XXS  d, {index[4] of 8, signs[4] of 7, s of 4}[8]          value = d/8·(2s+1)·±m    m: 8, 25, 43
//	IQ2_XS   d, {index of 9, signs of 7}[32], s[16] of 4           the same
//	IQ2_S    d, index[32] of 8, signs[32] of 8, high[32] of 2, s[16] of 4
//	IQ3_XXS  d, index[64] of 8, {signs[4] of 7, s of 4}[8]         value = d/2·(2s+1)·±m    m: 2, 6, 10, 14, 18, 22, 26, 31
//	IQ3_S    d, index[64] of 8, high[64] of 1, signs[32] of 8, s[8] of 4
//	                                                               value = d·(2s+1)·±m      m: 1, 3, 5, … 15
//	IQ1_S    d, index[32] of 8, {high[4] of 3, s of 3, minus of 1}[8]
//	                                                               value = d/8·(2s+1)·(8g ± 1)    g: −1, 0, 1
//	IQ1_M    index[32] of 8, {high of 3, minus of 1}[32], {s[4] of 3, d's next 4 bits}[4]
//	                                                               the same
//
// There is one s for each 32 elements, or, where there are 16, for each 16. high are the bits of an index above its eight. signs has a
// bit for each of eight elements that is set if it is negative; of seven bits, the eighth makes their number even. minus is for 32
// elements (IQ1_S) or eight (IQ1_M), and takes 1 from 8g instead of adding it.
//
// So each element is one of sixteen values, and a scale an odd integer up to 31: every value is exact in float32.
const (
	bytesIQ2_XXS = 2 + 64
	bytesIQ2_XS  = 2 + 64 + 8
	bytesIQ2_S   = 2 + 32 + 32 + 8 + 8
	bytesIQ3_XXS = 2 + 64 + 32
	bytesIQ3_S   = 2 + 64 + 8 + 32 + 4
	bytesIQ1_S   = 2 + 32 + 16
	bytesIQ1_M   = 32 + 16 + 8
)

// gridBlock is a block of a grid type without its grid: codes of four bits, whose values are its type's, and a scale for each 16
// elements. Of 32 elements, byte j of the 16 in codes holds element j in its low half and element j+16 in its high half.
type gridBlock struct {
	codes  [16]uint64 // two for 32 elements
	scales [16]int8
	d      float32
}

// gridType is what grid types differ by.
type gridType struct {
	values [16]int8 // of codes
	expand func(g *gridBlock, b []byte)
}

// gridTypes has the grid types; of others, expand is nil.
var gridTypes = [len(geometries)]gridType{
	IQ2_XXS: {valuesIQ2, expandIQ2_XXS},
	IQ2_XS:  {valuesIQ2, expandIQ2_XS},
	IQ2_S:   {valuesIQ2, expandIQ2_S},
	IQ3_XXS: {[16]int8{2, 6, 10, 14, 18, 22, 26, 31, -2, -6, -10, -14, -18, -22, -26, -31}, expandIQ3_XXS},
	IQ3_S:   {[16]int8{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}, expandIQ3_S},
	IQ1_S:   {valuesIQ1, expandIQ1_S},
	IQ1_M:   {valuesIQ1, expandIQ1_M},
}

var (
	valuesIQ2 = [16]int8{8, 25, 43, 8: -8, -25, -43}
	valuesIQ1 = [16]int8{-7, 1, 9, 8: -9, -1, 7} // g = −1, 0, 1; plus, then minus
)

// Grids by index: codes of eight elements, or of four, one in the low half of each byte.
var (
	gridIQ2_XXS = grid8[[256]uint64](gridHexIQ2_XXS)
	gridIQ2_XS  = grid8[[512]uint64](gridHexIQ2_XS)
	gridIQ2_S   = grid8[[1024]uint64](gridHexIQ2_S)
	gridIQ1     = grid8[[2048]uint64](gridHexIQ1_S)
	gridIQ3_XXS = grid4[[256]uint32](gridHexIQ3_XXS)
	gridIQ3_S   = grid4[[512]uint32](gridHexIQ3_S)
)

// minusCode is the bit of a code that its sign sets.
const minusCode = 8

// signs8 has minusCode in byte j where the index has bit j.
var signs8 = func() (t [256]uint64) {
	for i := range t {
		for j := range 8 {
			t[i] |= uint64(i>>j&1) * minusCode << (8 * j)
		}
	}
	return t
}()

// signs7 is signs8 of seven bits and the one that makes their number even.
var signs7 = func() (t [128]uint64) {
	for i := range t {
		even := i ^ i>>4
		even ^= even >> 2
		even ^= even >> 1
		t[i] = signs8[i|even&1<<7]
	}
	return t
}()

// grid8 unpacks a grid of eight elements of two bits. T is an array of uint64.
func grid8[T ~[256]uint64 | ~[512]uint64 | ~[1024]uint64 | ~[2048]uint64](digits string) (t T) {
	packed, err := hex.DecodeString(digits)
	if err != nil || len(packed) != 2*len(t) {
		panic("kernels: grid of " + digits)
	}
	for i := range len(t) {
		for j := range 8 {
			t[i] |= uint64(packed[2*i+j/4]>>(2*(j%4))&3) << (8 * j)
		}
	}
	return t
}

// grid4 unpacks a grid of four elements of four bits. T is an array of uint32.
func grid4[T ~[256]uint32 | ~[512]uint32](digits string) (t T) {
	packed, err := hex.DecodeString(digits)
	if err != nil || len(packed) != 2*len(t) {
		panic("kernels: grid of " + digits)
	}
	for i := range len(t) {
		for j := range 4 {
			t[i] |= uint32(packed[2*i+j/2]>>(4*(j%2))&15) << (8 * j)
		}
	}
	return t
}

// put32 sets the codes of elements 32s to 32s+31, given eight to a word.
func (g *gridBlock) put32(s int, w0, w1, w2, w3 uint64) {
	g.codes[2*s] = w0 | w2<<4
	g.codes[2*s+1] = w1 | w3<<4
}

// putScale sets the scale of elements 32s to 32s+31, from its field.
func (g *gridBlock) putScale(s int, field uint32) {
	sc := int8(2*field + 1)
	g.scales[2*s], g.scales[2*s+1] = sc, sc
}

// putScales sets the scales of elements 32s to 32s+31 from two fields of four bits.
func (g *gridBlock) putScales(s int, fields byte) {
	g.scales[2*s], g.scales[2*s+1] = int8(2*(fields&15)+1), int8(2*(fields>>4)+1)
}

func expandIQ2_XXS(g *gridBlock, block []byte) {
	b := (*[bytesIQ2_XXS]byte)(block)
	g.d = float32(halfAt(b[:]) * 0.125)
	for s := range 8 {
		f := u64(b[2+8*s:])
		g.put32(s,
			gridIQ2_XXS[byte(f)]|signs7[f>>32&127], gridIQ2_XXS[byte(f>>8)]|signs7[f>>39&127],
			gridIQ2_XXS[byte(f>>16)]|signs7[f>>46&127], gridIQ2_XXS[byte(f>>24)]|signs7[f>>53&127])
		g.putScale(s, uint32(f>>60))
	}
}

func expandIQ2_XS(g *gridBlock, block []byte) {
	b := (*[bytesIQ2_XS]byte)(block)
	g.d = float32(halfAt(b[:]) * 0.125)
	for s := range 8 {
		f := u64(b[2+8*s:])
		g.put32(s,
			gridIQ2_XS[f&511]|signs7[f>>9&127], gridIQ2_XS[f>>16&511]|signs7[f>>25&127],
			gridIQ2_XS[f>>32&511]|signs7[f>>41&127], gridIQ2_XS[f>>48&511]|signs7[f>>57])
		g.putScales(s, b[66+s])
	}
}

func expandIQ2_S(g *gridBlock, block []byte) {
	b := (*[bytesIQ2_S]byte)(block)
	g.d = float32(halfAt(b[:]) * 0.125)
	for s := range 8 {
		i, sign := binary.LittleEndian.Uint32(b[2+4*s:]), binary.LittleEndian.Uint32(b[34+4*s:])
		high := uint32(b[66+s])
		g.put32(s,
			gridIQ2_S[i&255|high<<8&0x300]|signs8[byte(sign)], gridIQ2_S[i>>8&255|high<<6&0x300]|signs8[byte(sign>>8)],
			gridIQ2_S[i>>16&255|high<<4&0x300]|signs8[byte(sign>>16)], gridIQ2_S[i>>24|high<<2&0x300]|signs8[sign>>24])
		g.putScales(s, b[74+s])
	}
}

func expandIQ3_XXS(g *gridBlock, block []byte) {
	b := (*[bytesIQ3_XXS]byte)(block)
	g.d = float32(halfAt(b[:]) * 0.5)
	two := func(i uint64) uint64 { return uint64(gridIQ3_XXS[byte(i)]) | uint64(gridIQ3_XXS[byte(i>>8)])<<32 }
	for s := range 8 {
		i, f := u64(b[2+8*s:]), binary.LittleEndian.Uint32(b[66+4*s:])
		g.put32(s, two(i)|signs7[f&127], two(i>>16)|signs7[f>>7&127], two(i>>32)|signs7[f>>14&127], two(i>>48)|signs7[f>>21&127])
		g.putScale(s, f>>28)
	}
}

func expandIQ3_S(g *gridBlock, block []byte) {
	b := (*[bytesIQ3_S]byte)(block)
	g.d = halfAt(b[:])
	two := func(i, high uint64) uint64 {
		return uint64(gridIQ3_S[i&255|high<<8&256]) | uint64(gridIQ3_S[i>>8&255|high<<7&256])<<32
	}
	for s := range 8 {
		i, high, sign := u64(b[2+8*s:]), uint64(b[66+s]), binary.LittleEndian.Uint32(b[74+4*s:])
		g.put32(s,
			two(i, high)|signs8[byte(sign)], two(i>>16, high>>2)|signs8[byte(sign>>8)],
			two(i>>32, high>>4)|signs8[byte(sign>>16)], two(i>>48, high>>6)|signs8[sign>>24])
		g.putScale(s, uint32(b[106+s/2]>>(s%2*4)&15))
	}
}

func expandIQ1_S(g *gridBlock, block []byte) {
	b := (*[bytesIQ1_S]byte)(block)
	g.d = float32(halfAt(b[:]) * 0.125)
	for s := range 8 {
		i, f := binary.LittleEndian.Uint32(b[2+4*s:]), uint32(binary.LittleEndian.Uint16(b[34+2*s:]))
		sign := signs8[byte(-(f >> 15))]
		g.put32(s,
			gridIQ1[i&255|f<<8&0x700]|sign, gridIQ1[i>>8&255|f<<5&0x700]|sign,
			gridIQ1[i>>16&255|f<<2&0x700]|sign, gridIQ1[i>>24|f>>1&0x700]|sign)
		g.putScale(s, f>>12&7)
	}
}

func expandIQ1_M(g *gridBlock, block []byte) {
	b := (*[bytesIQ1_M]byte)(block)
	g.d = float32(F16ToF32(halfIQ1_M(block)) * 0.125)
	for s := range 8 {
		i, f := binary.LittleEndian.Uint32(b[4*s:]), uint32(binary.LittleEndian.Uint16(b[32+2*s:]))
		g.put32(s,
			gridIQ1[i&255|f<<8&0x700]|signs8[byte(-(f>>3&1))], gridIQ1[i>>8&255|f<<4&0x700]|signs8[byte(-(f>>7&1))],
			gridIQ1[i>>16&255|f&0x700]|signs8[byte(-(f>>11&1))], gridIQ1[i>>24|f>>4&0x700]|signs8[byte(-(f>>15))])
		sc := binary.LittleEndian.Uint16(b[48+s/2*2:]) >> (s % 2 * 6)
		g.scales[2*s], g.scales[2*s+1] = int8(2*(sc&7)+1), int8(2*(sc>>3&7)+1)
	}
}

// halfIQ1_M returns d of an IQ1_M block: its bits are the highest four of each of the last four words, lowest first.
func halfIQ1_M(b []byte) uint16 {
	w := u64(b[48:bytesIQ1_M])
	return uint16(w>>12&0xf | w>>24&0xf0 | w>>36&0xf00 | w>>48&0xf000)
}

// dequantGrid computes round(round(d·scale)·value), which is exact.
func dequantGrid(dst []float32, row []byte, t Type) {
	var g gridBlock
	of := &gridTypes[t]
	for size := t.geometry().bytes; len(row) >= size; row, dst = row[size:], dst[256:] {
		of.expand(&g, row)
		for i := range dst[:256] {
			code := g.codes[i/32*2+i%16/8] >> (8*(i%8) + i%32/16*4) & 15
			dst[i] = float32(float32(g.d*float32(g.scales[i/16])) * float32(of.values[code]))
		}
	}
}
