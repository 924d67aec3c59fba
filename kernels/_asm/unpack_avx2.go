package main

import "fmt"

// prefetch asks for lines [from, to) of the memory that is groupArgs.ahead bytes ahead of register reg.
func (f avx2) prefetch(reg string, from, to int) {
	for i := from; i < to; i++ {
		f.op("PREFETCHT0 %d(%s)(R12*1)", 64*i, reg)
	}
}

// halves widens the 16 binary16 at src(reg) into at(dst).
func (f avx2) halves(reg string, src int, dst string, at int) {
	for v := range 2 {
		f.op("VCVTPH2PS %d(%s), Y0", src+16*v, reg)
		f.op("VMOVUPS Y0, %d(%s)", at+32*v, dst)
	}
}

// unpackScales brings the scales and minimums of the superblock at SI (for legacy types: R12 blocks) to the panel.
func (f avx2) unpackScales(k kind) {
	if k.k {
		f.halves("SI", 0, "BX", panelD)
		if k.min {
			f.halves("SI", 32, "BX", panelDmin)
		}
		f.op("VMOVDQU %s, Y15", f.bytes32("low", 0x0f))
		if k.sub16 {
			f.scales6(32 * k.halves)
		} else {
			f.scales45(32 * k.halves)
		}
		return
	}
	f.op("MOVQ %d(BX), R15", panelBlocks)
	f.op("MOVQ SI, R13")
	f.op("MOVQ BX, R11")
	again := f.label("scales")
	f.at(again)
	f.halves("R13", 0, "R11", panelScale)
	if k.halves == 2 {
		f.halves("R13", 32, "R11", panelM)
	}
	f.op("ADDQ $%d, R13", k.bytes())
	f.op("ADDQ $64, R11")
	f.op("DECQ R15")
	f.op("JNE %s", again)
}

// unpackCodes writes the codes of the superblock at SI (for legacy types: R12 blocks) to the panel.
func (f avx2) unpackCodes(k kind) {
	w := weights{f, k, "R14", "R11"}
	w.masks()
	f.op("MOVQ BX, R13")
	again := f.label("unpack")
	blocks := 1
	if k.k {
		blocks = k.partBlocks()
		w.start()
		f.op("MOVQ $%d, R15", k.parts())
	} else {
		f.op("MOVQ SI, R14")
		f.op("MOVQ %d(BX), R15", panelBlocks)
	}
	f.at(again)
	if !k.k {
		f.prefetch("R14", 0, (k.bytes()+63)/64)
	}
	for b := range blocks {
		if k.k {
			w.fetch(b)
		}
		w.bits(b)
		for q := range 8 {
			for v := range 2 {
				w.load(b, q, v, "Y0", "Y1")
				f.op("VMOVDQU Y0, %d(R13)", 512*b+64*q+32*v)
			}
		}
	}
	if k.k {
		w.advance()
	} else {
		f.op("ADDQ $%d, R14", k.bytes())
	}
	f.op("ADDQ $%d, R13", 512*blocks)
	f.op("DECQ R15")
	f.op("JNE %s", again)
	if k.k {
		w.end()
	}
}

// weights loads codes from packed blocks.
type weights struct {
	avx2
	k    kind
	low  string // register that points to the low bits: of the packed block, for K types of the present part
	high string // the same for the high bits that Q5_K and Q6_K have apart
}

// start points the registers to the first part of the superblock at SI.
func (w weights) start() {
	w.op("LEAQ %d(SI), %s", w.lowAt(), w.low)
	switch {
	case w.k.sub16:
		w.op("LEAQ %d(SI), %s", w.lowAt()+2048, w.high)
	case w.k.name == "Q5_K":
		w.op("LEAQ %s, %s", w.constant("bits", 256, w.eachBit()), w.high)
	}
}

// eachBit is 32 bytes 1, 32 bytes 2, 32 bytes 4, …
func (w weights) eachBit() (p []byte) {
	for b := range 8 {
		for range 32 {
			p = append(p, 1<<b)
		}
	}
	return p
}

// lowAt is the offset of the low bits in a packed K block.
func (w weights) lowAt() int {
	switch {
	case w.k.sub16:
		return 32
	case w.k.name == "Q5_K":
		return 64 + 3*64 + 8*64
	}
	return 64 + 3*64
}

// lowStep is how many bytes of low bits a part has.
func (w weights) lowStep() int {
	if w.k.sub16 {
		return 1024
	}
	return 512
}

// part is how many packed bytes there are to a part: more than its low bits.
func (w weights) part() int { return w.k.bytes() / w.k.parts() }

// fetch asks for block b's share of what follows, linearly: a burst of as many lines as a part has would wait for the
// core's line fill buffers.
func (w weights) fetch(b int) {
	lines, blocks := (w.part()+63)/64, w.k.partBlocks()
	w.prefetch(w.low, b*lines/blocks, (b+1)*lines/blocks)
}

// end is for after the last part.
func (w weights) end() { w.op("MOVQ groupArgs_ahead(R9), R12") }

// advance goes to the next part.
func (w weights) advance() {
	switch {
	case w.k.sub16:
		w.op("ADDQ $512, %s", w.high)
	case w.k.name == "Q5_K":
		w.op("ADDQ $64, %s", w.high)
	}
	w.op("ADDQ $%d, %s", w.lowStep(), w.low)
	w.op("ADDQ $%d, R12", w.part()-w.lowStep())
}

// masks loads the constants that load needs: Y15 up to Y14, which stay.
func (w weights) masks() {
	if w.k.flipped {
		w.op("VMOVDQU %s, Y15", w.bytes32("flip", 0x80))
		return
	}
	w.op("VMOVDQU %s, Y15", w.bytes32("low", 0x0f))
	switch {
	case w.k.five():
		w.op("VMOVDQU %s, Y14", w.bytes32("fifth", 0x10))
	case w.k.sub16:
		w.op("VMOVDQU %s, Y14", w.bytes32("two", 0x30))
	}
}

// bits loads what load needs for block b of a part: Q5_K's bit, Y13.
func (w weights) bits(b int) {
	if w.k.name == "Q5_K" {
		w.op("VMOVDQU %d(%s), Y13", 32*b, w.high)
	}
}

// nibble puts the low or high halves of the bytes at off into dst.
func (w weights) nibble(off int, high bool, dst string) {
	if !high {
		w.op("VPAND %d(%s), Y15, %s", off, w.low, dst)
		return
	}
	w.op("VMOVDQU %d(%s), %s", off, w.low, dst)
	w.op("VPSRLW $4, %s, %s", dst, dst)
	w.op("VPAND Y15, %s, %s", dst, dst)
}

// load puts the codes of quad q of block b of a part (0 for legacy types), rows 8v to 8v+7, into dst; tmp is lost.
func (w weights) load(b, q, v int, dst, tmp string) {
	switch {
	case w.k.flipped:
		w.op("VPXOR %d(%s), Y15, %s", 32*w.k.halves+64*q+32*v, w.low, dst)
	case w.k.sub16:
		w.nibble(64*(b%2*8+q)+32*v, b >= 2, dst)
		at := fmt.Sprintf("%d(%s)", 64*q+32*v, w.high)
		if by := 4 - 2*b; by == 0 {
			w.op("VPAND %s, Y14, %s", at, tmp)
		} else {
			w.op("VMOVDQU %s, %s", at, tmp)
			if by > 0 {
				w.op("VPSLLW $%d, %s, %s", by, tmp, tmp)
			} else {
				w.op("VPSRLW $%d, %s, %s", -by, tmp, tmp)
			}
			w.op("VPAND Y14, %s, %s", tmp, tmp)
		}
		w.op("VPOR %s, %s, %s", tmp, dst, dst)
	case w.k.k:
		w.nibble(64*q+32*v, b == 1, dst)
		if w.k.five() { // fifth bits are between the scales and the low bits, for all parts
			w.op("VPAND %d(SI), Y13, %s", w.lowAt()-512+64*q+32*v, tmp)
			w.op("VPCMPEQB Y13, %s, %s", tmp, tmp)
			w.op("VPAND Y14, %s, %s", tmp, tmp)
			w.op("VPOR %s, %s, %s", tmp, dst, dst)
		}
	case w.k.five(): // a dword column of fifth bits, four of low bits
		at := 32*w.k.halves + 32*v
		w.nibble(at+64+64*(q%4), q >= 4, dst)
		w.op("VMOVDQU %d(%s), %s", at, w.low, tmp)
		w.op("VPSHUFB %s, %s, %s", w.byteOf(q/2), tmp, tmp)
		bits := w.bytes32(fmt.Sprintf("bits%d", q%2), 1<<(4*(q%2)), 2<<(4*(q%2)), 4<<(4*(q%2)), 8<<(4*(q%2)))
		w.op("VPAND %s, %s, %s", bits, tmp, tmp)
		w.op("VPCMPEQB %s, %s, %s", bits, tmp, tmp)
		w.op("VPAND Y14, %s, %s", tmp, tmp)
		w.op("VPOR %s, %s, %s", tmp, dst, dst)
	default: // four of low bits
		w.nibble(32*w.k.halves+32*v+64*(q%4), q >= 4, dst)
	}
}

// byteOf returns the shuffle that copies byte b of each dword to all four of its bytes.
func (f avx2) byteOf(b int) string {
	var p []byte
	for d := range 4 {
		for range 4 {
			p = append(p, byte(4*d+b))
		}
	}
	return f.constant(fmt.Sprintf("byte%d", b), 32, p)
}

// pairOf returns the shuffle that makes each dword two words out of its bytes lo and hi, zero extended.
func (f avx2) pairOf(lo, hi int) string {
	var p []byte
	for d := range 4 {
		p = append(p, byte(4*d+lo), 0x80, byte(4*d+hi), 0x80)
	}
	return f.constant(fmt.Sprintf("pair%d%d", lo, hi), 32, p)
}

// scales45 unpacks the 6-bit scales and minimums of Q4_K and Q5_K, three dword columns at base(SI).
func (f avx2) scales45(base int) {
	f.op("VMOVDQU %s, Y14", f.bytes32("six", 0x3f))
	f.op("VMOVDQU %s, Y13", f.bytes32("top", 0x30))
	for v := range 2 {
		f.op("VMOVDQU %d(SI), Y0", base+32*v)
		f.op("VMOVDQU %d(SI), Y1", base+64+32*v)
		f.op("VMOVDQU %d(SI), Y2", base+128+32*v)
		f.op("VPSRLW $2, Y0, Y3") // high bits of scales 4-7, at bits 4 and 5
		f.op("VPAND Y13, Y3, Y3")
		f.op("VPAND Y15, Y2, Y4")
		f.op("VPOR Y3, Y4, Y4") // scales 4-7
		f.op("VPSRLW $2, Y1, Y3")
		f.op("VPAND Y13, Y3, Y3")
		f.op("VPSRLW $4, Y2, Y5")
		f.op("VPAND Y15, Y5, Y5")
		f.op("VPOR Y3, Y5, Y5") // minimums 4-7
		f.op("VPAND Y14, Y0, Y0")
		f.op("VPAND Y14, Y1, Y1")
		for j := range 8 {
			f.op("VPSHUFB %s, Y%d, Y3", f.pairOf(j%4, j%4), j/4*4)
			f.op("VMOVDQU Y3, %d(BX)", panelScale+64*j+32*v)
		}
		for p := range 4 {
			f.op("VPSHUFB %s, Y%d, Y3", f.pairOf(p%2*2, p%2*2+1), 1+p/2*4)
			f.op("VMOVDQU Y3, %d(BX)", panelMin+64*p+32*v)
		}
	}
}

// scales6 unpacks the signed scales of Q6_K, four dword columns after those of the codes at base(SI): each twice, and in
// pairs of neighbours.
func (f avx2) scales6(base int) {
	for c := range 4 {
		for v := range 2 {
			f.op("VMOVDQU %d(SI), Y0", base+2048+1024+64*c+32*v)
			for j := range 4 { // sign extended byte j of each dword, twice
				reg := "Y0"
				if j < 3 {
					f.op("VPSLLD $%d, Y0, Y1", 24-8*j)
					reg = "Y1"
				}
				f.op("VPSRAD $24, %s, Y%d", reg, 2+j)
				f.op("VPSHUFB %s, Y%d, Y6", f.wordTwice(), 2+j)
				f.op("VMOVDQU Y6, %d(BX)", panelScale+64*(4*c+j)+32*v)
			}
			for p := range 2 { // (scale 2p, scale 2p+1)
				f.op("VPSLLD $16, Y%d, Y6", 3+2*p)
				f.op("VPBLENDW $0xaa, Y6, Y%d, Y6", 2+2*p)
				f.op("VMOVDQU Y6, %d(BX)", panelMin+64*(2*c+p)+32*v)
			}
		}
	}
}

// wordTwice returns the shuffle that copies the low word of each dword to its high word.
func (f avx2) wordTwice() string {
	var p []byte
	for d := range 4 {
		p = append(p, byte(4*d), byte(4*d+1), byte(4*d), byte(4*d+1))
	}
	return f.constant("word", 32, p)
}
