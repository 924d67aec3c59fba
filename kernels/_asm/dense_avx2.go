package main

// Products with dense weights for AVX2: tiles of two rows of weights by up to three rows of activations, each sum in two
// registers (16 lanes), twelve in all. Sums come from memory and go back there, so that columns may be done in spans.
//
// Registers: AX arguments; R9 and R10 bytes from a row of weights and of activations to the next; R13 the tile's weights,
// R11 its activations, DX its sums; R12 tiles of weights left, CX rows of activations left, BX the sums of the outer
// loop's tile; in the tile SI and DI weights and activations of these columns, R8 columns left, R14 prefetch.
func denseAVX2(f *file) {
	const tiles = 4 // in a group of eight rows of weights
	for _, t := range []denseType{{"F32", 4}, {"F16", 2}, {"BF16", 2}} {
		d := tileDenseAVX2{f, t, true}
		d.begin("dense"+t.what+"AVX2", "multiplies eight rows of weights of the file, see denseArgs.")
		d.op("MOVQ $%d, R12", tiles)
		d.op("MOVQ denseArgs_w(AX), R13")
		d.op("MOVQ denseArgs_acc(AX), BX")
		tile := d.label("tile")
		d.at(tile)
		d.op("MOVQ denseArgs_a(AX), R11")
		d.op("MOVQ denseArgs_rows(AX), CX")
		d.op("MOVQ BX, DX")
		d.rows(func(t int) {
			d.tile(t)
			d.op("ADDQ $%d, DX", 512*t)
		})
		d.op("ADDQ $128, BX")
		d.op("LEAQ (R13)(R9*2), R13")
		d.op("DECQ R12")
		d.op("JNE %s", tile)
		d.ret()
	}
	d := tileDenseAVX2{f, denseType{"F32", 4}, false}
	d.begin("densePanelAVX2", "multiplies eight rows of weights of a panel, see denseArgs.")
	d.op("MOVQ denseArgs_a(AX), R11")
	d.op("MOVQ denseArgs_rows(AX), CX")
	d.op("MOVQ denseArgs_acc(AX), BX")
	d.rows(func(t int) {
		d.op("MOVQ denseArgs_w(AX), R13")
		d.op("MOVQ $%d, R12", tiles)
		d.op("MOVQ BX, DX")
		tile := d.label("tile")
		d.at(tile)
		d.tile(t)
		d.op("ADDQ $128, DX")
		d.op("LEAQ (R13)(R9*2), R13")
		d.op("DECQ R12")
		d.op("JNE %s", tile)
		d.op("ADDQ $%d, BX", 512*t)
	})
	d.ret()
	foldAVX2(f)
}

// denseType is a weight type and the bytes of an element.
type denseType struct {
	what  string
	bytes int
}

type tileDenseAVX2 struct {
	*file
	denseType
	native bool // weights come from the file's mapping: convert, and prefetch
}

func (d tileDenseAVX2) begin(name, doc string) {
	d.fn(name, "denseArgs", "AX", doc)
	d.op("MOVQ denseArgs_wStride(AX), R9")
	d.op("MOVQ denseArgs_aStride(AX), R10")
}

// rows calls body for three rows of activations at a time, then two, then one; R11 and CX go along.
func (d tileDenseAVX2) rows(body func(t int)) {
	for t := 3; t > 0; t-- {
		again, next := d.label("rows"), d.label("next")
		d.at(again)
		d.op("CMPQ CX, $%d", t)
		d.op("JLT %s", next)
		body(t)
		for range t {
			d.op("ADDQ R10, R11")
		}
		d.op("SUBQ $%d, CX", t)
		if t == 3 {
			d.op("JMP %s", again)
		}
		d.at(next)
	}
}

// tile adds the products of two rows of weights and t rows of activations.
func (d tileDenseAVX2) tile(t int) {
	d.note("%d rows of activations", t)
	sum := func(row, token, half int) int { return 6*row + 2*token + half }
	each := func(do func(reg, place int)) {
		for row := range 2 {
			for token := range t {
				for half := range 2 {
					do(sum(row, token, half), 512*token+64*row+32*half)
				}
			}
		}
	}
	each(func(reg, place int) { d.op("VMOVUPS %d(DX), Y%d", place, reg) })
	d.op("MOVQ R13, SI")
	d.op("MOVQ R11, DI")
	d.op("MOVQ denseArgs_cols(AX), R8")
	acts := []string{"(DI)", "(DI)(R10*1)", "(DI)(R10*2)"}
	weights := []string{"(SI)", "(SI)(R9*1)"}
	step := func(at int) { // 16 columns from at on
		for half := range 2 {
			col := at + 8*half
			for token := range t {
				d.op("VMOVUPS %d%s, Y%d", 4*col, acts[token], 12+token)
			}
			for row := range 2 {
				from := sprintf("%d%s", d.bytes*col, weights[row])
				switch d.what {
				case "F32":
					d.op("VMOVUPS %s, Y15", from)
				case "F16":
					d.op("VCVTPH2PS %s, Y15", from)
				case "BF16":
					d.op("VPMOVZXWD %s, Y15", from)
					d.op("VPSLLD $16, Y15, Y15")
				}
				for token := range t {
					d.op("VFMADD231PS Y%d, Y15, Y%d", 12+token, sum(row, token, half))
				}
			}
		}
	}
	double, single, done := d.label("double"), d.label("single"), d.label("done")
	d.at(double)
	d.op("SUBQ $32, R8")
	d.op("JLT %s", single)
	if d.native { // the next two rows, which follow in memory
		d.op("LEAQ (SI)(R9*2), R14")
		for at := 0; at < 32*d.bytes; at += 64 {
			d.op("PREFETCHT0 %d(R14)", at)
			d.op("PREFETCHT0 %d(R14)(R9*1)", at)
		}
	}
	step(0)
	step(16)
	d.op("ADDQ $%d, SI", 32*d.bytes)
	d.op("ADDQ $128, DI")
	d.op("JMP %s", double)
	d.at(single)
	d.op("ADDQ $16, R8") // 0 if 16 columns are left, else −16
	d.op("JLT %s", done)
	step(0)
	d.at(done)
	each(func(reg, place int) { d.op("VMOVUPS Y%d, %d(DX)", reg, place) })
}

// foldAVX2 writes the last step: the 16 lanes of eight sums are added by the tree 8-4-2-1, for every row of activations.
func foldAVX2(f *file) {
	f.fnOf("foldDenseAVX2", "", "folds the lanes of sums [rows][8][16] to dst, whose rows are stride bytes apart.",
		"dst *float32 DI", "stride int R9", "acc *float32 SI", "rows int CX")
	again := f.label("again")
	f.at(again)
	for r := range 8 {
		f.op("VMOVUPS %d(SI), Y%d", 64*r, r)
	}
	for r := range 8 {
		f.op("VADDPS %d(SI), Y%d, Y%d", 64*r+32, r, r)
	}
	for r := range 4 { // row r in the low lane, r+4 in the high one
		f.op("VPERM2F128 $0x20, Y%d, Y%d, Y%d", r+4, r, 8+r)
		f.op("VPERM2F128 $0x31, Y%d, Y%d, Y%d", r+4, r, 12+r)
	}
	for r := range 4 {
		f.op("VADDPS Y%d, Y%d, Y%d", 12+r, 8+r, r)
	}
	for r := range 2 {
		f.op("VUNPCKLPD Y%d, Y%d, Y%d", 2*r+1, 2*r, 4+r)
		f.op("VUNPCKHPD Y%d, Y%d, Y%d", 2*r+1, 2*r, 6+r)
	}
	f.op("VADDPS Y6, Y4, Y4")
	f.op("VADDPS Y7, Y5, Y5")
	f.op("VSHUFPS $0x88, Y5, Y4, Y0")
	f.op("VSHUFPS $0xdd, Y5, Y4, Y1")
	f.op("VADDPS Y1, Y0, Y0")
	f.op("VMOVUPS Y0, (DI)")
	f.op("ADDQ $512, SI")
	f.op("ADDQ R9, DI")
	f.op("DECQ CX")
	f.op("JNE %s", again)
	f.ret()
}
