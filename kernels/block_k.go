package kernels

import "encoding/binary"

// The K block formats hold 256 elements. All numbers are little endian; d and dmin are binary16.
//
//	Q2_K  scales[16], qs[64], d, dmin          value = (d·sc)·q - dmin·mn   q: 2 bits
//	Q3_K  hmask[32], qs[64], scales[12], d     value = (d·sc)·(q-4)         q: 3 bits
//	Q4_K  d, dmin, scales[12], qs[128]          value = (d·sc)·q - dmin·mn   q: 4 bits
//	Q5_K  d, dmin, scales[12], qh[32], qs[128]  value = (d·sc)·q - dmin·mn   q: 5 bits
//	Q6_K  ql[128], qh[64], sc[16], d            value = (d·sc)·(q-32)        q: 6 bits
//
// Q4_K and Q5_K have eight sub-blocks of 32 with a 6-bit scale sc and minimum mn each, packed as unpackScales says.
// Byte l of qs[32j:32j+32] holds element l of sub-block 2j in its low half and of sub-block 2j+1 in its high half; bit s
// of qh[l] is the fifth bit of element l of sub-block s.
// Q2_K and Q3_K have sixteen sub-blocks of 16. For each half h of 128 elements and l < 32, element 32j+l takes its low two
// bits from bits 2j and 2j+1 of qs[32h+l], and Q3_K's third bit from bit 4h+j of hmask[l]. Q2_K's scale and minimum of
// sub-block s are the low and high half of scales[s]; Q3_K's scales are six bits around 32, packed as unpackScales3 says.
// Q6_K has sixteen sub-blocks of 16 with a signed 8-bit scale each. For each half h of 128 elements and l < 32, elements
// l, l+32, l+64 and l+96 take their low four bits from ql[64h+l] low, ql[64h+32+l] low, ql[64h+l] high and
// ql[64h+32+l] high, and their high two bits from bits 0-1, 2-3, 4-5 and 6-7 of qh[32h+l].
const (
	bytesQ2_K = 16 + 64 + 2*2
	bytesQ3_K = 32 + 64 + 12 + 2
	bytesQ4_K = 4 + 12 + 128
	bytesQ5_K = 4 + 12 + 32 + 128
	bytesQ6_K = 128 + 64 + 16 + 2
)

// unpackScales spreads the twelve bytes of a Q4_K or Q5_K block's scales: byte j of sc and mn are the 6-bit scale and
// minimum of sub-block j. For j < 4 they are the low six bits of bytes j and j+4; for j >= 4 their low four bits are the
// halves of byte j+4 and their high two bits are the top bits of bytes j-4 and j.
func unpackScales(b []byte) (sc, mn uint64) {
	u0, u1, u2 := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	scHigh := u2&0x0f0f0f0f | u0>>6&0x03030303<<4
	mnHigh := u2>>4&0x0f0f0f0f | u1>>6&0x03030303<<4
	return uint64(u0&0x3f3f3f3f) | uint64(scHigh)<<32, uint64(u1&0x3f3f3f3f) | uint64(mnHigh)<<32
}

// unpackScales3 spreads the twelve bytes of a Q3_K block's scales, which are around 32: scale j has its low four bits in
// the low (j < 8) or high half of byte j mod 8, and its high two in bits 2(j/4) and 2(j/4)+1 of byte 8 + j mod 4.
func unpackScales3(b []byte) (sc [16]int8) {
	for j := range sc {
		sc[j] = int8(b[j%8]>>(4*(j/8))&15|b[8+j%4]>>(2*(j/4))&3<<4) - 32
	}
	return sc
}

func dequantQ2_K(dst []float32, row []byte) {
	for ; len(row) >= bytesQ2_K; row, dst = row[bytesQ2_K:], dst[256:] {
		d, dmin := halfAt(row[80:]), halfAt(row[82:])
		for s, b := range row[:16] {
			ds, ms := float32(d*float32(b&15)), float32(dmin*float32(b>>4))
			qs := row[16+s/8*32+s%2*16:]
			for l := range 16 {
				q := qs[l] >> (s / 2 % 4 * 2) & 3
				dst[16*s+l] = float32(ds*float32(q)) - ms
			}
		}
	}
}

func dequantQ3_K(dst []float32, row []byte) {
	for ; len(row) >= bytesQ3_K; row, dst = row[bytesQ3_K:], dst[256:] {
		d := halfAt(row[108:])
		for s, sc := range unpackScales3(row[96:]) {
			ds := float32(d * float32(sc))
			qh, qs := row[s%2*16:], row[32+s/8*32+s%2*16:]
			for l := range 16 {
				q := qs[l]>>(s/2%4*2)&3 | qh[l]>>(s/2)&1<<2
				dst[16*s+l] = float32(ds * float32(int(q)-4))
			}
		}
	}
}

func dequantQ4_K(dst []float32, row []byte) {
	for ; len(row) >= bytesQ4_K; row, dst = row[bytesQ4_K:], dst[256:] {
		d, dmin := halfAt(row), halfAt(row[2:])
		sc, mn := unpackScales(row[4:16])
		qs := row[16:bytesQ4_K]
		for s := 0; s < 8; s++ {
			ds, ms := float32(d*float32(sc>>(8*s)&63)), float32(dmin*float32(mn>>(8*s)&63))
			out := dst[32*s : 32*s+32]
			for l, b := range qs[s/2*32 : s/2*32+32] {
				q := b >> (4 * (s & 1)) & 15
				out[l] = float32(ds*float32(q)) - ms
			}
		}
	}
}

func dequantQ5_K(dst []float32, row []byte) {
	for ; len(row) >= bytesQ5_K; row, dst = row[bytesQ5_K:], dst[256:] {
		d, dmin := halfAt(row), halfAt(row[2:])
		sc, mn := unpackScales(row[4:16])
		qh, qs := row[16:48], row[48:bytesQ5_K]
		for s := 0; s < 8; s++ {
			ds, ms := float32(d*float32(sc>>(8*s)&63)), float32(dmin*float32(mn>>(8*s)&63))
			out := dst[32*s : 32*s+32]
			for l, b := range qs[s/2*32 : s/2*32+32] {
				q := b>>(4*(s&1))&15 | qh[l]>>s&1<<4
				out[l] = float32(ds*float32(q)) - ms
			}
		}
	}
}

func dequantQ6_K(dst []float32, row []byte) {
	for ; len(row) >= bytesQ6_K; row, dst = row[bytesQ6_K:], dst[256:] {
		d := halfAt(row[208:])
		for i := 0; i < 256; i++ {
			h, part, l := i/128, i%128/32, i%32
			q := int(row[64*h+32*(part&1)+l]>>(4*(part/2))&15) | int(row[128+32*h+l]>>(2*part)&3)<<4
			dst[i] = float32(float32(d*float32(int8(row[192+i/16]))) * float32(q-32))
		}
	}
}
