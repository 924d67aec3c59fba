package main

// The quantised matrix product for AVX2 with AVX-VNNI (Intel's hybrid processors, which have no AVX-512): that for AVX2,
// but VPDPBUSD adds products of whole blocks to 32-bit sums, which can't overflow, and VPMULLD scales those.

func matmulVNNI(f *file) {
	for _, k := range kinds {
		k.quads = 8
		if k.sub16 {
			k.quads = 4
		}
		if k.signed { // codes are flipped to unsigned ones
			k.signed, k.flipped, k.centre = false, true, 128
		}
		avx2{f, true}.group(k)
	}
}

// vpdpbusd adds the products of unsigned bytes of register codes and signed bytes of register acts to register sum. Go's
// assembler would encode it for AVX-512: this is VEX.256.66.0F38.W0 50 /r (Intel's manual, volume 2, VPDPBUSD).
func (f *file) vpdpbusd(acts, codes, sum int) {
	f.op("BYTE $0xc4; BYTE $0x%02x; BYTE $0x%02x; BYTE $0x50; BYTE $0x%02x // VPDPBUSD Y%d, Y%d, Y%d",
		0x42|(sum>>3^1)<<7|(acts>>3^1)<<5, 0x05|(codes^15)<<3, 0xc0|sum&7<<3|acts&7, acts, codes, sum)
}

// dots is pairSums for whole 32-bit sums.
func (t tile) dots(b, off, from, to int) {
	for i := range 2 * t.rows {
		t.op("VPXOR Y%d, Y%d, Y%d", i, i, i)
	}
	for q := from; q < to; q++ {
		t.codes(b, q)
		for r := range t.rows {
			t.op("VPBROADCASTD %d(DI), Y10", t.rec*r+off+4*q)
			for v := range 2 {
				t.vpdpbusd(10, 8+v, 2*r+v)
			}
		}
	}
}

// scaleDots multiplies all sums by the block's scales at at(R11), which are there twice, in 16 bits.
func (t tile) scaleDots(at int) {
	for v := range 2 {
		t.op("VMOVDQU %d(R11), Y11", at+32*v)
		t.op("VPSRAD $16, Y11, Y11")
		for r := range t.rows {
			t.op("VPMULLD Y11, Y%d, Y%d", 2*r+v, 2*r+v)
		}
	}
}
