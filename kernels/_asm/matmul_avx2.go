package main

import (
	"fmt"
	"strings"
)

// The quantised matrix product for AVX2: 16 packed rows (lanes are rows: two registers of eight) by any number of rows
// of activations. For each superblock of 256 columns, the codes are unpacked to a panel in L1, unsigned bytes in quads of
// columns, then tiles of up to four rows of activations go over it. VPMADDUBSW multiplies them with one broadcast quad
// of activations to 16-bit pair sums, as many of which are added as can't overflow, then VPMADDWD with pairs of the
// sub-block's scale widens and scales in one step.
//
// Registers: SI packed weights, BX panel, R8 records of the superblock, R9 arguments, R10 blocks left;
// in a tile: AX record of its first row, DX its sums, CX rows left, R13 codes, DI activations, R11 scales of the block,
// R14 scalars of the record, R15 blocks left in the superblock.

// Offsets that the Go side knows by the same names: see kernels/panel.go.
const (
	panelCodes = 0
	panelScale = 4096 // K: pairs of scales; others: d, then m, [8][16]float32 each
	panelM     = panelScale + 512
	panelMin   = 5120 // Q4_K, Q5_K: pairs of minimums [4][16]; Q6_K: pairs of scales [8][16]
	panelD     = 5632 // K: d [16]float32
	panelDmin  = 5696 // K: dmin [16]float32
	panelTotal = 5760 // scratch: [4][2] registers

	recK, recKSum16, recKSum32, recKD = 320, 256, 288, 304
	rec32, rec32D, rec32Dsum, rec32S  = 352, 256, 288, 320
)

// kind describes one quantised weight type to the generator.
type kind struct {
	name   string
	halves int  // d and m (or dmin) at the start of a packed block: [halves][16] binary16
	dwords int  // dword columns after them: [dwords][16]
	k      bool // blocks of 256 columns
	quads  int  // quads of 4 columns whose 16-bit pair sums may be added
	centre int  // subtracted from every code: 8, 16, 32
	min    bool // has minimums
	sub16  bool // scales per 16 columns (Q6_K)
	signed bool // codes are signed bytes (Q8_0)

	flipped bool // codes are signed bytes, taken as unsigned ones around 128
}

// five reports whether codes have a fifth bit apart from the low four.
func (k kind) five() bool { return strings.HasPrefix(k.name, "Q5") }

func (k kind) bytes() int { return 32*k.halves + 64*k.dwords }

var kinds = []kind{
	{name: "Q4_0", halves: 1, dwords: 4, quads: 8, centre: 8},
	{name: "Q4_1", halves: 2, dwords: 4, quads: 8, min: true},
	{name: "Q5_0", halves: 1, dwords: 5, quads: 4, centre: 16},
	{name: "Q5_1", halves: 2, dwords: 5, quads: 4, min: true},
	{name: "Q8_0", halves: 1, dwords: 8, quads: 1, signed: true},
	{name: "Q4_K", halves: 2, dwords: 35, k: true, quads: 8, min: true},
	{name: "Q5_K", halves: 2, dwords: 43, k: true, quads: 4, min: true},
	{name: "Q6_K", halves: 1, dwords: 52, k: true, quads: 2, centre: 32, sub16: true},
}

func matmulAVX2(f *file) {
	for _, k := range kinds {
		avx2{f, false}.group(k)
	}
}

type avx2 struct {
	*file
	vnni bool // see matmul_vnni.go
}

// group writes the function for one type: few rows of activations take the codes from the packed blocks as they go,
// more rows share an unpacked panel.
func (f avx2) group(k kind) {
	isa := "AVX2"
	if f.vnni {
		isa = "AVXVNNI"
	}
	f.fn("group"+k.name+isa, "groupArgs", "R9", "multiplies one group of packed rows, see groupArgs.")
	f.op("MOVQ groupArgs_w(R9), SI")
	f.op("MOVQ groupArgs_panel(R9), BX")
	f.op("MOVQ groupArgs_acts(R9), R8")
	f.op("MOVQ groupArgs_blocks(R9), R10")
	super, many, next, done := f.label("super"), f.label("many"), f.label("next"), f.label("done")
	f.at(super)
	f.op("TESTQ R10, R10")
	f.op("JLE %s", done)
	if !k.k {
		f.op("MOVQ $8, R12")
		f.op("CMPQ R10, R12")
		f.op("CMOVQLT R10, R12") // blocks in this superblock
	}
	f.unpackScales(k)
	if !k.signed {
		f.op("CMPQ groupArgs_rows(R9), $%d", fewRows)
		f.op("JGT %s", many)
	}
	f.rowLoop(k, true)
	if !k.signed {
		f.op("JMP %s", next)
		f.at(many)
		f.unpackCodes(k)
		f.rowLoop(k, false)
		f.at(next)
	}
	f.op("ADDQ groupArgs_next(R9), R8")
	if k.k {
		f.op("ADDQ $%d, SI", k.bytes())
		f.op("DECQ R10")
	} else {
		f.op("IMULQ $%d, R12", k.bytes())
		f.op("ADDQ R12, SI")
		f.op("SUBQ $8, R10")
	}
	f.op("JMP %s", super)
	f.at(done)
	f.ret()
}

// fewRows is how many rows of activations are multiplied straight from the packed blocks: with more, unpacking the codes
// once costs less than once for every four rows.
const fewRows = 8

// rowLoop multiplies four rows of activations at a time, then two, then one.
func (f avx2) rowLoop(k kind, packed bool) {
	rec := rec32
	if k.k {
		rec = recK
	}
	f.op("MOVQ R8, AX")
	f.op("MOVQ groupArgs_acc(R9), DX")
	f.op("MOVQ groupArgs_rows(R9), CX")
	for _, t := range []int{4, 2, 1} {
		next, again := f.label("rowsNext"), f.label(fmt.Sprintf("rows%d_", t))
		f.at(again)
		f.op("CMPQ CX, $%d", t)
		f.op("JLT %s", next)
		tile := tile{f, k, t, rec, packed}
		switch {
		case k.k:
			tile.superblock()
		case k.signed:
			tile.signed()
		default:
			tile.blocks()
		}
		f.op("ADDQ $%d, AX", t*rec)
		f.op("ADDQ $%d, DX", t*64)
		f.op("SUBQ $%d, CX", t)
		if t > 1 {
			f.op("JMP %s", again)
		}
		f.at(next)
	}
}

// prefetch asks for n packed bytes, some KiB ahead of register reg.
func (f avx2) prefetch(reg string, n int) {
	for i := 0; i < n; i += 64 {
		f.op("PREFETCHT0 %d(%s)", i+8192, reg)
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
		f.prefetch("SI", k.bytes())
		return
	}
	f.op("MOVQ R12, R15")
	f.op("MOVQ SI, R13")
	f.op("MOVQ BX, R11")
	again := f.label("scales")
	f.at(again)
	f.prefetch("R13", k.bytes())
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
		f.op("MOVQ R12, R15")
	}
	f.at(again)
	for b := range blocks {
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
}

// weights loads codes from packed blocks.
type weights struct {
	avx2
	k    kind
	low  string // register that points to the low bits: of the packed block, for K types of the present part
	high string // the same for the high bits that Q5_K and Q6_K have apart
}

// K types repeat the same steps in parts of a superblock, except for which of Q5_K's fifth bits they take. parts is their
// number.
func (k kind) parts() int {
	if k.sub16 {
		return 2
	}
	return 4
}

// partBlocks is the number of blocks of 32 columns in a part.
func (k kind) partBlocks() int { return 8 / k.parts() }

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

// advance goes to the next part.
func (w weights) advance() {
	switch {
	case w.k.sub16:
		w.op("ADDQ $1024, %s", w.low)
		w.op("ADDQ $512, %s", w.high)
		return
	case w.k.name == "Q5_K":
		w.op("ADDQ $64, %s", w.high)
	}
	w.op("ADDQ $512, %s", w.low)
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

// tile multiplies one superblock by rows rows of activations.
type tile struct {
	avx2
	k      kind
	rows   int
	rec    int  // size of a record
	packed bool // codes come from the packed blocks, not from the panel
}

// pairSums emits quads [from, to) of block b: 16-bit pair sums of all rows by two registers of weights, into Y0 up,
// starting anew. Codes at R13, activations at off(DI).
func (t tile) pairSums(b, off, from, to int) {
	for q := from; q < to; q++ {
		t.codes(b, q)
		for r := range t.rows {
			t.op("VPBROADCASTD %d(DI), Y10", t.rec*r+off+4*q)
			for v := range 2 {
				if q == from {
					t.op("VPMADDUBSW Y10, Y%d, Y%d", 8+v, 2*r+v)
					continue
				}
				t.op("VPMADDUBSW Y10, Y%d, Y%d", 8+v, 11+v)
				t.op("VPADDW Y%d, Y%d, Y%d", 11+v, 2*r+v, 2*r+v)
			}
		}
	}
}

// codes brings quad q of block b to Y8 and Y9. Y11 is lost.
func (t tile) codes(b, q int) {
	w := weights{t.avx2, t.k, "R13", "R14"}
	for v := range 2 {
		if t.packed {
			w.load(b, q, v, fmt.Sprintf("Y%d", 8+v), "Y11")
		} else {
			t.op("VMOVDQU %d(R13), Y%d", 64*q+32*v, 8+v)
		}
	}
}

// inRegs reports whether the tile's 32-bit or float sums stay in registers, Y4 up.
func (t tile) inRegs() bool { return t.rows <= 2 }

// sum is the register of such a sum.
func (t tile) sum(r, v int) string { return fmt.Sprintf("Y%d", 4+2*r+v) }

// spill is where 32-bit sums are otherwise.
func (t tile) spill(r, v int) string { return fmt.Sprintf("%d(BX)", panelTotal+64*r+32*v) }

// out is where float sums are.
func (t tile) out(r, v int) string { return fmt.Sprintf("%d(DX)", 64*r+32*v) }

// superblock is the tile of a K type.
func (t tile) superblock() {
	t.note("%d rows", t.rows)
	w := weights{t.avx2, t.k, "R13", "R14"}
	t.op("MOVQ AX, DI")
	t.op("MOVQ BX, R11")
	blocks, times := 1, 8
	if t.packed {
		blocks, times = t.k.partBlocks(), t.k.parts()
		w.masks()
		w.start()
	} else {
		t.op("MOVQ BX, R13")
	}
	t.op("MOVQ $%d, R15", times)
	t.clear()
	again := t.label("block")
	t.at(again)
	for b := range blocks {
		if t.packed {
			w.bits(b)
		}
		t.block32(b, 32*b, t.scaleStride()*b)
	}
	t.op("ADDQ $%d, DI", 32*blocks)
	t.op("ADDQ $%d, R11", t.scaleStride()*blocks)
	if t.packed {
		w.advance()
	} else {
		t.op("ADDQ $512, R13")
	}
	t.op("DECQ R15")
	t.op("JNE %s", again)
	for r := range t.rows {
		t.floatStep(r)
	}
}

// scaleStride is the bytes from the scales of a block of 32 columns to the next one's.
func (t tile) scaleStride() int {
	if t.k.sub16 {
		return 128
	}
	return 64
}

// clear sets all 32-bit sums to zero.
func (t tile) clear() {
	if t.inRegs() {
		for i := range 2 * t.rows {
			t.op("VPXOR Y%d, Y%d, Y%d", 4+i, 4+i, 4+i)
		}
		return
	}
	t.op("VPXOR Y8, Y8, Y8")
	for r := range t.rows {
		t.op("VMOVDQU Y8, %s", t.spill(r, 0))
		t.op("VMOVDQU Y8, %s", t.spill(r, 1))
	}
}

// block32 adds the scaled products of block b of 32 columns to the 32-bit sums.
func (t tile) block32(b, acts, scales int) {
	for from := 0; from < 8; from += t.k.quads {
		at := panelScale + scales
		if t.k.sub16 {
			at += from / 4 * 64
		}
		if t.vnni {
			t.dots(b, acts, from, from+t.k.quads)
			t.scaleDots(at)
		} else {
			t.pairSums(b, acts, from, from+t.k.quads)
		}
		for r := range t.rows {
			for v := range 2 {
				acc := 2*r + v
				if !t.vnni {
					t.op("VPMADDWD %d(R11), Y%d, Y%d", at+32*v, acc, acc)
				}
				if t.inRegs() {
					t.op("VPADDD Y%d, %s, %s", acc, t.sum(r, v), t.sum(r, v))
					continue
				}
				t.op("VPADDD %s, Y%d, Y%d", t.spill(r, v), acc, acc)
				t.op("VMOVDQU Y%d, %s", acc, t.spill(r, v))
			}
		}
	}
}

// floatStep adds a K superblock's products to the float sums of row r.
func (t tile) floatStep(r int) {
	t.op("VBROADCASTSS %d(AX), Y8", recK*r+recKD)
	// Y2, Y3: the sum over sub-blocks of minimums (or, for Q6_K, of scales) times sums of activations.
	pairs, sums := 4, recKSum32
	if t.k.sub16 {
		pairs, sums = 8, recKSum16
	}
	for p := range pairs {
		t.op("VPBROADCASTD %d(AX), Y9", recK*r+sums+4*p)
		for v := range 2 {
			if p == 0 {
				t.op("VPMADDWD %d(BX), Y9, Y%d", panelMin+64*p+32*v, 2+v)
				continue
			}
			t.op("VPMADDWD %d(BX), Y9, Y10", panelMin+64*p+32*v)
			t.op("VPADDD Y10, Y%d, Y%d", 2+v, 2+v)
		}
	}
	for v := range 2 {
		isum := "Y10"
		if t.inRegs() {
			isum = t.sum(r, v)
		} else {
			t.op("VMOVDQU %s, Y10", t.spill(r, v))
		}
		if t.k.centre != 0 {
			t.op("VPSLLD $5, Y%d, Y%d", 2+v, 2+v)
			t.op("VPSUBD Y%d, %s, Y10", 2+v, isum)
			isum = "Y10"
		}
		t.op("VCVTDQ2PS %s, Y10", isum)
		t.op("VMULPS %d(BX), Y8, Y11", panelD+32*v)
		t.op("VMOVUPS %s, Y12", t.out(r, v))
		t.op("VFMADD231PS Y10, Y11, Y12")
		if t.k.min {
			t.op("VCVTDQ2PS Y%d, Y10", 2+v)
			t.op("VMULPS %d(BX), Y8, Y11", panelDmin+32*v)
			t.op("VFNMADD231PS Y10, Y11, Y12")
		}
		t.op("VMOVUPS Y12, %s", t.out(r, v))
	}
}

// eachBlock loops over the R12 blocks of a legacy superblock.
func (t tile) eachBlock(body func()) {
	t.op("MOVQ AX, DI")
	t.op("MOVQ AX, R14")
	if t.packed {
		t.op("MOVQ SI, R13")
	} else {
		t.op("MOVQ BX, R13")
	}
	t.op("MOVQ BX, R11")
	t.op("MOVQ R12, R15")
	again := t.label("block")
	t.at(again)
	body()
	t.op("ADDQ $32, DI")
	t.op("ADDQ $4, R14")
	if t.packed {
		t.op("ADDQ $%d, R13", t.k.bytes())
	} else {
		t.op("ADDQ $512, R13")
	}
	t.op("ADDQ $64, R11")
	t.op("DECQ R15")
	t.op("JNE %s", again)
}

// blocks is the tile of a legacy type with unsigned codes.
func (t tile) blocks() {
	t.note("%d rows", t.rows)
	if t.packed {
		weights{t.avx2, t.k, "R13", "R14"}.masks()
	}
	if !t.vnni {
		t.op("VMOVDQU %s, Y13", t.bytes32("ones16", 1, 0))
	}
	if t.inRegs() {
		for r := range t.rows {
			for v := range 2 {
				t.op("VMOVUPS %s, %s", t.out(r, v), t.sum(r, v))
			}
		}
	}
	t.eachBlock(func() {
		if t.vnni {
			t.dots(0, 0, 0, 8)
		}
		for from := 0; from < 8 && !t.vnni; from += t.k.quads {
			t.pairSums(0, 0, from, from+t.k.quads)
			for i := range 2 * t.rows {
				t.op("VPMADDWD Y13, Y%d, Y%d", i, i)
				if from+t.k.quads < 8 {
					t.op("VMOVDQU Y%d, %d(BX)", i, panelTotal+32*i)
				} else if from > 0 {
					t.op("VPADDD %d(BX), Y%d, Y%d", panelTotal+32*i, i, i)
				}
			}
		}
		for r := range t.rows {
			t.op("VBROADCASTSS %d(R14), Y8", rec32*r+rec32D)
			if t.k.min {
				t.op("VBROADCASTSS %d(R14), Y9", rec32*r+rec32Dsum)
			} else {
				t.op("VPBROADCASTD %d(R14), Y9", rec32*r+rec32S)
				t.op("VPSLLD $%d, Y9, Y9", map[int]int{8: 3, 16: 4, 128: 7}[t.k.centre])
			}
			for v := range 2 {
				acc := 2*r + v
				if !t.k.min {
					t.op("VPSUBD Y9, Y%d, Y%d", acc, acc)
				}
				t.op("VCVTDQ2PS Y%d, Y%d", acc, acc)
				t.op("VMULPS %d(R11), Y8, Y10", panelScale+32*v)
				to := "Y11"
				if t.inRegs() {
					to = t.sum(r, v)
				} else {
					t.op("VMOVUPS %s, Y11", t.out(r, v))
				}
				t.op("VFMADD231PS Y%d, Y10, %s", acc, to)
				if t.k.min {
					t.op("VFMADD231PS %d(R11), Y9, %s", panelM+32*v, to)
				}
				if !t.inRegs() {
					t.op("VMOVUPS Y11, %s", t.out(r, v))
				}
			}
		}
	})
	if t.inRegs() {
		for r := range t.rows {
			for v := range 2 {
				t.op("VMOVUPS %s, %s", t.sum(r, v), t.out(r, v))
			}
		}
	}
}

// signed is the tile of Q8_0, always straight from the packed blocks: the weights' signs go to the activations, and
// every pair sum is widened at once.
func (t tile) signed() {
	t.note("%d rows", t.rows)
	t.op("VMOVDQU %s, Y15", t.bytes32("ones16", 1, 0))
	t.eachBlock(func() {
		for q := range 8 {
			for v := range 2 {
				t.op("VMOVDQU %d(R13), Y%d", 32*t.k.halves+64*q+32*v, 8+v)
				t.op("VPABSB Y%d, Y%d", 8+v, 10+v)
			}
			for r := range t.rows {
				t.op("VPBROADCASTD %d(DI), Y12", rec32*r+4*q)
				for v := range 2 {
					acc := 2*r + v
					t.op("VPSIGNB Y%d, Y12, Y13", 8+v)
					t.op("VPMADDUBSW Y13, Y%d, Y13", 10+v)
					if q == 0 {
						t.op("VPMADDWD Y15, Y13, Y%d", acc)
						continue
					}
					t.op("VPMADDWD Y15, Y13, Y13")
					t.op("VPADDD Y13, Y%d, Y%d", acc, acc)
				}
			}
		}
		for r := range t.rows {
			t.op("VBROADCASTSS %d(R14), Y8", rec32*r+rec32D)
			for v := range 2 {
				acc := 2*r + v
				t.op("VCVTDQ2PS Y%d, Y%d", acc, acc)
				t.op("VMULPS %d(R11), Y8, Y10", panelScale+32*v)
				t.op("VMOVUPS %s, Y11", t.out(r, v))
				t.op("VFMADD231PS Y%d, Y10, Y11", acc)
				t.op("VMOVUPS Y11, %s", t.out(r, v))
			}
		}
	})
}
