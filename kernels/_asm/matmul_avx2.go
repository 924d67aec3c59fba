package main

import "fmt"

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
}

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
		avx2{f}.group(k)
	}
}

type avx2 struct{ *file }

// group writes the function for one type.
func (f avx2) group(k kind) {
	f.fn("group"+k.name+"AVX2", "groupArgs", "R9", "multiplies one group of packed rows, see groupArgs.")
	f.op("MOVQ groupArgs_w(R9), SI")
	f.op("MOVQ groupArgs_panel(R9), BX")
	f.op("MOVQ groupArgs_acts(R9), R8")
	f.op("MOVQ groupArgs_blocks(R9), R10")
	super, done := f.label("super"), f.label("done")
	f.at(super)
	f.op("TESTQ R10, R10")
	f.op("JLE %s", done)
	if k.k {
		f.unpackK(k)
	} else {
		f.op("MOVQ $8, R12")
		f.op("CMPQ R10, R12")
		f.op("CMOVQLT R10, R12") // blocks in this superblock
		f.unpack32(k)
	}
	rows := f.rowLoop
	rows(k, func(t int) {
		switch {
		case k.k:
			f.tileK(k, t)
		case k.signed:
			f.tile8(k, t)
		default:
			f.tile32(k, t)
		}
	})
	f.op("ADDQ groupArgs_next(R9), R8")
	if k.k {
		f.op("DECQ R10")
	} else {
		f.op("SUBQ $8, R10")
	}
	f.op("JMP %s", super)
	f.at(done)
	f.ret()
}

// rowLoop calls tile for four rows at a time, then two, then one.
func (f avx2) rowLoop(k kind, tile func(t int)) {
	rec := rec32
	if k.k {
		rec = recK
	}
	f.op("MOVQ R8, AX")
	f.op("MOVQ groupArgs_acc(R9), DX")
	f.op("MOVQ groupArgs_rows(R9), CX")
	end := f.label("rowsEnd")
	for _, t := range []int{4, 2, 1} {
		next, again := f.label("rowsNext"), f.label(fmt.Sprintf("rows%d_", t))
		f.at(again)
		f.op("CMPQ CX, $%d", t)
		f.op("JLT %s", next)
		tile(t)
		f.op("ADDQ $%d, AX", t*rec)
		f.op("ADDQ $%d, DX", t*64)
		f.op("SUBQ $%d, CX", t)
		if t > 1 {
			f.op("JMP %s", again)
		}
		f.at(next)
	}
	f.at(end)
}

// prefetch asks for the packed bytes some KiB ahead of SI; n cache lines, spread by the caller.
func (f avx2) prefetch(offset int) { f.op("PREFETCHT0 %d(SI)", offset+8192) }

// halves widens the 16 binary16 at src(SI) into dst (register base and offset).
func (f avx2) halves(src int, dst string, at int) {
	for v := range 2 {
		f.op("VCVTPH2PS %d(SI), Y0", src+16*v)
		f.op("VMOVUPS Y0, %d(%s)", at+32*v, dst)
	}
}

// unpack32 unpacks R12 blocks of a legacy type from SI, which it advances, to the panel.
func (f avx2) unpack32(k kind) {
	f.op("MOVQ R12, R15")
	f.op("MOVQ BX, R13") // codes
	f.op("MOVQ BX, R11") // scales
	if !k.signed {
		f.op("VMOVDQU %s, Y15", f.bytes32("low", 0x0f))
	}
	five := k.name == "Q5_0" || k.name == "Q5_1"
	if five {
		f.op("VMOVDQU %s, Y14", f.bytes32("bits0", 1, 2, 4, 8))
		f.op("VMOVDQU %s, Y13", f.bytes32("bits1", 0x10, 0x20, 0x40, 0x80))
		f.op("VMOVDQU %s, Y12", f.bytes32("fifth", 0x10))
	}
	again := f.label("unpack")
	f.at(again)
	for i := 0; i < k.bytes(); i += 64 {
		f.prefetch(i)
	}
	f.halves(0, "R11", panelScale)
	if k.halves == 2 {
		f.halves(32, "R11", panelM)
	}
	codes := 32 * k.halves
	if five {
		codes += 64
	}
	for v := range 2 {
		high := "Y9"
		if five {
			f.op("VMOVDQU %d(SI), Y9", 32*k.halves+32*v)
		}
		// bits adds the fifth bits of quad q to reg.
		bits := func(q int, reg string) {
			if !five {
				return
			}
			f.op("VPSHUFB %s, %s, Y10", f.byteOf(q/2), high)
			mask := fmt.Sprintf("Y%d", 14-q%2)
			f.op("VPAND %s, Y10, Y10", mask)
			f.op("VPCMPEQB %s, Y10, Y10", mask)
			f.op("VPAND Y12, Y10, Y10")
			f.op("VPOR Y10, %s, %s", reg, reg)
		}
		if k.signed {
			for q := range 8 {
				f.op("VMOVDQU %d(SI), Y0", codes+64*q+32*v)
				f.op("VMOVDQU Y0, %d(R13)", 64*q+32*v)
			}
			continue
		}
		for u := range 4 {
			f.op("VMOVDQU %d(SI), Y0", codes+64*u+32*v)
			f.op("VPSRLW $4, Y0, Y1")
			f.op("VPAND Y15, Y0, Y0")
			f.op("VPAND Y15, Y1, Y1")
			bits(u, "Y0")
			bits(u+4, "Y1")
			f.op("VMOVDQU Y0, %d(R13)", 64*u+32*v)
			f.op("VMOVDQU Y1, %d(R13)", 64*(u+4)+32*v)
		}
	}
	f.op("ADDQ $%d, SI", k.bytes())
	f.op("ADDQ $512, R13")
	f.op("ADDQ $64, R11")
	f.op("DECQ R15")
	f.op("JNE %s", again)
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

// unpackK unpacks one block of a K type from SI, which it advances, to the panel.
func (f avx2) unpackK(k kind) {
	f.halves(0, "BX", panelD)
	if k.min {
		f.halves(32, "BX", panelDmin)
	}
	base := 32 * k.halves
	f.op("VMOVDQU %s, Y15", f.bytes32("low", 0x0f))
	if k.sub16 {
		f.unpackQ6(base)
	} else {
		f.scales45(base)
		f.unpack45(k, base+192)
	}
	for i := 0; i < k.bytes(); i += 64 {
		f.prefetch(i)
	}
	f.op("ADDQ $%d, SI", k.bytes())
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

// unpack45 unpacks the codes of Q4_K and Q5_K: for Q5_K 8 dword columns of fifth bits, then 32 of nibbles, at base(SI).
func (f avx2) unpack45(k kind, base int) {
	five := k.name == "Q5_K"
	if five {
		f.op("VMOVDQU %s, Y12", f.bytes32("fifth", 0x10))
	}
	nibbles := base
	if five {
		nibbles += 512
	}
	for u := range 32 {
		s := u / 8 * 2
		for v := range 2 {
			f.op("VMOVDQU %d(SI), Y0", nibbles+64*u+32*v)
			f.op("VPSRLW $4, Y0, Y1")
			f.op("VPAND Y15, Y0, Y0")
			f.op("VPAND Y15, Y1, Y1")
			if five {
				f.op("VMOVDQU %d(SI), Y2", base+64*(u%8)+32*v)
				for i := range 2 { // bit s+i to bit 4
					switch by := 4 - s - i; {
					case by > 0:
						f.op("VPSLLW $%d, Y2, Y3", by)
					case by < 0:
						f.op("VPSRLW $%d, Y2, Y3", -by)
					default:
						f.op("VMOVDQA Y2, Y3")
					}
					f.op("VPAND Y12, Y3, Y3")
					f.op("VPOR Y3, Y%d, Y%d", i, i)
				}
			}
			at := 512*s + 64*(u%8) + 32*v
			f.op("VMOVDQU Y0, %d(BX)", at)
			f.op("VMOVDQU Y1, %d(BX)", at+512)
		}
	}
}

// unpackQ6 unpacks Q6_K: dword columns of low bits (32), high bits (16) and scales (4), at base(SI).
func (f avx2) unpackQ6(base int) {
	f.op("VMOVDQU %s, Y14", f.bytes32("two", 0x30))
	for h := range 2 {
		for u := range 8 {
			for v := range 2 {
				f.op("VMOVDQU %d(SI), Y0", base+64*(16*h+u)+32*v)     // parts 0 and 2
				f.op("VMOVDQU %d(SI), Y1", base+64*(16*h+8+u)+32*v)   // parts 1 and 3
				f.op("VMOVDQU %d(SI), Y2", base+2048+64*(8*h+u)+32*v) // high bits of all
				for part := range 4 {
					if part < 2 {
						f.op("VPAND Y15, Y%d, Y3", part)
					} else {
						f.op("VPSRLW $4, Y%d, Y3", part-2)
						f.op("VPAND Y15, Y3, Y3")
					}
					switch by := 4 - 2*part; {
					case by > 0:
						f.op("VPSLLW $%d, Y2, Y4", by)
					case by < 0:
						f.op("VPSRLW $%d, Y2, Y4", -by)
					default:
						f.op("VMOVDQA Y2, Y4")
					}
					f.op("VPAND Y14, Y4, Y4")
					f.op("VPOR Y3, Y4, Y4")
					f.op("VMOVDQU Y4, %d(BX)", 512*(4*h+part)+64*u+32*v)
				}
			}
		}
	}
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

// pairSums emits quads [from, to) of a block: 16-bit pair sums of t rows by two registers of weights into Y0 up,
// starting anew. Codes at R13, activations at DI, stride rec.
func (f avx2) pairSums(t, rec, from, to int) {
	for q := from; q < to; q++ {
		f.op("VMOVDQU %d(R13), Y8", 64*q)
		f.op("VMOVDQU %d(R13), Y9", 64*q+32)
		for r := range t {
			f.op("VPBROADCASTD %d(DI), Y10", rec*r+4*q)
			for v := range 2 {
				if q == from {
					f.op("VPMADDUBSW Y10, Y%d, Y%d", 8+v, 2*r+v)
					continue
				}
				f.op("VPMADDUBSW Y10, Y%d, Y%d", 8+v, 11+v)
				f.op("VPADDW Y%d, Y%d, Y%d", 11+v, 2*r+v, 2*r+v)
			}
		}
	}
}

// tileK multiplies one superblock of a K type by t rows of activations.
func (f avx2) tileK(k kind, t int) {
	f.note("%d rows", t)
	f.op("MOVQ AX, DI")
	f.op("MOVQ BX, R13")
	f.op("MOVQ BX, R11")
	f.op("MOVQ $8, R15")
	inRegs := t <= 2
	total := func(r, v int) string { return fmt.Sprintf("Y%d", 4+2*r+v) }
	memory := func(r, v int) string { return fmt.Sprintf("%d(BX)", panelTotal+64*r+32*v) }
	if inRegs {
		for i := range 2 * t {
			f.op("VPXOR Y%d, Y%d, Y%d", 4+i, 4+i, 4+i)
		}
	} else {
		f.op("VPXOR Y8, Y8, Y8")
		for r := range t {
			f.op("VMOVDQU Y8, %s", memory(r, 0))
			f.op("VMOVDQU Y8, %s", memory(r, 1))
		}
	}
	again := f.label("block")
	f.at(again)
	for from := 0; from < 8; from += k.quads {
		f.pairSums(t, recK, from, from+k.quads)
		scale := 0
		if k.sub16 {
			scale = from / 4 * 64
		}
		for r := range t {
			for v := range 2 {
				acc := 2*r + v
				f.op("VPMADDWD %d(R11), Y%d, Y%d", panelScale+scale+32*v, acc, acc)
				if inRegs {
					f.op("VPADDD Y%d, %s, %s", acc, total(r, v), total(r, v))
				} else {
					f.op("VPADDD %s, Y%d, Y%d", memory(r, v), acc, acc)
					f.op("VMOVDQU Y%d, %s", acc, memory(r, v))
				}
			}
		}
	}
	f.op("ADDQ $32, DI")
	f.op("ADDQ $512, R13")
	if k.sub16 {
		f.op("ADDQ $128, R11")
	} else {
		f.op("ADDQ $64, R11")
	}
	f.op("DECQ R15")
	f.op("JNE %s", again)

	for r := range t {
		f.op("VBROADCASTSS %d(AX), Y8", recK*r+recKD)
		// Y2, Y3: the sum over sub-blocks of minimums (or, for Q6_K, of scales) times sums of activations.
		pairs, sums := 4, recKSum32
		if k.sub16 {
			pairs, sums = 8, recKSum16
		}
		for p := range pairs {
			f.op("VPBROADCASTD %d(AX), Y9", recK*r+sums+4*p)
			for v := range 2 {
				if p == 0 {
					f.op("VPMADDWD %d(BX), Y9, Y%d", panelMin+64*p+32*v, 2+v)
					continue
				}
				f.op("VPMADDWD %d(BX), Y9, Y10", panelMin+64*p+32*v)
				f.op("VPADDD Y10, Y%d, Y%d", 2+v, 2+v)
			}
		}
		for v := range 2 {
			isum := "Y10"
			if inRegs {
				isum = total(r, v)
			} else {
				f.op("VMOVDQU %s, Y10", memory(r, v))
			}
			if k.centre != 0 {
				f.op("VPSLLD $5, Y%d, Y%d", 2+v, 2+v)
				f.op("VPSUBD Y%d, %s, Y10", 2+v, isum)
				isum = "Y10"
			}
			f.op("VCVTDQ2PS %s, Y10", isum)
			f.op("VMULPS %d(BX), Y8, Y11", panelD+32*v)
			f.op("VMOVUPS %d(DX), Y12", 64*r+32*v)
			f.op("VFMADD231PS Y10, Y11, Y12")
			if k.min {
				f.op("VCVTDQ2PS Y%d, Y10", 2+v)
				f.op("VMULPS %d(BX), Y8, Y11", panelDmin+32*v)
				f.op("VFNMADD231PS Y10, Y11, Y12")
			}
			f.op("VMOVUPS Y12, %d(DX)", 64*r+32*v)
		}
	}
}

// blocks32 loops over the R12 blocks of a legacy superblock.
func (f avx2) blocks32(body func()) {
	f.op("MOVQ AX, DI")
	f.op("MOVQ AX, R14")
	f.op("MOVQ BX, R13")
	f.op("MOVQ BX, R11")
	f.op("MOVQ R12, R15")
	again := f.label("block")
	f.at(again)
	body()
	f.op("ADDQ $32, DI")
	f.op("ADDQ $4, R14")
	f.op("ADDQ $512, R13")
	f.op("ADDQ $64, R11")
	f.op("DECQ R15")
	f.op("JNE %s", again)
}

// tile32 multiplies one superblock of a legacy type by t rows of activations.
func (f avx2) tile32(k kind, t int) {
	f.note("%d rows", t)
	f.op("VMOVDQU %s, Y15", f.bytes32("ones16", 1, 0))
	sum := func(r, v int) string { return fmt.Sprintf("Y%d", 4+2*r+v) } // of up to two rows, in registers
	memory := func(r, v int) string { return fmt.Sprintf("%d(DX)", 64*r+32*v) }
	inRegs := t <= 2
	if inRegs {
		for r := range t {
			for v := range 2 {
				f.op("VMOVUPS %s, %s", memory(r, v), sum(r, v))
			}
		}
	}
	f.blocks32(func() {
		for from := 0; from < 8; from += k.quads {
			f.pairSums(t, rec32, from, from+k.quads)
			for i := range 2 * t {
				f.op("VPMADDWD Y15, Y%d, Y%d", i, i)
				if from+k.quads < 8 {
					f.op("VMOVDQU Y%d, %d(BX)", i, panelTotal+32*i)
				} else if from > 0 {
					f.op("VPADDD %d(BX), Y%d, Y%d", panelTotal+32*i, i, i)
				}
			}
		}
		for r := range t {
			f.op("VBROADCASTSS %d(R14), Y8", rec32*r+rec32D)
			if k.min {
				f.op("VBROADCASTSS %d(R14), Y9", rec32*r+rec32Dsum)
			} else {
				f.op("VPBROADCASTD %d(R14), Y9", rec32*r+rec32S)
				f.op("VPSLLD $%d, Y9, Y9", map[int]int{8: 3, 16: 4}[k.centre])
			}
			for v := range 2 {
				acc := 2*r + v
				if !k.min {
					f.op("VPSUBD Y9, Y%d, Y%d", acc, acc)
				}
				f.op("VCVTDQ2PS Y%d, Y%d", acc, acc)
				f.op("VMULPS %d(R11), Y8, Y10", panelScale+32*v)
				to := "Y11"
				if inRegs {
					to = sum(r, v)
				} else {
					f.op("VMOVUPS %s, Y11", memory(r, v))
				}
				f.op("VFMADD231PS Y%d, Y10, %s", acc, to)
				if k.min {
					f.op("VFMADD231PS %d(R11), Y9, %s", panelM+32*v, to)
				}
				if !inRegs {
					f.op("VMOVUPS Y11, %s", memory(r, v))
				}
			}
		}
	})
	if inRegs {
		for r := range t {
			for v := range 2 {
				f.op("VMOVUPS %s, %s", sum(r, v), memory(r, v))
			}
		}
	}
}

// tile8 is tile32 for signed bytes: the weights' signs go to the activations, and every product is widened at once.
func (f avx2) tile8(k kind, t int) {
	f.note("%d rows", t)
	f.op("VMOVDQU %s, Y15", f.bytes32("ones16", 1, 0))
	f.blocks32(func() {
		for q := range 8 {
			for v := range 2 {
				f.op("VMOVDQU %d(R13), Y%d", 64*q+32*v, 8+v)
				f.op("VPABSB Y%d, Y%d", 8+v, 10+v)
			}
			for r := range t {
				f.op("VPBROADCASTD %d(DI), Y12", rec32*r+4*q)
				for v := range 2 {
					acc := 2*r + v
					f.op("VPSIGNB Y%d, Y12, Y13", 8+v)
					f.op("VPMADDUBSW Y13, Y%d, Y13", 10+v)
					if q == 0 {
						f.op("VPMADDWD Y15, Y13, Y%d", acc)
						continue
					}
					f.op("VPMADDWD Y15, Y13, Y13")
					f.op("VPADDD Y13, Y%d, Y%d", acc, acc)
				}
			}
		}
		for r := range t {
			f.op("VBROADCASTSS %d(R14), Y8", rec32*r+rec32D)
			for v := range 2 {
				acc := 2*r + v
				f.op("VCVTDQ2PS Y%d, Y%d", acc, acc)
				f.op("VMULPS %d(R11), Y8, Y10", panelScale+32*v)
				f.op("VMOVUPS %d(DX), Y11", 64*r+32*v)
				f.op("VFMADD231PS Y%d, Y10, Y11", acc)
				f.op("VMOVUPS Y11, %d(DX)", 64*r+32*v)
			}
		}
	})
}
