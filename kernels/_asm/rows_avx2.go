package main

import (
	"fmt"
	"math"
)

// Elementwise work for AVX2. Every function takes n elements, a multiple of 8 (squaresAVX2: of 16); the Go side does the
// rest. AX counts elements, CX has their number; several vectors are in flight at once, then one at a time.

func rowsAVX2(f *file) {
	r := elementsAVX2{f}
	r.squares()
	r.norm()
	r.scale()
	r.add()
	r.mulAdd()
	r.exps()
	r.gates()
	r.silus()
	r.ropes()
	r.finite()
	r.halves()
	r.largest()
}

type elementsAVX2 struct{ *file }

// at4 and at2 are the places of vector v of 4-byte and of 2-byte elements.
func at4(base string, v int) string { return fmt.Sprintf("%d(%s)(AX*4)", 32*v, base) }
func at2(base string, v int) string { return fmt.Sprintf("%d(%s)(AX*2)", 16*v, base) }

// loop calls body for as many vectors at once as each size says, in turn, until CX elements are done.
func (f elementsAVX2) loop(body func(vectors int), sizes ...int) {
	f.op("XORQ AX, AX")
	for _, s := range sizes {
		again, next := f.label("again"), f.label("next")
		f.op("LEAQ %d(CX), R8", -8*s)
		f.at(again)
		f.op("CMPQ AX, R8")
		f.op("JGT %s", next)
		body(s)
		f.op("ADDQ $%d, AX", 8*s)
		f.op("JMP %s", again)
		f.at(next)
	}
}

func (f elementsAVX2) squares() {
	f.fnOf("squaresAVX2", "float32", "returns the sum of squares in 16 lanes, folded.", "x *float32 SI", "n int CX")
	f.op("VXORPS Y0, Y0, Y0")
	f.op("VXORPS Y1, Y1, Y1")
	f.loop(func(vectors int) {
		for v := range vectors {
			f.op("VMOVUPS %s, Y%d", at4("SI", v), 2+v)
		}
		for v := range vectors {
			f.op("VFMADD231PS Y%d, Y%d, Y%d", 2+v, 2+v, v%2)
		}
	}, 8, 2)
	f.op("VADDPS Y1, Y0, Y0") // 8-4-2-1
	f.op("VEXTRACTF128 $1, Y0, X1")
	f.op("VADDPS X1, X0, X0")
	f.op("VPSHUFD $0x4e, X0, X1")
	f.op("VADDPS X1, X0, X0")
	f.op("VPSHUFD $0xb1, X0, X1")
	f.op("VADDSS X1, X0, X0")
	f.op("VMOVSS X0, ret+16(FP)")
	f.ret()
}

func (f elementsAVX2) norm() {
	f.fnOf("normAVX2", "", "sets dst[i] = round(round(x[i]·s)·w[i]).", "dst *float32 DI", "x *float32 SI", "w *float32 DX", "n int CX", "s float32 Y15")
	f.loop(func(vectors int) {
		for v := range vectors {
			f.op("VMULPS %s, Y15, Y%d", at4("SI", v), v)
		}
		for v := range vectors {
			f.op("VMULPS %s, Y%d, Y%d", at4("DX", v), v, v)
			f.op("VMOVUPS Y%d, %s", v, at4("DI", v))
		}
	}, 4, 1)
	f.ret()
}

func (f elementsAVX2) scale() {
	f.fnOf("scaleAVX2", "", "sets dst[i] = round(x[i]·s).", "dst *float32 DI", "x *float32 SI", "n int CX", "s float32 Y15")
	f.loop(func(vectors int) {
		for v := range vectors {
			f.op("VMULPS %s, Y15, Y%d", at4("SI", v), v)
		}
		for v := range vectors {
			f.op("VMOVUPS Y%d, %s", v, at4("DI", v))
		}
	}, 4, 1)
	f.ret()
}

func (f elementsAVX2) add() {
	f.fnOf("addAVX2", "", "sets dst[i] = a[i] + b[i].", "dst *float32 DI", "a *float32 SI", "b *float32 DX", "n int CX")
	f.loop(func(vectors int) {
		for v := range vectors {
			f.op("VMOVUPS %s, Y%d", at4("SI", v), v)
		}
		for v := range vectors {
			f.op("VADDPS %s, Y%d, Y%d", at4("DX", v), v, v)
		}
		for v := range vectors {
			f.op("VMOVUPS Y%d, %s", v, at4("DI", v))
		}
	}, 4, 1)
	f.ret()
}

func (f elementsAVX2) mulAdd() {
	f.fnOf("mulAddAVX2", "", "sets dst[i] = FMA(a[i], b[i], dst[i]).", "dst *float32 DI", "a *float32 SI", "b *float32 DX", "n int CX")
	f.loop(func(vectors int) {
		for v := range vectors {
			f.op("VMOVUPS %s, Y%d", at4("SI", v), v)
			f.op("VMOVUPS %s, Y%d", at4("DI", v), 4+v)
		}
		for v := range vectors {
			f.op("VFMADD231PS %s, Y%d, Y%d", at4("DX", v), v, 4+v)
			f.op("VMOVUPS Y%d, %s", 4+v, at4("DI", v))
		}
	}, 4, 1)
	f.ret()
}

func (f elementsAVX2) exps() {
	f.fnOf("expsAVX2", "", "sets dst[i] = Exp(x[i]).", "dst *float32 DI", "x *float32 SI", "n int CX")
	f.loop(func(vectors int) {
		var regs []expRegs
		for v := range vectors {
			r := expRegs{sprintf("Y%d", 3*v), sprintf("Y%d", 3*v+1), sprintf("Y%d", 3*v+2)}
			regs = append(regs, r)
			f.op("VMOVUPS %s, %s", at4("SI", v), r.x)
		}
		f.exp(false, regs...)
		for v, r := range regs {
			f.op("VMOVUPS %s, %s", r.x, at4("DI", v))
		}
	}, 4, 1)
	f.ret()
}

// gates writes MulSiLU, MulGELU and MulSigmoid: x / (1 + exp(−y)), times up, where y is x itself for SiLU; Sigmoid has 1
// for x.
func (f elementsAVX2) gates() {
	const c1 = 1.5957691216057308 // of kernels.GELU, as is c3
	const c3 = 0.044715 * c1
	for _, name := range []string{"SiLU", "GELU", "Sigmoid"} {
		f.fnOf("mul"+name+"AVX2", "", fmt.Sprintf("sets dst[i] = round(%s(gate[i])·up[i]).", name), "dst *float32 DI", "gate *float32 SI", "up *float32 DX", "n int CX")
		f.loop(func(vectors int) {
			var regs []expRegs
			for v := range vectors {
				r := expRegs{sprintf("Y%d", 3*v), sprintf("Y%d", 3*v+1), sprintf("Y%d", 3*v+2)}
				regs = append(regs, r)
				f.op("VMOVUPS %s, %s", at4("SI", v), r.x)
				if name == "GELU" {
					f.op("VMULPS %s, %s, %s", r.x, r.x, r.t)
					f.op("VMOVUPS %s, %s", f.float("gelu1", c1), r.n)
					f.op("VFMADD132PS %s, %s, %s", f.float("gelu3", c3), r.n, r.t)
					f.op("VMULPS %s, %s, %s", r.t, r.x, r.x)
				}
			}
			f.logistic(regs, name != "Sigmoid")
			for v, r := range regs {
				f.op("VMULPS %s, %s, %s", at4("DX", v), r.x, r.x)
				f.op("VMOVUPS %s, %s", r.x, at4("DI", v))
			}
		}, 4, 1)
		f.ret()
	}
}

// logistic emits x = numerator / (1 + exp(−x)) over regs; the numerator is the value in memory at SI, or 1.
func (f elementsAVX2) logistic(regs []expRegs, value bool) {
	for _, r := range regs {
		f.op("VXORPS %s, %s, %s", f.float("sign", float32(math.Copysign(0, -1))), r.x, r.x)
	}
	f.exp(false, regs...)
	for v, r := range regs {
		f.op("VADDPS %s, %s, %s", f.float("one", 1), r.x, r.x)
		if value {
			f.op("VMOVUPS %s, %s", at4("SI", v), r.t)
		} else {
			f.op("VMOVUPS %s, %s", f.float("one", 1), r.t)
		}
		f.op("VDIVPS %s, %s, %s", r.x, r.t, r.x)
	}
}

func (f elementsAVX2) silus() {
	f.fnOf("silusAVX2", "", "sets dst[i] = SiLU(x[i]).", "dst *float32 DI", "x *float32 SI", "n int CX")
	f.loop(func(vectors int) {
		var regs []expRegs
		for v := range vectors {
			r := expRegs{sprintf("Y%d", 3*v), sprintf("Y%d", 3*v+1), sprintf("Y%d", 3*v+2)}
			regs = append(regs, r)
			f.op("VMOVUPS %s, %s", at4("SI", v), r.x)
		}
		f.logistic(regs, true)
		for v, r := range regs {
			f.op("VMOVUPS %s, %s", r.x, at4("DI", v))
		}
	}, 4, 1)
	f.ret()
}

// ropes writes the two rotations. The head's pairs are a multiple of 8. SI is the head, R9 its bytes, BX heads left.
func (f elementsAVX2) ropes() {
	for _, half := range []bool{false, true} {
		name, doc := "ropeInterleavedAVX2", "rotates pairs (2i, 2i+1) of heads."
		if half {
			name, doc = "ropeHalfAVX2", "rotates pairs (i, i+pairs) of heads."
		}
		f.fnOf(name, "", doc, "x *float32 SI", "heads int BX", "headDim int R9", "pairs int CX", "cos *float32 R10", "sin *float32 R11")
		f.op("SHLQ $2, R9")
		head, done := f.label("head"), f.label("done")
		f.at(head)
		f.op("SUBQ $1, BX")
		f.op("JLT %s", done)
		f.op("LEAQ (SI)(CX*4), DX") // the upper half
		f.loop(func(int) {
			x0, x1 := at4("SI", 0), at4("DX", 0)
			if half {
				f.op("VMOVUPS %s, Y0", x0)
				f.op("VMOVUPS %s, Y1", x1)
				f.op("VMOVUPS %s, Y2", at4("R10", 0))
				f.op("VMOVUPS %s, Y3", at4("R11", 0))
			} else { // pairs 0, 1, 4, 5, 2, 3, 6, 7, and their angles likewise
				x0, x1 = "(SI)(AX*8)", "32(SI)(AX*8)"
				f.op("VMOVUPS %s, Y4", x0)
				f.op("VMOVUPS %s, Y5", x1)
				f.op("VSHUFPS $0x88, Y5, Y4, Y0")
				f.op("VSHUFPS $0xdd, Y5, Y4, Y1")
				f.op("VPERMPD $0xd8, %s, Y2", at4("R10", 0))
				f.op("VPERMPD $0xd8, %s, Y3", at4("R11", 0))
			}
			f.op("VMULPS Y2, Y0, Y4")
			f.op("VMULPS Y3, Y1, Y5")
			f.op("VMULPS Y3, Y0, Y6")
			f.op("VMULPS Y2, Y1, Y7")
			f.op("VSUBPS Y5, Y4, Y4")
			f.op("VADDPS Y7, Y6, Y6")
			if half {
				f.op("VMOVUPS Y4, %s", x0)
				f.op("VMOVUPS Y6, %s", x1)
			} else {
				f.op("VUNPCKLPS Y6, Y4, Y0")
				f.op("VUNPCKHPS Y6, Y4, Y1")
				f.op("VMOVUPS Y0, %s", x0)
				f.op("VMOVUPS Y1, %s", x1)
			}
		}, 1)
		f.op("ADDQ R9, SI")
		f.op("JMP %s", head)
		f.at(done)
		f.ret()
	}
}

// finite finds the largest magnitude by its bits: NaN and infinity are largest of all.
func (f elementsAVX2) finite() {
	f.fnOf("largestBitsAVX2", "uint32", "returns the largest of the values' bits without sign.", "x *float32 SI", "n int CX")
	f.op("VPBROADCASTD %s, Y15", f.bytes32("magnitude", 0xff, 0xff, 0xff, 0x7f))
	for v := range 4 {
		f.op("VPXOR Y%d, Y%d, Y%d", v, v, v)
	}
	f.loop(func(vectors int) {
		for v := range vectors {
			f.op("VPAND %s, Y15, Y%d", at4("SI", v), 4+v)
		}
		for v := range vectors {
			f.op("VPMAXSD Y%d, Y%d, Y%d", 4+v, v%4, v%4)
		}
	}, 8, 1)
	f.op("VPMAXSD Y1, Y0, Y0")
	f.op("VPMAXSD Y3, Y2, Y2")
	f.op("VPMAXSD Y2, Y0, Y0")
	f.op("VEXTRACTI128 $1, Y0, X1")
	f.op("VPMAXSD X1, X0, X0")
	f.op("VPSHUFD $0x4e, X0, X1")
	f.op("VPMAXSD X1, X0, X0")
	f.op("VPSHUFD $0xb1, X0, X1")
	f.op("VPMAXSD X1, X0, X0")
	f.op("VMOVD X0, AX")
	f.op("MOVL AX, ret+16(FP)")
	f.ret()
}

// halves writes the conversions of 16-bit floats.
func (f elementsAVX2) halves() {
	// The next values to come are usually those that follow, some time later: see matMulDenseTiles.
	prefetch := func(vectors int) {
		if vectors == 4 {
			f.op("PREFETCHT0 1152(SI)(AX*2)")
		}
	}
	f.fnOf("widenF16AVX2", "", "widens binary16 values.", "dst *float32 DI", "src *byte SI", "n int CX")
	f.loop(func(vectors int) {
		prefetch(vectors)
		for v := range vectors {
			f.op("VCVTPH2PS %s, Y%d", at2("SI", v), v)
		}
		for v := range vectors {
			f.op("VMOVUPS Y%d, %s", v, at4("DI", v))
		}
	}, 4, 1)
	f.ret()

	f.fnOf("widenBF16AVX2", "", "widens bfloat16 values.", "dst *float32 DI", "src *byte SI", "n int CX")
	f.loop(func(vectors int) {
		prefetch(vectors)
		for v := range vectors {
			f.op("VPMOVZXWD %s, Y%d", at2("SI", v), v)
		}
		for v := range vectors {
			f.op("VPSLLD $16, Y%d, Y%d", v, v)
			f.op("VMOVUPS Y%d, %s", v, at4("DI", v))
		}
	}, 4, 1)
	f.ret()

	// The operand order of the bounds lets NaN through.
	f.fnOf("clampF16AVX2", "", "rounds to binary16 within ±65504.", "dst *uint16 DI", "src *float32 SI", "n int CX")
	f.op("VMOVUPS %s, Y15", f.float("mostF16", 65504))
	f.op("VMOVUPS %s, Y14", f.float("leastF16", -65504))
	f.loop(func(vectors int) {
		for v := range vectors {
			f.op("VMINPS %s, Y15, Y%d", at4("SI", v), v)
			f.op("VMAXPS Y%d, Y14, Y%d", v, v)
		}
		for v := range vectors {
			f.op("VCVTPS2PH $0, Y%d, %s", v, at2("DI", v))
		}
	}, 4, 1)
	f.ret()
}

// largest writes the two halves of a search for the largest value.
func (f elementsAVX2) largest() {
	f.fnOf("largestAVX2", "float32", "returns the largest of n > 0 values without NaN.", "x *float32 SI", "n int CX")
	for v := range 4 {
		f.op("VMOVUPS (SI), Y%d", v)
	}
	f.loop(func(vectors int) {
		for v := range vectors {
			f.op("VMAXPS %s, Y%d, Y%d", at4("SI", v), v%4, v%4)
		}
	}, 8, 1)
	f.op("VMAXPS Y1, Y0, Y0")
	f.op("VMAXPS Y3, Y2, Y2")
	f.op("VMAXPS Y2, Y0, Y0")
	f.op("VEXTRACTF128 $1, Y0, X1")
	f.op("VMAXPS X1, X0, X0")
	f.op("VPSHUFD $0x4e, X0, X1")
	f.op("VMAXPS X1, X0, X0")
	f.op("VPSHUFD $0xb1, X0, X1")
	f.op("VMAXPS X1, X0, X0")
	f.op("VMOVSS X0, ret+16(FP)")
	f.ret()

	f.fnOf("seekAVX2", "int", "returns the start of the first eight values with one >= least, or n.", "x *float32 SI", "n int CX", "least float32 Y15")
	found, step := f.label("found"), f.label("step")
	f.loop(func(vectors int) {
		for v := range vectors {
			f.op("VCMPPS $2, %s, Y15, Y%d", at4("SI", v), v) // least <= x
		}
		if vectors > 1 {
			f.op("VORPS Y1, Y0, Y4")
			f.op("VORPS Y3, Y2, Y5")
			f.op("VORPS Y5, Y4, Y4")
			f.op("VPTEST Y4, Y4")
			f.op("JNE %s", step)
			return
		}
		f.op("VMOVMSKPS Y0, DX")
		f.op("TESTQ DX, DX")
		f.op("JNE %s", found)
	}, 4, 1)
	f.op("JMP %s", found)
	f.at(step)
	for v := range 3 {
		f.op("VMOVMSKPS Y%d, DX", v)
		f.op("TESTQ DX, DX")
		f.op("JNE %s", found)
		f.op("ADDQ $8, AX")
	}
	f.at(found)
	f.op("MOVQ AX, ret+24(FP)")
	f.ret()
}
