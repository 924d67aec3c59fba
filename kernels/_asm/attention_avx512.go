package main

import "math"

// Attention for AVX-512: as attention_avx2.go, but a register is a whole tile of 16 lanes. Tiles of rows × lanes are up
// to twelve rows of one register, fewer rows of more.
//
// Registers of the products: as there, but R13 and R12 become the factors of rows 6 and 9 where a tile has as many rows.

func attentionAVX512(f *file) {
	for _, half := range []bool{true, false} {
		attention512{f, half, false}.product()
		attention512{f, half, true}.first()
	}
	attention512{f, false, false}.softmax()
}

// attention512 writes the kernels for one number format of keys and values.
type attention512 struct {
	*file
	half  bool
	panel bool // leave what is widened in a panel
}

func (f attention512) suffix() string {
	if f.half {
		return "F16AVX512"
	}
	return "F32AVX512"
}

// vector is the bytes of 16 stored values.
func (f attention512) vector() int {
	if f.half {
		return 32
	}
	return 64
}

// load widens 16 stored values.
func (f attention512) load(from string, reg int) {
	if f.half {
		f.op("VCVTPH2PS %s, Z%d", from, reg)
	} else {
		f.op("VMOVUPS %s, Z%d", from, reg)
	}
}

// widths512 lists, for a number of rows, how many registers of lanes a tile may have; the first is the fastest.
var widths512 = map[int][]int{1: {4, 2, 1}, 2: {4, 2, 1}, 3: {4, 2, 1}, 4: {4, 2, 1}, 5: {4, 2, 1}, 6: {4, 2, 1}, 7: {2, 1}, 8: {2, 1}, 12: {1}}

// bases are the registers of the factors of rows 0, 3, 6 and 9.
var bases = []string{"AX", "R15", "R13", "R12"}

// product writes attnProduct, of lanes in sixteens.
func (f attention512) product() {
	a := attention{f.file, f.half, f.panel}
	f.fn("attnProduct"+f.suffix(), "attnProductArgs", "R9", "multiplies rows with stored values, see attnProductArgs; lanes in sixteens.")
	a.arguments("a SI", "aStride DX", "dstStride R8", "bStride R10", "bNext R12", "ahead R14")
	f.op("LEAQ (R12)(R12*2), R13")
	f.op("MOVQ attnProductArgs_dst(R9), AX")
	f.op("MOVQ AX, attnProductArgs_row(R9)")
	again, done := f.label("rows"), f.label("done")
	sizes := []int{12, 8, 7, 6, 5, 4, 3, 2, 1}
	if f.half { // more rows have a panel
		sizes = sizes[1:]
	}
	groups := map[int]string{}
	for _, t := range sizes {
		groups[t] = f.label(sprintf("rows%d_", t))
	}
	f.at(again)
	f.op("MOVQ attnProductArgs_rows(R9), AX")
	f.op("TESTQ AX, AX")
	f.op("JLE %s", done)
	f.op("CMPQ AX, $%d", sizes[0])
	f.op("JGE %s", groups[sizes[0]])
	for rows := sizes[0] - 1; rows > 8; rows-- { // halves
		f.op("CMPQ AX, $%d", rows)
		f.op("JEQ %s", groups[(rows+1)/2])
	}
	for _, t := range sizes[1:] {
		f.op("CMPQ AX, $%d", t)
		f.op("JEQ %s", groups[t])
	}
	for _, t := range sizes {
		f.at(groups[t])
		f.op("MOVQ attnProductArgs_b(R9), R11")
		f.op("MOVQ attnProductArgs_row(R9), DI")
		f.op("MOVQ attnProductArgs_lanes(R9), AX")
		f.op("MOVQ AX, attnProductArgs_left(R9)")
		for _, v := range widths512[t] {
			tile, next := f.label("tile"), f.label("next")
			f.at(tile)
			f.op("CMPQ attnProductArgs_left(R9), $%d", 16*v)
			f.op("JLT %s", next)
			f.tile(t, v)
			f.op("ADDQ $%d, DI", 64*v)
			for range v {
				f.op("ADDQ R12, R11")
			}
			f.op("SUBQ $%d, attnProductArgs_left(R9)", 16*v)
			f.op("JMP %s", tile)
			f.at(next)
		}
		f.op("IMUL3Q $%d, DX, AX", t)
		f.op("ADDQ AX, SI")
		f.op("IMUL3Q $%d, R8, AX", t)
		f.op("ADDQ AX, attnProductArgs_row(R9)")
		f.op("SUBQ $%d, attnProductArgs_rows(R9)", t)
		f.op("JMP %s", again)
	}
	f.at(done)
	f.ret()
}

// tile multiplies t rows with 16·v lanes.
func (f attention512) tile(t, v int) {
	f.note("%d rows, %d lanes", t, 16*v)
	for i := range t * v {
		f.op("VPXORD Z%d, Z%d, Z%d", i, i, i)
	}
	f.op("MOVQ SI, AX")
	used := bases[:(t+2)/3]
	for i := 1; i < len(used); i++ {
		f.op("LEAQ (%s)(DX*2), %s", bases[i-1], bases[i])
		f.op("ADDQ DX, %s", bases[i])
	}
	f.op("MOVQ R11, BX")
	const unroll = 4
	bytes := v * f.vector() // of stored values a step
	if f.panel {
		bytes = 64
	}
	advance := func(steps int) {
		for _, base := range used {
			f.op("ADDQ $%d, %s", 4*steps, base)
		}
		f.op("ADDQ $%d, R14", bytes*steps)
		f.op("DECQ CX")
	}
	loop, rest, single, store := f.label("steps"), f.label("rest"), f.label("step"), f.label("store")
	f.op("MOVQ attnProductArgs_n(R9), CX")
	f.op("SHRQ $2, CX")
	f.op("JEQ %s", rest)
	f.at(loop)
	for u := range unroll {
		for at := (bytes*u + 63) / 64 * 64; at < bytes*(u+1) && !f.panel; at += 64 {
			f.op("PREFETCHT1 %d(R14)", at)
		}
		f.step(t, v, u)
	}
	advance(unroll)
	f.op("JNE %s", loop)
	f.at(rest)
	f.op("MOVQ attnProductArgs_n(R9), CX")
	f.op("ANDQ $3, CX")
	f.op("JEQ %s", store)
	f.at(single)
	f.step(t, v, 0)
	advance(1)
	f.op("JNE %s", single)
	f.at(store)
	f.op("VPXORD Z31, Z31, Z31")
	f.op("MOVQ DI, AX")
	for r := range t {
		for i := range v {
			f.op("VADDPS Z31, Z%d, Z%d", r*v+i, r*v+i)
			f.op("VMOVUPS Z%d, %d%s", r*v+i, 64*i, strided("AX", "R8", r%3))
		}
		if r%3 == 2 && r+1 < t {
			f.op("LEAQ (AX)(R8*2), AX")
			f.op("ADDQ R8, AX")
		}
	}
	if t > 6 && !f.panel {
		f.op("MOVQ attnProductArgs_bNext(R9), R12")
		f.op("LEAQ (R12)(R12*2), R13")
	}
}

// step does step u of the unrolled loop for t rows and v registers of lanes, and moves BX on.
func (f attention512) step(t, v, u int) {
	factor := func(r int) string { return sprintf("%d%s", 4*u, strided(bases[r/3], "DX", r%3)) }
	for i := range v {
		from := "(BX)(R13*1)"
		if i < 3 {
			from = strided("BX", "R12", i)
		}
		f.load(from, 28+i)
		if f.panel {
			f.op("VMOVUPS Z%d, %d(R14)", 28+i, 64*u+64*i)
		}
	}
	for r := range t {
		if v == 1 {
			f.op("VFMADD231PS.BCST %s, Z28, Z%d", factor(r), r)
			continue
		}
		f.op("VBROADCASTSS %s, Z%d", factor(r), 26+r%2)
		for i := range v {
			f.op("VFMADD231PS Z%d, Z%d, Z%d", 28+i, 26+r%2, r*v+i)
		}
	}
	f.op("ADDQ R10, BX")
}

// first writes attnFirst: a product of six rows and one tile, which also leaves the tile in a panel.
func (f attention512) first() {
	a := attention{f.file, f.half, f.panel}
	f.fn("attnFirst"+f.suffix(), "attnProductArgs", "R9", "multiplies six rows with one tile of 16 and makes it a panel, see attnProductArgs.")
	a.arguments("a SI", "aStride DX", "dst DI", "dstStride R8", "b R11", "bStride R10", "panel R14")
	f.tile(6, 1)
	f.ret()
}

// softmax writes attnSoftmax. Registers: SI scores of the row, BX its span, CX rows left, R10 and R11 first and last
// position, R12 and R13 the span, DX and DI where M and L go; Z31 scale, Z30 M, Z29 the 16 lanes of L.
func (f attention512) softmax() {
	a := attention{f.file, f.half, f.panel}
	f.fn("attnSoftmaxAVX512", "attnSoftmaxArgs", "R9", "turns scores to weights, see attnSoftmaxArgs.")
	f.op("MOVQ attnSoftmaxArgs_s(R9), SI")
	f.op("MOVQ attnSoftmaxArgs_visible(R9), BX")
	f.op("MOVQ attnSoftmaxArgs_rows(R9), CX")
	f.op("MOVQ attnSoftmaxArgs_first(R9), R10")
	f.op("MOVQ attnSoftmaxArgs_last(R9), R11")
	f.op("MOVQ attnSoftmaxArgs_m(R9), DX")
	f.op("MOVQ attnSoftmaxArgs_l(R9), DI")
	f.op("VBROADCASTSS attnSoftmaxArgs_scale(R9), Z31")
	row, next := f.label("row"), f.label("next")
	f.at(row)
	f.op("MOVQ Span_From(BX), R12")
	f.op("MOVQ Span_To(BX), R13")
	f.op("CMPQ R12, R13")
	f.op("JGE %s", next)
	a.fill("R10", "R12")
	a.fill("R13", "R11")

	f.op("VMOVUPS %s, Z0", f.float("lowest", float32(math.Inf(-1))))
	f.op("MOVQ R10, AX")
	most := f.label("most")
	f.at(most)
	f.op("VMULPS (SI)(AX*4), Z31, Z4")
	f.op("VMOVUPS Z4, (SI)(AX*4)")
	f.op("VMAXPS Z4, Z0, Z0")
	f.op("ADDQ $16, AX")
	f.op("CMPQ AX, R11")
	f.op("JLT %s", most)
	f.op("VEXTRACTF64X4 $1, Z0, Y1")
	f.op("VMAXPS Y1, Y0, Y0")
	f.foldTo1("VMAXPS")
	f.op("VXORPS X1, X1, X1")
	f.op("VADDSS X1, X0, X0")
	f.op("VMOVSS X0, (DX)")
	f.op("VBROADCASTSS X0, Z30")

	f.op("VPXORD Z29, Z29, Z29")
	f.op("MOVQ R10, AX")
	for _, n := range []int{4, 1} {
		again, less := f.label("weights"), f.label("less")
		f.at(again)
		f.op("LEAQ %d(AX), R12", 16*n)
		f.op("CMPQ R12, R11")
		f.op("JGT %s", less)
		var regs []expRegs
		for i := range n {
			r := expRegs{sprintf("Z%d", i), sprintf("Z%d", 4+i), sprintf("Z%d", 8+i)}
			f.op("VMOVUPS %d(SI)(AX*4), %s", 64*i, r.x)
			f.op("VSUBPS %s, Z30, %s", r.x, r.x)
			regs = append(regs, r)
		}
		f.expNear("R13", regs...)
		for i, r := range regs {
			f.op("VMOVUPS %s, %d(SI)(AX*4)", r.x, 64*i)
			f.op("VADDPS %s, Z29, Z29", r.x)
		}
		f.op("MOVQ R12, AX")
		f.op("JMP %s", again)
		f.at(less)
	}
	f.op("VEXTRACTF64X4 $1, Z29, Y1")
	f.op("VADDPS Y1, Y29, Y0")
	f.foldTo1("VADDPS")
	f.op("VMOVSS X0, (DI)")

	f.at(next)
	f.op("ADDQ $(4*const_attnStride), SI")
	f.op("ADDQ $Span__size, BX")
	f.op("ADDQ $4, DX")
	f.op("ADDQ $4, DI")
	f.op("DECQ CX")
	f.op("JNE %s", row)
	f.ret()
}
