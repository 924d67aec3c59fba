package main

import (
	"encoding/binary"
	"math"
)

// expNEON holds the constants of kernels.Exp in registers, and emits it as the AVX2 code does: see exp there for why its
// bits are those of the specification. Bounds keep NaN, since FMAX and FMIN do.
type expNEON struct {
	neon
	// Registers: products has log2 e and the two parts of ln 2 in its lanes; polynomial the coefficients from degree 5
	// down to 2, then 1 and 0 have their own, one.
	products, magic, one, least, beyond int
	polynomial                          []int
}

// newExp loads the constants to registers from first on, twelve of them.
func (f neon) newExp(first int) expNEON {
	e := expNEON{f, first, first + 1, first + 2, first + 3, first + 4, nil}
	f.floats(e.products, "exp", 0x1.715476p0, 0x1.63p-1, 0x1.bd0106p-13, 0)
	f.floats(e.magic, "magic", 0x1.8p23)
	f.floats(e.one, "one", 1)
	f.floats(e.least, "least", -104)
	f.floats(e.beyond, "beyond", 89)
	for i, c := range []float32{0x1.6a2414p-10, 0x1.123a2p-7, 0x1.5558f2p-5, 0x1.555492p-3, 0x1.fffffcp-2} {
		e.polynomial = append(e.polynomial, first+5+i)
		f.floats(first+5+i, sprintf("exp%d", 5-i), c)
	}
	e.polynomial = append(e.polynomial, e.one, e.one)
	return e
}

// floats loads four constants, or one to all lanes.
func (f neon) floats(t int, name string, values ...float32) {
	var pattern []byte
	for _, v := range values {
		pattern = binary.LittleEndian.AppendUint32(pattern, math.Float32bits(v))
	}
	f.fixed(t, name, pattern...)
}

// exp emits kernels.Exp over the first register of each set of four; the others are scratch. With negative set, no
// argument may be above 0.
func (e expNEON) exp(negative bool, sets ...[4]int) {
	each := func(emit func(x, t, n, u int)) {
		for _, s := range sets {
			emit(s[0], s[1], s[2], s[3])
		}
	}
	each(func(x, t, n, u int) { e.three("fmax", "4s", x, x, e.least) })
	if !negative {
		each(func(x, t, n, u int) { e.three("fmin", "4s", x, x, e.beyond) })
	}
	each(func(x, t, n, u int) { e.byLane("fmul", t, x, e.products, 0) })
	each(func(x, t, n, u int) { e.three("fadd", "4s", t, t, e.magic) })
	each(func(x, t, n, u int) { e.three("fsub", "4s", n, t, e.magic) })
	each(func(x, t, n, u int) { e.byLane("fmls", x, n, e.products, 1) })
	each(func(x, t, n, u int) { e.byLane("fmla", x, n, e.products, 2) })
	for i, c := range e.polynomial[1:] {
		each(func(x, t, n, u int) {
			to, from := u, n
			if i%2 == 1 {
				to, from = n, u
			}
			if i == 0 {
				from = e.polynomial[0]
			}
			e.mov(to, c)
			e.three("fmla", "4s", to, from, x)
		})
	}
	// Six steps: the last one's result is in n. Half of the exponent goes to x, the rest to t.
	each(func(x, t, n, u int) { e.shift("ushr", "4s", x, t, 1) })
	each(func(x, t, n, u int) { e.shift("shl", "4s", x, x, 23) })
	each(func(x, t, n, u int) { e.shift("shl", "4s", t, t, 23) })
	each(func(x, t, n, u int) { e.three("sub", "4s", t, t, x) })
	each(func(x, t, n, u int) { e.three("add", "4s", x, x, e.one) })
	each(func(x, t, n, u int) { e.three("add", "4s", t, t, e.one) })
	each(func(x, t, n, u int) { e.three("fmul", "4s", x, n, x) })
	each(func(x, t, n, u int) { e.three("fmul", "4s", x, x, t) })
}
