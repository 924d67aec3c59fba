package main

import (
	"math"
	"strings"
)

// Attention for AVX2, see kernels/attention_product.go for the arguments. Products keep tiles of rows × lanes in
// registers: up to six rows of two registers of eight lanes, fewer rows of more, so that eight to twelve chains hide the
// latency of the fused step.

func attentionAVX2(f *file) {
	for _, half := range []bool{true, false} {
		attention{f, half, false}.product()
		attention{f, half, true}.first()
	}
	a := attention{f, false, false}
	a.softmax()
	a.merge()
	a.finish()
}

// attention writes the kernels for one number format of keys and values.
type attention struct {
	*file
	half  bool
	panel bool // leave what is widened in a panel
}

func (f attention) suffix() string {
	if f.half {
		return "F16AVX2"
	}
	return "F32AVX2"
}

// vector is the bytes of eight stored values.
func (f attention) vector() int {
	if f.half {
		return 16
	}
	return 32
}

// load widens eight stored values.
func (f attention) load(from, reg string) {
	if f.half {
		f.op("VCVTPH2PS %s, %s", from, reg)
	} else {
		f.op("VMOVUPS %s, %s", from, reg)
	}
}

// widths lists, for a number of rows, how many registers of lanes a tile may have; the first is the fastest.
var widths = map[int][]int{1: {8, 4, 2, 1}, 2: {6, 4, 2, 1}, 3: {4, 2, 1}, 4: {2, 1}, 5: {2, 1}, 6: {2, 1}}

// product writes attnProduct. Registers: SI factors of the group of rows, DX their stride; DI destination of the tile, R8
// its stride; R11 stored values of the tile, R10 stride, R12 and R13 one and three times the distance of tiles; R14
// prefetched address, or panel. In a tile: AX and R15 factors of rows 0 and 3, BX stored values, CX steps left.
func (f attention) product() {
	f.fn("attnProduct"+f.suffix(), "attnProductArgs", "R9", "multiplies rows with stored values, see attnProductArgs.")
	f.arguments("a SI", "aStride DX", "dstStride R8", "bStride R10", "bNext R12", "ahead R14")
	f.op("LEAQ (R12)(R12*2), R13")
	f.op("MOVQ attnProductArgs_dst(R9), AX")
	f.op("MOVQ AX, attnProductArgs_row(R9)")
	again, done := f.label("rows"), f.label("done")
	groups := map[int]string{}
	for t := 1; t <= 6; t++ {
		groups[t] = f.label(sprintf("rows%d_", t))
	}
	f.at(again)
	f.op("MOVQ attnProductArgs_rows(R9), AX")
	f.op("TESTQ AX, AX")
	f.op("JLE %s", done)
	for _, c := range []struct {
		rows int
		then int
	}{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {7, 4}, {8, 4}} { // seven are four and three
		f.op("CMPQ AX, $%d", c.rows)
		f.op("JEQ %s", groups[c.then])
	}
	for t := 6; t >= 1; t-- {
		f.at(groups[t])
		f.op("MOVQ attnProductArgs_b(R9), R11")
		f.op("MOVQ attnProductArgs_row(R9), DI")
		f.op("MOVQ attnProductArgs_lanes(R9), AX")
		f.op("MOVQ AX, attnProductArgs_left(R9)")
		for _, v := range widths[t] {
			tile, next := f.label("tile"), f.label("next")
			f.at(tile)
			f.op("CMPQ attnProductArgs_left(R9), $%d", 8*v)
			f.op("JLT %s", next)
			f.tile(t, v)
			f.op("ADDQ $%d, DI", 32*v)
			for range v / 2 {
				f.op("ADDQ R12, R11")
			}
			f.op("SUBQ $%d, attnProductArgs_left(R9)", 8*v)
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

// tile multiplies t rows with 8·v lanes.
func (f attention) tile(t, v int) {
	f.note("%d rows, %d lanes", t, 8*v)
	for i := range t * v {
		f.op("VXORPS Y%d, Y%d, Y%d", i, i, i)
	}
	f.op("MOVQ SI, AX")
	if t > 3 {
		f.op("LEAQ (SI)(DX*2), R15")
		f.op("ADDQ DX, R15")
	}
	f.op("MOVQ R11, BX")
	const unroll = 4
	bytes := v * f.vector() // of stored values a step
	if f.panel {
		bytes = 64
	}
	advance := func(steps int) {
		f.op("ADDQ $%d, AX", 4*steps)
		if t > 3 {
			f.op("ADDQ $%d, R15", 4*steps)
		}
		if t == 3 || t == 4 { // may be one of two groups, which prefetch one half each
			all := f.label("whole")
			f.op("ADDQ $%d, R14", bytes*steps/2)
			f.op("CMPQ attnProductArgs_groups(R9), $1")
			f.op("JNE %s", all)
			f.op("ADDQ $%d, R14", bytes*steps/2)
			f.at(all)
		} else {
			f.op("ADDQ $%d, R14", bytes*steps)
		}
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
	f.op("VXORPS Y15, Y15, Y15")
	if t > 3 {
		f.op("LEAQ (DI)(R8*2), AX")
		f.op("ADDQ R8, AX")
	}
	for r := range t {
		for i := range v {
			f.op("VADDPS Y15, Y%d, Y%d", r*v+i, r*v+i)
			f.op("VMOVUPS Y%d, %d%s", r*v+i, 32*i, strided([]string{"DI", "AX"}[r/3], "R8", r%3))
		}
	}
}

// strided returns the operand of row r, up to 2, from a base.
func strided(base, stride string, r int) string {
	return []string{"(" + base + ")", "(" + base + ")(" + stride + "*1)", "(" + base + ")(" + stride + "*2)"}[r]
}

// step does step u of the unrolled loop for t rows and v registers of lanes, and moves BX on.
func (f attention) step(t, v, u int) {
	factor := func(r int) string { return sprintf("%d%s", 4*u, strided([]string{"AX", "R15"}[r/3], "DX", r%3)) }
	values := func(i int) string {
		tile := "(BX)"
		switch i / 2 {
		case 1, 2:
			tile = strided("BX", "R12", i/2)
		case 3:
			tile = "(BX)(R13*1)"
		}
		return sprintf("%d%s", f.vector()*(i%2), tile)
	}
	if v > 2 { // few rows: their factors stay, lanes pass
		for r := range t {
			f.op("VBROADCASTSS %s, Y%d", factor(r), 15-r)
		}
		for i := range v {
			f.load(values(i), "Y12")
			for r := range t {
				f.op("VFMADD231PS Y12, Y%d, Y%d", 15-r, r*v+i)
			}
		}
	} else {
		for i := range v {
			f.load(values(i), sprintf("Y%d", 12+i))
			if f.panel {
				f.op("VMOVUPS Y%d, %d(R14)", 12+i, 64*u+32*i)
			}
		}
		for r := range t {
			f.op("VBROADCASTSS %s, Y%d", factor(r), 14+r%2)
			for i := range v {
				f.op("VFMADD231PS Y%d, Y%d, Y%d", 12+i, 14+r%2, r*v+i)
			}
		}
	}
	f.op("ADDQ R10, BX")
}

// first writes attnFirst: a product of six rows and one tile, which also leaves the tile in a panel.
func (f attention) first() {
	f.fn("attnFirst"+f.suffix(), "attnProductArgs", "R9", "multiplies six rows with one tile and makes it a panel, see attnProductArgs.")
	f.arguments("a SI", "aStride DX", "dst DI", "dstStride R8", "b R11", "bStride R10", "panel R14")
	one, end := f.label("half"), f.label("end")
	f.op("CMPQ attnProductArgs_lanes(R9), $16")
	f.op("JLT %s", one)
	f.tile(6, 2)
	f.op("JMP %s", end)
	f.at(one)
	f.tile(6, 1)
	f.at(end)
	f.ret()
}

// arguments loads fields of attnProductArgs, each "field register".
func (f attention) arguments(list ...string) {
	for _, a := range list {
		field, reg, _ := strings.Cut(a, " ")
		f.op("MOVQ attnProductArgs_%s(R9), %s", field, reg)
	}
}

// softmax writes attnSoftmax. Registers: SI scores of the row, BX its span, CX rows left, R10 and R11 first and last
// position, R12 and R13 the span, DX and DI where M and L go; Y15 scale, Y14 M, Y12 and Y13 the 16 lanes of L.
func (f attention) softmax() {
	f.fn("attnSoftmaxAVX2", "attnSoftmaxArgs", "R9", "turns scores to weights, see attnSoftmaxArgs.")
	f.op("MOVQ attnSoftmaxArgs_s(R9), SI")
	f.op("MOVQ attnSoftmaxArgs_visible(R9), BX")
	f.op("MOVQ attnSoftmaxArgs_rows(R9), CX")
	f.op("MOVQ attnSoftmaxArgs_first(R9), R10")
	f.op("MOVQ attnSoftmaxArgs_last(R9), R11")
	f.op("MOVQ attnSoftmaxArgs_m(R9), DX")
	f.op("MOVQ attnSoftmaxArgs_l(R9), DI")
	f.op("VBROADCASTSS attnSoftmaxArgs_scale(R9), Y15")
	row, next := f.label("row"), f.label("next")
	f.at(row)
	f.op("MOVQ Span_From(BX), R12")
	f.op("MOVQ Span_To(BX), R13")
	f.op("CMPQ R12, R13")
	f.op("JGE %s", next)
	f.fill("R10", "R12")
	f.fill("R13", "R11")

	f.op("VMOVUPS %s, Y0", f.float("lowest", float32(math.Inf(-1))))
	f.op("VMOVAPS Y0, Y1")
	f.op("MOVQ R10, AX")
	most := f.label("most")
	f.at(most)
	for i := range 2 {
		f.op("VMULPS %d(SI)(AX*4), Y15, Y%d", 32*i, 4+i)
		f.op("VMOVUPS Y%d, %d(SI)(AX*4)", 4+i, 32*i)
		f.op("VMAXPS Y%d, Y%d, Y%d", 4+i, i, i)
	}
	f.op("ADDQ $16, AX")
	f.op("CMPQ AX, R11")
	f.op("JLT %s", most)
	f.op("VMAXPS Y1, Y0, Y0")
	f.foldTo1("VMAXPS")
	f.op("VXORPS X1, X1, X1")
	f.op("VADDSS X1, X0, X0")
	f.op("VMOVSS X0, (DX)")
	f.op("VBROADCASTSS X0, Y14")

	f.op("VXORPS Y12, Y12, Y12")
	f.op("VXORPS Y13, Y13, Y13")
	f.op("MOVQ R10, AX")
	for _, n := range []int{4, 2} {
		again, less := f.label("weights"), f.label("less")
		f.at(again)
		f.op("LEAQ %d(AX), R12", 8*n)
		f.op("CMPQ R12, R11")
		f.op("JGT %s", less)
		var regs []expRegs
		for i := range n {
			r := expRegs{sprintf("Y%d", i), sprintf("Y%d", 4+i), sprintf("Y%d", 8+i)}
			f.op("VMOVUPS %d(SI)(AX*4), %s", 32*i, r.x)
			f.op("VSUBPS %s, Y14, %s", r.x, r.x)
			regs = append(regs, r)
		}
		f.expNear("R13", regs...)
		for i, r := range regs {
			f.op("VMOVUPS %s, %d(SI)(AX*4)", r.x, 32*i)
			f.op("VADDPS %s, Y%d, Y%d", r.x, 12+i%2, 12+i%2)
		}
		f.op("MOVQ R12, AX")
		if n == 4 {
			f.op("JMP %s", again)
		}
		f.at(less)
	}
	f.op("VADDPS Y13, Y12, Y0")
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

// fill sets the scores of positions [from, to) to -Inf.
func (f attention) fill(from, to string) {
	again, end := f.label("mask"), f.label("masked")
	f.op("MOVQ %s, AX", from)
	f.at(again)
	f.op("CMPQ AX, %s", to)
	f.op("JGE %s", end)
	f.op("MOVL $0xff800000, (SI)(AX*4)")
	f.op("INCQ AX")
	f.op("JMP %s", again)
	f.at(end)
}

// foldTo1 folds the lanes of Y0 to lane 0, 4-2-1.
func (f *file) foldTo1(op string) {
	f.op("VEXTRACTF128 $1, Y0, X1")
	f.op("%s X1, X0, X0", op)
	f.op("VPERMILPS $0x0e, X0, X1")
	f.op("%s X1, X0, X0", op)
	f.op("VPERMILPS $0x01, X0, X1")
	f.op("%s X1, X0, X0", op)
}

// merge writes attnMerge. Registers: SI, DI, R8 M, L and O; R10, R11, R12 those of the block; CX rows left, DX bytes of a
// row, BX row of eight.
func (f attention) merge() {
	f.fn("attnMergeAVX2", "attnMergeArgs", "R9", "merges a block into a state, see attnMergeArgs.")
	for _, a := range [][2]string{{"m", "SI"}, {"l", "DI"}, {"o", "R8"}, {"bm", "R10"}, {"bl", "R11"}, {"bo", "R12"}, {"rows", "CX"}, {"dim", "DX"}} {
		f.op("MOVQ attnMergeArgs_%s(R9), %s", a[0], a[1])
	}
	f.op("SHLQ $2, DX")
	eight, row, skip, end := f.label("eight"), f.label("row"), f.label("skip"), f.label("end")
	f.at(eight)
	f.op("VMOVUPS (SI), Y0")
	f.op("VMOVUPS (R10), Y1")
	f.op("VMAXPS Y0, Y1, Y2")
	f.op("VSUBPS Y2, Y0, Y0")
	f.op("VSUBPS Y2, Y1, Y1")
	f.exp(true, expRegs{"Y0", "Y3", "Y4"}, expRegs{"Y1", "Y5", "Y6"})
	f.op("VMOVUPS Y2, attnMergeArgs_top(R9)")
	f.op("VMOVUPS Y0, attnMergeArgs_a(R9)")
	f.op("VMOVUPS Y1, attnMergeArgs_c(R9)")
	f.op("XORQ BX, BX")
	f.at(row)
	f.op("CMPL (R11)(BX*4), $0")
	f.op("JEQ %s", skip)
	f.op("MOVL attnMergeArgs_top(R9)(BX*4), AX")
	f.op("MOVL AX, (SI)(BX*4)")
	f.op("VBROADCASTSS attnMergeArgs_a(R9)(BX*4), Y14")
	f.op("VBROADCASTSS attnMergeArgs_c(R9)(BX*4), Y15")
	f.op("VMULSS (R11)(BX*4), X15, X1")
	f.op("VMOVSS (DI)(BX*4), X0")
	f.op("VFMADD213SS X1, X14, X0")
	f.op("VMOVSS X0, (DI)(BX*4)")
	f.op("XORQ AX, AX")
	again := f.label("dims")
	f.at(again)
	f.op("VMULPS (R12)(AX*1), Y15, Y1")
	f.op("VMOVUPS (R8)(AX*1), Y0")
	f.op("VFMADD213PS Y1, Y14, Y0")
	f.op("VMOVUPS Y0, (R8)(AX*1)")
	f.op("ADDQ $32, AX")
	f.op("CMPQ AX, DX")
	f.op("JLT %s", again)
	f.at(skip)
	f.op("ADDQ DX, R8")
	f.op("ADDQ DX, R12")
	f.op("DECQ CX")
	f.op("JEQ %s", end)
	f.op("INCQ BX")
	f.op("CMPQ BX, $8")
	f.op("JLT %s", row)
	for _, reg := range []string{"SI", "DI", "R10", "R11"} {
		f.op("ADDQ $32, %s", reg)
	}
	f.op("JMP %s", eight)
	f.at(end)
	f.ret()
}

// finish writes attnFinish.
func (f attention) finish() {
	f.fn("attnFinishAVX2", "attnFinishArgs", "R9", "divides by the sums, see attnFinishArgs.")
	for _, a := range [][2]string{{"dst", "DI"}, {"o", "SI"}, {"l", "BX"}, {"rows", "CX"}, {"dim", "DX"}} {
		f.op("MOVQ attnFinishArgs_%s(R9), %s", a[0], a[1])
	}
	f.op("VXORPS Y3, Y3, Y3")
	row, again := f.label("row"), f.label("dims")
	f.at(row)
	f.op("VMOVSS %s, X0", f.float("one", 1))
	f.op("VDIVSS (BX), X0, X0")
	f.op("VBROADCASTSS X0, Y0")
	f.op("MOVQ DX, AX")
	f.at(again)
	f.op("VMULPS (SI), Y0, Y1")
	f.op("VADDPS Y3, Y1, Y1")
	f.op("VMOVUPS Y1, (DI)")
	f.op("ADDQ $32, SI")
	f.op("ADDQ $32, DI")
	f.op("SUBQ $8, AX")
	f.op("JNE %s", again)
	f.op("ADDQ $4, BX")
	f.op("DECQ CX")
	f.op("JNE %s", row)
	f.ret()
}
