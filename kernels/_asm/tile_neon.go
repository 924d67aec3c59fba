package main

import "slices"

// neonTile writes the products of one superblock with t rows of activations, some vectors of four rows of weights at a
// time. Integer sums are [t][vectors] registers of four rows; matrixProducts instead has, for t of 2 and 4, one of two
// rows by two of activations, [t/2][2·vectors], and for t of 1 one of two rows by two halves of the sum, [2·vectors].
type neonTile struct {
	neonMatMul
	k          kind
	t, vectors int

	acts, weights, spread []int // operands
	acc, high             []int // sums of a sub-block; high: wordSums' second halves
	sums                  []int // of the superblock: for K types integers like acc, for others floats [t][vectors]

	few       bool  // codes come from packed blocks; acc has this for each of the sub-blocks summed side by side
	constants []int // registers that blocks must leave alone
}

// tile writes a tile of t rows.
func (f neonMatMul) tile(k kind, t int) {
	w := neonTile{neonMatMul: f, k: k, t: t, vectors: 4}
	if t == 4 || f.engine == wordSums && k.signed {
		w.vectors = 2
	}
	var r registers
	n := t * w.vectors
	w.acts = r.take(t) // first: 16-bit lanes must be of v0 to v15
	switch f.engine {
	case matrixProducts:
		n = max(n, 2*w.vectors)
		w.weights, w.spread = r.take(2*w.vectors), r.take(2)
		w.acc = r.take(n)
	case dotProducts:
		w.weights = r.take(2 * w.vectors)
		w.acc = r.take(n)
	case wordSums:
		w.weights, w.spread = r.take(w.vectors), r.take(2)
		if k.signed {
			w.weights, w.spread = append(w.weights, r.take(w.vectors)...), append(w.spread, r.take(2)...)
		}
		w.acc, w.high = r.take(n), r.take(n)
	}
	if !k.k {
		n = t * w.vectors
	}
	w.sums = r.take(n)
	w.write()
}

// free returns the registers that are not live.
func free(live ...[]int) []int {
	var list []int
	for v := range 32 {
		if !slices.ContainsFunc(live, func(l []int) bool { return slices.Contains(l, v) }) {
			list = append(list, v)
		}
	}
	return list
}

// write writes the passes over the vectors of rows.
func (w neonTile) write() {
	w.note("%d rows", w.t)
	w.op("MOVD %s, R21", map[bool]string{true: "R20", false: "R2"}[w.few || w.direct(w.k)])
	w.op("MOVD R7, R22")
	w.op("MOVD R2, R23")
	w.op("MOVD R2, R25")
	w.op("MOVD R2, R26")
	passes, again := 4/w.vectors, w.label("pass")
	if passes > 1 {
		w.op("MOVD $%d, R24", passes)
		w.at(again)
	}
	w.op("MOVD R21, R8")
	w.op("MOVD R6, R10")
	if w.k.k {
		if w.few {
			w.fewSuperblock()
		} else {
			w.superblock()
		}
		w.floats()
	} else {
		w.blocks()
	}
	if passes > 1 {
		twice := 1
		if w.engine == matrixProducts {
			twice = 2
		}
		w.op("ADD $%d, R21", 16*w.vectors*twice)
		w.op("ADD $%d, R22", 16*w.vectors)
		w.op("ADD $%d, R23", 16*w.vectors)
		w.op("ADD $%d, R25", w.minStride()*w.vectors)
		w.op("ADD $%d, R26", 16*w.vectors*twice)
		w.op("SUB $1, R24")
		w.op("CBNZ R24, %s", again)
	}
}

// superblock writes the integer sums of a K type.
func (w neonTile) superblock() {
	w.op("MOVD R26, R11")
	w.op("MOVD $8, R13")
	for _, s := range w.sums {
		w.movi(s, 0)
	}
	again := w.label("block")
	w.at(again)
	step, bytes := 8, 64
	if w.engine == matrixProducts {
		bytes = 128
	}
	if w.k.sub16 {
		step = 4
	}
	for from := 0; from < 8; from += step {
		w.products(from, from+step)
		n := w.vectors
		if w.engine == matrixProducts {
			n *= 2
		}
		for i := range n {
			w.ldr(w.weights[i], 11, neonScale+bytes*from/step+16*i)
		}
		for i, acc := range w.acc {
			w.three("mla", "4s", w.sums[i], acc, w.weights[i%n])
		}
	}
	w.op("ADD $32, R10")
	w.op("ADD $512, R8")
	w.op("ADD $%d, R11", bytes*8/step)
	w.op("SUB $1, R13")
	w.op("CBNZ R13, %s", again)
}

// floats adds the sums of a K type's superblock to those in memory.
func (w neonTile) floats() {
	isum := w.rows(w.sums)
	var mins []int
	if w.k.min {
		mins = w.minimums(isum)
	}
	regs := free(isum, mins)
	scales, regs := regs[:w.t], regs[w.t:]
	d, dd, acc := regs[0], regs[1], regs[2]
	fraction := 0
	if w.k.name == "Q6_K" && w.engine != wordSums {
		fraction = 2
	}
	for r, s := range scales {
		w.ldrS(s, 6, recK*r+recKD)
	}
	for v := range w.vectors {
		w.ldr(d, 23, neonD+16*v)
		if w.k.min {
			w.ldr(regs[3], 23, neonDmin+16*v)
		}
		for r, s := range scales {
			i := r*w.vectors + v
			w.ldr(acc, 22, 64*r+16*v)
			w.byLane("fmul", dd, d, s, 0)
			w.scvtfFixed(isum[i], isum[i], fraction)
			w.three("fmla", "4s", acc, dd, isum[i])
			if w.k.min {
				w.byLane("fmul", dd, regs[3], s, 0)
				w.two("scvtf", "4s", mins[i], mins[i])
				w.three("fmls", "4s", acc, dd, mins[i])
			}
			w.str(acc, 22, 64*r+16*v)
		}
	}
}

// minimums returns registers [t][vectors] with the sums of minimums times sums of activations.
func (w neonTile) minimums(live []int) []int {
	sums := w.acts[:w.t]
	regs := free(live, sums)
	m, mins := regs[0], regs[1:1+w.t*w.vectors]
	pairs, at := 4, recKSum32
	if w.k.sub16 {
		pairs, at = 8, recKSum16
	}
	for p := range pairs {
		if p%4 == 0 { // eight sums at a time
			for r, s := range sums {
				w.ldr(s, 6, recK*r+at+4*p)
			}
		}
		for v := range w.vectors {
			w.ldr(m, 25, neonMin+w.minStride()*v+16*p)
			for r, s := range sums {
				i := mins[r*w.vectors+v]
				if p == 0 {
					w.smullLane(i, m, s, 0, false)
				} else {
					w.smlalLane(i, m, s, p%4*2, false)
				}
				w.smlalLane(i, m, s, p%4*2+1, true)
			}
		}
	}
	return mins
}

// minStride is the bytes of four rows' minimums in the panel.
func (w neonTile) minStride() int {
	if w.k.sub16 {
		return 128
	}
	return 64
}

// rows returns sums as [t][vectors], overwriting them.
func (w neonTile) rows(sums []int) []int {
	if w.engine != matrixProducts {
		return sums
	}
	spare := free(w.acts, w.acc, w.sums)[0]
	list := make([]int, w.t*w.vectors)
	for i := 0; i < len(sums); i += 2 {
		a, b := sums[i], sums[i+1]
		if w.t == 1 {
			w.three("addp", "4s", a, a, b)
			list[i/2] = a
			continue
		}
		w.three("uzp1", "4s", spare, a, b)
		w.three("uzp2", "4s", b, a, b)
		at := i/(2*w.vectors)*2*w.vectors + i/2%w.vectors
		list[at], list[at+w.vectors] = spare, b
		spare = a
	}
	return list
}

// blocks writes the product of a legacy type: a step of floats for each block.
func (w neonTile) blocks() {
	w.op("MOVD R6, R12")
	w.op("MOVD R23, R11")
	w.op("MOVD R15, R13")
	for r := range w.t {
		for v := range w.vectors {
			w.ldr(w.sums[r*w.vectors+v], 22, 64*r+16*v)
		}
	}
	if w.few {
		w.constants = w.fewConstants()
	}
	again := w.label("block")
	w.at(again)
	if w.few {
		w.fewBlock()
	} else {
		w.products(0, 8)
	}
	isum := w.rows(w.acc)
	regs := free(isum, w.sums, w.constants)
	scales, regs := regs[:w.t], regs[w.t:]
	second, regs := regs[:w.t], regs[w.t:]
	d, dd, m := regs[0], regs[1], regs[2]
	for r := range w.t {
		w.ldrS(scales[r], 12, rec32*r+rec32D)
		switch {
		case w.k.min:
			w.ldrS(second[r], 12, rec32*r+rec32Dsum)
		case w.k.centre > 0:
			w.ldrS(second[r], 12, rec32*r+rec32S)
		}
	}
	if w.k.centre > 0 {
		w.movi32(m, byte(w.k.centre), 0)
	}
	for v := range w.vectors {
		w.ldr(d, 11, neonScale+16*v)
		if w.k.min {
			w.ldr(m, 11, neonM+16*v)
		}
		for r := range w.t {
			i := r*w.vectors + v
			if w.k.centre > 0 {
				w.byLane("mls", isum[i], m, second[r], 0)
			}
			w.byLane("fmul", dd, d, scales[r], 0)
			w.two("scvtf", "4s", isum[i], isum[i])
			w.three("fmla", "4s", w.sums[i], dd, isum[i])
			if w.k.min {
				w.byLane("fmla", w.sums[i], m, second[r], 0)
			}
		}
	}
	w.op("ADD $32, R10")
	w.op("ADD $4, R12")
	w.op("ADD $%d, R8", map[bool]int{true: w.k.bytes(), false: 512}[w.few || w.direct(w.k)])
	w.op("ADD $64, R11")
	w.op("SUB $1, R13")
	w.op("CBNZ R13, %s", again)
	for r := range w.t {
		for v := range w.vectors {
			w.str(w.sums[r*w.vectors+v], 22, 64*r+16*v)
		}
	}
}

// products writes the sums of quads [from, to) of a block to acc: codes at R8, activations at R10.
func (w neonTile) products(from, to int) {
	switch {
	case w.engine == matrixProducts:
		w.matrixProducts(from, to)
	case w.engine == dotProducts:
		w.dotProducts(from, to)
	case w.k.signed:
		w.wideSums(from, to)
	default:
		w.wordSums(from, to)
	}
}

// loadActs loads 16 columns of activations where quad q is the first of them.
func (w neonTile) loadActs(q int) {
	if q%4 == 0 {
		for r := range w.t {
			w.ldr(w.acts[r], 10, w.k.record()*r+4*q)
		}
	}
}

func (w neonTile) dotProducts(from, to int) {
	for _, a := range w.acc {
		w.movi(a, 0)
	}
	for q := from; q < to; q++ {
		w.loadActs(q)
		weights := w.weights[q%2*w.vectors:][:w.vectors]
		for v, x := range weights {
			w.ldr(x, 8, 64*q+16*v)
		}
		for r := range w.t {
			for v, x := range weights {
				w.sdotLane(w.acc[r*w.vectors+v], x, w.acts[r], q%4)
			}
		}
	}
}

func (w neonTile) matrixProducts(from, to int) {
	for _, a := range w.acc {
		w.movi(a, 0)
	}
	n := 2 * w.vectors
	for q := from; q < to; q += 2 {
		// acts[2i], acts[2i+1]: two rows' first and second eight columns
		switch {
		case w.t == 1 && q%4 == 0:
			w.ldr(w.acts[0], 10, 4*q)
		case q%4 == 0:
			for r := 0; r < w.t; r += 2 {
				for i, s := range w.spread {
					w.ldr(s, 10, w.k.record()*(r+i)+4*q)
				}
				w.three("zip1", "2d", w.acts[r], w.spread[0], w.spread[1])
				w.three("zip2", "2d", w.acts[r+1], w.spread[0], w.spread[1])
			}
		}
		for i := range n {
			w.ldr(w.weights[i], 8, 64*q+16*i)
		}
		if w.t == 1 {
			w.dup("2d", w.spread[0], w.acts[0], q/2%2)
			for i, a := range w.acc {
				w.sdot(a, w.weights[i], w.spread[0])
			}
			continue
		}
		for i, a := range w.acc {
			w.smmla(a, w.weights[i%n], w.acts[i/n*2+q/2%2])
		}
	}
}

// wordSums adds products in 16 bits over all the quads: 8 of at most 31·127, or 4 of 32·127.
func (w neonTile) wordSums(from, to int) {
	for q := from; q < to; q++ {
		w.loadActs(q)
		for v, x := range w.weights {
			w.ldr(x, 8, 64*q+16*v)
		}
		for r := range w.t {
			a := w.spread[r%2]
			w.dup("4s", a, w.acts[r], q%4)
			for v, x := range w.weights {
				i := r*w.vectors + v
				if q == from {
					w.smull(w.acc[i], x, a, false)
					w.smull(w.high[i], x, a, true)
				} else {
					w.smlal(w.acc[i], x, a, false)
					w.smlal(w.high[i], x, a, true)
				}
			}
		}
	}
	for i, a := range w.acc {
		w.saddlp(a, a)
		w.saddlp(w.high[i], w.high[i])
		w.three("addp", "4s", a, a, w.high[i])
	}
}

// wideSums does the same for bytes of all sizes: 16 bits hold 2 products of 128·127.
func (w neonTile) wideSums(from, to int) {
	for q := from; q < to; q += 2 {
		w.loadActs(q)
		for i := range 2 {
			for v := range w.vectors {
				w.ldr(w.weights[i*w.vectors+v], 8, 64*(q+i)+16*v)
			}
		}
		for r := range w.t {
			for i := range 2 {
				w.dup("4s", w.spread[i], w.acts[r], q%4+i)
			}
			for v := range w.vectors {
				at := r*w.vectors + v
				for half, sum := range []int{w.acc[at], w.high[at]} {
					product := w.spread[2+half]
					w.smull(product, w.weights[v], w.spread[0], half == 1)
					w.smlal(product, w.weights[w.vectors+v], w.spread[1], half == 1)
					if q == from {
						w.saddlp(sum, product)
					} else {
						w.sadalp(sum, product)
					}
				}
			}
		}
	}
	for i, a := range w.acc {
		w.three("addp", "4s", a, a, w.high[i])
	}
}
