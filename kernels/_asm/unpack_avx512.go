package main

// weights512 takes codes and scales from packed blocks at R13 (Q6_K's high bits at R14).
//
// Registers: Z24 and Z25 codes, Z26 and Z27 lost, Z28 to Z31 constants.
type weights512 struct {
	avx512
	k kind
}

// code is a register of codes: a quad of columns of a block of 32, counted from the part's first.
type code struct{ reg, block, quad int }

func (w weights512) bytes64(name string, pattern ...byte) string {
	return w.constant(name, 64, pattern)
}

// masks loads the constants that load needs.
func (w weights512) masks() {
	switch {
	case w.k.plain():
		w.op("VMOVDQU64 %s, Z30", w.bytes64("flip", 0x80))
		return
	case w.k.book != nil:
		w.op("VMOVDQU64 %s, Z28", w.bytes64("codes"+w.k.name, w.k.table()...))
	case w.k.grid: // the values, made unsigned
		w.op("MOVQ groupArgs_values(R9), R14")
		w.op("VBROADCASTI32X4 (R14), Z28")
		w.op("VPADDB %s, Z28, Z28", w.bytes64(sprintf("centre%d", w.k.centre), byte(w.k.centre)))
	case w.k.two():
		w.op("VMOVDQU64 %s, Z30", w.bytes64("low2", 3))
		if w.k.three() {
			w.op("VMOVDQU64 %s, Z29", w.bytes64("third", 4))
		}
		return
	case w.k.sub16:
		w.op("VMOVDQU64 %s, Z29", w.bytes64("two", 0x30))
	case w.k.five() && w.k.k:
		w.op("VMOVDQU64 %s, Z29", w.bytes64("fifth", 0x10))
	case w.k.five():
		w.op("VMOVDQU64 %s, Z29", w.bytes64("fifth", 0x10))
		w.op("VMOVDQU64 %s, Z28", w.bytes64("bits", 1, 2, 4, 8))
	}
	w.op("VMOVDQU64 %s, Z30", w.bytes64("low", 0x0f))
}

// start moves the pointers from the start of a packed K block to the first part of its codes.
func (w weights512) start() {
	switch {
	case w.k.grid:
	case w.k.book != nil:
		w.op("ADDQ $128, R13")
	case w.k.three(): // rotating left by Z28 brings the part's bits to bits 0 to 3
		w.op("LEAQ 32(R13), R14")
		w.op("ADDQ $544, R13")
		w.zero(28)
	case w.k.two():
		w.op("ADDQ $256, R13")
	case w.k.sub16:
		w.op("LEAQ 2080(R13), R14")
		w.op("ADDQ $32, R13")
	case w.k.five(): // rotating left by Z28 or Z31 brings the part's bits to bit 4
		w.op("LEAQ 256(R13), R14")
		w.op("ADDQ $768, R13")
		w.op("VMOVDQU64 %s, Z28", w.bytes64("rotate0", 4, 0, 0, 0))
		w.op("VMOVDQU64 %s, Z31", w.bytes64("rotate1", 3, 0, 0, 0))
	default:
		w.op("ADDQ $256, R13")
	}
}

// advance goes to the next part.
func (w weights512) advance() {
	switch {
	case w.k.three():
		w.op("VPADDD.BCST %s, Z28, Z28", w.constant("minus4", 8, []byte{0xfc, 0xff, 0xff, 0xff}))
	case w.k.two(), w.k.grid:
	case w.k.sub16:
		w.op("ADDQ $1024, R13")
		w.op("ADDQ $512, R14")
		return
	case w.k.five():
		w.op("VPADDD.BCST %s, Z28, Z28", w.constant("minus2", 8, []byte{0xfe, 0xff, 0xff, 0xff}))
		w.op("VPADDD.BCST %s, Z31, Z31", w.constant("minus2", 8, []byte{0xfe, 0xff, 0xff, 0xff}))
	}
	w.op("ADDQ $512, R13")
}

// merge ors the bits of Z26 that are in Z29 into a register.
func (w weights512) merge(reg int) { w.op("VPTERNLOGD $0xf8, Z29, Z26, Z%d", reg) }

// load brings two registers of codes: of K types, quad q of the pair-th two blocks of a part; of legacy types step q of 4.
func (w weights512) load(pair, q int) []code {
	codes := []code{{24, 0, q}, {25, 1, q}}
	if !w.k.k {
		return w.load32(q)
	}
	if w.k.two() {
		return w.loadTwo(pair, q)
	}
	if w.k.coded() { // four dword columns a block
		for i := range 2 {
			w.nibble(256*i+64*(q%4), q >= 4, 24+i)
		}
		return codes
	}
	if w.k.sub16 { // low halves are blocks 0 and 1, high halves 2 and 3
		codes = []code{{24, pair, q}, {25, pair + 2, q}}
	}
	w.op("VMOVDQU64 %d(R13), Z25", 512*pair+64*q)
	w.op("VPANDD Z30, Z25, Z24")
	w.op("VPSRLW $4, Z25, Z25")
	w.op("VPANDD Z30, Z25, Z25")
	switch {
	case w.k.sub16:
		w.op("VMOVDQU64 %d(R14), Z27", 64*q)
		w.op("VPSLLW $%d, Z27, Z26", 4-2*pair)
		w.merge(24)
		if pair == 0 {
			w.op("VPTERNLOGD $0xf8, Z29, Z27, Z25")
		} else {
			w.op("VPSRLW $2, Z27, Z26")
			w.merge(25)
		}
	case w.k.five():
		w.op("VMOVDQU64 %d(R14), Z27", 64*q)
		w.op("VPROLVD Z28, Z27, Z26")
		w.merge(24)
		w.op("VPROLVD Z31, Z27, Z26")
		w.merge(25)
	}
	return codes
}

// nibble looks the low or high halves of the bytes at off(R13) up in the codebook.
func (w weights512) nibble(off int, high bool, reg int) {
	if high {
		w.op("VMOVDQU64 %d(R13), Z%d", off, reg)
		w.op("VPSRLW $4, Z%d, Z%d", reg, reg)
		w.op("VPANDD Z30, Z%d, Z%d", reg, reg)
	} else {
		w.op("VPANDD %d(R13), Z30, Z%d", off, reg)
	}
	w.op("VPSHUFB Z%d, Z28, Z%d", reg, reg)
}

// loadTwo is load for Q2_K and Q3_K: of each byte, two bits for each block of a part.
func (w weights512) loadTwo(pair, q int) []code {
	codes := []code{{24, 2 * pair, q}, {25, 2*pair + 1, q}}
	w.op("VMOVDQU64 %d(R13), Z25", 64*q)
	if pair == 0 {
		w.op("VPANDD Z30, Z25, Z24")
	} else {
		w.op("VPSRLW $4, Z25, Z24")
		w.op("VPANDD Z30, Z24, Z24")
	}
	w.op("VPSRLW $%d, Z25, Z25", 4*pair+2)
	w.op("VPANDD Z30, Z25, Z25")
	if !w.k.three() {
		return codes
	}
	w.op("VMOVDQU64 %d(R14), Z27", 64*q)
	w.op("VPROLVD Z28, Z27, Z27")
	for i, c := range codes { // bit 2·pair + i to bit 2
		switch by := 2 - c.block; {
		case by > 0:
			w.op("VPSLLW $%d, Z27, Z26", by)
		case by < 0:
			w.op("VPSRLW $%d, Z27, Z26", -by)
		default:
			w.op("VPTERNLOGD $0xf8, Z29, Z27, Z%d", 24+i)
			continue
		}
		w.merge(24 + i)
	}
	return codes
}

// load32 is load for legacy types.
func (w weights512) load32(u int) []code {
	at := 16 * w.k.scale
	if w.k.plain() {
		for i := range 2 {
			w.op("VPXORD %d(R13), Z30, Z%d", at+64*(2*u+i), 24+i)
		}
		return []code{{24, 0, 2 * u}, {25, 0, 2*u + 1}}
	}
	codes := []code{{24, 0, u}, {25, 0, u + 4}}
	if w.k.book != nil {
		for i := range 2 {
			w.nibble(at+64*u, i == 1, 24+i)
		}
		return codes
	}
	if w.k.five() {
		at += 64
	}
	w.op("VMOVDQU64 %d(R13), Z25", at+64*u)
	w.op("VPANDD Z30, Z25, Z24")
	w.op("VPSRLW $4, Z25, Z25")
	w.op("VPANDD Z30, Z25, Z25")
	if !w.k.five() {
		return codes
	}
	// Dwords of 32 fifth bits: quad q has bits 4q to 4q+3, the low or high half of byte q/2.
	for i := range 2 {
		if u == 0 && i == 0 {
			w.op("VMOVDQU64 %d(R13), Z27", at-64)
		}
		w.op("VPSHUFB %s, Z27, Z26", w.byteOf(u/2+2*i))
		if u%2 == 1 {
			w.op("VPSRLW $4, Z26, Z26")
		}
		w.op("VPTESTMB Z28, Z26, K1")
		w.op("VPADDB Z29, Z%d, K1, Z%d", 24+i, 24+i)
	}
	return codes
}

// byteOf returns the shuffle that copies byte b of each dword to all four of its bytes.
func (w weights512) byteOf(b int) string {
	var p []byte
	for d := range 4 {
		for range 4 {
			p = append(p, byte(4*d+b))
		}
	}
	return w.constant(sprintf("byte%d", b), 64, p)
}

// codes unpacks the codes of the superblock at R13 (for legacy types: R12 blocks) to the panel at offset panel.
func (w weights512) codes(panel int) {
	blocks, steps := 1, 4
	w.op("MOVQ BX, R11")
	if w.k.k {
		blocks, steps = w.k.partBlocks(), 8
		w.start()
		w.op("MOVQ $%d, R15", w.k.parts())
	} else {
		w.op("MOVQ R12, R15")
	}
	again := w.label("unpack")
	w.at(again)
	for pair := range (blocks + 1) / 2 {
		for q := range steps {
			for _, c := range w.load(pair, q) {
				w.op("VMOVDQA64 Z%d, %d(R11)", c.reg, panel+512*c.block+64*c.quad)
			}
		}
	}
	if w.k.k {
		w.advance()
	} else {
		w.op("ADDQ $%d, R13", w.k.bytes())
	}
	w.op("ADDQ $%d, R11", 512*blocks)
	w.op("DECQ R15")
	w.op("JNE %s", again)
}

// scales brings scales and minimums of the superblock at R13 (for legacy types: R12 blocks) to the panel at offset
// panel, and asks for the packed bytes some KiB ahead.
func (w weights512) scales(panel int) {
	w.op("LEAQ %d(BX), R11", panel)
	if w.k.k {
		if w.k.scale > 0 {
			w.halves(d512)
		}
		switch w.k.name {
		case "Q2_K":
			w.scales2()
		case "Q3_K":
			w.scales3()
		case "Q6_K":
			w.scales6(32 + 48*64)
		case "Grid6", "Grid7":
			w.op("VMOVUPS %d(R13), Z24", gridD)
			w.op("VMOVAPS Z24, %d(R11)", d512)
			w.scales6(gridScales)
		case "IQ4_XS":
			w.scalesIQ4()
		default:
			w.halves2(dmin512)
			w.scales45()
		}
		w.prefetch()
		return
	}
	w.op("MOVQ R12, R15")
	again := w.label("scales")
	w.at(again)
	w.prefetch()
	if w.k.scale == 1 {
		w.exponents()
	} else {
		w.halves(scale512)
	}
	if w.k.min {
		w.halves2(m512)
	}
	w.op("ADDQ $%d, R13", w.k.bytes())
	w.op("ADDQ $64, R11")
	w.op("DECQ R15")
	w.op("JNE %s", again)
	if panel == 0 {
		w.op("MOVQ SI, R13")
	}
}

func (w weights512) prefetch() {
	for i := 0; i < w.k.bytes(); i += 64 {
		w.op("PREFETCHT0 %d(R13)", 8192+i)
	}
}

// halves widens the first 16 binary16 of a block to the panel, halves2 the second.
func (w weights512) halves(to int) { w.widen(0, to) }

func (w weights512) halves2(to int) { w.widen(32, to) }

func (w weights512) widen(from, to int) {
	w.op("VCVTPH2PS %d(R13), Z24", from)
	w.op("VMOVAPS Z24, %d(R11)", to)
}

// scales45 unpacks the 6-bit scales and minimums of Q4_K and Q5_K, three dword columns.
func (w weights512) scales45() {
	w.op("VMOVDQU64 %s, Z26", w.bytes64("six", 0x3f))
	w.op("VMOVDQU64 %s, Z27", w.bytes64("top", 0x30))
	w.op("VMOVDQU64 64(R13), Z0")
	w.op("VMOVDQU64 128(R13), Z1")
	w.op("VMOVDQU64 192(R13), Z2")
	w.op("VPSRLW $2, Z0, Z3") // high bits of scales 4-7, at bits 4 and 5
	w.op("VPANDD Z30, Z2, Z4")
	w.op("VPTERNLOGD $0xf8, Z27, Z3, Z4") // scales 4-7
	w.op("VPSRLW $2, Z1, Z3")
	w.op("VPSRLW $4, Z2, Z5")
	w.op("VPANDD Z30, Z5, Z5")
	w.op("VPTERNLOGD $0xf8, Z27, Z3, Z5") // minimums 4-7
	w.op("VPANDD Z26, Z0, Z0")
	w.op("VPANDD Z26, Z1, Z1")
	for j := range 8 {
		w.op("VPSHUFB %s, Z%d, Z3", w.fields(j%4, -1), j/4*4)
		w.op("VMOVDQA64 Z3, %d(R11)", scale512+64*j)
	}
	for p := range 4 {
		w.op("VPSHUFB %s, Z%d, Z3", w.fields(p%2*2, p%2*2+1), 1+p/2*4)
		w.op("VMOVDQA64 Z3, %d(R11)", min512+64*p)
	}
}

// fields returns the shuffle that makes each dword two words out of its bytes lo and hi, zero extended; -1 is a zero.
func (w weights512) fields(lo, hi int) string {
	var p []byte
	name := sprintf("word%d", lo)
	for d := range 4 {
		p = append(p, byte(4*d+lo), 0x80)
		if hi < 0 {
			p = append(p, 0x80, 0x80)
			continue
		}
		name = sprintf("words%d%d", lo, hi)
		p = append(p, byte(4*d+hi), 0x80)
	}
	return w.constant(name, 64, p)
}

// exponents puts 2^(e-128) of the first 16 bytes e of a block into the panel, which can be denormal: a product of two powers
// of two with about half the exponent each.
func (w weights512) exponents() {
	w.op("VPMOVZXBD (R13), Z24")
	w.op("VPSRLD $1, Z24, Z25")
	w.op("VPSUBD Z25, Z24, Z24")
	for i := range 2 {
		w.op("VPADDD.BCST %s, Z%d, Z%d", w.constant("half64", 8, []byte{63, 0, 0, 0}), 24+i, 24+i)
		w.op("VPSLLD $23, Z%d, Z%d", 24+i, 24+i)
	}
	w.op("VMULPS Z25, Z24, Z24")
	w.op("VMOVAPS Z24, %d(R11)", scale512)
}

// scales2 unpacks the 4-bit scales and minimums of Q2_K, the first four dword columns, and d and dmin, the last.
func (w weights512) scales2() {
	w.op("VMOVDQU64 %s, Z26", w.bytes64("low", 0x0f))
	for c := range 4 {
		w.op("VMOVDQU64 %d(R13), Z0", 64*c)
		w.op("VPSRLW $4, Z0, Z1")
		w.op("VPANDD Z26, Z0, Z0")
		w.op("VPANDD Z26, Z1, Z1")
		for j := range 4 {
			w.op("VPSHUFB %s, Z0, Z3", w.fields(j, -1))
			w.op("VMOVDQA64 Z3, %d(R11)", scale512+64*(4*c+j))
		}
		for p := range 2 {
			w.op("VPSHUFB %s, Z1, Z3", w.fields(2*p, 2*p+1))
			w.op("VMOVDQA64 Z3, %d(R11)", min512+64*(2*c+p))
		}
	}
	w.op("VMOVDQU64 %d(R13), Z0", 20*64)
	for i, to := range []int{d512, dmin512} {
		if i == 1 {
			w.op("VPSRLD $16, Z0, Z0")
		}
		w.op("VPMOVDW Z0, Y1")
		w.op("VCVTPH2PS Y1, Z1")
		w.op("VMOVAPS Z1, %d(R11)", to)
	}
}

// scales3 unpacks the 6-bit scales of Q3_K, which are around 32, three dword columns after the codes.
func (w weights512) scales3() {
	w.lowWords()
	w.op("VMOVDQU64 %s, Z7", w.bytes64("low", 0x0f))
	w.op("VMOVDQU64 %s, Z8", w.bytes64("top", 0x30))
	w.op("VMOVDQU64 %s, Z10", w.bytes64("thirty2", 32))
	w.op("VMOVDQU64 %d(R13), Z9", 32+26*64) // high bits
	for c := range 4 {
		w.op("VMOVDQU64 %d(R13), Z0", 32+24*64+64*(c%2))
		if c >= 2 {
			w.op("VPSRLW $4, Z0, Z0")
		}
		w.op("VPANDD Z7, Z0, Z0")
		high := 1
		switch by := 4 - 2*c; {
		case by > 0:
			w.op("VPSLLW $%d, Z9, Z1", by)
		case by < 0:
			w.op("VPSRLW $%d, Z9, Z1", -by)
		default:
			high = 9
		}
		w.op("VPTERNLOGD $0xf8, Z8, Z%d, Z0", high)
		w.op("VPSUBB Z10, Z0, Z0")
		w.scaleBytes(c)
	}
}

// lowWords has Z6 select the low words of dwords.
func (w weights512) lowWords() {
	w.op("VPTERNLOGD $0xff, Z6, Z6, Z6")
	w.op("VPSRLD $16, Z6, Z6")
}

// scales6 unpacks the 8-bit scales of Q6_K, four dword columns after the codes.
func (w weights512) scales6(base int) {
	w.lowWords()
	for c := range 4 {
		w.op("VMOVDQU64 %d(R13), Z0", base+64*c)
		w.scaleBytes(c)
	}
}

// scaleBytes writes the signed scales 4c to 4c+3, bytes of Z0's dwords, alone and in pairs of neighbours.
func (w weights512) scaleBytes(c int) {
	for j := range 4 {
		reg := 0
		if j < 3 {
			reg = 1 + j
			w.op("VPSLLD $%d, Z0, Z%d", 24-8*j, reg)
		}
		w.op("VPSRAD $24, Z%d, Z%d", reg, 1+j)
		w.op("VMOVDQA64 Z%d, %d(R11)", 1+j, scale512+64*(4*c+j))
	}
	for p := range 2 {
		w.scalePair(1+2*p, 2*c+p)
	}
}

// scalePair writes the p-th pair of scales, dwords in registers reg and reg+1, as words. Z5 is lost.
func (w weights512) scalePair(reg, p int) {
	w.op("VPSLLD $16, Z%d, Z5", reg+1)
	w.op("VPTERNLOGD $0xf8, Z6, Z%d, Z5", reg)
	w.op("VMOVDQA64 Z5, %d(R11)", min512+64*p)
}

// scalesIQ4 unpacks the 6-bit scales of IQ4_XS, which are around 32: words of high bits, then a dword column of low ones.
func (w weights512) scalesIQ4() {
	w.lowWords()
	w.op("VMOVDQU64 %s, Z7", w.bytes64("nibble", 15, 0, 0, 0))
	w.op("VMOVDQU64 %s, Z8", w.bytes64("high2", 0x30, 0, 0, 0))
	w.op("VMOVDQU64 %s, Z10", w.bytes64("dword32", 32, 0, 0, 0))
	w.op("VMOVDQU64 64(R13), Z0")
	w.op("VPMOVZXWD 32(R13), Z9")
	w.op("VPSLLD $4, Z9, Z9")
	for s := range 8 {
		reg := 1 + s%2
		w.op("VPANDD Z7, Z0, Z%d", reg)
		w.op("VPTERNLOGD $0xf8, Z8, Z9, Z%d", reg)
		w.op("VPSUBD Z10, Z%d, Z%d", reg, reg)
		w.op("VPSRLD $4, Z0, Z0")
		w.op("VPSRLD $2, Z9, Z9")
		w.op("VMOVDQA64 Z%d, %d(R11)", reg, scale512+64*s)
		if s%2 == 1 {
			w.scalePair(1, s/2)
		}
	}
}
