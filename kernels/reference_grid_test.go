package kernels

import (
	"encoding/hex"
	"math/bits"
)

// refBits reads n bits of b from bit at on, lowest first.
func refBits(b []byte, at, n int) (v int) {
	for i := range n {
		v |= int(b[(at+i)/8]>>((at+i)%8)&1) << i
	}
	return v
}

// refGrid returns element j of an entry of a grid.
func refGrid(digits string, index, j, elems int) int {
	b, err := hex.DecodeString(digits[4*index:][:4])
	if err != nil {
		panic(err)
	}
	return refBits(b, 16/elems*j, 16/elems)
}

// refUnpackGrid is refUnpack for grid types: bit by bit as block_grid.go describes the formats.
func refUnpackGrid(t Type, b []byte) (r refBlock) {
	half := func(at int) float32 { return refHalf(byte(refBits(b, at, 8)), byte(refBits(b, at+8, 8))) }
	signed := func(v, signs, j int) int {
		if signs>>j&1 == 1 {
			return -v
		}
		return v
	}
	even := func(signs int) int { return signs | bits.OnesCount(uint(signs))%2<<7 }
	two := []int{8, 25, 43}
	r.q, r.sc = make([]int, 256), make([]int, 16)
	for i := range r.q {
		eight, four, sub, sub32, j := i/8, i/4, i/16, i/32, i%8 // of 8, 4, 16 and 32 elements; and which of 8
		s := 0
		switch t {
		case IQ2_XXS:
			r.d = half(0) / 8
			at := 16 + 64*sub32
			index, signs := refBits(b, at+8*(eight%4), 8), even(refBits(b, at+32+7*(eight%4), 7))
			r.q[i], s = signed(two[refGrid(gridHexIQ2_XXS, index, j, 8)], signs, j), refBits(b, at+60, 4)
		case IQ2_XS:
			r.d = half(0) / 8
			at := 16 + 16*eight
			index, signs := refBits(b, at, 9), even(refBits(b, at+9, 7))
			r.q[i], s = signed(two[refGrid(gridHexIQ2_XS, index, j, 8)], signs, j), refBits(b, 16+512+4*sub, 4)
		case IQ2_S:
			r.d = half(0) / 8
			index := refBits(b, 16+8*eight, 8) + refBits(b, 16+512+2*eight, 2)<<8
			r.q[i], s = signed(two[refGrid(gridHexIQ2_S, index, j, 8)], refBits(b, 16+256+8*eight, 8), j), refBits(b, 16+512+64+4*sub, 4)
		case IQ3_XXS:
			r.d = half(0) / 2
			m := []int{2, 6, 10, 14, 18, 22, 26, 31}[refGrid(gridHexIQ3_XXS, refBits(b, 16+8*four, 8), i%4, 4)]
			at := 16 + 512 + 32*sub32
			r.q[i], s = signed(m, even(refBits(b, at+7*(eight%4), 7)), j), refBits(b, at+28, 4)
		case IQ3_S:
			r.d = half(0)
			index := refBits(b, 16+8*four, 8) + refBits(b, 16+512+four, 1)<<8
			m := 2*refGrid(gridHexIQ3_S, index, i%4, 4) + 1
			r.q[i], s = signed(m, refBits(b, 16+512+64+8*eight, 8), j), refBits(b, 16+512+64+256+4*sub32, 4)
		case IQ1_S:
			r.d = half(0) / 8
			at := 16 + 256 + 16*sub32
			index := refBits(b, 16+8*eight, 8) + refBits(b, at+3*(eight%4), 3)<<8
			r.q[i], s = 8*refGrid(gridHexIQ1_S, index, j, 8)-8+signed(1, refBits(b, at+15, 1), 0), refBits(b, at+12, 3)
		case IQ1_M:
			d := 0
			for w := range 4 {
				d |= refBits(b, 256+128+16*w+12, 4) << (4 * w)
			}
			r.d = refHalf(byte(d), byte(d>>8)) / 8
			at := 256 + 4*eight
			index := refBits(b, 8*eight, 8) + refBits(b, at, 3)<<8
			r.q[i], s = 8*refGrid(gridHexIQ1_S, index, j, 8)-8+signed(1, refBits(b, at+3, 1), 0), refBits(b, 256+128+16*(sub/4)+3*(sub%4), 3)
		}
		r.sc[sub] = 2*s + 1
	}
	return r
}
