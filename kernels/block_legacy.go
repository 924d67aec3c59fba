package kernels

import "encoding/binary"

// The legacy block formats hold 32 elements. All numbers are little endian; d and m are binary16.
//
//	Q4_0  d, qs[16]          value = d·(q-8)      q: 4 bits
//	Q4_1  d, m, qs[16]       value = d·q + m
//	Q5_0  d, qh[4], qs[16]   value = d·(q-16)     q: 5 bits
//	Q5_1  d, m, qh[4], qs[16] value = d·q + m
//	Q8_0  d, qs[32]          value = d·q          q: signed byte
//
// Byte j of the 4-bit qs holds element j in its low half and element j+16 in its high half; bit i of the 32-bit qh is
// the fifth bit of element i.
const (
	bytesQ4_0 = 2 + 16
	bytesQ4_1 = 4 + 16
	bytesQ5_0 = 2 + 4 + 16
	bytesQ5_1 = 4 + 4 + 16
	bytesQ8_0 = 2 + 32
)

// halfAt widens the little-endian binary16 at the start of b.
func halfAt(b []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(b)) }

func dequantQ4_0(dst []float32, row []byte) {
	for ; len(row) >= bytesQ4_0; row, dst = row[bytesQ4_0:], dst[32:] {
		d := halfAt(row)
		for j, q := range row[2:bytesQ4_0] {
			dst[j] = float32(d * float32(int(q&15)-8))
			dst[j+16] = float32(d * float32(int(q>>4)-8))
		}
	}
}

func dequantQ4_1(dst []float32, row []byte) {
	for ; len(row) >= bytesQ4_1; row, dst = row[bytesQ4_1:], dst[32:] {
		d, m := halfAt(row), halfAt(row[2:])
		for j, q := range row[4:bytesQ4_1] {
			dst[j] = float32(d*float32(q&15)) + m
			dst[j+16] = float32(d*float32(q>>4)) + m
		}
	}
}

func dequantQ5_0(dst []float32, row []byte) {
	for ; len(row) >= bytesQ5_0; row, dst = row[bytesQ5_0:], dst[32:] {
		d, high := halfAt(row), binary.LittleEndian.Uint32(row[2:])
		for j, q := range row[6:bytesQ5_0] {
			lo := int(q&15) | int(high>>j&1)<<4
			hi := int(q>>4) | int(high>>(j+16)&1)<<4
			dst[j] = float32(d * float32(lo-16))
			dst[j+16] = float32(d * float32(hi-16))
		}
	}
}

func dequantQ5_1(dst []float32, row []byte) {
	for ; len(row) >= bytesQ5_1; row, dst = row[bytesQ5_1:], dst[32:] {
		d, m, high := halfAt(row), halfAt(row[2:]), binary.LittleEndian.Uint32(row[4:])
		for j, q := range row[8:bytesQ5_1] {
			lo := int(q&15) | int(high>>j&1)<<4
			hi := int(q>>4) | int(high>>(j+16)&1)<<4
			dst[j] = float32(d*float32(lo)) + m
			dst[j+16] = float32(d*float32(hi)) + m
		}
	}
}

func dequantQ8_0(dst []float32, row []byte) {
	for ; len(row) >= bytesQ8_0; row, dst = row[bytesQ8_0:], dst[32:] {
		d := halfAt(row)
		for j, q := range row[2:bytesQ8_0] {
			dst[j] = float32(d * float32(int8(q)))
		}
	}
}
