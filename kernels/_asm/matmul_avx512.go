package main

// The quantised matrix product for AVX-512 with VNNI: lanes are 16 packed rows, one register. VPDPBUSD multiplies a quad
// of unsigned codes by a broadcast quad of activations and adds to 32-bit sums, which can't overflow.
//
// Two groups of rows together: each superblock of 256 columns is unpacked to panels in L1, codes as bytes in quads, then
// tiles of six rows of activations go over both panels, which share the broadcasts: 12 sums of the present block and 12
// totals fill 24 of the 32 registers. One group: tiles of up to eight rows take the codes straight from the packed blocks.
//
// Registers: SI packed weights, BX panels, R8 records of the superblock, R9 arguments, R10 blocks left, R12 blocks of
// the superblock (legacy types); in a tile: AX record of its first row, DX its sums, CX rows left, R13 codes, DI
// activations, R11 scales, R14 scalars of the record (legacy types) or high bits (Q6_K), then sums of the second group,
// R15 blocks left in the superblock.

// What is where in a panel of this variant; panels of two groups are wide512 apart. K types' scales are 32-bit.
const (
	scale512 = 4096 // K: scales [8 or 16][16]int32; others: d [8][16]float32
	m512     = scale512 + 512
	min512   = 5120 // pairs of minimums, or, for types with a centre, of scales: [4][16], with scales per 16 columns [8][16]
	d512     = 5632 // K: d [16]float32
	dmin512  = 5696 // K: dmin [16]float32
	wide512  = 6144
)

func matmulAVX512(f *file) {
	for _, k := range kinds {
		if k.signed { // codes are flipped to unsigned ones
			k.centre = 128
		}
		avx512{f}.group(k)
	}
}

type avx512 struct{ *file }

// group writes the function for one type.
func (f avx512) group(k kind) {
	f.fn("group"+k.name+"AVX512", "groupArgs", "R9", "multiplies one or two groups of packed rows, see groupArgs.")
	f.op("MOVQ groupArgs_w(R9), SI")
	f.op("MOVQ groupArgs_panel(R9), BX")
	f.op("MOVQ groupArgs_acts(R9), R8")
	f.op("MOVQ groupArgs_blocks(R9), R10")
	super, two, next, done := f.label("super"), f.label("two"), f.label("next"), f.label("done")
	f.at(super)
	f.op("TESTQ R10, R10")
	f.op("JLE %s", done)
	if !k.k {
		f.op("MOVQ $8, R12")
		f.op("CMPQ R10, R12")
		f.op("CMOVQLT R10, R12") // blocks in this superblock
	}
	w := weights512{f, k}
	w.masks()
	f.op("MOVQ SI, R13")
	w.scales(0)
	f.op("CMPQ groupArgs_groups(R9), $2")
	f.op("JEQ %s", two)
	f.rowLoop(k, 1, []int{8, 4, 2, 1})
	f.op("JMP %s", next)
	f.at(two)
	w.codes(0)
	f.op("MOVQ groupArgs_wNext(R9), R13")
	f.op("ADDQ SI, R13")
	w.scales(wide512)
	f.op("MOVQ groupArgs_wNext(R9), R13")
	f.op("ADDQ SI, R13")
	w.codes(wide512)
	f.rowLoop(k, 2, []int{6, 3, 2, 1})
	f.at(next)
	f.op("ADDQ groupArgs_next(R9), R8")
	if k.k {
		f.op("ADDQ $%d, SI", k.bytes())
		f.op("DECQ R10")
	} else {
		f.op("IMULQ $%d, R12", k.bytes())
		f.op("ADDQ R12, SI")
		f.op("SUBQ $8, R10")
	}
	f.op("JMP %s", super)
	f.at(done)
	f.ret()
}

// rowLoop multiplies as many rows of activations at a time as the sizes say, largest first.
func (f avx512) rowLoop(k kind, groups int, sizes []int) {
	rec := rec32
	if k.k {
		rec = recK
	}
	f.op("MOVQ R8, AX")
	f.op("MOVQ groupArgs_acc(R9), DX")
	f.op("MOVQ groupArgs_rows(R9), CX")
	for _, rows := range sizes {
		next, again := f.label("rowsNext"), f.label(sprintf("rows%d_", rows))
		f.at(again)
		f.op("CMPQ CX, $%d", rows)
		f.op("JLT %s", next)
		t := tile512{f, k, rows, groups, rec}
		f.note("%d rows, %d groups", rows, groups)
		switch {
		case k.k && groups == 2:
			t.superblock()
		case k.k:
			t.packedSuperblock()
		default:
			t.blocks()
		}
		f.op("ADDQ $%d, AX", rows*rec)
		f.op("ADDQ $%d, DX", rows*64)
		f.op("SUBQ $%d, CX", rows)
		if rows > 1 {
			f.op("JMP %s", again)
		}
		f.at(next)
	}
}

// tile512 multiplies a superblock of one or two groups of weight rows by some rows of activations.
type tile512 struct {
	avx512
	k            kind
	rows, groups int
	rec          int // bytes of a record
}

// Z0 to Z11 (one group: Z15) are sums of the present block, Z12 (Z16) up are totals.

// part is the sum of row r: of group g, or, straight from packed blocks, of block g of the two that are under way.
func (t tile512) part(r, g int) int {
	if t.groups == 1 {
		return 8*g + r
	}
	return 2*r + g
}

// total is the sum of row r and group g over blocks.
func (t tile512) total(r, g int) int {
	if t.groups == 1 {
		return 16 + r
	}
	return 12 + 2*r + g
}

// out is where the float sums are. second must have run if there are two groups.
func (t tile512) out(r, g int) string { return sprintf("%d(%s)", 64*r, []string{"DX", "R14"}[g]) }

// second points R14 to the float sums of the second group.
func (t tile512) second() {
	if t.groups == 2 {
		t.op("MOVQ groupArgs_rows(R9), R14")
		t.op("SHLQ $6, R14")
		t.op("ADDQ DX, R14")
	}
}

// zero clears a register. Up to 15 that is a VEX instruction, which is shorter.
func (f avx512) zero(reg int) {
	if reg < 16 {
		f.op("VPXOR X%d, X%d, X%d", reg, reg, reg)
		return
	}
	f.op("VPXORD Z%d, Z%d, Z%d", reg, reg, reg)
}

// panelDots adds quads [from, to) of the panels' block at R13 to the sums. Z24 up to Z27 are lost.
func (t tile512) panelDots(from, to int) {
	for q := from; q < to; q++ {
		for g := range 2 {
			t.op("VMOVDQA64 %d(R13), Z%d", wide512*g+64*q, 24+g)
		}
		for r := range t.rows {
			t.op("VPBROADCASTD %d(DI), Z%d", t.rec*r+4*q, 26+r%2)
			for g := range 2 {
				t.op("VPDPBUSD Z%d, Z%d, Z%d", 26+r%2, 24+g, t.part(r, g))
			}
		}
	}
}

// superblock is the tile of a K type on two panels.
func (t tile512) superblock() {
	for r := range t.rows {
		for g := range 2 {
			t.zero(t.total(r, g))
		}
	}
	t.op("MOVQ AX, DI")
	t.op("MOVQ BX, R13")
	t.op("MOVQ BX, R11")
	t.op("MOVQ $8, R15")
	again := t.label("block")
	t.at(again)
	quads := 8
	if t.k.sub16 {
		quads = 4
	}
	for from := 0; from < 8; from += quads {
		for r := range t.rows {
			t.zero(t.part(r, 0))
			t.zero(t.part(r, 1))
		}
		t.panelDots(from, from+quads)
		for g := range 2 {
			t.op("VMOVDQA64 %d(R11), Z%d", wide512*g+scale512+16*from, 24+g)
		}
		for r := range t.rows {
			for g := range 2 {
				t.op("VPMULLD Z%d, Z%d, Z%d", 24+g, t.part(r, g), t.part(r, g))
				t.op("VPADDD Z%d, Z%d, Z%d", t.part(r, g), t.total(r, g), t.total(r, g))
			}
		}
	}
	t.op("ADDQ $32, DI")
	t.op("ADDQ $512, R13")
	t.op("ADDQ $%d, R11", t.k.scales512()*8)
	t.op("DECQ R15")
	t.op("JNE %s", again)
	t.floatStep()
}

// scales512 is the bytes of scales in the panel for four columns.
func (k kind) scales512() int {
	if k.sub16 {
		return 16
	}
	return 8
}

// floatStep adds a K superblock's totals to the float sums.
func (t tile512) floatStep() {
	t.second()
	pairs, sums := 4, recKSum32
	if t.k.sub16 {
		pairs, sums = 8, recKSum16
	}
	for r := range t.rows {
		for g := range t.groups {
			t.zero(t.part(r, g))
		}
	}
	// The sum over sub-blocks of minimums (or, for types with a centre, of scales) times sums of activations.
	for p := range pairs {
		for g := range t.groups {
			t.op("VMOVDQA64 %d(BX), Z%d", wide512*g+min512+64*p, 24+g)
		}
		for r := range t.rows {
			t.op("VPBROADCASTD %d(AX), Z26", t.rec*r+sums+4*p)
			for g := range t.groups {
				t.op("VPDPWSSD Z26, Z%d, Z%d", 24+g, t.part(r, g))
			}
		}
	}
	for g := range t.groups {
		t.op("VMOVAPS %d(BX), Z%d", wide512*g+d512, 24+g)
		if t.k.min {
			t.op("VMOVAPS %d(BX), Z%d", wide512*g+dmin512, 28+g)
		}
	}
	for r := range t.rows {
		t.op("VBROADCASTSS %d(AX), Z26", t.rec*r+recKD)
		for g := range t.groups {
			part, total := t.part(r, g), t.total(r, g)
			if t.k.centre != 0 {
				t.op("VPSLLD $%d, Z%d, Z%d", t.k.centreBits(), part, part)
				t.op("VPSUBD Z%d, Z%d, Z%d", part, total, total)
			}
			t.op("VCVTDQ2PS Z%d, Z%d", total, total)
			t.op("VMULPS Z%d, Z26, Z30", 24+g)
			t.op("VMOVUPS %s, Z31", t.out(r, g))
			t.op("VFMADD231PS Z%d, Z30, Z31", total)
			if t.k.min {
				t.op("VCVTDQ2PS Z%d, Z%d", part, part)
				t.op("VMULPS Z%d, Z26, Z30", 28+g)
				t.op("VFNMADD231PS Z%d, Z30, Z31", part)
			}
			t.op("VMOVUPS Z31, %s", t.out(r, g))
		}
	}
}

// packedSuperblock is the tile of a K type straight from the packed block, two blocks of 32 columns at a time.
func (t tile512) packedSuperblock() {
	w := weights512{t.avx512, t.k}
	for r := range t.rows {
		t.zero(t.total(r, 0))
	}
	t.op("MOVQ AX, DI")
	t.op("MOVQ SI, R13")
	t.op("MOVQ BX, R11")
	w.masks()
	w.start()
	t.op("MOVQ $%d, R15", t.k.parts())
	again := t.label("part")
	t.at(again)
	quads := 8
	if t.k.sub16 {
		quads = 4
	}
	for pair := range t.k.partBlocks() / 2 {
		for q := range 8 {
			if q%quads == 0 {
				for r := range t.rows {
					t.zero(t.part(r, 0))
					t.zero(t.part(r, 1))
				}
			}
			codes := w.load(pair, q)
			for r := range t.rows {
				for i, c := range codes {
					t.op("VPDPBUSD.BCST %d(DI), Z%d, Z%d", t.rec*r+32*c.block+4*c.quad, c.reg, t.part(r, i))
				}
			}
			if q%quads != quads-1 {
				continue
			}
			for r := range t.rows {
				for i, c := range codes {
					scale := scale512 + 8*t.k.scales512()*c.block + 16*(q+1-quads)
					t.op("VPMULLD %d(R11), Z%d, Z%d", scale, t.part(r, i), t.part(r, i))
					t.op("VPADDD Z%d, Z%d, Z%d", t.part(r, i), t.total(r, 0), t.total(r, 0))
				}
			}
		}
	}
	t.op("ADDQ $%d, DI", 32*t.k.partBlocks())
	t.op("ADDQ $%d, R11", 8*t.k.scales512()*t.k.partBlocks())
	w.advance()
	t.op("DECQ R15")
	t.op("JNE %s", again)
	t.floatStep()
}

// blocks is the tile of a legacy type: R12 blocks of 32 columns.
func (t tile512) blocks() {
	w := weights512{t.avx512, t.k}
	t.second()
	for r := range t.rows {
		for g := range t.groups {
			t.op("VMOVUPS %s, Z%d", t.out(r, g), t.total(r, g))
		}
	}
	t.op("MOVQ AX, DI")
	t.op("MOVQ AX, R14")
	t.op("MOVQ BX, R11")
	if t.groups == 2 {
		t.op("MOVQ BX, R13")
	} else {
		t.op("MOVQ SI, R13")
		w.masks()
	}
	t.op("MOVQ R12, R15")
	again := t.label("block")
	t.at(again)
	t.startBlock()
	if t.groups == 2 {
		t.panelDots(0, 8)
	} else {
		for u := range 4 {
			codes := w.load(0, u)
			for r := range t.rows {
				for _, c := range codes {
					t.op("VPDPBUSD.BCST %d(DI), Z%d, Z%d", t.rec*r+4*c.quad, c.reg, t.part(r, 0))
				}
			}
		}
	}
	for g := range t.groups {
		t.op("VMOVAPS %d(R11), Z%d", wide512*g+scale512, 24+g)
		if t.k.min && t.groups == 2 {
			t.op("VMOVAPS %d(R11), Z%d", wide512*g+m512, 28+g)
		}
	}
	for r := range t.rows {
		t.op("VBROADCASTSS %d(R14), Z26", t.rec*r+rec32D)
		if t.k.min {
			t.op("VBROADCASTSS %d(R14), Z31", t.rec*r+rec32Dsum)
		}
		for g := range t.groups {
			part, total := t.part(r, g), t.total(r, g)
			t.op("VCVTDQ2PS Z%d, Z%d", part, part)
			t.op("VMULPS Z%d, Z26, Z27", 24+g)
			t.op("VFMADD231PS Z%d, Z27, Z%d", part, total)
			switch {
			case t.k.min && t.groups == 2:
				t.op("VFMADD231PS Z%d, Z31, Z%d", 28+g, total)
			case t.k.min:
				t.op("VFMADD231PS %d(R11), Z31, Z%d", m512, total)
			}
		}
	}
	t.op("ADDQ $32, DI")
	t.op("ADDQ $4, R14")
	t.op("ADDQ $64, R11")
	if t.groups == 2 {
		t.op("ADDQ $512, R13")
	} else {
		t.op("ADDQ $%d, R13", t.k.bytes())
	}
	t.op("DECQ R15")
	t.op("JNE %s", again)
	t.second()
	for r := range t.rows {
		for g := range t.groups {
			t.op("VMOVUPS Z%d, %s", t.total(r, g), t.out(r, g))
		}
	}
}

// startBlock sets the sums of a legacy block to zero or, since codes are unsigned, to what their centre adds too much.
func (t tile512) startBlock() {
	if t.k.min {
		for r := range t.rows {
			for g := range t.groups {
				t.zero(t.part(r, g))
			}
		}
		return
	}
	t.zero(31)
	for r := range t.rows {
		first := t.part(r, 0)
		t.op("VPBROADCASTD %d(R14), Z26", t.rec*r+rec32S)
		t.op("VPSLLD $%d, Z26, Z26", t.k.centreBits())
		t.op("VPSUBD Z26, Z31, Z%d", first)
		for g := 1; g < t.groups; g++ {
			t.op("VMOVDQA64 Z%d, Z%d", first, t.part(r, g))
		}
	}
}
