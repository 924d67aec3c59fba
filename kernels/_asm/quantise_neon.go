package main

// The activation quantiser for NEON: rows become records, see kernels/records.go. The largest magnitude is found by
// integer comparison of the bits without sign, where NaN and infinity are largest of all, so the row's largest tells
// whether there was one. FCVTNS rounds the quotients to nearest even.
//
// Registers: R0 record, R2 bytes to the next, R1 values, R5 columns left, R6 columns left in the record, R7 and R8 places
// in the record; 31 sign bits, 30 the row's largest magnitude, 29 has 127, 28 has 2^-100.
func quantiseNEON(f *file) {
	q := quantiserNEON{neon{f}}
	q.row32()
	q.row256()
}

type quantiserNEON struct{ neon }

// neonQuantiseParams are those of a rowQuantiser.
var neonQuantiseParams = []string{"rec *byte R0", "next int R2", "x *float32 R1", "cols int R5"}

func (f quantiserNEON) constants() {
	f.signs(31)
	f.movi(30, 0)
	f.floats(29, "127", 127)
	f.floats(28, "least", 0x1p-100)
}

// magnitudes brings the largest magnitudes of n vectors at offset(R1) to register 0. Registers up to 7 are lost.
func (f quantiserNEON) magnitudes(n, offset int) {
	for v := range n {
		f.ldr(v, 1, offset+16*v)
	}
	for v := range n {
		f.three("bic", "16b", v, v, 31)
	}
	for ; n > 1; n /= 2 {
		for v := range n / 2 {
			f.three("umax", "4s", v, v, v+n/2)
		}
	}
}

// scale turns the largest magnitudes in the lanes of register 0 into d, in register 0, and id, in 1, all lanes alike.
// Both are zero for a magnitude below 2^-100.
func (f quantiserNEON) scale() {
	f.three("umax", "4s", 30, 30, 0)
	f.across("umaxv", 0, 0)
	f.dup("4s", 0, 0, 0)
	f.three("fdiv", "4s", 1, 29, 0)
	f.three("fcmge", "4s", 2, 0, 28)
	f.three("fdiv", "4s", 0, 0, 29)
	f.three("and", "16b", 0, 0, 2)
	f.three("and", "16b", 1, 1, 2)
}

// quotients makes 32 quotients of the values at offset(R1), with the inverse scale in register 1: integers in 8 to 15,
// bytes in 16 and 17. Registers 18 to 21 are lost.
func (f quantiserNEON) quotients(offset int) {
	for v := range 8 {
		f.ldr(8+v, 1, offset+16*v)
	}
	for v := range 8 {
		f.three("fmul", "4s", 8+v, 8+v, 1)
	}
	for v := range 8 {
		f.two("fcvtns", "4s", 8+v, 8+v)
	}
	for v := range 8 {
		f.xtn("4h", 18+v/2, 8+v, v%2 == 1)
	}
	for v := range 4 {
		f.xtn("8b", 16+v/2, 18+v, v%2 == 1)
	}
}

// end returns the bits of the row's largest magnitude.
func (f quantiserNEON) end() {
	f.across("umaxv", 0, 30)
	f.op("FMOVS F0, R0")
	f.op("MOVW R0, ret+32(FP)")
	f.ret()
}

func (f quantiserNEON) row32() {
	f.fnOf("quantise32NEON", "uint32", "quantises a row, see rowQuantiser.", neonQuantiseParams...)
	f.constants()
	record, block, done := f.label("record"), f.label("block"), f.label("done")
	f.at(record)
	f.op("CMP $0, R5")
	f.op("BLE %s", done)
	f.op("MOVD $256, R6")
	f.op("CMP R6, R5")
	f.op("CSEL LT, R5, R6, R6")
	f.op("SUB R6, R5")
	f.op("MOVD R0, R7")
	f.op("MOVD R0, R8")
	f.op("ADD R2, R0")
	f.at(block)
	f.magnitudes(8, 0)
	f.scale()
	f.strS(0, 8, rec32D)
	f.quotients(0)
	f.str(16, 7, 0)
	f.str(17, 7, 16)
	for n := 4; n > 0; n /= 2 {
		for v := range n {
			f.three("add", "4s", 8+v, 8+v, 8+v+n)
		}
	}
	f.across("addv", 8, 8)
	f.strS(8, 8, rec32S)
	f.two("scvtf", "4s", 8, 8)
	f.three("fmul", "4s", 8, 8, 0)
	f.strS(8, 8, rec32Dsum)
	f.op("ADD $128, R1")
	f.op("ADD $32, R7")
	f.op("ADD $4, R8")
	f.op("SUBS $32, R6")
	f.op("BNE %s", block)
	f.op("JMP %s", record)
	f.at(done)
	f.end()
}

func (f quantiserNEON) row256() {
	f.fnOf("quantise256NEON", "uint32", "quantises a row, see rowQuantiser.", neonQuantiseParams...)
	f.constants()
	record, done := f.label("record"), f.label("done")
	f.at(record)
	f.op("CMP $0, R5")
	f.op("BLE %s", done)
	for i := range 8 {
		f.magnitudes(8, 128*i)
		if i == 0 {
			f.mov(8, 0)
		} else {
			f.three("umax", "4s", 8, 8, 0)
		}
	}
	f.mov(0, 8)
	f.scale()
	f.strS(0, 0, recKD)
	for i := range 8 {
		f.quotients(128 * i)
		for half := range 2 {
			f.str(16+half, 0, 32*i+16*half)
			f.saddlv(18, 16+half)
			f.strH(18, 0, recKSum16+4*i+2*half)
		}
	}
	f.ldr(16, 0, recKSum16)
	f.ldr(17, 0, recKSum16+16)
	f.three("addp", "8h", 16, 16, 17)
	f.str(16, 0, recKSum32)
	f.op("ADD $1024, R1")
	f.op("ADD R2, R0")
	f.op("SUB $256, R5")
	f.op("JMP %s", record)
	f.at(done)
	f.end()
}
