package main

// Elementwise work for NEON. Every function takes n elements, a multiple of 8 (squaresNEON: of 16); the Go side does the
// rest. R5 has the number of elements left; several vectors are in flight at once, then two at a time.

func rowsNEON(f *file) {
	r := elementsNEON{neon{f}}
	r.squares()
	r.products()
	r.gates()
	r.ropes()
	r.largestBits()
	r.halves()
	r.largest()
	r.seek()
}

type elementsNEON struct{ neon }

// pointer is a general register that goes along with the elements.
type pointer struct{ reg, bytes int }

// loop calls body for 4·vectors elements at a time, as many as each size says, in turn, until R5 elements are done.
func (f elementsNEON) loop(body func(vectors int), pointers []pointer, sizes ...int) {
	for _, s := range sizes {
		again, next := f.label("again"), f.label("next")
		f.at(again)
		f.op("CMP $%d, R5", 4*s)
		f.op("BLT %s", next)
		body(s)
		for _, p := range pointers {
			f.op("ADD $%d, R%d", 4*s*p.bytes, p.reg)
		}
		f.op("SUB $%d, R5", 4*s)
		f.op("JMP %s", again)
		f.at(next)
	}
}

func (f elementsNEON) squares() {
	f.fnOf("squaresNEON", "float32", "returns the sum of squares in 16 lanes, folded.", "x *float32 R1", "n int R5")
	for v := range 4 {
		f.movi(v, 0)
	}
	f.loop(func(vectors int) {
		for v := range vectors {
			f.ldr(4+v, 1, 16*v)
		}
		for v := range vectors {
			f.three("fmla", "4s", v%4, 4+v, 4+v)
		}
	}, []pointer{{1, 4}}, 8, 4)
	f.three("fadd", "4s", 0, 0, 2) // 8-4-2-1
	f.three("fadd", "4s", 1, 1, 3)
	f.three("fadd", "4s", 0, 0, 1)
	f.fold2()
	f.op("FMOVS F0, ret+16(FP)")
	f.ret()
}

// fold2 adds the four lanes of register 0 to lane 0, 2-1. Register 1 is lost.
func (f neon) fold2() {
	f.dup("2d", 1, 0, 1)
	f.three("fadd", "4s", 0, 0, 1)
	f.dup("4s", 1, 0, 1)
	f.three("fadd", "4s", 0, 0, 1)
}

// products writes what is a product or a sum of elements.
func (f elementsNEON) products() {
	f.fnOf("normNEON", "", "sets dst[i] = round(round(x[i]·s)·w[i]).", "dst *float32 R0", "x *float32 R1", "w *float32 R2", "n int R5", "s float32 F31")
	f.loop(func(vectors int) {
		for v := range vectors {
			f.ldr(v, 1, 16*v)
			f.ldr(8+v, 2, 16*v)
		}
		for v := range vectors {
			f.byLane("fmul", v, v, 31, 0)
		}
		for v := range vectors {
			f.three("fmul", "4s", v, v, 8+v)
			f.str(v, 0, 16*v)
		}
	}, []pointer{{0, 4}, {1, 4}, {2, 4}}, 8, 2)
	f.ret()

	f.fnOf("scaleNEON", "", "sets dst[i] = round(x[i]·s).", "dst *float32 R0", "x *float32 R1", "n int R5", "s float32 F31")
	f.loop(func(vectors int) {
		for v := range vectors {
			f.ldr(v, 1, 16*v)
		}
		for v := range vectors {
			f.byLane("fmul", v, v, 31, 0)
			f.str(v, 0, 16*v)
		}
	}, []pointer{{0, 4}, {1, 4}}, 8, 2)
	f.ret()

	f.fnOf("mulAddNEON", "", "sets dst[i] = FMA(a[i], b[i], dst[i]).", "dst *float32 R0", "a *float32 R1", "b *float32 R2", "n int R5")
	f.loop(func(vectors int) {
		for v := range vectors {
			f.ldr(v, 1, 16*v)
			f.ldr(8+v, 2, 16*v)
			f.ldr(16+v, 0, 16*v)
		}
		for v := range vectors {
			f.three("fmla", "4s", 16+v, v, 8+v)
			f.str(16+v, 0, 16*v)
		}
	}, []pointer{{0, 4}, {1, 4}, {2, 4}}, 8, 2)
	f.ret()

	f.fnOf("addNEON", "", "sets dst[i] = a[i] + b[i].", "dst *float32 R0", "a *float32 R1", "b *float32 R2", "n int R5")
	f.loop(func(vectors int) {
		for v := range vectors {
			f.ldr(v, 1, 16*v)
			f.ldr(8+v, 2, 16*v)
		}
		for v := range vectors {
			f.three("fadd", "4s", v, v, 8+v)
			f.str(v, 0, 16*v)
		}
	}, []pointer{{0, 4}, {1, 4}, {2, 4}}, 8, 2)
	f.ret()
}

// gates writes MulSiLU, MulGELU and MulSigmoid, and SiLUs: x / (1 + exp(−y)), times up, where y is x itself for SiLU;
// Sigmoid has 1 for x, SiLUs no up.
func (f elementsNEON) gates() {
	const c1 = 1.5957691216057308 // of kernels.GELU, as is c3
	const c3 = 0.044715 * c1
	for _, name := range []string{"mulSiLU", "mulGELU", "mulSigmoid", "silus"} {
		doc, params, pointers := sprintf("sets dst[i] = round(%s(gate[i])·up[i]).", name[len("mul"):]), []string{"dst *float32 R0", "gate *float32 R1", "up *float32 R2", "n int R5"}, []pointer{{0, 4}, {1, 4}, {2, 4}}
		if name == "silus" {
			doc, params, pointers = "sets dst[i] = SiLU(x[i]).", []string{"dst *float32 R0", "x *float32 R1", "n int R5"}, []pointer{{0, 4}, {1, 4}}
		}
		f.fnOf(name+"NEON", "", doc, params...)
		e := f.newExp(16)
		if name == "mulGELU" {
			f.floats(30, "gelu1", c1)
			f.floats(31, "gelu3", c3)
		}
		f.loop(func(vectors int) {
			var sets [][4]int
			for v := range vectors {
				x, t, n := 4*v, 4*v+1, 4*v+2
				sets = append(sets, [4]int{x, t, n, 4*v + 3})
				f.ldr(x, 1, 16*v)
				if name == "mulGELU" {
					f.three("fmul", "4s", t, x, x)
					f.mov(n, 30)
					f.three("fmla", "4s", n, t, 31)
					f.three("fmul", "4s", x, x, n)
				}
				f.two("fneg", "4s", x, x)
			}
			e.exp(false, sets...)
			for v, s := range sets {
				f.three("fadd", "4s", s[0], s[0], e.one)
				numerator := s[1]
				if name == "mulSigmoid" {
					numerator = e.one
				} else {
					f.ldr(numerator, 1, 16*v)
				}
				if name != "silus" {
					f.ldr(s[2], 2, 16*v)
				}
				f.three("fdiv", "4s", s[0], numerator, s[0])
			}
			for v, s := range sets {
				if name != "silus" {
					f.three("fmul", "4s", s[0], s[0], s[2])
				}
				f.str(s[0], 0, 16*v)
			}
		}, pointers, 4, 2)
		f.ret()
	}
}

// ropes writes the two rotations. The head's pairs are a multiple of 8.
func (f elementsNEON) ropes() {
	for _, half := range []bool{false, true} {
		name, doc := "ropeInterleavedNEON", "rotates pairs (2i, 2i+1) of heads."
		if half {
			name, doc = "ropeHalfNEON", "rotates pairs (i, i+pairs) of heads."
		}
		f.fnOf(name, "", doc, "x *float32 R0", "heads int R6", "headDim int R7", "pairs int R8", "cos *float32 R9", "sin *float32 R10")
		head, done := f.label("head"), f.label("done")
		f.at(head)
		f.op("SUBS $1, R6")
		f.op("BLT %s", done)
		f.op("MOVD R0, R1")
		f.op("ADD R8<<2, R0, R2") // the upper half
		f.op("MOVD R9, R3")
		f.op("MOVD R10, R4")
		f.op("MOVD R8, R5")
		along := []pointer{{1, 8}, {3, 4}, {4, 4}}
		if half {
			along = []pointer{{1, 4}, {2, 4}, {3, 4}, {4, 4}}
		}
		f.loop(func(vectors int) {
			for v := range vectors {
				x0, x1, c, s, a, b := 8*v, 8*v+1, 8*v+2, 8*v+3, 8*v+4, 8*v+5
				if half {
					f.ldr(x0, 1, 16*v)
					f.ldr(x1, 2, 16*v)
				} else {
					f.ldr(a, 1, 32*v)
					f.ldr(b, 1, 32*v+16)
					f.three("uzp1", "4s", x0, a, b)
					f.three("uzp2", "4s", x1, a, b)
				}
				f.ldr(c, 3, 16*v)
				f.ldr(s, 4, 16*v)
				f.three("fmul", "4s", a, x0, c)
				f.three("fmul", "4s", b, x1, s)
				f.three("fmul", "4s", x0, x0, s)
				f.three("fmul", "4s", x1, x1, c)
				f.three("fsub", "4s", a, a, b)
				f.three("fadd", "4s", b, x0, x1)
				if half {
					f.str(a, 1, 16*v)
					f.str(b, 2, 16*v)
				} else {
					f.three("zip1", "4s", x0, a, b)
					f.three("zip2", "4s", x1, a, b)
					f.str(x0, 1, 32*v)
					f.str(x1, 1, 32*v+16)
				}
			}
		}, along, 2)
		f.op("ADD R7<<2, R0")
		f.op("JMP %s", head)
		f.at(done)
		f.ret()
	}
}

// signs loads the sign bit of four floats.
func (f neon) signs(t int) { f.movi32(t, 0x80, 24) }

// largestBits finds the largest magnitude by its bits: NaN and infinity are largest of all.
func (f elementsNEON) largestBits() {
	f.fnOf("largestBitsNEON", "uint32", "returns the largest of the values' bits without sign.", "x *float32 R1", "n int R5")
	f.signs(31)
	for v := range 4 {
		f.movi(v, 0)
	}
	f.loop(func(vectors int) {
		for v := range vectors {
			f.ldr(4+v, 1, 16*v)
		}
		for v := range vectors {
			f.three("bic", "16b", 4+v, 4+v, 31)
		}
		for v := range vectors {
			f.three("umax", "4s", v%4, v%4, 4+v)
		}
	}, []pointer{{1, 4}}, 8, 2)
	f.three("umax", "4s", 0, 0, 1)
	f.three("umax", "4s", 2, 2, 3)
	f.three("umax", "4s", 0, 0, 2)
	f.across("umaxv", 0, 0)
	f.op("FMOVS F0, R0")
	f.op("MOVW R0, ret+16(FP)")
	f.ret()
}

// halves writes the conversions of 16-bit floats.
func (f elementsNEON) halves() {
	for _, name := range []string{"F16", "BF16"} {
		f.fnOf("widen"+name+"NEON", "", "widens 16-bit floats.", "dst *float32 R0", "src *byte R1", "n int R5")
		widen := f.fcvtl
		if name == "BF16" {
			widen = f.shll
		}
		f.loop(func(vectors int) {
			for v := range vectors / 2 {
				f.ldr(v, 1, 16*v)
			}
			for v := range vectors / 2 {
				widen(8+2*v, v, false)
				widen(9+2*v, v, true)
				f.str(8+2*v, 0, 32*v)
				f.str(9+2*v, 0, 32*v+16)
			}
		}, []pointer{{0, 4}, {1, 2}}, 8, 2)
		f.ret()
	}

	// Bounds keep NaN.
	f.fnOf("clampF16NEON", "", "rounds to binary16 within ±65504.", "dst *uint16 R0", "src *float32 R1", "n int R5")
	f.floats(31, "mostF16", 65504)
	f.floats(30, "leastF16", -65504)
	f.loop(func(vectors int) {
		for v := range vectors {
			f.ldr(v, 1, 16*v)
		}
		for v := range vectors {
			f.three("fmin", "4s", v, v, 31)
			f.three("fmax", "4s", v, v, 30)
		}
		for v := range vectors / 2 {
			f.fcvtn(8+v, 2*v, false)
			f.fcvtn(8+v, 2*v+1, true)
			f.str(8+v, 0, 16*v)
		}
	}, []pointer{{0, 2}, {1, 4}}, 8, 2)
	f.ret()
}

func (f elementsNEON) largest() {
	f.fnOf("largestNEON", "float32", "returns the largest of n > 0 values without NaN.", "x *float32 R1", "n int R5")
	for v := range 4 {
		f.ldr(v, 1, 0)
	}
	f.loop(func(vectors int) {
		for v := range vectors {
			f.ldr(4+v, 1, 16*v)
		}
		for v := range vectors {
			f.three("fmax", "4s", v%4, v%4, 4+v)
		}
	}, []pointer{{1, 4}}, 8, 2)
	f.three("fmax", "4s", 0, 0, 1)
	f.three("fmax", "4s", 2, 2, 3)
	f.three("fmax", "4s", 0, 0, 2)
	f.across("fmaxv", 0, 0)
	f.op("FMOVS F0, ret+16(FP)")
	f.ret()
}

func (f elementsNEON) seek() {
	f.fnOf("seekNEON", "int", "returns the start of the first eight values with one >= least, or n.", "x *float32 R1", "n int R5", "least float32 F31")
	f.dup("4s", 31, 31, 0)
	f.op("MOVD R5, R6")
	found := f.label("found")
	for _, s := range []int{8, 2} {
		again, next := f.label("again"), f.label("next")
		f.at(again)
		f.op("CMP $%d, R5", 4*s)
		f.op("BLT %s", next)
		for v := range s {
			f.ldr(v, 1, 16*v)
			f.three("fcmge", "4s", v, v, 31)
		}
		for n := s / 2; n > 0; n /= 2 {
			for v := range n {
				f.three("orr", "16b", v, v, v+n)
			}
		}
		f.across("umaxv", 0, 0)
		f.op("FMOVS F0, R0")
		f.op("CBNZW R0, %s", map[bool]string{true: next, false: found}[s == 8])
		f.op("ADD $%d, R1", 16*s)
		f.op("SUB $%d, R5", 4*s)
		f.op("JMP %s", again)
		f.at(next)
	}
	f.at(found)
	f.op("SUB R5, R6, R0")
	f.op("MOVD R0, ret+24(FP)")
	f.ret()
}
