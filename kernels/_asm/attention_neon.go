package main

import (
	"math"
	"strings"
)

// Attention for NEON, see kernels/attention_product.go for the arguments. Products keep tiles of rows × lanes in
// registers: six rows of 16 lanes, fewer rows of more, so that chains hide the latency of the fused step.

func attentionNEON(f *file) {
	for _, half := range []bool{true, false} {
		attentionArm{neon{f}, half, false}.product()
		attentionArm{neon{f}, half, true}.first()
	}
	a := attentionArm{neon{f}, false, false}
	a.softmax()
	a.merge()
	a.finish()
}

// attentionArm writes the kernels for one number format of keys and values.
type attentionArm struct {
	neon
	half  bool
	panel bool // leave what is widened in a panel
}

func (f attentionArm) suffix() string {
	if f.half {
		return "F16NEON"
	}
	return "F32NEON"
}

// armWidths lists, for a number of rows, how many vectors of lanes a tile may have; the first is the fastest.
var armWidths = map[int][]int{1: {16, 8, 4, 2}, 2: {8, 4, 2}, 3: {8, 4, 2}, 4: {4, 2}, 5: {4, 2}, 6: {4, 2}}

// General registers of a tile: pointers to the factors of rows from factorAt on, to stored values of tiles from valueAt.
const (
	factorAt = 19
	valueAt  = 12
)

// product writes attnProduct. Registers: R1 factors of the group of rows, R2 their stride; R3 destination of the tile, R4
// its stride, R10 that of the group; R5 stored values of the tile, R6 stride, R7 distance of tiles; R8 rows left, R9 lanes
// left; R25 prefetched address, or panel; R11 steps left.
func (f attentionArm) product() {
	f.fn("attnProduct"+f.suffix(), "attnProductArgs", "R0", "multiplies rows with stored values, see attnProductArgs.")
	f.arguments("attnProductArgs", "a R1", "aStride R2", "dst R10", "dstStride R4", "bStride R6", "bNext R7", "ahead R25", "rows R8")
	again, done := f.label("rows"), f.label("done")
	groups := map[int]string{}
	for t := 1; t <= 6; t++ {
		groups[t] = f.label(sprintf("rows%d_", t))
	}
	f.at(again)
	f.op("CMP $0, R8")
	f.op("BLE %s", done)
	for _, c := range []struct{ rows, then int }{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {7, 4}, {8, 4}} { // seven are four and three
		f.op("CMP $%d, R8", c.rows)
		f.op("BEQ %s", groups[c.then])
	}
	for t := 6; t >= 1; t-- {
		f.at(groups[t])
		f.arguments("attnProductArgs", "b R5", "lanes R9")
		f.op("MOVD R10, R3")
		for _, v := range armWidths[t] {
			tile, next := f.label("tile"), f.label("next")
			f.at(tile)
			f.op("CMP $%d, R9", 4*v)
			f.op("BLT %s", next)
			f.tile(t, v)
			f.op("ADD $%d, R3", 16*v)
			for range v / 4 {
				f.op("ADD R7, R5")
			}
			f.op("SUB $%d, R9", 4*v)
			f.op("JMP %s", tile)
			f.at(next)
		}
		for range t {
			f.op("ADD R2, R1")
			f.op("ADD R4, R10")
		}
		f.op("SUB $%d, R8", t)
		f.op("JMP %s", again)
	}
	f.at(done)
	f.ret()
}

// arguments loads fields of the arguments, each "field register".
func (f neon) arguments(typ string, list ...string) {
	for _, a := range list {
		field, reg, _ := strings.Cut(a, " ")
		f.op("MOVD %s_%s(R0), %s", typ, field, reg)
	}
}

// tile multiplies t rows with v vectors of lanes.
func (f attentionArm) tile(t, v int) {
	f.note("%d rows, %d lanes", t, 4*v)
	var regs registers
	sums := regs.take(t * v)
	for _, s := range sums {
		f.movi(s, 0)
	}
	tiles := (v + 3) / 4
	for i := range t {
		if i > 0 {
			f.op("ADD R2, R%d, R%d", factorAt+i-1, factorAt+i)
			continue
		}
		f.op("MOVD R1, R%d", factorAt)
	}
	for i := range tiles {
		if i > 0 {
			f.op("ADD R7, R%d, R%d", valueAt+i-1, valueAt+i)
			continue
		}
		f.op("MOVD R5, R%d", valueAt)
	}
	const unroll = 4
	bytes := 4 * 4 * v // of stored values a step
	switch {
	case f.panel:
		bytes = 64
	case f.half:
		bytes /= 2
	}
	free := free(sums)
	steps := func(n int) {
		for u := range n {
			for at := (bytes*u + 63) / 64 * 64; at < bytes*(u+1) && !f.panel && n > 1; at += 64 {
				f.op("PRFM %d(R25), PLDL2KEEP", at)
			}
			f.step(t, v, u, sums, free)
		}
		for i := range t {
			f.op("ADD $%d, R%d", 4*n, factorAt+i)
		}
		f.op("ADD $%d, R25", bytes*n)
		f.op("SUBS $1, R11")
	}
	loop, rest, single, store := f.label("steps"), f.label("rest"), f.label("step"), f.label("store")
	f.op("MOVD attnProductArgs_n(R0), R11")
	f.op("LSR $2, R11")
	f.op("CBZ R11, %s", rest)
	f.at(loop)
	steps(unroll)
	f.op("BNE %s", loop)
	f.at(rest)
	f.op("MOVD attnProductArgs_n(R0), R11")
	f.op("ANDS $3, R11")
	f.op("BEQ %s", store)
	f.at(single)
	steps(1)
	f.op("BNE %s", single)
	f.at(store)
	zero := free[0]
	f.movi(zero, 0)
	f.op("MOVD R3, R%d", factorAt)
	for r := range t {
		for i := range v {
			f.three("fadd", "4s", sums[r*v+i], sums[r*v+i], zero)
			f.str(sums[r*v+i], factorAt, 16*i)
		}
		if r < t-1 {
			f.op("ADD R4, R%d", factorAt)
		}
	}
}

// step does step u of the unrolled loop for t rows and v vectors of lanes, and moves the values' pointers on.
func (f attentionArm) step(t, v, u int, sums, free []int) {
	// load widens vectors 2i and 2i+1 of lanes to registers a and b.
	load := func(i, a, b int) {
		base := valueAt + i/2
		if f.half {
			f.ldr(a, base, i%2*16)
			f.fcvtl(b, a, true)
			f.fcvtl(a, a, false)
		} else {
			f.ldr(a, base, i%2*32)
			f.ldr(b, base, i%2*32+16)
		}
	}
	if v > 4 { // few rows: their factors stay, lanes pass
		for r := range t {
			f.ldrS(free[r], factorAt+r, 4*u)
		}
		values := free[t:]
		pairs := len(values) / 2
		for i := range v / 2 {
			a, b := values[i%pairs*2], values[i%pairs*2+1]
			load(i, a, b)
			for r := range t {
				f.byLane("fmla", sums[r*v+2*i], a, free[r], 0)
				f.byLane("fmla", sums[r*v+2*i+1], b, free[r], 0)
			}
		}
	} else {
		values, factors := free[:v], free[v:]
		for i := range v / 2 {
			load(i, values[2*i], values[2*i+1])
		}
		if f.panel {
			for i, x := range values {
				f.str(x, 25, 64*u+16*i)
			}
		}
		for r := range t {
			x := factors[r%min(4, len(factors))]
			f.ldrS(x, factorAt+r, 4*u)
			for i := range v {
				f.byLane("fmla", sums[r*v+i], values[i], x, 0)
			}
		}
	}
	for i := range (v + 3) / 4 {
		f.op("ADD R6, R%d", valueAt+i)
	}
}

// first writes attnFirst: a product of six rows and one tile, which also leaves the tile in a panel.
func (f attentionArm) first() {
	f.fn("attnFirst"+f.suffix(), "attnProductArgs", "R0", "multiplies six rows with one tile and makes it a panel, see attnProductArgs.")
	f.arguments("attnProductArgs", "a R1", "aStride R2", "dst R3", "dstStride R4", "b R5", "bStride R6", "bNext R7", "panel R25", "lanes R9")
	half, end := f.label("half"), f.label("end")
	f.op("CMP $16, R9")
	f.op("BLT %s", half)
	f.tile(6, 4)
	f.op("JMP %s", end)
	f.at(half)
	f.tile(6, 2)
	f.at(end)
	f.ret()
}

// softmax writes attnSoftmax. Registers: R1 scores of the row, R2 its span, R3 rows left, R4 and R5 first and last
// position, R6 and R7 the span, R8 and R9 where M and L go, R10 scores, R11 the end of the row's; 31 scale, 30 M, 26 to 29
// the 16 lanes of L, 16 to 25 the constants of exp.
func (f attentionArm) softmax() {
	f.fn("attnSoftmaxNEON", "attnSoftmaxArgs", "R0", "turns scores to weights, see attnSoftmaxArgs.")
	f.arguments("attnSoftmaxArgs", "s R1", "visible R2", "rows R3", "first R4", "last R5", "m R8", "l R9")
	f.op("FMOVS attnSoftmaxArgs_scale(R0), F31")
	e := f.newExp(16)
	row, next := f.label("row"), f.label("next")
	f.at(row)
	f.op("MOVD Span_From(R2), R6")
	f.op("MOVD Span_To(R2), R7")
	f.op("CMP R7, R6")
	f.op("BGE %s", next)
	f.op("MOVW $0xff800000, R12")
	f.mask("R4", "R6")
	f.mask("R7", "R5")
	f.op("ADD R5<<2, R1, R11")

	f.floats(0, "lowest", float32(math.Inf(-1)))
	for v := 1; v < 4; v++ {
		f.mov(v, 0)
	}
	f.op("ADD R4<<2, R1, R10")
	most := f.label("most")
	f.at(most)
	for v := range 4 {
		f.ldr(4+v, 10, 16*v)
	}
	for v := range 4 {
		f.byLane("fmul", 4+v, 4+v, 31, 0)
		f.str(4+v, 10, 16*v)
		f.three("fmax", "4s", v, v, 4+v)
	}
	f.op("ADD $64, R10")
	f.op("CMP R11, R10")
	f.op("BLT %s", most)
	f.three("fmax", "4s", 0, 0, 1)
	f.three("fmax", "4s", 2, 2, 3)
	f.three("fmax", "4s", 0, 0, 2)
	f.across("fmaxv", 0, 0)
	f.movi(1, 0)
	f.three("fadd", "4s", 0, 0, 1)
	f.strS(0, 8, 0)
	f.dup("4s", 30, 0, 0)

	for v := range 4 {
		f.movi(26+v, 0)
	}
	f.op("ADD R4<<2, R1, R10")
	again := f.label("weights")
	f.at(again)
	var sets [][4]int
	for v := range 4 {
		s := [4]int{v, 4 + v, 8 + v, 12 + v}
		sets = append(sets, s)
		f.ldr(v, 10, 16*v)
		f.three("fsub", "4s", v, v, 30)
	}
	e.exp(true, sets...)
	for v := range 4 {
		f.str(v, 10, 16*v)
		f.three("fadd", "4s", 26+v, 26+v, v)
	}
	f.op("ADD $64, R10")
	f.op("CMP R11, R10")
	f.op("BLT %s", again)
	f.three("fadd", "4s", 26, 26, 28)
	f.three("fadd", "4s", 27, 27, 29)
	f.three("fadd", "4s", 0, 26, 27)
	f.fold2()
	f.strS(0, 9, 0)

	f.at(next)
	f.op("ADD $(4*const_attnStride), R1")
	f.op("ADD $Span__size, R2")
	f.op("ADD $4, R8")
	f.op("ADD $4, R9")
	f.op("SUBS $1, R3")
	f.op("BNE %s", row)
	f.ret()
}

// mask sets the scores of positions [from, to) to -Inf, which R12 has.
func (f attentionArm) mask(from, to string) {
	again, end := f.label("mask"), f.label("masked")
	f.op("ADD %s<<2, R1, R10", from)
	f.op("ADD %s<<2, R1, R11", to)
	f.at(again)
	f.op("CMP R11, R10")
	f.op("BGE %s", end)
	f.op("MOVW.P R12, 4(R10)")
	f.op("JMP %s", again)
	f.at(end)
}

// merge writes attnMerge. Registers: R1, R2, R3 M, L and O; R4, R5, R6 those of the block; R7 rows left, R8 bytes of a
// row, R9 rows left of eight, R10 where top of the row is, and a and c behind it.
func (f attentionArm) merge() {
	f.fn("attnMergeNEON", "attnMergeArgs", "R0", "merges a block into a state, see attnMergeArgs.")
	f.arguments("attnMergeArgs", "m R1", "l R2", "o R3", "bm R4", "bl R5", "bo R6", "rows R7", "dim R8")
	f.op("LSL $2, R8")
	e := f.newExp(16)
	eight, row, skip, dims, end := f.label("eight"), f.label("row"), f.label("skip"), f.label("dims"), f.label("end")
	f.at(eight)
	f.op("ADD $attnMergeArgs_top, R0, R10")
	var sets [][4]int
	for v := range 2 { // a in sets 0 and 1, c in 2 and 3
		a, c := 4*v, 4*(2+v)
		f.ldr(a, 1, 16*v)
		f.ldr(c, 4, 16*v)
		f.three("fmax", "4s", 28, a, c)
		f.str(28, 10, 16*v)
		f.three("fsub", "4s", a, a, 28)
		f.three("fsub", "4s", c, c, 28)
	}
	for v := range 4 {
		sets = append(sets, [4]int{4 * v, 4*v + 1, 4*v + 2, 4*v + 3})
	}
	e.exp(true, sets...)
	for v := range 2 {
		f.str(4*v, 10, 32+16*v)
		f.str(4*(2+v), 10, 64+16*v)
	}
	f.op("MOVD $8, R9")
	f.op("MOVD R1, R13")
	f.op("MOVD R2, R14")
	f.op("MOVD R5, R15")
	f.at(row)
	f.op("MOVWU (R15), R11")
	f.op("CBZ R11, %s", skip)
	f.op("MOVWU (R10), R11")
	f.op("MOVW R11, (R13)")
	f.ldrS(30, 10, 32)
	f.ldrS(31, 10, 64)
	f.ldrS(0, 15, 0)
	f.ldrS(1, 14, 0)
	f.byLane("fmul", 0, 0, 31, 0)
	f.byLane("fmla", 0, 1, 30, 0)
	f.strS(0, 14, 0)
	f.op("MOVD R8, R12")
	f.op("MOVD R3, R19")
	f.op("MOVD R6, R20")
	f.at(dims)
	for v := range 2 {
		f.ldr(v, 20, 16*v)
		f.ldr(2+v, 19, 16*v)
	}
	for v := range 2 {
		f.byLane("fmul", v, v, 31, 0)
		f.byLane("fmla", v, 2+v, 30, 0)
		f.str(v, 19, 16*v)
	}
	f.op("ADD $32, R19")
	f.op("ADD $32, R20")
	f.op("SUBS $32, R12")
	f.op("BNE %s", dims)
	f.at(skip)
	for _, r := range []string{"R3", "R6"} {
		f.op("ADD R8, %s", r)
	}
	for _, r := range []string{"R10", "R13", "R14", "R15"} {
		f.op("ADD $4, %s", r)
	}
	f.op("SUBS $1, R7")
	f.op("BEQ %s", end)
	f.op("SUBS $1, R9")
	f.op("BNE %s", row)
	for _, r := range []string{"R1", "R2", "R4", "R5"} {
		f.op("ADD $32, %s", r)
	}
	f.op("JMP %s", eight)
	f.at(end)
	f.ret()
}

// finish writes attnFinish.
func (f attentionArm) finish() {
	f.fn("attnFinishNEON", "attnFinishArgs", "R0", "divides by the sums, see attnFinishArgs.")
	f.arguments("attnFinishArgs", "dst R1", "o R2", "l R3", "rows R4", "dim R5")
	f.floats(31, "one", 1)
	f.movi(30, 0)
	row, again := f.label("row"), f.label("dims")
	f.at(row)
	f.ldrS(0, 3, 0)
	f.three("fdiv", "4s", 29, 31, 0)
	f.op("MOVD R5, R6")
	f.at(again)
	for v := range 2 {
		f.ldr(v, 2, 16*v)
		f.byLane("fmul", v, v, 29, 0)
		f.three("fadd", "4s", v, v, 30)
		f.str(v, 1, 16*v)
	}
	f.op("ADD $32, R1")
	f.op("ADD $32, R2")
	f.op("SUBS $8, R6")
	f.op("BNE %s", again)
	f.op("ADD $4, R3")
	f.op("SUBS $1, R4")
	f.op("BNE %s", row)
	f.ret()
}
