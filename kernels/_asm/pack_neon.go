package main

// packNEON interleaves blocks of 16 rows, see packArgs: dwords are transposed four columns and four rows at a time. Where
// their number is no multiple of four, the last four are done anew, overlapping.
//
// Registers: R0 arguments, R1 destination, R2 block of row 0, R3 stride, R13 blocks left; for four rows: R4 to R7 their
// bytes, R8 columns left, R9 destination of columns, R10 of scales.
func packNEON(g *file) {
	f := neon{g}
	f.fn("packNEON", "packArgs", "R0", "interleaves blocks of 16 rows, see packArgs.")
	f.op("MOVD packArgs_dst(R0), R1")
	f.op("MOVD packArgs_src(R0), R2")
	f.op("MOVD packArgs_stride(R0), R3")
	f.op("MOVD packArgs_blocks(R0), R13")
	rows := []string{"R4", "R5", "R6", "R7"}
	block, four, half, two, columns := f.label("block"), f.label("four"), f.label("half"), f.label("two"), f.label("columns")
	chunk, last, end := f.label("chunk"), f.label("last"), f.label("end")
	f.at(block)
	f.op("MOVD R1, R10")
	f.op("MOVD R2, R20")
	f.op("MOVD $4, R14")
	f.at(four)
	point := func(offset string) {
		f.op("MOVD packArgs_%s(R0), R4", offset)
		f.op("ADD R20, R4")
		for i := 1; i < 4; i++ {
			f.op("ADD R3, %s, %s", rows[i-1], rows[i])
		}
	}
	point("at")
	f.op("MOVD packArgs_scale(R0), R11")
	f.op("CMP $2, R11")
	f.op("BEQ %s", half)
	f.op("BGT %s", two)
	f.op("CBZ R11, %s", columns)
	for r := range 4 {
		f.op("MOVBU (%s), R12", rows[r])
		f.op("MOVB R12, %d(R10)", r)
	}
	f.op("SUB $4, R10") // of the 8 below, 4 are meant
	f.op("JMP %s", columns)
	f.at(two)
	for r := range 4 {
		f.op("MOVWU (%s), R12", rows[r])
		f.op("MOVH R12, %d(R10)", 2*r)
		f.op("LSR $16, R12")
		f.op("MOVH R12, %d(R10)", 32+2*r)
	}
	f.op("JMP %s", columns)
	f.at(half)
	for r := range 4 {
		f.op("MOVHU (%s), R12", rows[r])
		f.op("MOVH R12, %d(R10)", 2*r)
	}
	f.at(columns)
	point("first")
	f.op("ADD $4, R11") // 16·scale bytes of scales, and 16 for each vector of rows before: 16·(scale + 4 − R14)
	f.op("SUB R14, R11")
	f.op("ADD R11<<4, R1, R9")
	f.op("MOVD packArgs_dwords(R0), R8")
	f.at(chunk)
	f.op("CMP $4, R8")
	f.op("BLT %s", last)
	for r := range 4 {
		f.ldr(r, 4+r, 0)
	}
	f.three("trn1", "4s", 4, 0, 1)
	f.three("trn2", "4s", 5, 0, 1)
	f.three("trn1", "4s", 6, 2, 3)
	f.three("trn2", "4s", 7, 2, 3)
	f.three("zip1", "2d", 0, 4, 6)
	f.three("zip1", "2d", 1, 5, 7)
	f.three("zip2", "2d", 2, 4, 6)
	f.three("zip2", "2d", 3, 5, 7)
	for d := range 4 {
		f.str(d, 9, 64*d)
	}
	for _, r := range rows {
		f.op("ADD $16, %s", r)
	}
	f.op("ADD $256, R9")
	f.op("SUB $4, R8")
	f.op("JMP %s", chunk)
	f.at(last)
	f.op("CBZ R8, %s", end)
	f.op("SUB $4, R8") // −1 to −3 columns: back by as many
	f.op("ADD R8<<6, R9")
	for _, r := range rows {
		f.op("ADD R8<<2, %s", r)
	}
	f.op("MOVD $4, R8")
	f.op("JMP %s", chunk)
	f.at(end)
	f.op("ADD R3<<2, R20")
	f.op("ADD $8, R10")
	f.op("SUB $1, R14")
	f.op("CBNZ R14, %s", four)
	f.op("MOVD packArgs_scale(R0), R11") // a block's bytes: 16 of each byte of its scale, and 64 a column
	f.op("ADD R11<<4, R1")
	f.op("MOVD packArgs_dwords(R0), R11")
	f.op("ADD R11<<6, R1")
	f.op("MOVD packArgs_bytes(R0), R11")
	f.op("ADD R11, R2")
	f.op("SUB $1, R13")
	f.op("CBNZ R13, %s", block)
	f.ret()
}
