package main

// packAVX2 interleaves blocks of 16 rows, see packArgs: dwords are transposed four columns and eight rows at a time.
// Where their number is no multiple of four, the last four are done anew, overlapping.
//
// Every other line of the next 16 rows is fetched meanwhile, in the order of memory, at the pace of the interleaving: rows
// can be so short that the processor sees no pattern in 16 of them at once. The other lines are left to the product that
// follows (groupArgs.ahead), so that neither waits for memory while the other computes.
//
// Registers: DI destination, R14 block of row 0, R11 and R12 stride and three strides, R13 blocks left, BX arguments;
// SI, R8, R9, R10 rows 0, 4, 8, 12; DX destination of dwords; R15 what to fetch.
func packAVX2(f *file) {
	f.fn("packAVX2", "packArgs", "BX", "interleaves blocks of 16 rows, see packArgs.")
	f.op("MOVQ packArgs_dst(BX), DI")
	f.op("MOVQ packArgs_src(BX), R14")
	f.op("MOVQ packArgs_stride(BX), R11")
	f.op("LEAQ (R11)(R11*2), R12")
	f.op("MOVQ packArgs_blocks(BX), R13")
	f.op("MOVQ R11, R15")
	f.op("SHLQ $4, R15")
	f.op("ADDQ R14, R15")
	bases := []string{"SI", "R8", "R9", "R10"}
	rows := func(offset string) {
		f.op("MOVQ packArgs_%s(BX), SI", offset)
		f.op("ADDQ R14, SI")
		for i := 1; i < 4; i++ {
			f.op("LEAQ (%s)(R11*4), %s", bases[i-1], bases[i])
		}
	}
	row := func(r int) string { return []string{"(%s)", "(%s)(R11*1)", "(%s)(R11*2)", "(%s)(R12*1)"}[r%4] }
	at := func(r int) string { return sprintf(row(r), bases[r/4]) }
	fetch := func(lines int) {
		for i := 0; i < lines; i += 2 {
			f.op("PREFETCHT0 %d(R15)", 64*i)
		}
		f.op("ADDQ $%d, R15", 64*lines)
	}
	// columns loads four dword columns of rows 8·half to 8·half+7 at the bases into Y0 to Y3.
	columns := func(half int) {
		b := 2 * half
		for r := range 4 { // lanes: row r and row r+4 of this half
			f.op("VMOVDQU %s, X%d", sprintf(row(r), bases[b]), r)
			f.op("VINSERTI128 $1, %s, Y%d, Y%d", sprintf(row(r), bases[b+1]), r, r)
		}
		f.op("VPUNPCKLDQ Y1, Y0, Y4")
		f.op("VPUNPCKLDQ Y3, Y2, Y5")
		f.op("VPUNPCKHDQ Y1, Y0, Y6")
		f.op("VPUNPCKHDQ Y3, Y2, Y7")
		f.op("VPUNPCKLQDQ Y5, Y4, Y0")
		f.op("VPUNPCKHQDQ Y5, Y4, Y1")
		f.op("VPUNPCKLQDQ Y7, Y6, Y2")
		f.op("VPUNPCKHQDQ Y7, Y6, Y3")
	}
	f.op("VMOVDQU %s, Y10", f.bytes32("low16", 0xff, 0xff, 0, 0))
	block, chunk, chunks, last, end := f.label("block"), f.label("chunk"), f.label("chunks"), f.label("last"), f.label("end")
	one, two, scaled := f.label("one"), f.label("two"), f.label("scaled")
	f.at(block)
	fetch(1)
	rows("at")
	f.op("MOVQ DI, DX")
	f.op("MOVQ packArgs_scale(BX), CX")
	f.op("CMPQ CX, $4")
	f.op("JEQ %s", two)
	f.op("CMPQ CX, $1")
	f.op("JLT %s", scaled)
	f.op("JEQ %s", one)
	for r := range 16 {
		f.op("MOVWLZX %s, AX", at(r))
		f.op("MOVW AX, %d(DX)", 2*r)
	}
	f.op("ADDQ $32, DX")
	f.op("JMP %s", scaled)
	f.at(one)
	for r := range 16 {
		f.op("MOVBLZX %s, AX", at(r))
		f.op("MOVB AX, %d(DX)", r)
	}
	f.op("ADDQ $16, DX")
	f.at(scaled)
	rows("first")
	f.op("MOVQ packArgs_dwords(BX), CX")
	f.op("JMP %s", chunks)

	f.at(two) // both are at the start of the block: a dword column of their own, before three others
	fetch(4)
	for half := range 2 {
		columns(half)
		f.op("VMOVDQA Y0, Y%d", 8+half)
		for d := 1; d < 4; d++ {
			f.op("VMOVDQU Y%d, %d(DX)", d, 64*d+32*half)
		}
	}
	for i := range 2 {
		for v := range 2 {
			if i == 0 {
				f.op("VPAND Y10, Y%d, Y%d", 8+v, v)
			} else {
				f.op("VPSRLD $16, Y%d, Y%d", 8+v, v)
			}
		}
		f.op("VPACKUSDW Y1, Y0, Y0") // rows 0-3, 8-11, 4-7, 12-15
		f.op("VPERMQ $0xd8, Y0, Y0")
		f.op("VMOVDQU Y0, %d(DX)", 32*i)
	}
	for _, b := range bases {
		f.op("ADDQ $16, %s", b)
	}
	f.op("ADDQ $%d, DX", 64+3*64)
	f.op("MOVQ packArgs_dwords(BX), CX")
	f.op("SUBQ $3, CX")
	f.at(chunks)
	f.at(chunk)
	f.op("CMPQ CX, $4")
	f.op("JLT %s", last)
	fetch(4)
	for half := range 2 {
		columns(half)
		for d := range 4 {
			f.op("VMOVDQU Y%d, %d(DX)", d, 64*d+32*half)
		}
	}
	f.op("ADDQ $256, DX")
	for _, b := range bases {
		f.op("ADDQ $16, %s", b)
	}
	f.op("SUBQ $4, CX")
	f.op("JMP %s", chunk)
	f.at(last)
	f.op("TESTQ CX, CX")
	f.op("JEQ %s", end)
	f.op("SUBQ $4, CX") // −1 to −3 columns: back by as many
	f.op("MOVQ CX, AX")
	f.op("SHLQ $6, AX")
	f.op("ADDQ AX, DX")
	for _, b := range bases {
		f.op("LEAQ (%s)(CX*4), %s", b, b)
	}
	f.op("MOVQ $4, CX")
	f.op("JMP %s", chunk)
	f.at(end)
	f.op("MOVQ DX, DI")
	f.op("ADDQ packArgs_bytes(BX), R14")
	f.op("DECQ R13")
	f.op("JNE %s", block)
	f.ret()
}
