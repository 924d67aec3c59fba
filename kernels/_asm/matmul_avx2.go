package main

import "fmt"

// The quantised matrix product for AVX2: 16 packed rows (lanes are rows: two registers of eight) by any number of rows
// of activations. For each superblock of 256 columns, the codes are unpacked to a panel in L1, unsigned bytes in quads of
// columns, then tiles of up to four rows of activations go over it. VPMADDUBSW multiplies them with one broadcast quad
// of activations to 16-bit pair sums, as many of which are added as can't overflow, then VPMADDWD with pairs of the
// sub-block's scale widens and scales in one step.
//
// Registers: SI packed weights, BX panel, R8 records of the superblock, R9 arguments, R10 blocks left, R12 how far ahead to
// fetch; in a tile: AX record of its first row, DX its sums, CX rows left, R13 codes, DI activations, R11 scales of the block,
// R14 scalars of the record, R15 blocks left in the superblock.

func matmulAVX2(f *file) {
	for _, k := range kinds {
		avx2{f, false}.group(k)
	}
}

type avx2 struct {
	*file
	vnni bool // see matmul_vnni.go
}

// group writes the function for one type: few rows of activations take the codes from the packed blocks as they go,
// more rows share an unpacked panel.
func (f avx2) group(k kind) {
	isa := "AVX2"
	if f.vnni {
		isa = "AVXVNNI"
	}
	f.fn("group"+k.name+isa, "groupArgs", "R9", "multiplies one group of packed rows, see groupArgs.")
	f.op("MOVQ groupArgs_w(R9), SI")
	f.op("MOVQ groupArgs_panel(R9), BX")
	f.op("MOVQ groupArgs_acts(R9), R8")
	f.op("MOVQ groupArgs_blocks(R9), R10")
	super, many, next, done := f.label("super"), f.label("many"), f.label("next"), f.label("done")
	f.at(super)
	f.op("TESTQ R10, R10")
	f.op("JLE %s", done)
	if !k.k {
		f.op("MOVQ $8, R12")
		f.op("CMPQ R10, R12")
		f.op("CMOVQLT R10, R12")
		f.op("MOVQ R12, %d(BX)", panelBlocks)
	}
	f.op("MOVQ groupArgs_ahead(R9), R12")
	f.unpackScales(k)
	if !k.plain() {
		few := fewRows
		if k.k && !f.vnni {
			few = 4 // one tile, or two: more would take their superblocks apart anew
		}
		f.op("CMPQ groupArgs_rows(R9), $%d", few)
		f.op("JGT %s", many)
	}
	f.rowLoop(k, true)
	if !k.plain() {
		f.op("JMP %s", next)
		f.at(many)
		f.unpackCodes(k)
		f.rowLoop(k, false)
		f.at(next)
	}
	f.op("ADDQ groupArgs_next(R9), R8")
	if k.k {
		f.op("ADDQ $%d, SI", k.bytes())
		f.op("DECQ R10")
	} else {
		f.op("IMUL3Q $%d, %d(BX), R12", k.bytes(), panelBlocks)
		f.op("ADDQ R12, SI")
		f.op("SUBQ $8, R10")
	}
	f.op("JMP %s", super)
	f.at(done)
	f.ret()
}

// rowLoop multiplies four rows of activations at a time, then two, then one.
func (f avx2) rowLoop(k kind, packed bool) {
	rec := rec32
	if k.k {
		rec = recK
	}
	f.op("MOVQ R8, AX")
	f.op("MOVQ groupArgs_acc(R9), DX")
	f.op("MOVQ groupArgs_rows(R9), CX")
	sizes := []int{4, 2, 1}
	if k.k && k.quads < 8 && !f.vnni {
		sizes = []int{2, 1} // they widen so often that sums in memory cost more than codes loaded twice as often
	}
	for _, t := range sizes {
		next, again := f.label("rowsNext"), f.label(fmt.Sprintf("rows%d_", t))
		f.at(again)
		f.op("CMPQ CX, $%d", t)
		f.op("JLT %s", next)
		tile := tile{f, k, t, rec, packed}
		switch {
		case k.k:
			tile.superblock()
		case k.signed:
			tile.signed()
		default:
			tile.blocks()
		}
		f.op("ADDQ $%d, AX", t*rec)
		f.op("ADDQ $%d, DX", t*64)
		f.op("SUBQ $%d, CX", t)
		if t > 1 {
			f.op("JMP %s", again)
		}
		f.at(next)
	}
}
