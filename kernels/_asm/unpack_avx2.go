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

// exponents puts 2^(e-128) of the 16 bytes e at (reg) into at(dst), which can be denormal: a product of two powers of two with
// about half the exponent each.
func (f avx2) exponents(reg, dst string, at int) {
	f.op("VMOVDQU %s, Y2", f.bytes32("half64", 63, 0, 0, 0))
	for v := range 2 {
		f.op("VPMOVZXBD %d(%s), Y0", 8*v, reg)
		f.op("VPSRLD $1, Y0, Y1")
		f.op("VPSUBD Y1, Y0, Y0")
		for i := range 2 {
			f.op("VPADDD Y2, Y%d, Y%d", i, i)
			f.op("VPSLLD $23, Y%d, Y%d", i, i)
		}
		f.op("VMULPS Y1, Y0, Y0")
		f.op("VMOVUPS Y0, %d(%s)", at+32*v, dst)
	}
}

// unpackScales brings the scales and minimums of the superblock at SI (for legacy types: R12 blocks) to the panel.
func (f avx2) unpackScales(k kind) {
	if k.k {
		f.op("VMOVDQU %s, Y15", f.bytes32("low", 0x0f))
		if k.scale > 0 {
			f.halves("SI", 0, "BX", panelD)
		}
		switch k.name {
		case "Q2_K":
			f.scales2()
		case "Q3_K":
			f.scales3(16*k.scale + 24*64)
		case "Q6_K":
			f.scales6(16*k.scale + 48*64)
		case "IQ4_XS":
			f.scalesIQ4(k.centre > 0)
		case "Grid6", "Grid7":
			for v := range 2 {
				f.op("VMOVUPS %d(SI), Y0", gridD+32*v)
				f.op("VMOVUPS Y0, %d(BX)", panelD+32*v)
			}
			f.scales6(gridScales)
		default:
			f.halves("SI", 32, "BX", panelDmin)
			f.scales45(16 * k.scale)
		}
		return
	}
	f.op("MOVQ %d(BX), R15", panelBlocks)
	f.op("MOVQ SI, R13")
	f.op("MOVQ BX, R11")
	again := f.label("scales")
	f.at(again)
	if k.scale == 1 {
		f.exponents("R13", "R11", panelScale)
	} else {
		f.halves("R13", 0, "R11", panelScale)
	}
	if k.min {
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
	switch w.k.name {
	case "Q6_K":
		w.op("LEAQ %d(SI), %s", w.lowAt()+2048, w.high)
	case "Q3_K", "Q5_K":
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
	columns := map[string]int{"Q2_K": 4, "Q3_K": 8, "Q4_K": 3, "Q5_K": 3 + 8, "Q6_K": 0, "IQ4_XS": 1, "Grid6": 0, "Grid7": 0}
	return 16*w.k.scale + 64*columns[w.k.name]
}

// lowStep is how many bytes of low bits a part has.
func (w weights) lowStep() int {
	if w.k.name == "Q6_K" {
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
	switch w.k.name {
	case "Q6_K":
		w.op("ADDQ $512, %s", w.high)
	case "Q3_K", "Q5_K": // a bit for each block
		w.op("ADDQ $%d, %s", 32*w.k.partBlocks(), w.high)
	}
	w.op("ADDQ $%d, %s", w.lowStep(), w.low)
	w.op("ADDQ $%d, R12", w.part()-w.lowStep())
}

// masks loads the constants that load needs: Y15 up to Y14, which stay.
func (w weights) masks() {
	switch {
	case w.k.plain():
		return
	case w.k.flipped && w.k.book == nil:
		w.op("VMOVDQU %s, Y15", w.bytes32("flip", 0x80))
		return
	case w.k.two():
		w.op("VMOVDQU %s, Y15", w.bytes32("low2", 3))
	default:
		w.op("VMOVDQU %s, Y15", w.bytes32("low", 0x0f))
	}
	switch {
	case w.k.book != nil:
		w.op("VMOVDQU %s, Y14", w.bytes32("codes"+w.k.name, w.k.table()...))
	case w.k.grid: // the values, made unsigned
		w.op("MOVQ groupArgs_values(R9), %s", w.high)
		w.op("VBROADCASTI128 (%s), Y14", w.high)
		w.op("VPADDB %s, Y14, Y14", w.bytes32(fmt.Sprintf("centre%d", w.k.centre), byte(w.k.centre)))
	case w.k.three():
		w.op("VMOVDQU %s, Y14", w.bytes32("third", 4))
	case w.k.five():
		w.op("VMOVDQU %s, Y14", w.bytes32("fifth", 0x10))
	case w.k.name == "Q6_K":
		w.op("VMOVDQU %s, Y14", w.bytes32("two", 0x30))
	}
}

// bits loads what load needs for block b of a part: the bit of Q5_K and Q3_K, Y13.
func (w weights) bits(b int) {
	if w.k.name == "Q5_K" || w.k.three() {
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
	case w.k.plain():
		w.op("VMOVDQU %d(%s), %s", 16*w.k.scale+64*q+32*v, w.low, dst)
	case w.k.coded(): // four dword columns a block
		at := 256*b + 64*(q%4) + 32*v
		if !w.k.k {
			at += 16 * w.k.scale
		}
		w.nibble(at, q >= 4, dst)
		w.op("VPSHUFB %s, Y14, %s", dst, dst)
	case w.k.flipped:
		w.op("VPXOR %d(%s), Y15, %s", 16*w.k.scale+64*q+32*v, w.low, dst)
	case w.k.two():
		if at := 64*q + 32*v; b == 0 {
			w.op("VPAND %d(%s), Y15, %s", at, w.low, dst)
		} else {
			w.op("VMOVDQU %d(%s), %s", at, w.low, dst)
			w.op("VPSRLW $%d, %s, %s", 2*b, dst, dst)
			w.op("VPAND Y15, %s, %s", dst, dst)
		}
		if w.k.three() { // third bits are before the low bits, for all parts
			w.bit(w.lowAt()-512+64*q+32*v, dst, tmp)
		}
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
			w.bit(w.lowAt()-512+64*q+32*v, dst, tmp)
		}
	case w.k.five(): // a dword column of fifth bits, four of low bits
		at := 16*w.k.scale + 32*v
		w.nibble(at+64+64*(q%4), q >= 4, dst)
		w.op("VMOVDQU %d(%s), %s", at, w.low, tmp)
		w.op("VPSHUFB %s, %s, %s", w.byteOf(q/2), tmp, tmp)
		bits := w.bytes32(fmt.Sprintf("bits%d", q%2), 1<<(4*(q%2)), 2<<(4*(q%2)), 4<<(4*(q%2)), 8<<(4*(q%2)))
		w.op("VPAND %s, %s, %s", bits, tmp, tmp)
		w.op("VPCMPEQB %s, %s, %s", bits, tmp, tmp)
		w.op("VPAND Y14, %s, %s", tmp, tmp)
		w.op("VPOR %s, %s, %s", tmp, dst, dst)
	default: // four of low bits
		w.nibble(16*w.k.scale+32*v+64*(q%4), q >= 4, dst)
	}
}

// bit ors what Y14 has into dst where the byte at off(SI) has the bit of Y13; tmp is lost.
func (w weights) bit(off int, dst, tmp string) {
	w.op("VPAND %d(SI), Y13, %s", off, tmp)
	w.op("VPCMPEQB Y13, %s, %s", tmp, tmp)
	w.op("VPAND Y14, %s, %s", tmp, tmp)
	w.op("VPOR %s, %s, %s", tmp, dst, dst)
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

// scales2 unpacks the 4-bit scales and minimums of Q2_K, the first four dword columns, and d and dmin, the last.
func (f avx2) scales2() {
	for v := range 2 {
		for c := range 4 {
			f.op("VMOVDQU %d(SI), Y0", 64*c+32*v)
			f.op("VPSRLW $4, Y0, Y1")
			f.op("VPAND Y15, Y0, Y0")
			f.op("VPAND Y15, Y1, Y1")
			for j := range 4 {
				f.op("VPSHUFB %s, Y0, Y3", f.pairOf(j, j))
				f.op("VMOVDQU Y3, %d(BX)", panelScale+64*(4*c+j)+32*v)
			}
			for p := range 2 {
				f.op("VPSHUFB %s, Y1, Y3", f.pairOf(2*p, 2*p+1))
				f.op("VMOVDQU Y3, %d(BX)", panelMin+64*(2*c+p)+32*v)
			}
		}
		f.op("VMOVDQU %d(SI), Y0", 20*64+32*v)
		f.op("VPAND %s, Y0, Y1", f.bytes32("low16", 0xff, 0xff, 0, 0))
		f.op("VPSRLD $16, Y0, Y0")
		f.op("VPACKUSDW Y0, Y1, Y0") // d of rows 0-3, dmin of rows 0-3, d of rows 4-7, dmin of rows 4-7
		f.op("VPERMQ $0xd8, Y0, Y0")
		f.op("VCVTPH2PS X0, Y1")
		f.op("VMOVUPS Y1, %d(BX)", panelD+32*v)
		f.op("VEXTRACTI128 $1, Y0, X0")
		f.op("VCVTPH2PS X0, Y1")
		f.op("VMOVUPS Y1, %d(BX)", panelDmin+32*v)
	}
}

// scales3 unpacks the 6-bit scales of Q3_K, which are around 32, three dword columns at base(SI).
func (f avx2) scales3(base int) {
	f.op("VMOVDQU %s, Y14", f.bytes32("two", 0x30))
	f.op("VMOVDQU %s, Y13", f.bytes32("thirty2", 32))
	for v := range 2 {
		f.op("VMOVDQU %d(SI), Y9", base+128+32*v) // high bits
		for c := range 4 {
			f.op("VMOVDQU %d(SI), Y0", base+64*(c%2)+32*v)
			if c >= 2 {
				f.op("VPSRLW $4, Y0, Y0")
			}
			f.op("VPAND Y15, Y0, Y0")
			high := "Y1"
			switch by := 4 - 2*c; {
			case by > 0:
				f.op("VPSLLW $%d, Y9, Y1", by)
			case by < 0:
				f.op("VPSRLW $%d, Y9, Y1", -by)
			default:
				high = "Y9"
			}
			f.op("VPAND Y14, %s, Y1", high)
			f.op("VPOR Y1, Y0, Y0")
			f.op("VPSUBB Y13, Y0, Y0")
			f.scaleBytes(c, v)
		}
	}
}

// scales6 unpacks the signed scales of Q6_K and grids, four dword columns at base(SI).
func (f avx2) scales6(base int) {
	for c := range 4 {
		for v := range 2 {
			f.op("VMOVDQU %d(SI), Y0", base+64*c+32*v)
			f.scaleBytes(c, v)
		}
	}
}

// scaleBytes writes the signed scales 4c to 4c+3 of rows 8v to 8v+7, bytes of Y0's dwords: each twice, and in pairs of
// neighbours.
func (f avx2) scaleBytes(c, v int) {
	for j := range 4 { // sign extended byte j of each dword
		reg := "Y0"
		if j < 3 {
			f.op("VPSLLD $%d, Y0, Y1", 24-8*j)
			reg = "Y1"
		}
		f.op("VPSRAD $24, %s, Y%d", reg, 2+j)
		f.scaleTwice(2+j, 4*c+j, v)
	}
	for p := range 2 {
		f.scalePair(2+2*p, 2*c+p, v)
	}
}

// scaleTwice writes scale j of rows 8v to 8v+7, a dword in register reg, twice in 16 bits. Y6 is lost.
func (f avx2) scaleTwice(reg, j, v int) {
	f.op("VPSHUFB %s, Y%d, Y6", f.wordTwice(), reg)
	f.op("VMOVDQU Y6, %d(BX)", panelScale+64*j+32*v)
}

// scalePair writes the p-th pair of scales, dwords in registers reg and reg+1. Y6 is lost.
func (f avx2) scalePair(reg, p, v int) {
	f.op("VPSLLD $16, Y%d, Y6", reg+1)
	f.op("VPBLENDW $0xaa, Y6, Y%d, Y6", reg)
	f.op("VMOVDQU Y6, %d(BX)", panelMin+64*p+32*v)
}

// scalesIQ4 unpacks the 6-bit scales of IQ4_XS, which are around 32: words of high bits, then a dword column of low ones.
func (f avx2) scalesIQ4(pairs bool) {
	f.op("VMOVDQU %s, Y14", f.bytes32("nibble", 15, 0, 0, 0))
	f.op("VMOVDQU %s, Y13", f.bytes32("high2", 0x30, 0, 0, 0))
	f.op("VMOVDQU %s, Y12", f.bytes32("dword32", 32, 0, 0, 0))
	for v := range 2 {
		f.op("VMOVDQU %d(SI), Y0", 64+32*v)
		f.op("VPMOVZXWD %d(SI), Y1", 32+16*v)
		f.op("VPSLLD $4, Y1, Y1")
		for s := range 8 {
			reg := 2 + s%2
			f.op("VPAND Y14, Y0, Y%d", reg)
			f.op("VPAND Y13, Y1, Y4")
			f.op("VPOR Y4, Y%d, Y%d", reg, reg)
			f.op("VPSUBD Y12, Y%d, Y%d", reg, reg)
			f.op("VPSRLD $4, Y0, Y0")
			f.op("VPSRLD $2, Y1, Y1")
			f.scaleTwice(reg, s, v)
			if pairs && s%2 == 1 {
				f.scalePair(2, s/2, v)
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
