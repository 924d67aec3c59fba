package main

import "slices"

// The quantised matrix product for arm64, by three instruction sets: NEON as every processor has it (products of bytes
// as 16-bit words, as many of which are added as can't overflow), DotProd (SDOT) and I8MM (SMMLA). As for AVX2, a
// superblock of 256 columns by 16 rows is unpacked to a panel, then tiles of up to four rows of activations go over it.
// Lanes are rows of weights: four vectors of them, of which a tile of four takes two at a time, in two passes.
//
// The panel has signed bytes: Q3_K's are centred, Q6_K's, too, and four times too large but for plain NEON, which unpacking gives for
// nothing and the conversion to float undoes.
//
//	NEON, DotProd  [block][quad of columns][16 rows][4]
//	I8MM           [block][8 columns: 4][pair of rows: 8][2][8]
//
// Few rows go without a panel in DotProd (few_dotprod.go), which I8MM takes for them, too.
//
// Registers: R0 arguments, R1 packed weights, R2 panel, R3 records of the superblock, R4 blocks left, R5 rows left,
// R15 blocks in a legacy superblock, R20 codes that stay packed; in a tile: R6 record of its first row, R7 its sums; in a pass:
// R21 codes, R22 sums, R23 floats of the panel, R25 minimums, R26 integer scales, R24 passes left; in the loop over blocks:
// R8 codes, R10 activations, R11 scales, R12 scalars of the record, R13 blocks left.

// Offsets into the panel.
const (
	neonScale = 4096 // K: scales [sub-block][16]int32, for I8MM each twice; others: d [8][16]float32
	neonM     = neonScale + 512
	neonMin   = neonScale + 2048 // minimums [4][8 or 16][4]int16: four rows together
	neonD     = neonMin + 512    // K: d [16]float32
	neonDmin  = neonD + 64
)

// engine is how products of bytes are summed.
type engine int

const (
	wordSums engine = iota // SMULL, SMLAL
	dotProducts
	matrixProducts
)

// neonMatMul writes the functions of one engine.
type neonMatMul struct {
	neon
	suffix string
	engine engine
}

func matmulNEON(f *file)    { writeNEON(neonMatMul{neon{f}, "NEON", wordSums}) }
func matmulDotProd(f *file) { writeNEON(neonMatMul{neon{f}, "DotProd", dotProducts}) }
func matmulI8MM(f *file)    { writeNEON(neonMatMul{neon{f}, "I8MM", matrixProducts}) }

func writeNEON(f neonMatMul) {
	for _, k := range kinds {
		if k.book != nil { // codes are looked up as signed bytes
			k.centre = 0
			k.signed = slices.Max(k.book) > 32
		}
		f.group(k)
	}
}

// direct reports whether the panel's codes are those of the packed weights, so that no copy is made.
func (f neonMatMul) direct(k kind) bool { return k.plain() && f.engine != matrixProducts }

// group writes the function for one type.
func (f neonMatMul) group(k kind) {
	f.fn("group"+k.name+f.suffix, "groupArgs", "R0", "multiplies one group of packed rows, see groupArgs.")
	if f.engine == matrixProducts { // pairs of rows pay from four rows on
		many := f.label("many")
		f.op("MOVD groupArgs_rows(R0), R5")
		f.op("CMP $4, R5")
		f.op("BGE %s", many)
		f.op("JMP ·group%sDotProd(SB)", k.name)
		f.at(many)
	}
	f.op("MOVD groupArgs_w(R0), R1")
	f.op("MOVD groupArgs_panel(R0), R2")
	f.op("MOVD groupArgs_acts(R0), R3")
	f.op("MOVD groupArgs_blocks(R0), R4")
	super, next, done := f.label("super"), f.label("next"), f.label("done")
	f.at(super)
	f.op("CMP $0, R4")
	f.op("BLE %s", done)
	if !k.k {
		f.op("MOVD $8, R15")
		f.op("CMP R15, R4")
		f.op("CSEL LT, R4, R15, R15")
	}
	if f.few(k) > 0 {
		f.fewRows(k, next)
	}
	if k.k {
		f.unpackK(k)
	} else {
		f.unpack32(k, f.direct(k))
	}
	f.rowLoop(k)
	f.at(next)
	f.op("MOVD groupArgs_next(R0), R8")
	f.op("ADD R8, R3")
	f.op("SUB $%d, R4", map[bool]int{true: 1, false: 8}[k.k])
	f.op("JMP %s", super)
	f.at(done)
	f.ret()
}

func (k kind) record() int {
	if k.k {
		return recK
	}
	return rec32
}

// rowLoop writes tiles of four rows at a time, then two, then one.
func (f neonMatMul) rowLoop(k kind) {
	f.op("MOVD R3, R6")
	f.op("MOVD groupArgs_acc(R0), R7")
	f.op("MOVD groupArgs_rows(R0), R5")
	tiles := []int{4, 2, 1}
	if f.engine == wordSums && k.signed {
		tiles = tiles[1:]
	}
	for _, t := range tiles {
		next, again := f.label("rowsNext"), f.label(sprintf("rows%d_", t))
		f.at(again)
		f.op("CMP $%d, R5", t)
		f.op("BLT %s", next)
		f.tile(k, t)
		f.op("ADD $%d, R6", t*k.record())
		f.op("ADD $%d, R7", t*64)
		f.op("SUB $%d, R5", t)
		if t > 1 {
			f.op("JMP %s", again)
		}
		f.at(next)
	}
}

// prefetch asks for the packed bytes some KiB ahead of R1.
func (f neonMatMul) prefetch(k kind) {
	for i := 0; i < k.bytes(); i += 64 {
		f.op("PRFM %d(R1), PLDL1KEEP", i+8192)
	}
}

// halves widens the 16 binary16 at src(R1) to at(x dst).
func (f neonMatMul) halves(src, dst, at int) {
	for v := range 2 {
		f.ldr(0, 1, src+16*v)
		f.fcvtl(1, 0, false)
		f.fcvtl(2, 0, true)
		f.str(1, dst, at+32*v)
		f.str(2, dst, at+32*v+16)
	}
}

// store writes the codes of quads q (even) and q+1 of row vector v, in registers a and b, to a block of the panel at
// offset(x dst). Registers 22 and 23 are lost.
func (f neonMatMul) store(a, b, q, v, dst, offset int) {
	at := offset + 64*q
	if f.engine == matrixProducts {
		f.three("zip1", "4s", 22, a, b)
		f.three("zip2", "4s", 23, a, b)
		f.str(22, dst, at+32*v)
		f.str(23, dst, at+32*v+16)
		return
	}
	f.str(a, dst, at+16*v)
	f.str(b, dst, at+64+16*v)
}

// unpack32 unpacks R15 blocks of a legacy type from R1, which it advances, to the panel. With direct set, codes stay, and
// R20 becomes their address.
func (f neonMatMul) unpack32(k kind, direct bool) {
	five := k.five()
	f.op("MOVD R15, R13")
	f.op("MOVD R2, R8")  // codes
	f.op("MOVD R2, R11") // scales
	if direct {
		f.op("ADD $%d, R1, R20", 16*k.scale)
	}
	f.movi(31, 0x0f)
	if five && !direct {
		for b := range 4 {
			f.fixed(27+b, sprintf("byte%d", b), byteOf(b)...)
		}
		f.fixed(25, "bits0", 1, 2, 4, 8)
		f.fixed(26, "bits1", 0x10, 0x20, 0x40, 0x80)
		f.movi(24, 16)
	}
	if k.book != nil {
		f.fixed(30, "codes"+k.name, k.table()...)
	}
	again := f.label("unpack")
	f.at(again)
	f.prefetch(k)
	if k.scale == 1 {
		f.exponents()
	} else {
		f.halves(0, 11, neonScale)
	}
	if k.min {
		f.halves(32, 11, neonM)
	}
	codes := 16 * k.scale
	for v := range 4 {
		switch {
		case direct:
		case k.plain():
			for q := 0; q < 8; q += 2 {
				f.ldr(0, 1, codes+64*q+16*v)
				f.ldr(1, 1, codes+64*q+64+16*v)
				f.store(0, 1, q, v, 8, 0)
			}
		case five:
			f.ldr(4, 1, codes+16*v)
			f.nibbles(k, v, codes+64)
		default:
			f.nibbles(k, v, codes)
		}
	}
	f.op("ADD $%d, R1", k.bytes())
	f.op("ADD $512, R8")
	f.op("ADD $64, R11")
	f.op("SUB $1, R13")
	f.op("CBNZ R13, %s", again)
}

// exponents puts 2^(e-128) of the 16 bytes e at R1 into the panel, which can be denormal: a product of two powers of two with
// about half the exponent each.
func (f neonMatMul) exponents() {
	f.ldr(0, 1, 0)
	f.movi32(5, 63, 0)
	for half := range 2 {
		f.ushll("8b", 1, 0, half == 1)
		for i := range 2 {
			f.ushll("4h", 2, 1, i == 1)
			f.shift("ushr", "4s", 3, 2, 1)
			f.three("sub", "4s", 2, 2, 3)
			for r := 2; r <= 3; r++ {
				f.three("add", "4s", r, r, 5)
				f.shift("shl", "4s", r, r, 23)
			}
			f.three("fmul", "4s", 2, 2, 3)
			f.str(2, 11, neonScale+32*half+16*i)
		}
	}
}

// byteOf returns the indices that copy byte b of each 32 bits to all four.
func byteOf(b int) []byte {
	var p []byte
	for i := range 16 {
		p = append(p, byte(i/4*4+b))
	}
	return p
}

// nibbles unpacks row vector v of a block of 32 columns whose nibbles are at codes(R1), with fifth bits from register 4, or
// looked up in register 30.
func (f neonMatMul) nibbles(k kind, v, codes int) {
	for u := 0; u < 4; u += 2 {
		for i := range 2 {
			f.ldr(5, 1, codes+64*(u+i)+16*v)
			f.three("and", "16b", i, 5, 31)
			f.shift("ushr", "16b", 2+i, 5, 4)
		}
		for half := range 2 {
			if k.five() {
				f.tbl(6, 4, 27+2*half+u/2)
				for i := range 2 {
					f.fifth(2*half+i, 6, 25+i)
				}
			}
			for i := range 2 {
				if k.coded() {
					f.tbl(2*half+i, 30, 2*half+i)
				}
			}
			f.store(2*half, 2*half+1, u+4*half, v, 8, 0)
		}
	}
}

// fifth adds 16 to the codes in reg where bits has a bit of mask. Register 7 is lost; register 24 has sixteens.
func (f neonMatMul) fifth(reg, bits, mask int) {
	f.three("cmtst", "16b", 7, bits, mask) // −1 where set
	f.three("mls", "16b", reg, 7, 24)
}

// unpackK unpacks one block of a K type from R1, which it advances, to the panel.
func (f neonMatMul) unpackK(k kind) {
	f.prefetch(k)
	f.scalesK(k)
	switch base := 16 * k.scale; k.name {
	case "Q2_K":
		f.unpack2(base+4*64, -1)
	case "Q3_K":
		f.unpack2(base+8*64, base)
	case "Q6_K":
		f.unpack6(base)
	case "IQ4_XS", "Grid6", "Grid7":
		f.unpackCoded(k)
		return
	default:
		f.unpack45(k.five(), base+192)
	}
	f.op("ADD $%d, R1", k.bytes())
}

// scalesK unpacks all but the codes.
func (f neonMatMul) scalesK(k kind) {
	base := 16 * k.scale
	if k.scale > 0 {
		f.halves(0, 2, neonD)
	}
	f.movi(31, 0x0f)
	switch k.name {
	case "Q2_K":
		f.scales2()
	case "Q3_K":
		f.scales3(base + 24*64)
	case "Q6_K":
		f.scales6(base + 48*64)
	case "IQ4_XS":
		f.scalesIQ4()
	case "Grid6", "Grid7":
		for v := range 4 {
			f.ldr(0, 1, gridD+16*v)
			f.str(0, 2, neonD+16*v)
		}
		f.scales6(gridScales)
	default:
		f.halves(32, 2, neonDmin)
		f.scales45(base)
	}
}

// scale writes the scales of sub-block s and row vector v, in reg. Registers 22 and 23 are lost.
func (f neonMatMul) scale(reg, s, v int) { f.scaleTo(reg, s, v, 22, 23) }

// scaleTo is scale that loses registers a and b.
func (f neonMatMul) scaleTo(reg, s, v, a, b int) {
	if f.engine == matrixProducts {
		f.three("zip1", "4s", a, reg, reg)
		f.three("zip2", "4s", b, reg, reg)
		f.str(a, 2, neonScale+128*s+32*v)
		f.str(b, 2, neonScale+128*s+32*v+16)
		return
	}
	f.str(reg, 2, neonScale+64*s+16*v)
}

// extensions loads the indices that extend bytes of 32 bits: registers 24+j byte j to 32 bits, 20+j bytes 2j of all, then
// bytes 2j+1, to 16 bits.
func (f neonMatMul) extensions() {
	for j := range 4 {
		var p []byte
		for i := range 4 {
			p = append(p, byte(4*i+j), 0xff, 0xff, 0xff)
		}
		f.fixed(24+j, sprintf("extend%d", j), p...)
	}
	for j := range 2 {
		var p []byte
		for i := range 8 {
			p = append(p, byte(i%4*4+2*j+i/4), 0xff)
		}
		f.fixed(20+j, sprintf("words%d", j), p...)
	}
}

// scales45 unpacks the 6-bit scales and minimums of Q4_K and Q5_K, three columns of 32 bits at base(R1).
func (f neonMatMul) scales45(base int) {
	f.movi(30, 0x3f)
	f.movi(29, 0x30)
	f.extensions()
	for v := range 4 {
		for i := range 3 {
			f.ldr(i, 1, base+64*i+16*v)
		}
		f.three("and", "16b", 6, 2, 31)
		f.shift("ushr", "16b", 7, 2, 4)
		for i := range 2 { // scales, minimums: 3+i the first four, 6+i the others, whose high bits are in bits 6 and 7
			f.shift("ushr", "16b", 5, i, 2)
			f.three("and", "16b", 5, 5, 29)
			f.three("and", "16b", 3+i, i, 30)
			f.three("orr", "16b", 6+i, 6+i, 5)
		}
		for j := range 8 {
			f.tbl(5, 3+j/4*3, 24+j%4)
			f.scale(5, j, v)
		}
		for p := range 4 {
			f.tbl(5, 4+p/2*3, 20+p%2)
			f.str(5, 2, neonMin+64*v+16*p)
		}
	}
}

// unpack45 unpacks the codes of Q4_K and Q5_K: for Q5_K 8 columns of 32 fifth bits, then 32 of nibbles, at base(R1).
func (f neonMatMul) unpack45(five bool, base int) {
	f.op("MOVD R2, R8")
	f.op("ADD $%d, R1, R9", base)
	if five {
		f.op("MOVD R9, R10")
		f.op("ADD $512, R9")
		f.movi(24, 16)
		f.movi(25, 1)
		f.movi(26, 2)
	}
	f.op("MOVD $4, R13")
	again := f.label("unpack")
	f.at(again)
	for u := 0; u < 8; u += 2 {
		for v := range 4 {
			for i := range 2 {
				f.ldr(5, 9, 64*(u+i)+16*v)
				f.three("and", "16b", i, 5, 31)
				f.shift("ushr", "16b", 2+i, 5, 4)
				if five {
					f.ldr(6, 10, 64*(u+i)+16*v)
					f.fifth(i, 6, 25)
					f.fifth(2+i, 6, 26)
				}
			}
			f.store(0, 1, u, v, 8, 0)
			f.store(2, 3, u, v, 8, 512)
		}
	}
	if five {
		f.shift("shl", "16b", 25, 25, 2)
		f.shift("shl", "16b", 26, 26, 2)
	}
	f.op("ADD $1024, R8")
	f.op("ADD $512, R9")
	f.op("SUB $1, R13")
	f.op("CBNZ R13, %s", again)
}

// scales2 unpacks the 4-bit scales and minimums of Q2_K, the first four columns, and d and dmin, the last.
func (f neonMatMul) scales2() {
	f.extensions()
	for v := range 4 {
		for c := range 4 {
			f.ldr(0, 1, 64*c+16*v)
			f.shift("ushr", "16b", 1, 0, 4)
			f.three("and", "16b", 0, 0, 31)
			for j := range 4 {
				f.tbl(5, 0, 24+j)
				f.scaleTo(5, 4*c+j, v, 6, 7)
			}
			for p := range 2 {
				f.tbl(5, 1, 20+p)
				f.str(5, 2, neonMin+128*v+16*(2*c+p))
			}
		}
	}
	for half := range 2 {
		f.ldr(0, 1, 20*64+32*half)
		f.ldr(1, 1, 20*64+32*half+16)
		for i, name := range []string{"uzp1", "uzp2"} {
			f.three(name, "8h", 2, 0, 1)
			f.fcvtl(3, 2, false)
			f.fcvtl(4, 2, true)
			f.str(3, 2, neonD+64*i+32*half)
			f.str(4, 2, neonD+64*i+32*half+16)
		}
	}
}

// scales3 unpacks the 6-bit scales of Q3_K, which are around 32, three columns of 32 bits at base(R1).
func (f neonMatMul) scales3(base int) {
	f.movi(30, 0x30)
	f.movi(29, 32)
	for v := range 4 {
		f.ldr(2, 1, base+128+16*v) // high bits
		for c := range 4 {
			f.ldr(0, 1, base+64*(c%2)+16*v)
			if c >= 2 {
				f.shift("ushr", "16b", 0, 0, 4)
			} else {
				f.three("and", "16b", 0, 0, 31)
			}
			high := 3
			switch by := 4 - 2*c; {
			case by > 0:
				f.shift("shl", "16b", 3, 2, by)
			case by < 0:
				f.shift("ushr", "16b", 3, 2, -by)
			default:
				high = 2
			}
			f.three("and", "16b", 3, high, 30)
			f.three("orr", "16b", 0, 0, 3)
			f.three("sub", "16b", 0, 0, 29)
			f.scaleBytes(c, v)
		}
	}
}

// scales6 unpacks the signed bytes of Q6_K's scales, four columns of 32 bits at base(R1).
func (f neonMatMul) scales6(base int) {
	for c := range 4 {
		for v := range 4 {
			f.ldr(0, 1, base+64*c+16*v)
			f.scaleBytes(c, v)
		}
	}
}

// scaleBytes writes the signed scales 4c to 4c+3 of row vector v, bytes of register 0.
func (f neonMatMul) scaleBytes(c, v int) {
	for j := range 4 {
		from := 0
		if j < 3 {
			f.shift("shl", "4s", 1, 0, 24-8*j)
			from = 1
		}
		f.shift("sshr", "4s", 1, from, 24)
		f.scale(1, 4*c+j, v)
	}
}

// scalesIQ4 unpacks the 6-bit scales of IQ4_XS, which are around 32: words of high bits, then a column of low ones.
func (f neonMatMul) scalesIQ4() {
	f.movi32(30, 15, 0)
	f.movi32(29, 0x30, 0)
	f.movi32(28, 32, 0)
	for v := range 4 {
		f.ldr(0, 1, 64+16*v)
		f.ldr(2, 1, 32+v/2*16)
		f.ushll("4h", 2, 2, v%2 == 1)
		f.shift("shl", "4s", 2, 2, 4)
		for s := range 8 {
			f.three("and", "16b", 1, 0, 30)
			f.three("and", "16b", 3, 2, 29)
			f.three("orr", "16b", 1, 1, 3)
			f.three("sub", "4s", 1, 1, 28)
			f.shift("ushr", "4s", 0, 0, 4)
			f.shift("ushr", "4s", 2, 2, 2)
			f.scale(1, s, v)
		}
	}
}

// unpackCoded unpacks the codes of IQ4_XS and grids, four columns of 32 bits for each block, and advances R1.
func (f neonMatMul) unpackCoded(k kind) {
	f.op("MOVD R2, R8")
	if k.grid {
		f.values(30)
	} else {
		f.op("ADD $128, R1")
		f.fixed(30, "codes"+k.name, k.table()...)
	}
	f.op("MOVD $8, R13")
	again := f.label("unpack")
	f.at(again)
	for v := range 4 {
		f.nibbles(k, v, 0)
	}
	f.op("ADD $512, R8")
	f.op("ADD $256, R1")
	f.op("SUB $1, R13")
	f.op("CBNZ R13, %s", again)
	if k.grid {
		f.op("ADD $%d, R1", k.bytes()-gridScales)
	}
}

// values loads what codes of a grid stand for. R9 is lost.
func (f neonMatMul) values(reg int) {
	f.op("MOVD groupArgs_values(R0), R9")
	f.ldr(reg, 9, 0)
}

// unpack2 unpacks the codes of Q2_K and Q3_K: 16 columns of 2 bits for each of four blocks, at base(R1); third, unless −1, is
// where 8 columns of third bits are, one for each block of the superblock.
func (f neonMatMul) unpack2(base, third int) {
	f.op("MOVD R2, R8")
	f.op("ADD $%d, R1, R9", base)
	f.op("MOVD $2, R13")
	f.movi(31, 3)
	if third >= 0 {
		f.op("ADD $%d, R1, R10", third)
		f.movi(30, 0xfc) // −4
		for part := range 4 {
			f.movi(24+part, 1<<part)
		}
	}
	again := f.label("unpack")
	f.at(again)
	for u := 0; u < 8; u += 2 {
		for v := range 4 {
			for i := range 2 {
				f.ldr(16, 9, 64*(u+i)+16*v)
				if third >= 0 {
					f.ldr(17, 10, 64*(u+i)+16*v)
				}
				for part := range 4 {
					code := part + 4*i
					if part == 0 {
						f.three("and", "16b", code, 16, 31)
					} else {
						f.shift("ushr", "16b", code, 16, 2*part)
						f.three("and", "16b", code, code, 31)
					}
					if third >= 0 { // −4 unless the bit is set
						f.three("cmtst", "16b", 18, 17, 24+part)
						f.three("bic", "16b", 18, 30, 18)
						f.three("orr", "16b", code, code, 18)
					}
				}
			}
			for part := range 4 {
				f.store(part, 4+part, u, v, 8, 512*part)
			}
		}
	}
	if third >= 0 {
		for part := range 4 {
			f.shift("shl", "16b", 24+part, 24+part, 4)
		}
	}
	f.op("ADD $2048, R8")
	f.op("ADD $512, R9")
	f.op("SUB $1, R13")
	f.op("CBNZ R13, %s", again)
}

// unpack6 unpacks the codes of Q6_K: 32 columns of 32 low bits, 16 of high bits, at base(R1).
func (f neonMatMul) unpack6(base int) {
	f.op("MOVD R2, R8")
	f.op("ADD $%d, R1, R9", base)
	f.op("ADD $2048, R9, R10")
	f.op("MOVD $2, R13")
	f.movi(30, 0xf0)
	f.movi(29, 0xaa)
	again := f.label("unpack")
	f.at(again)
	for u := 0; u < 8; u += 2 {
		for v := range 4 {
			for i := range 2 {
				f.ldr(16, 9, 64*(u+i)+16*v)
				f.ldr(17, 9, 512+64*(u+i)+16*v)
				f.ldr(18, 10, 64*(u+i)+16*v)
				f.parts6([]int{4 * i, 4*i + 1, 4*i + 2, 4*i + 3}, 16, 17, 18, 19, 29, 30)
			}
			for part := range 4 {
				f.store(part, 4+part, u, v, 8, 512*part)
			}
		}
	}
	f.op("ADD $2048, R8")
	f.op("ADD $1024, R9")
	f.op("ADD $512, R10")
	f.op("SUB $1, R13")
	f.op("CBNZ R13, %s", again)
}

// parts6 makes codes of the four parts of half a Q6_K block, in to, of low bits l0 (parts 0 and 2) and l1 (parts 1 and 3)
// and high bits h: six bits on top of two zeros, the sign inverted, which makes signed bytes of 4·(code − 32). The
// operands and the register spare are lost; signs and high have bytes of 0xaa and 0xf0.
func (f neonMatMul) parts6(to []int, l0, l1, h, spare, signs, high int) {
	f.three("eor", "16b", h, h, signs)
	f.shift("shl", "16b", to[0], l0, 2)
	f.shift("sli", "16b", to[0], h, 6)
	f.shift("ushr", "16b", spare, h, 2)
	f.shift("shl", "16b", to[1], l1, 2)
	f.shift("sli", "16b", to[1], spare, 6)
	f.three("and", "16b", l0, l0, high)
	f.shift("shl", "16b", to[2], h, 2)
	f.shift("sri", "16b", to[2], l0, 2)
	f.three("and", "16b", l1, l1, high)
	f.mov(to[3], h)
	f.shift("sri", "16b", to[3], l1, 2)
	if f.engine == wordSums {
		for _, t := range to {
			f.shift("sshr", "16b", t, t, 2)
		}
	}
}
