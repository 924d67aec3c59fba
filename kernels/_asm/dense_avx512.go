package main

// Products with dense weights for AVX-512: a sum's 16 lanes are a register, tiles are four rows of weights by up to six
// rows of activations.
//
// Registers as in dense_avx2.go, and: R14 three rows of weights; R15 activations of rows 3 to 5, or prefetch.
func denseAVX512(f *file) {
	const tiles = 2 // in a group of eight rows of weights
	for _, t := range []denseType{{"F32", 4}, {"F16", 2}, {"BF16", 2}} {
		d := tileDenseAVX512{tileDenseAVX2{f, t, true}}
		d.begin("dense"+t.what+"AVX512", "multiplies eight rows of weights of the file, see denseArgs.")
		d.op("LEAQ (R9)(R9*2), R14")
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
		d.op("ADDQ $256, BX")
		d.op("LEAQ (R13)(R9*4), R13")
		d.op("DECQ R12")
		d.op("JNE %s", tile)
		d.ret()
	}
	d := tileDenseAVX512{tileDenseAVX2{f, denseType{"F32", 4}, false}}
	d.begin("densePanelAVX512", "multiplies eight rows of weights of a panel, see denseArgs.")
	d.op("LEAQ (R9)(R9*2), R14")
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
		d.op("ADDQ $256, DX")
		d.op("LEAQ (R13)(R9*4), R13")
		d.op("DECQ R12")
		d.op("JNE %s", tile)
		d.op("ADDQ $%d, BX", 512*t)
	})
	d.ret()
}

type tileDenseAVX512 struct{ tileDenseAVX2 }

// rows calls body for six rows of activations at a time, then three, two and one; R11 and CX go along.
func (d tileDenseAVX512) rows(body func(t int)) {
	for _, t := range []int{6, 3, 2, 1} {
		again, next := d.label("rows"), d.label("next")
		d.at(again)
		d.op("CMPQ CX, $%d", t)
		d.op("JLT %s", next)
		body(t)
		for range t {
			d.op("ADDQ R10, R11")
		}
		d.op("SUBQ $%d, CX", t)
		if t == 6 {
			d.op("JMP %s", again)
		}
		d.at(next)
	}
}

// tile adds the products of four rows of weights and t rows of activations. Z0 up are sums, Z24 up activations, Z30 and
// Z31 weights.
func (d tileDenseAVX512) tile(t int) {
	d.note("%d rows of activations", t)
	each := func(do func(reg, place int)) {
		for row := range 4 {
			for token := range t {
				do(6*row+token, 512*token+64*row)
			}
		}
	}
	each(func(reg, place int) { d.op("VMOVUPS %d(DX), Z%d", place, reg) })
	d.op("MOVQ R13, SI")
	d.op("MOVQ R11, DI")
	if t > 3 {
		d.op("LEAQ (R11)(R10*2), R15")
		d.op("ADDQ R10, R15")
	}
	d.op("MOVQ denseArgs_cols(AX), R8")
	step := func(at int) { // 16 columns from at on
		for token := range t {
			d.op("VMOVUPS %d%s, Z%d", 4*at, strided([]string{"DI", "R15"}[token/3], "R10", token%3), 24+token)
		}
		for row := range 4 {
			from := "(SI)(R14*1)"
			if row < 3 {
				from = strided("SI", "R9", row)
			}
			from = sprintf("%d%s", d.bytes*at, from)
			w := 30 + row%2
			switch d.what {
			case "F32":
				d.op("VMOVUPS %s, Z%d", from, w)
			case "F16":
				d.op("VCVTPH2PS %s, Z%d", from, w)
			case "BF16":
				d.op("VPMOVZXWD %s, Z%d", from, w)
				d.op("VPSLLD $16, Z%d, Z%d", w, w)
			}
			for token := range t {
				d.op("VFMADD231PS Z%d, Z%d, Z%d", 24+token, w, 6*row+token)
			}
		}
	}
	double, single, done := d.label("double"), d.label("single"), d.label("done")
	d.at(double)
	d.op("SUBQ $32, R8")
	d.op("JLT %s", single)
	if d.native && t <= 3 { // the next four rows, which follow in memory
		d.op("LEAQ (SI)(R9*4), R15")
		for at := 0; at < 32*d.bytes; at += 64 {
			for row := range 3 {
				d.op("PREFETCHT0 %d%s", at, strided("R15", "R9", row))
			}
			d.op("PREFETCHT0 %d(R15)(R14*1)", at)
		}
	}
	step(0)
	step(16)
	d.op("ADDQ $%d, SI", 32*d.bytes)
	d.op("ADDQ $128, DI")
	if t > 3 {
		d.op("ADDQ $128, R15")
	}
	d.op("JMP %s", double)
	d.at(single)
	d.op("ADDQ $16, R8") // 0 if 16 columns are left, else −16
	d.op("JLT %s", done)
	step(0)
	d.at(done)
	each(func(reg, place int) { d.op("VMOVUPS Z%d, %d(DX)", reg, place) })
}
