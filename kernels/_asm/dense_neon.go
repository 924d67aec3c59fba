package main

// Products with dense weights for NEON: tiles of two rows of weights by up to three rows of activations, each sum in four
// registers (16 lanes), 24 in all. Sums come from memory and go back there, so that columns may be done in spans.
//
// Registers: R0 arguments; R1 and R2 bytes from a row of weights and of activations to the next; R3 the tile's weights, R4
// its activations, R5 its sums; R6 pairs of rows of weights left, R7 rows of activations left, R8 the sums of the outer
// loop's tile; in the tile R9 and R10 weights, R11 to R13 activations of these columns, R14 columns left.
func denseNEON(g *file) {
	f := neon{g}
	for _, what := range []string{"F32", "F16", "BF16"} {
		d := tileDenseNEON{f, what, true}
		d.begin("dense" + what + "NEON")
		d.arguments("denseArgs", "w R3", "acc R8")
		d.op("MOVD $4, R6")
		pair := d.label("pair")
		d.at(pair)
		d.arguments("denseArgs", "a R4", "rows R7")
		d.op("MOVD R8, R5")
		d.rows(func(t int) {
			d.tile(t)
			d.op("ADD $%d, R5", 512*t)
		})
		d.op("ADD $128, R8")
		d.op("ADD R1<<1, R3")
		d.op("SUBS $1, R6")
		d.op("BNE %s", pair)
		d.ret()
	}
	d := tileDenseNEON{f, "F32", false}
	d.begin("densePanelNEON")
	d.arguments("denseArgs", "a R4", "rows R7", "acc R8")
	d.rows(func(t int) {
		d.arguments("denseArgs", "w R3")
		d.op("MOVD $4, R6")
		d.op("MOVD R8, R5")
		pair := d.label("pair")
		d.at(pair)
		d.tile(t)
		d.op("ADD $128, R5")
		d.op("ADD R1<<1, R3")
		d.op("SUBS $1, R6")
		d.op("BNE %s", pair)
		d.op("ADD $%d, R8", 512*t)
	})
	d.ret()
	f.foldDense()
}

// tileDenseNEON writes tiles for a weight type.
type tileDenseNEON struct {
	neon
	what   string
	native bool // weights come from the file's mapping: prefetch
}

func (d tileDenseNEON) begin(name string) {
	d.fn(name, "denseArgs", "R0", "multiplies eight rows of weights, see denseArgs.")
	d.arguments("denseArgs", "wStride R1", "aStride R2")
}

// rows calls body for three rows of activations at a time, then two, then one; R4 and R7 go along.
func (d tileDenseNEON) rows(body func(t int)) {
	for t := 3; t > 0; t-- {
		again, next := d.label("rows"), d.label("next")
		d.at(again)
		d.op("CMP $%d, R7", t)
		d.op("BLT %s", next)
		body(t)
		for range t {
			d.op("ADD R2, R4")
		}
		d.op("SUB $%d, R7", t)
		if t == 3 {
			d.op("JMP %s", again)
		}
		d.at(next)
	}
}

// tile adds the products of a pair of rows of weights and t rows of activations.
func (d tileDenseNEON) tile(t int) {
	sum := func(row, token, quarter int) int { return 12*row + 4*token + quarter }
	each := func(move func(t, base, offset int)) {
		for row := range 2 {
			for token := range t {
				for quarter := range 4 {
					move(sum(row, token, quarter), 5, 512*token+64*row+16*quarter)
				}
			}
		}
	}
	each(d.ldr)
	d.op("MOVD R3, R9")
	d.op("ADD R1, R3, R10")
	d.op("MOVD R4, R11")
	for i := 1; i < t; i++ {
		d.op("ADD R2, R%d, R%d", 10+i, 11+i)
	}
	d.op("MOVD denseArgs_cols(R0), R14")
	again, done := d.label("columns"), d.label("done")
	d.op("CBZ R14, %s", done)
	d.at(again)
	bytes := 2
	if d.what == "F32" {
		bytes = 4
	}
	if d.native { // the next pair of rows, which follows in memory
		d.op("ADD R1<<1, R9, R15")
		d.op("PRFM (R15), PLDL1KEEP")
		d.op("ADD R1, R15")
		d.op("PRFM (R15), PLDL1KEEP")
	}
	for half := range 2 {
		for row := range 2 {
			lo, hi := 27+2*row, 28+2*row
			switch d.what {
			case "F32":
				d.ldr(lo, 9+row, 32*half)
				d.ldr(hi, 9+row, 32*half+16)
			case "F16":
				d.ldr(lo, 9+row, 16*half)
				d.fcvtl(hi, lo, true)
				d.fcvtl(lo, lo, false)
			case "BF16":
				d.ldr(lo, 9+row, 16*half)
				d.shll(hi, lo, true)
				d.shll(lo, lo, false)
			}
		}
		for i := range 2 {
			for token := range t {
				d.ldr(24+token, 11+token, 32*half+16*i)
			}
			for row := range 2 {
				for token := range t {
					d.three("fmla", "4s", sum(row, token, 2*half+i), 27+2*row+i, 24+token)
				}
			}
		}
	}
	for row := range 2 {
		d.op("ADD $%d, R%d", 16*bytes, 9+row)
	}
	for token := range t {
		d.op("ADD $64, R%d", 11+token)
	}
	d.op("SUBS $16, R14")
	d.op("BNE %s", again)
	d.at(done)
	each(d.str)
}

// foldDense writes the last step: the 16 lanes of eight sums are added by the tree 8-4-2-1, for every row of activations.
func (f neon) foldDense() {
	f.fnOf("foldDenseNEON", "", "folds the lanes of sums [rows][8][16] to dst, whose rows are stride bytes apart.",
		"dst *float32 R0", "stride int R1", "acc *float32 R2", "rows int R3")
	again := f.label("again")
	f.at(again)
	for half := range 2 {
		for r := range 4 { // 8 and 4: to one register each
			for i := range 4 {
				f.ldr(4+i, 2, 256*half+64*r+16*i)
			}
			f.three("fadd", "4s", 4, 4, 6)
			f.three("fadd", "4s", 5, 5, 7)
			f.three("fadd", "4s", r, 4, 5)
		}
		for r := range 2 { // 2: two sums in a register
			f.three("zip1", "2d", 4, 2*r, 2*r+1)
			f.three("zip2", "2d", 5, 2*r, 2*r+1)
			f.three("fadd", "4s", 6+r, 4, 5)
		}
		f.three("uzp1", "4s", 4, 6, 7)
		f.three("uzp2", "4s", 5, 6, 7)
		f.three("fadd", "4s", 4, 4, 5)
		f.str(4, 0, 16*half)
	}
	f.op("ADD $512, R2")
	f.op("ADD R1, R0")
	f.op("SUBS $1, R3")
	f.op("BNE %s", again)
	f.ret()
}
