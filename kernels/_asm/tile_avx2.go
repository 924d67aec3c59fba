package main

import "fmt"

// tile multiplies one superblock by rows rows of activations.
type tile struct {
	avx2
	k      kind
	rows   int
	rec    int  // size of a record
	packed bool // codes come from the packed blocks, not from the panel
}

// pairSums emits quads [from, to) of block b: 16-bit pair sums of all rows by two registers of weights, into Y0 up,
// starting anew. Codes at R13, activations at off(DI). Signed codes give their signs to the activations.
func (t tile) pairSums(b, off, from, to int) {
	for q := from; q < to; q++ {
		t.codes(b, q)
		for v := range 2 {
			if t.k.signed {
				t.op("VPABSB Y%d, Y%d", 8+v, 12+v)
			}
		}
		for r := range t.rows {
			t.op("VPBROADCASTD %d(DI), Y10", t.rec*r+off+4*q)
			for v := range 2 {
				if t.k.signed { // one quad at a time
					t.op("VPSIGNB Y%d, Y10, Y%d", 8+v, 2*r+v)
					t.op("VPMADDUBSW Y%d, Y%d, Y%d", 2*r+v, 12+v, 2*r+v)
					continue
				}
				if q == from {
					t.op("VPMADDUBSW Y10, Y%d, Y%d", 8+v, 2*r+v)
					continue
				}
				t.op("VPMADDUBSW Y10, Y%d, Y%d", 8+v, 11+v)
				t.op("VPADDW Y%d, Y%d, Y%d", 11+v, 2*r+v, 2*r+v)
			}
		}
	}
}

// codes brings quad q of block b to Y8 and Y9. Y11 is lost.
func (t tile) codes(b, q int) {
	w := weights{t.avx2, t.k, "R13", "R14"}
	for v := range 2 {
		if t.packed {
			w.load(b, q, v, fmt.Sprintf("Y%d", 8+v), "Y11")
		} else {
			t.op("VMOVDQU %d(R13), Y%d", 64*q+32*v, 8+v)
		}
	}
}

// inRegs reports whether the tile's 32-bit or float sums stay in registers, Y4 up.
func (t tile) inRegs() bool { return t.rows <= 2 }

// sum is the register of such a sum.
func (t tile) sum(r, v int) string { return fmt.Sprintf("Y%d", 4+2*r+v) }

// spill is where 32-bit sums are otherwise.
func (t tile) spill(r, v int) string { return fmt.Sprintf("%d(BX)", panelTotal+64*r+32*v) }

// out is where float sums are.
func (t tile) out(r, v int) string { return fmt.Sprintf("%d(DX)", 64*r+32*v) }

// superblock is the tile of a K type.
func (t tile) superblock() {
	t.note("%d rows", t.rows)
	w := weights{t.avx2, t.k, "R13", "R14"}
	t.op("MOVQ AX, DI")
	t.op("MOVQ BX, R11")
	blocks, times := 1, 8
	if t.packed {
		blocks, times = t.k.partBlocks(), t.k.parts()
		w.masks()
		w.start()
	} else {
		t.op("MOVQ BX, R13")
	}
	t.op("MOVQ $%d, R15", times)
	t.clear()
	again := t.label("block")
	t.at(again)
	for b := range blocks {
		if t.packed {
			w.fetch(b)
			w.bits(b)
		}
		t.block32(b, 32*b, t.scaleStride()*b)
	}
	t.op("ADDQ $%d, DI", 32*blocks)
	t.op("ADDQ $%d, R11", t.scaleStride()*blocks)
	if t.packed {
		w.advance()
	} else {
		t.op("ADDQ $512, R13")
	}
	t.op("DECQ R15")
	t.op("JNE %s", again)
	if t.packed {
		w.end()
	}
	for r := range t.rows {
		t.floatStep(r)
	}
}

// scaleStride is the bytes from the scales of a block of 32 columns to the next one's.
func (t tile) scaleStride() int {
	if t.k.sub16 {
		return 128
	}
	return 64
}

// clear sets all 32-bit sums to zero.
func (t tile) clear() {
	if t.inRegs() {
		for i := range 2 * t.rows {
			t.op("VPXOR Y%d, Y%d, Y%d", 4+i, 4+i, 4+i)
		}
		return
	}
	t.op("VPXOR Y8, Y8, Y8")
	for r := range t.rows {
		t.op("VMOVDQU Y8, %s", t.spill(r, 0))
		t.op("VMOVDQU Y8, %s", t.spill(r, 1))
	}
}

// block32 adds the scaled products of block b of 32 columns to the 32-bit sums.
func (t tile) block32(b, acts, scales int) {
	for from := 0; from < 8; from += t.k.quads {
		at := panelScale + scales
		if t.k.sub16 {
			at += from / 4 * 64
		}
		if t.vnni {
			t.dots(b, acts, from, from+t.k.quads)
			t.scaleDots(at)
		} else {
			t.pairSums(b, acts, from, from+t.k.quads)
		}
		for r := range t.rows {
			for v := range 2 {
				acc := 2*r + v
				if !t.vnni {
					t.op("VPMADDWD %d(R11), Y%d, Y%d", at+32*v, acc, acc)
				}
				if t.inRegs() {
					t.op("VPADDD Y%d, %s, %s", acc, t.sum(r, v), t.sum(r, v))
					continue
				}
				t.op("VPADDD %s, Y%d, Y%d", t.spill(r, v), acc, acc)
				t.op("VMOVDQU Y%d, %s", acc, t.spill(r, v))
			}
		}
	}
}

// floatStep adds a K superblock's products to the float sums of row r.
func (t tile) floatStep(r int) {
	t.op("VBROADCASTSS %d(AX), Y8", recK*r+recKD)
	// Y2, Y3: the sum over sub-blocks of minimums (or, for types with a centre, of scales) times sums of activations.
	pairs, sums := 4, recKSum32
	switch {
	case t.k.sub16:
		pairs, sums = 8, recKSum16
	case t.k.signed:
		pairs = 0
	}
	for p := range pairs {
		t.op("VPBROADCASTD %d(AX), Y9", recK*r+sums+4*p)
		for v := range 2 {
			if p == 0 {
				t.op("VPMADDWD %d(BX), Y9, Y%d", panelMin+64*p+32*v, 2+v)
				continue
			}
			t.op("VPMADDWD %d(BX), Y9, Y10", panelMin+64*p+32*v)
			t.op("VPADDD Y10, Y%d, Y%d", 2+v, 2+v)
		}
	}
	for v := range 2 {
		isum := "Y10"
		if t.inRegs() {
			isum = t.sum(r, v)
		} else {
			t.op("VMOVDQU %s, Y10", t.spill(r, v))
		}
		if t.k.centre != 0 {
			t.op("VPSLLD $%d, Y%d, Y%d", t.k.centreBits(), 2+v, 2+v)
			t.op("VPSUBD Y%d, %s, Y10", 2+v, isum)
			isum = "Y10"
		}
		t.op("VCVTDQ2PS %s, Y10", isum)
		t.op("VMULPS %d(BX), Y8, Y11", panelD+32*v)
		t.op("VMOVUPS %s, Y12", t.out(r, v))
		t.op("VFMADD231PS Y10, Y11, Y12")
		if t.k.min {
			t.op("VCVTDQ2PS Y%d, Y10", 2+v)
			t.op("VMULPS %d(BX), Y8, Y11", panelDmin+32*v)
			t.op("VFNMADD231PS Y10, Y11, Y12")
		}
		t.op("VMOVUPS Y12, %s", t.out(r, v))
	}
}

// eachBlock loops over the blocks of a legacy superblock.
func (t tile) eachBlock(body func()) {
	t.op("MOVQ AX, DI")
	t.op("MOVQ AX, R14")
	if t.packed {
		t.op("MOVQ SI, R13")
	} else {
		t.op("MOVQ BX, R13")
	}
	t.op("MOVQ BX, R11")
	t.op("MOVQ %d(BX), R15", panelBlocks)
	again := t.label("block")
	t.at(again)
	if t.packed && (!t.k.plain() || t.inRegs()) { // spread, as in superblock; Q8_0 is always packed, also for many rows
		t.prefetch("R13", 0, (t.k.bytes()+63)/64)
	}
	body()
	t.op("ADDQ $32, DI")
	t.op("ADDQ $4, R14")
	if t.packed {
		t.op("ADDQ $%d, R13", t.k.bytes())
	} else {
		t.op("ADDQ $512, R13")
	}
	t.op("ADDQ $64, R11")
	t.op("DECQ R15")
	t.op("JNE %s", again)
}

// blocks is the tile of a legacy type with unsigned codes.
func (t tile) blocks() {
	t.note("%d rows", t.rows)
	if t.packed {
		weights{t.avx2, t.k, "R13", "R14"}.masks()
	}
	if !t.vnni {
		t.op("VMOVDQU %s, Y13", t.bytes32("ones16", 1, 0))
	}
	if t.inRegs() {
		for r := range t.rows {
			for v := range 2 {
				t.op("VMOVUPS %s, %s", t.out(r, v), t.sum(r, v))
			}
		}
	}
	t.eachBlock(func() {
		if t.vnni {
			t.dots(0, 0, 0, 8)
		}
		for from := 0; from < 8 && !t.vnni; from += t.k.quads {
			t.pairSums(0, 0, from, from+t.k.quads)
			for i := range 2 * t.rows {
				t.op("VPMADDWD Y13, Y%d, Y%d", i, i)
				if from+t.k.quads < 8 {
					t.op("VMOVDQU Y%d, %d(BX)", i, panelTotal+32*i)
				} else if from > 0 {
					t.op("VPADDD %d(BX), Y%d, Y%d", panelTotal+32*i, i, i)
				}
			}
		}
		for r := range t.rows {
			t.op("VBROADCASTSS %d(R14), Y8", rec32*r+rec32D)
			if t.k.min {
				t.op("VBROADCASTSS %d(R14), Y9", rec32*r+rec32Dsum)
			} else {
				t.op("VPBROADCASTD %d(R14), Y9", rec32*r+rec32S)
				t.op("VPSLLD $%d, Y9, Y9", t.k.centreBits())
			}
			for v := range 2 {
				acc := 2*r + v
				if !t.k.min {
					t.op("VPSUBD Y9, Y%d, Y%d", acc, acc)
				}
				t.op("VCVTDQ2PS Y%d, Y%d", acc, acc)
				t.op("VMULPS %d(R11), Y8, Y10", panelScale+32*v)
				to := "Y11"
				if t.inRegs() {
					to = t.sum(r, v)
				} else {
					t.op("VMOVUPS %s, Y11", t.out(r, v))
				}
				t.op("VFMADD231PS Y%d, Y10, %s", acc, to)
				if t.k.min {
					t.op("VFMADD231PS %d(R11), Y9, %s", panelM+32*v, to)
				}
				if !t.inRegs() {
					t.op("VMOVUPS Y11, %s", t.out(r, v))
				}
			}
		}
	})
	if t.inRegs() {
		for r := range t.rows {
			for v := range 2 {
				t.op("VMOVUPS %s, %s", t.sum(r, v), t.out(r, v))
			}
		}
	}
}

// signed is the tile of a legacy type with signed codes, Q8_0's always straight from the packed blocks: the weights' signs
// go to the activations, and every pair sum is widened at once.
func (t tile) signed() {
	t.note("%d rows", t.rows)
	if t.packed {
		weights{t.avx2, t.k, "R13", "R14"}.masks()
	}
	ones := t.bytes32("ones16", 1, 0)
	if t.k.plain() {
		t.op("VMOVDQU %s, Y15", ones)
		ones = "Y15"
	}
	t.eachBlock(func() {
		for q := range 8 {
			t.codes(0, q)
			for v := range 2 {
				t.op("VPABSB Y%d, Y%d", 8+v, 10+v)
			}
			for r := range t.rows {
				t.op("VPBROADCASTD %d(DI), Y12", rec32*r+4*q)
				for v := range 2 {
					acc := 2*r + v
					t.op("VPSIGNB Y%d, Y12, Y13", 8+v)
					t.op("VPMADDUBSW Y13, Y%d, Y13", 10+v)
					if q == 0 {
						t.op("VPMADDWD %s, Y13, Y%d", ones, acc)
						continue
					}
					t.op("VPMADDWD %s, Y13, Y13", ones)
					t.op("VPADDD Y13, Y%d, Y%d", acc, acc)
				}
			}
		}
		for r := range t.rows {
			t.op("VBROADCASTSS %d(R14), Y8", rec32*r+rec32D)
			for v := range 2 {
				acc := 2*r + v
				t.op("VCVTDQ2PS Y%d, Y%d", acc, acc)
				t.op("VMULPS %d(R11), Y8, Y10", panelScale+32*v)
				t.op("VMOVUPS %s, Y11", t.out(r, v))
				t.op("VFMADD231PS Y%d, Y10, Y11", acc)
				t.op("VMOVUPS Y11, %s", t.out(r, v))
			}
		}
	})
}
