package main

// The activation quantiser for AVX2: rows become records, see kernels/records.go. The largest magnitude is found by
// integer comparison of the bits without sign, where NaN and infinity are largest of all, so the row's largest tells
// whether there was one. VCVTPS2DQ rounds the quotients to nearest even.
//
// Registers: DI record, SI values, DX bytes to the next record, CX columns left, R8 columns left in the record, R9 and
// R10 places in the record; Y15 mask of magnitudes, Y14 the row's largest magnitude, Y13 order of dwords after two packs,
// Y12 bytes of one, Y11 words of one.
func quantiseAVX2(f *file) {
	q := quantiserAVX2{f}
	q.row32()
	q.row256()
}

type quantiserAVX2 struct{ *file }

// quantiseParams are those of a rowQuantiser.
var quantiseParams = []string{"rec *byte DI", "next int DX", "x *float32 SI", "cols int CX"}

func (f quantiserAVX2) constants() {
	f.op("VPBROADCASTD %s, Y15", f.bytes32("magnitude", 0xff, 0xff, 0xff, 0x7f))
	f.op("VPXOR Y14, Y14, Y14")
	f.op("VMOVDQU %s, Y13", f.constant("order", 32, []byte{0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 6, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0}))
	f.op("VPBROADCASTD %s, Y12", f.bytes32("ones8", 1))
	f.op("VPBROADCASTD %s, Y11", f.bytes32("ones16", 1, 0))
}

// largest spreads the largest dword of Y0 to all of X0, by way of X1, and notes it in Y14.
func (f quantiserAVX2) largest() {
	f.op("VPMAXSD Y0, Y14, Y14")
	f.op("VEXTRACTI128 $1, Y0, X1")
	f.op("VPMAXSD X1, X0, X0")
	f.op("VPSHUFD $0x4e, X0, X1")
	f.op("VPMAXSD X1, X0, X0")
	f.op("VPSHUFD $0xb1, X0, X1")
	f.op("VPMAXSD X1, X0, X0")
}

// scale turns the largest magnitude in X0 into d, in the low lane of X0, and id, in all lanes of Y1. Both are zero for a
// magnitude below 2^-100.
func (f quantiserAVX2) scale() {
	c127 := f.bytes32("127", 0, 0, 0xfe, 0x42)
	f.op("VMOVUPS %s, X1", c127)
	f.op("VBLENDPS $2, X1, X0, X2") // amax, 127
	f.op("VBLENDPS $2, X0, X1, X3") // 127, amax
	f.op("VDIVPS X3, X2, X2")
	f.op("VCMPPS $13, %s, X0, X0", f.bytes32("least", 0, 0, 0x80, 0x0d)) // amax >= 2^-100
	f.op("VANDPS X2, X0, X0")
	f.op("VMOVSHDUP X0, X1")
	f.op("VBROADCASTSS X1, Y1")
}

// quotients makes 32 quotients of the values at SI+at, with the inverse scale in Y1, and leaves them as bytes in Y2.
func (f quantiserAVX2) quotients(at int) {
	for i := range 4 {
		f.op("VMULPS %d(SI), Y1, Y%d", at+32*i, 2+i)
	}
	for i := range 4 {
		f.op("VCVTPS2DQ Y%d, Y%d", 2+i, 2+i)
	}
	f.op("VPACKSSDW Y3, Y2, Y2")
	f.op("VPACKSSDW Y5, Y4, Y4")
	f.op("VPACKSSWB Y4, Y2, Y2")
	f.op("VPERMD Y2, Y13, Y2")
}

// quadSums adds the bytes of Y2 in fours: dwords in Y3.
func (f quantiserAVX2) quadSums() {
	f.op("VPMADDUBSW Y2, Y12, Y3")
	f.op("VPMADDWD Y11, Y3, Y3")
}

// end returns the bits of the row's largest magnitude.
func (f quantiserAVX2) end() {
	f.op("VMOVDQA Y14, Y0")
	f.largest()
	f.op("VMOVD X0, AX")
	f.op("MOVL AX, ret+32(FP)")
	f.ret()
}

func (f quantiserAVX2) row32() {
	f.fnOf("quantise32AVX2", "uint32", "quantises a row, see rowQuantiser.", quantiseParams...)
	f.constants()
	record, block, done := f.label("record"), f.label("block"), f.label("done")
	f.at(record)
	f.op("TESTQ CX, CX")
	f.op("JLE %s", done)
	f.op("MOVQ $256, R8")
	f.op("CMPQ CX, R8")
	f.op("CMOVQLT CX, R8")
	f.op("SUBQ R8, CX")
	f.op("MOVQ DI, R9")
	f.op("LEAQ %d(DI), R10", rec32D)
	f.op("ADDQ DX, DI")
	f.at(block)
	f.op("VPAND (SI), Y15, Y0")
	for i := 1; i < 4; i++ {
		f.op("VPAND %d(SI), Y15, Y%d", 32*i, i)
	}
	f.op("VPMAXSD Y1, Y0, Y0")
	f.op("VPMAXSD Y3, Y2, Y2")
	f.op("VPMAXSD Y2, Y0, Y0")
	f.largest()
	f.scale()
	f.op("VMOVSS X0, (R10)")
	f.quotients(0)
	f.op("VMOVDQU Y2, (R9)")
	f.quadSums()
	f.op("VEXTRACTI128 $1, Y3, X4")
	f.op("VPADDD X4, X3, X3")
	f.op("VPSHUFD $0x4e, X3, X4")
	f.op("VPADDD X4, X3, X3")
	f.op("VPSHUFD $0xb1, X3, X4")
	f.op("VPADDD X4, X3, X3")
	f.op("VMOVD X3, %d(R10)", rec32S-rec32D)
	f.op("VCVTDQ2PS X3, X3")
	f.op("VMULSS X0, X3, X3")
	f.op("VMOVSS X3, %d(R10)", rec32Dsum-rec32D)
	f.op("ADDQ $128, SI")
	f.op("ADDQ $32, R9")
	f.op("ADDQ $4, R10")
	f.op("SUBQ $32, R8")
	f.op("JNE %s", block)
	f.op("JMP %s", record)
	f.at(done)
	f.end()
}

func (f quantiserAVX2) row256() {
	f.fnOf("quantise256AVX2", "uint32", "quantises a row, see rowQuantiser.", quantiseParams...)
	f.constants()
	record, done := f.label("record"), f.label("done")
	f.at(record)
	f.op("TESTQ CX, CX")
	f.op("JLE %s", done)
	for i := range 32 {
		f.op("VPAND %d(SI), Y15, Y%d", 32*i, i%4+4*min(i/4, 1))
		if i >= 4 {
			f.op("VPMAXSD Y%d, Y%d, Y%d", 4+i%4, i%4, i%4)
		}
	}
	f.op("VPMAXSD Y1, Y0, Y0")
	f.op("VPMAXSD Y3, Y2, Y2")
	f.op("VPMAXSD Y2, Y0, Y0")
	f.largest()
	f.scale()
	f.op("VMOVSS X0, %d(DI)", recKD)
	for half := range 2 {
		for b := range 4 {
			at := 128*half + 32*b
			f.quotients(4 * at)
			f.op("VMOVDQU Y2, %d(DI)", at)
			f.quadSums()
			f.op("VMOVDQA Y3, Y%d", 6+b)
		}
		// Sums of 16: of the even ones in the low lane of Y6, of the odd ones in the high lane.
		f.op("VPHADDD Y7, Y6, Y6")
		f.op("VPHADDD Y9, Y8, Y8")
		f.op("VPHADDD Y8, Y6, Y6")
		f.op("VEXTRACTI128 $1, Y6, X7")
		f.op("VPUNPCKLDQ X7, X6, X8")
		f.op("VPUNPCKHDQ X7, X6, X9")
		f.op("VPACKSSDW X9, X8, X8")
		f.op("VMOVDQU X8, %d(DI)", recKSum16+16*half)
		f.op("VPADDD X7, X6, X6")
		f.op("VPACKSSDW X6, X6, X6")
		f.op("VMOVQ X6, %d(DI)", recKSum32+8*half)
	}
	f.op("ADDQ $1024, SI")
	f.op("ADDQ DX, DI")
	f.op("SUBQ $256, CX")
	f.op("JMP %s", record)
	f.at(done)
	f.end()
}
