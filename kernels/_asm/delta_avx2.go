package main

// deltaAVX2 writes kernels.DeltaStep for AVX2. Lanes are elements of the value. Of 32 at a time the state is read twice: from
// memory for the sums, and from L1 for its update.
//
// SI, R10, R11 are the state, v and o of these lanes, R13 the lanes left; DX goes down the state's rows, AX counts them.
func deltaAVX2(f *file) {
	f.fn("deltaAVX2", "deltaArgs", "DI", "is DeltaStep, of a.dv elements.")
	for _, r := range [][2]string{{"m", "SI"}, {"q", "R8"}, {"k", "R9"}, {"v", "R10"}, {"o", "R11"}, {"dk", "R12"}, {"dv", "R13"}, {"stride", "BX"}} {
		f.op("MOVQ deltaArgs_%s(DI), %s", r[0], r[1])
	}
	f.op("VBROADCASTSS deltaArgs_decay(DI), Y15")
	f.op("VBROADCASTSS deltaArgs_beta(DI), Y14")
	rows := func(body func()) {
		again := f.label("row")
		f.op("MOVQ SI, DX")
		f.op("XORQ AX, AX")
		f.at(again)
		f.op("VBROADCASTSS (R9)(AX*4), Y8")
		body()
		f.op("ADDQ BX, DX")
		f.op("INCQ AX")
		f.op("CMPQ AX, R12")
		f.op("JLT %s", again)
	}
	for _, vectors := range []int{4, 1} {
		again, next := f.label("lanes"), f.label("next")
		f.at(again)
		f.op("CMPQ R13, $%d", 8*vectors)
		f.op("JLT %s", next)
		for v := range vectors {
			f.op("VXORPS Y%d, Y%d, Y%d", v, v, v)
		}
		rows(func() {
			for v := range vectors {
				f.op("VMULPS %d(DX), Y15, Y%d", 32*v, 4+v)
			}
			for v := range vectors {
				f.op("VFMADD231PS Y%d, Y8, Y%d", 4+v, v)
			}
		})
		for v := range vectors { // δ to Y0–Y3
			f.op("VMOVUPS %d(R10), Y%d", 32*v, 4+v)
			f.op("VSUBPS Y%d, Y%d, Y%d", v, 4+v, v)
			f.op("VMULPS Y%d, Y14, Y%d", v, v)
			f.op("VXORPS Y%d, Y%d, Y%d", 4+v, 4+v, 4+v)
		}
		rows(func() {
			f.op("VBROADCASTSS (R8)(AX*4), Y9")
			for v := range vectors {
				f.op("VMULPS %d(DX), Y15, Y%d", 32*v, 10+v)
			}
			for v := range vectors {
				f.op("VFMADD231PS Y%d, Y8, Y%d", v, 10+v)
			}
			for v := range vectors {
				f.op("VMOVUPS Y%d, %d(DX)", 10+v, 32*v)
				f.op("VFMADD231PS Y%d, Y9, Y%d", 10+v, 4+v)
			}
		})
		for v := range vectors {
			f.op("VMOVUPS Y%d, %d(R11)", 4+v, 32*v)
		}
		for _, r := range []string{"SI", "R10", "R11"} {
			f.op("ADDQ $%d, %s", 32*vectors, r)
		}
		f.op("SUBQ $%d, R13", 8*vectors)
		f.op("JMP %s", again)
		f.at(next)
	}
	f.ret()
}
