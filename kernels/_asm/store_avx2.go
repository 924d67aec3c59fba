package main

// storeAVX2 copies the sums of a pass to their places, see storeArgs: row by row, so that each row's outputs, of all
// groups, are written together.
//
// Registers: SI sums of the row, DI outputs of the row, R8 rows left, R9 arguments, R10 groups left, R11 bytes from a
// group's sums to the next's, AX and DX the sums and outputs of the group.
func storeAVX2(f *file) {
	f.fn("storeAVX2", "storeArgs", "R9", "copies sums to outputs, see storeArgs.")
	f.op("MOVQ storeArgs_acc(R9), SI")
	f.op("MOVQ storeArgs_dst(R9), DI")
	f.op("MOVQ storeArgs_rows(R9), R8")
	f.op("MOVQ R8, R11")
	f.op("SHLQ $6, R11")
	row, group := f.label("row"), f.label("group")
	f.at(row)
	f.op("MOVQ SI, AX")
	f.op("MOVQ DI, DX")
	f.op("MOVQ storeArgs_groups(R9), R10")
	f.at(group)
	for v := range 2 {
		f.op("VMOVUPS %d(AX), Y%d", 32*v, v)
		f.op("VMOVUPS Y%d, %d(DX)", v, 32*v)
	}
	f.op("ADDQ R11, AX")
	f.op("ADDQ $64, DX")
	f.op("DECQ R10")
	f.op("JNE %s", group)
	f.op("ADDQ $64, SI")
	f.op("ADDQ storeArgs_stride(R9), DI")
	f.op("DECQ R8")
	f.op("JNE %s", row)
	f.ret()
}
