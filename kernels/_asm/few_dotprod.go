package main

// Up to four rows of activations are multiplied by codes straight from the packed blocks: they are unpacked in registers,
// used for all rows at once, and go to no panel. Scales still do.

// few returns how many rows of activations go without a panel: as many as registers allow for one pass over the codes.
func (f neonMatMul) few(k kind) int {
	switch {
	case f.engine != dotProducts || k.plain():
		return 0
	case k.sub16 && !k.grid:
		return 2
	}
	return 4
}

// fewRows writes the way for few rows, which ends at done; more go on after it.
func (f neonMatMul) fewRows(k kind, done string) {
	more := f.label("more")
	f.op("MOVD groupArgs_rows(R0), R5")
	f.op("CMP $%d, R5", f.few(k))
	f.op("BGT %s", more)
	if k.k {
		f.scalesK(k)
		f.op("ADD $%d, R1, R20", 16*k.scale)
		f.op("ADD $%d, R1", k.bytes())
	} else {
		f.unpack32(k, true)
	}
	f.op("MOVD R3, R6")
	f.op("MOVD groupArgs_acc(R0), R7")
	for t := f.few(k); t > 0; t-- {
		next := f.label("rowsNext")
		f.op("CMP $%d, R5", t)
		f.op("BNE %s", next)
		f.fewTile(k, t)
		f.op("JMP %s", done)
		f.at(next)
	}
	f.at(more)
}

// fewTile writes the product of one superblock with t rows.
func (f neonMatMul) fewTile(k kind, t int) {
	w := neonTile{neonMatMul: f, k: k, t: t, few: true}
	parts := 1 // sub-blocks summed side by side
	switch {
	case k.book != nil:
		w.vectors = []int{0, 4, 4, 2, 2}[t]
	case k.sub16 && !k.grid:
		parts, w.vectors = 4, []int{0, 2, 1}[t]
	case k.k:
		parts, w.vectors = 2, []int{0, 4, 2, 1, 1}[t]
	case k.five():
		w.vectors = []int{0, 4, 2, 1, 1}[t]
	default:
		w.vectors = []int{0, 4, 4, 2, 2}[t]
	}
	var r registers
	w.acts = r.take(t * max(2, parts))
	w.acc = r.take(t * w.vectors * parts)
	w.sums = r.take(t * w.vectors)
	w.write()
}

// fewConstants loads what unpacking codes needs, to the last registers: low nibbles; then the codebook, or for fifth bits
// sixteens, two masks and, for legacy types, the indices of four bytes.
func (w neonTile) fewConstants() []int {
	w.movi(31, 0x0f)
	if w.k.book != nil {
		w.fixed(30, "codes"+w.k.name, w.k.table()...)
		return []int{31, 30}
	}
	if !w.k.five() {
		return []int{31}
	}
	w.movi(30, 16)
	if w.k.k {
		w.movi(29, 1)
		w.movi(28, 2)
		return []int{31, 30, 29, 28}
	}
	w.fixed(29, "bits0", 1, 2, 4, 8)
	w.fixed(28, "bits1", 0x10, 0x20, 0x40, 0x80)
	for b := range 4 {
		w.fixed(27-b, sprintf("byte%d", b), byteOf(b)...)
	}
	return []int{31, 30, 29, 28, 27, 26, 25, 24}
}

// fewNibbles loads nibbles at offset(R8) to lo and hi, or what the codebook has for them.
func (w neonTile) fewNibbles(lo, hi, offset int) {
	w.ldr(lo, 8, offset)
	w.shift("ushr", "16b", hi, lo, 4)
	w.three("and", "16b", lo, lo, 31)
	if w.k.book != nil {
		w.tbl(lo, 30, lo)
		w.tbl(hi, 30, hi)
	}
}

// fewFifth adds 16 to the codes in reg where bits has a bit of mask. The register spare is lost.
func (w neonTile) fewFifth(reg, bits, mask, spare int) {
	w.three("cmtst", "16b", spare, bits, mask)
	w.three("mls", "16b", reg, spare, 30)
}

// fewBlock writes the products of a block of 32 columns to acc. At R8 are fifth bits, where the type has them, and nibbles.
func (w neonTile) fewBlock() {
	spare := free(w.acts, w.acc, w.sums, w.constants)
	codes := 0
	if w.k.five() {
		codes = 64
	}
	for r := range w.t {
		for half := range 2 {
			w.ldr(w.acts[2*r+half], 10, w.k.record()*r+16*half)
		}
	}
	for _, a := range w.acc {
		w.movi(a, 0)
	}
	for v := range w.vectors {
		for u := range 4 {
			reg := spare[u%2*2:] // low and high nibbles
			w.fewNibbles(reg[0], reg[1], codes+64*u+16*v)
			if w.k.five() {
				if u%2 == 0 {
					w.ldr(spare[4], 8, 16*v)
					w.tbl(spare[5], spare[4], 27-u/2-2)
					w.tbl(spare[4], spare[4], 27-u/2)
				}
				for half := range 2 {
					w.fewFifth(reg[half], spare[4+half], 29-u%2, spare[6])
				}
			}
			for r := range w.t {
				for half := range 2 {
					w.sdotLane(w.acc[r*w.vectors+v], reg[half], w.acts[2*r+half], u)
				}
			}
		}
	}
}

// fewSuperblock writes the integer sums of a K type.
func (w neonTile) fewSuperblock() {
	w.op("MOVD R26, R11")
	for _, s := range w.sums {
		w.movi(s, 0)
	}
	switch {
	case w.k.grid:
		w.fewGrid()
		return
	case w.k.sub16:
		w.fewParts()
		return
	}
	w.constants = w.fewConstants()
	if w.k.book != nil {
		w.fewBlocks()
		return
	}
	spare := free(w.acts, w.acc, w.sums, w.constants)
	n := w.t * w.vectors
	if w.k.five() {
		w.op("ADD $192, R21, R9")
		w.op("ADD $%d, R21, R8", 192+512)
	} else {
		w.op("ADD $192, R21, R8")
	}
	w.op("MOVD $4, R13")
	again := w.label("block")
	w.at(again)
	for _, a := range w.acc {
		w.movi(a, 0)
	}
	for u := range 8 {
		w.op("PRFM %d(R8), PLDL1KEEP", 64*u+8192)
		if u%4 == 0 {
			for r := range w.t {
				for half := range 2 {
					w.ldr(w.acts[2*r+half], 10, recK*r+32*half+4*u)
				}
			}
		}
		for v := range w.vectors {
			reg := spare[v%2*2:]
			w.fewNibbles(reg[0], reg[1], 64*u+16*v)
			if w.k.five() {
				w.ldr(spare[4], 9, 64*u+16*v)
				for half := range 2 {
					w.fewFifth(reg[half], spare[4], 29-half, spare[5])
				}
			}
			for r := range w.t {
				for half := range 2 {
					w.sdotLane(w.acc[half*n+r*w.vectors+v], reg[half], w.acts[2*r+half], u%4)
				}
			}
		}
	}
	w.fewScale(2, 64, 0, spare[0])
	w.op("ADD $512, R8")
	w.op("ADD $64, R10")
	w.op("ADD $128, R11")
	if w.k.five() {
		w.shift("shl", "16b", 29, 29, 2)
		w.shift("shl", "16b", 28, 28, 2)
	}
	w.op("SUB $1, R13")
	w.op("CBNZ R13, %s", again)
}

// fewGrid writes the integer sums of a grid: two sub-blocks of 16 side by side.
func (w neonTile) fewGrid() {
	w.movi(31, 0x0f)
	w.values(30)
	spare := free(w.acts, w.acc, w.sums, []int{30, 31})
	n := w.t * w.vectors
	w.op("MOVD R21, R8")
	w.op("MOVD $8, R13")
	again := w.label("block")
	w.at(again)
	for _, a := range w.acc {
		w.movi(a, 0)
	}
	for r := range w.t {
		for half := range 2 {
			w.ldr(w.acts[2*r+half], 10, recK*r+16*half)
		}
	}
	for u := range 4 {
		w.op("PRFM %d(R8), PLDL1KEEP", 64*u+8192)
		for v := range w.vectors {
			reg := spare[v%2*2:]
			w.fewNibbles(reg[0], reg[1], 64*u+16*v)
			for half := range 2 {
				w.tbl(reg[half], 30, reg[half])
				for r := range w.t {
					w.sdotLane(w.acc[half*n+r*w.vectors+v], reg[half], w.acts[2*r+half], u)
				}
			}
		}
	}
	w.fewScale(2, 64, 0, spare[0])
	w.op("ADD $256, R8")
	w.op("ADD $32, R10")
	w.op("ADD $128, R11")
	w.op("SUB $1, R13")
	w.op("CBNZ R13, %s", again)
}

// fewBlocks writes the integer sums of IQ4_XS: a sub-block at a time.
func (w neonTile) fewBlocks() {
	w.op("ADD $64, R21, R8")
	w.op("MOVD $8, R13")
	again := w.label("block")
	w.at(again)
	for i := range 4 {
		w.op("PRFM %d(R8), PLDL1KEEP", 64*i+8192)
	}
	w.fewBlock()
	w.fewScale(1, 0, 0, free(w.acts, w.acc, w.sums, w.constants)[0])
	w.op("ADD $256, R8")
	w.op("ADD $32, R10")
	w.op("ADD $64, R11")
	w.op("SUB $1, R13")
	w.op("CBNZ R13, %s", again)
}

// fewScale adds acc of parts times their scales, which are distance bytes apart from at(R11) on.
func (w neonTile) fewScale(parts, distance, at, spare int) {
	for p := range parts {
		for v := range w.vectors {
			w.ldr(spare, 11, neonScale+at+distance*p+16*v)
			for r := range w.t {
				i := r*w.vectors + v
				w.three("mla", "4s", w.sums[i], w.acc[p*w.t*w.vectors+i], spare)
			}
		}
	}
}

// fewParts writes the integer sums of types with scales for 16 columns: four sub-blocks side by side, one of each part of
// half a block.
func (w neonTile) fewParts() {
	masks := []int{31, 30}
	low, step := 0, 1024 // where the low bits are, and of how many bytes half a block's are
	switch w.k.name {
	case "Q2_K", "Q3_K":
		low, step = 256, 512
		w.movi(31, 3)
		w.movi(30, 0xfc) // −4
		if w.k.three() { // a bit for each part, and again four bits higher
			low = 512
			masks = append(masks, 29)
			w.movi(29, 1)
			w.op("MOVD R21, R9")
		}
	default:
		w.movi(31, 0xaa)
		w.movi(30, 0xf0)
		w.op("ADD $2048, R21, R9")
	}
	spare := free(w.acts, w.acc, w.sums, masks)
	codes := spare[4:8]
	w.op("ADD $%d, R21, R8", low)
	w.op("MOVD $2, R13")
	again := w.label("block")
	w.at(again)
	for s := range 2 {
		for _, a := range w.acc {
			w.movi(a, 0)
		}
		for r := range w.t {
			for p := range 4 {
				w.ldr(w.acts[4*r+p], 10, recK*r+32*p+16*s)
			}
		}
		for u := range 4 {
			at := 64 * (4*s + u)
			for ahead := at; ahead < step; ahead += 512 {
				w.op("PRFM %d(R8), PLDL1KEEP", ahead+8192)
			}
			if w.k.name != "Q2_K" {
				w.op("PRFM %d(R9), PLDL1KEEP", at+8192)
			}
			for v := range w.vectors {
				w.ldr(spare[0], 8, at+16*v)
				if w.k.two() {
					w.fewTwo(codes, spare[0], spare[1], spare[2], spare[3], at+16*v)
				} else {
					w.ldr(spare[1], 8, 512+at+16*v)
					w.ldr(spare[2], 9, at+16*v)
					w.parts6(codes, spare[0], spare[1], spare[2], spare[3], 31, 30)
				}
				for r := range w.t {
					for p := range 4 {
						w.sdotLane(w.acc[(p*w.t+r)*w.vectors+v], codes[p], w.acts[4*r+p], u)
					}
				}
			}
		}
		w.fewScale(4, 128, 64*s, spare[0])
	}
	w.op("ADD $%d, R8", step)
	switch w.k.name {
	case "Q3_K":
		w.shift("shl", "16b", 29, 29, 4)
	case "Q6_K":
		w.op("ADD $512, R9")
	}
	w.op("ADD $128, R10")
	w.op("ADD $512, R11")
	w.op("SUB $1, R13")
	w.op("CBNZ R13, %s", again)
}

// fewTwo makes codes of the four parts of half a Q2_K or Q3_K block, in to, of low bits x and, for Q3_K, third bits at
// offset(R9), which make codes centred. h, mask and spare are lost.
func (w neonTile) fewTwo(to []int, x, h, mask, spare, offset int) {
	if w.k.three() {
		w.ldr(h, 9, offset)
		w.mov(mask, 29)
	}
	for p, c := range to {
		if p == 0 {
			w.three("and", "16b", c, x, 31)
		} else {
			w.shift("ushr", "16b", c, x, 2*p)
			w.three("and", "16b", c, c, 31)
		}
		if w.k.three() { // −4 unless the bit is set
			w.three("cmtst", "16b", spare, h, mask)
			w.three("bic", "16b", spare, 30, spare)
			w.three("orr", "16b", c, c, spare)
			w.shift("shl", "16b", mask, mask, 1)
		}
	}
}
