package main

// deltaNEON writes kernels.DeltaStep for NEON, as deltaAVX2 does.
//
// R1, R4, R5 are the state, v and o of these lanes, R7 the lanes left; R9 goes down the state's rows, R10 and R11 along k
// and q, R12 counts rows.
func deltaNEON(file *file) {
	f := neon{file}
	const k, q, decay, beta = 24, 25, 30, 31
	f.fn("deltaNEON", "deltaArgs", "R0", "is DeltaStep, of a.dv elements.")
	for i, name := range []string{"m", "q", "k", "v", "o", "dk", "dv", "stride"} {
		f.op("MOVD deltaArgs_%s(R0), R%d", name, 1+i)
	}
	f.op("FMOVS deltaArgs_decay(R0), F%d", decay)
	f.op("FMOVS deltaArgs_beta(R0), F%d", beta)
	rows := func(body func()) {
		again := f.label("row")
		f.op("MOVD R1, R9")
		f.op("MOVD R3, R10")
		f.op("MOVD R2, R11")
		f.op("MOVD R6, R12")
		f.at(again)
		f.ldrS(k, 10, 0)
		f.ldrS(q, 11, 0)
		body()
		f.op("ADD R8, R9")
		f.op("ADD $4, R10")
		f.op("ADD $4, R11")
		f.op("SUBS $1, R12")
		f.op("BGT %s", again)
	}
	for _, vectors := range []int{8, 2} {
		again, next := f.label("lanes"), f.label("next")
		f.at(again)
		f.op("CMP $%d, R7", 4*vectors)
		f.op("BLT %s", next)
		for v := range vectors {
			f.movi(v, 0)
		}
		rows(func() {
			for v := range vectors {
				f.ldr(8+v, 9, 16*v)
			}
			for v := range vectors {
				f.byLane("fmul", 8+v, 8+v, decay, 0)
			}
			for v := range vectors {
				f.byLane("fmla", v, 8+v, k, 0)
			}
		})
		for v := range vectors { // δ to registers 0–7
			f.ldr(8+v, 4, 16*v)
			f.three("fsub", "4s", v, 8+v, v)
			f.byLane("fmul", v, v, beta, 0)
			f.movi(8+v, 0)
		}
		rows(func() {
			for v := range vectors {
				f.ldr(16+v, 9, 16*v)
			}
			for v := range vectors {
				f.byLane("fmul", 16+v, 16+v, decay, 0)
			}
			for v := range vectors {
				f.byLane("fmla", 16+v, v, k, 0)
				f.str(16+v, 9, 16*v)
			}
			for v := range vectors {
				f.byLane("fmla", 8+v, 16+v, q, 0)
			}
		})
		for v := range vectors {
			f.str(8+v, 5, 16*v)
		}
		for _, r := range []int{1, 4, 5} {
			f.op("ADD $%d, R%d", 16*vectors, r)
		}
		f.op("SUB $%d, R7", 4*vectors)
		f.op("JMP %s", again)
		f.at(next)
	}
	f.ret()
}
