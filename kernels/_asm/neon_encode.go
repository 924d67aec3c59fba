package main

import (
	"fmt"
	"strings"
)

// Go's assembler lacks most vector instructions of arm64, so they are encoded here and printed as WORD, each with its text
// in the syntax of the Arm Architecture Reference Manual (chapter C7, where the encodings are from) as the comment. The
// test in this directory assembles all those comments with GNU as and compares the words.
//
// Vector registers are numbers 0–31, general registers too.

// neon writes arm64 vector code.
type neon struct{ *file }

// word prints one encoded instruction.
func (f neon) word(w uint32, format string, args ...any) {
	f.op("WORD $0x%08x // %s", w, fmt.Sprintf(format, args...))
}

// arrangement returns the Q bit (30) and size field (23:22) of a vector shape.
func arrangement(shape string) (q, size uint32) {
	switch shape {
	case "8b", "4h", "2s":
	case "16b", "8h", "4s", "2d":
		q = 1 << 30
	default:
		panic("no vector shape is called " + shape)
	}
	return q, uint32(strings.IndexByte("bhsd", shape[len(shape)-1])) << 22
}

// lane returns the bits of a lane of shape.
func lane(shape string) int { return 8 << strings.IndexByte("bhsd", shape[len(shape)-1]) }

func fields(d, n, m int) uint32 {
	if uint(d) > 31 || uint(n) > 31 || uint(m) > 31 {
		panic(fmt.Sprintf("registers %d, %d, %d", d, n, m))
	}
	return uint32(m<<16 | n<<5 | d)
}

// Instructions of three vectors of one shape, without Q and size.
var integerThree = map[string]uint32{
	"add": 0x0e208400, "sub": 0x2e208400, "mla": 0x0e209400, "mls": 0x2e209400, "addp": 0x0e20bc00, "cmtst": 0x0e208c00, "umax": 0x2e206400,
	"zip1": 0x0e003800, "zip2": 0x0e007800, "uzp1": 0x0e001800, "uzp2": 0x0e005800, "trn1": 0x0e002800, "trn2": 0x0e006800,
}

// Those of bits; the size field is part of the opcode.
var logicThree = map[string]uint32{
	"and": 0x0e201c00, "bic": 0x0e601c00, "orr": 0x0ea01c00, "eor": 0x2e201c00,
}

// Those of floats: bit 22 says double.
var floatThree = map[string]uint32{
	"fadd": 0x0e20d400, "fsub": 0x0ea0d400, "fmul": 0x2e20dc00, "fdiv": 0x2e20fc00, "fmla": 0x0e20cc00, "fmls": 0x0ea0cc00,
	"fmax": 0x0e20f400, "fmin": 0x0ea0f400, "fcmge": 0x2e20e400,
}

// three prints an instruction of three vectors of one shape.
func (f neon) three(name, shape string, d, n, m int) {
	q, size := arrangement(shape)
	w, ok := integerThree[name]
	if ok {
		w |= size
	} else if w, ok = floatThree[name]; ok {
		w |= size &^ (1 << 23)
	} else if w, ok = logicThree[name]; !ok {
		panic("no instruction is called " + name)
	}
	f.word(w|q|fields(d, n, m), "%s v%d.%s, v%d.%s, v%d.%s", name, d, shape, n, shape, m, shape)
}

// Instructions of two vectors of floats of one shape.
var floatTwo = map[string]uint32{"fneg": 0x2ea0f800, "scvtf": 0x0e21d800, "fcvtns": 0x0e21a800}

// two prints an instruction of two vectors of floats of one shape.
func (f neon) two(name, shape string, d, n int) {
	q, size := arrangement(shape)
	w, ok := floatTwo[name]
	if !ok {
		panic("no instruction is called " + name)
	}
	f.word(w|size&^(1<<23)|q|fields(d, n, 0), "%s v%d.%s, v%d.%s", name, d, shape, n, shape)
}

// shift prints a shift by a constant; sli and sri insert, leaving the bits of d that no bit of n comes to.
func (f neon) shift(name, shape string, d, n, by int) {
	q, _ := arrangement(shape)
	bits := lane(shape)
	w, left := uint32(0), false
	switch name {
	case "shl":
		w, left = 0x0f005400, true
	case "sli":
		w, left = 0x2f005400, true
	case "sri":
		w = 0x2f004400
	case "ushr":
		w = 0x2f000400
	case "sshr":
		w = 0x0f000400
	default:
		panic("no shift is called " + name)
	}
	imm := 2*bits - by
	if left {
		imm = bits + by
	}
	if by < 0 || by > bits || left && by == bits || !left && by == 0 {
		panic(fmt.Sprintf("%s %s by %d", name, shape, by))
	}
	f.word(w|q|uint32(imm)<<16|fields(d, n, 0), "%s v%d.%s, v%d.%s, #%d", name, d, shape, n, shape, by)
}

// mov copies a vector.
func (f neon) mov(d, n int) {
	f.word(0x4ea01c00|fields(d, n, n), "mov v%d.16b, v%d.16b", d, n)
}

// movi sets every byte to b.
func (f neon) movi(d int, b byte) {
	f.word(0x4f00e400|uint32(b>>5)<<16|uint32(b&31)<<5|fields(d, 0, 0), "movi v%d.16b, #%d", d, b)
}

// movi32 sets every 32-bit lane to b shifted left by 0, 8, 16 or 24 bits.
func (f neon) movi32(d int, b byte, shift int) {
	f.word(0x4f000400|uint32(shift/8)<<13|uint32(b>>5)<<16|uint32(b&31)<<5|fields(d, 0, 0), "movi v%d.4s, #%d, lsl #%d", d, b, shift)
}

// dup copies one lane to all lanes of d: shape 4s or 2s, 2d.
func (f neon) dup(shape string, d, n, index int) {
	q, size := arrangement(shape)
	imm := uint32(index<<1|1) << (size >> 22)
	f.word(0x0e000400|q|imm<<16|fields(d, n, 0), "dup v%d.%s, v%d.%s[%d]", d, shape, n, shape[1:], index)
}

// index32 returns the bits H:L of the index of a 32-bit lane.
func index32(i int) uint32 { return uint32(i&1)<<21 | uint32(i>>1)<<11 }

// byLane prints an instruction of 4s vectors with one lane of m: mls, fmul, fmla, fmls.
func (f neon) byLane(name string, d, n, m, index int) {
	w, ok := map[string]uint32{
		"mls": 0x6f804000, "fmul": 0x4f809000, "fmla": 0x4f801000, "fmls": 0x4f805000,
	}[name]
	if !ok {
		panic("no instruction is called " + name)
	}
	f.word(w|index32(index)|fields(d, n, m), "%s v%d.4s, v%d.4s, v%d.s[%d]", name, d, n, m, index)
}

// sdotLane adds the products of each four bytes of n with the four of lane index of m.
func (f neon) sdotLane(d, n, m, index int) {
	f.word(0x4f80e000|index32(index)|fields(d, n, m), "sdot v%d.4s, v%d.16b, v%d.4b[%d]", d, n, m, index)
}

// sdot adds the products of each four bytes.
func (f neon) sdot(d, n, m int) {
	f.word(0x4e809400|fields(d, n, m), "sdot v%d.4s, v%d.16b, v%d.16b", d, n, m)
}

// smmla adds the product of two rows by eight bytes with the transposed same.
func (f neon) smmla(d, n, m int) {
	f.word(0x4e80a400|fields(d, n, m), "smmla v%d.4s, v%d.16b, v%d.16b", d, n, m)
}

// smull and smlal multiply bytes to words: of the low (high false) or high halves.
func (f neon) smull(d, n, m int, high bool) { f.long("smull", 0x0e20c000, d, n, m, high) }
func (f neon) smlal(d, n, m int, high bool) { f.long("smlal", 0x0e208000, d, n, m, high) }

func (f neon) long(name string, w uint32, d, n, m int, high bool) {
	if high {
		f.word(w|1<<30|fields(d, n, m), "%s2 v%d.8h, v%d.16b, v%d.16b", name, d, n, m)
		return
	}
	f.word(w|fields(d, n, m), "%s v%d.8h, v%d.8b, v%d.8b", name, d, n, m)
}

// smullLane and smlalLane multiply four words of n by lane index of m, which is one of v0 to v15, to 32 bits.
func (f neon) smullLane(d, n, m, index int, high bool) {
	f.longLane("smull", 0x0f40a000, d, n, m, index, high)
}
func (f neon) smlalLane(d, n, m, index int, high bool) {
	f.longLane("smlal", 0x0f402000, d, n, m, index, high)
}

func (f neon) longLane(name string, w uint32, d, n, m, index int, high bool) {
	if m > 15 {
		panic(fmt.Sprintf("lane of v%d", m))
	}
	w |= uint32(index>>2)<<11 | uint32(index>>1&1)<<21 | uint32(index&1)<<20 | fields(d, n, m)
	if high {
		f.word(w|1<<30, "%s2 v%d.4s, v%d.8h, v%d.h[%d]", name, d, n, m, index)
		return
	}
	f.word(w, "%s v%d.4s, v%d.4h, v%d.h[%d]", name, d, n, m, index)
}

// saddlp adds pairs of words to 32 bits; sadalp adds those to d.
func (f neon) saddlp(d, n int) { f.word(0x4e602800|fields(d, n, 0), "saddlp v%d.4s, v%d.8h", d, n) }
func (f neon) sadalp(d, n int) { f.word(0x4e606800|fields(d, n, 0), "sadalp v%d.4s, v%d.8h", d, n) }

// scvtfFixed converts integers with fraction bits below the point.
func (f neon) scvtfFixed(d, n, fraction int) {
	if fraction == 0 {
		f.two("scvtf", "4s", d, n)
		return
	}
	f.word(0x4f00e400|uint32(64-fraction)<<16|fields(d, n, 0), "scvtf v%d.4s, v%d.4s, #%d", d, n, fraction)
}

// fcvtl widens four binary16 of the low or high half.
func (f neon) fcvtl(d, n int, high bool) {
	if high {
		f.word(0x4e217800|fields(d, n, 0), "fcvtl2 v%d.4s, v%d.8h", d, n)
		return
	}
	f.word(0x0e217800|fields(d, n, 0), "fcvtl v%d.4s, v%d.4h", d, n)
}

// fcvtn narrows to binary16, to the low half (clearing the high one) or to the high half (leaving the low one).
func (f neon) fcvtn(d, n int, high bool) {
	if high {
		f.word(0x4e216800|fields(d, n, 0), "fcvtn2 v%d.8h, v%d.4s", d, n)
		return
	}
	f.word(0x0e216800|fields(d, n, 0), "fcvtn v%d.4h, v%d.4s", d, n)
}

// xtn narrows integers to shape: 4h from 4s, 8b from 8h; high: to the upper half.
func (f neon) xtn(shape string, d, n int, high bool) {
	_, size := arrangement(shape)
	wide := map[string]string{"8b": "8h", "4h": "4s", "2s": "2d"}[shape]
	if high {
		f.word(0x4e212800|size|fields(d, n, 0), "xtn2 v%d.%s, v%d.%s", d, map[string]string{"8b": "16b", "4h": "8h", "2s": "4s"}[shape], n, wide)
		return
	}
	f.word(0x0e212800|size|fields(d, n, 0), "xtn v%d.%s, v%d.%s", d, shape, n, wide)
}

// ushll widens unsigned integers of the low or high half of shape: 8b to 8h, 4h to 4s.
func (f neon) ushll(shape string, d, n int, high bool) {
	w, wide, whole := uint32(0x2f08a400), "8h", "16b"
	if shape == "4h" {
		w, wide, whole = 0x2f10a400, "4s", "8h"
	}
	if high {
		f.word(w|1<<30|fields(d, n, 0), "ushll2 v%d.%s, v%d.%s, #0", d, wide, n, whole)
		return
	}
	f.word(w|fields(d, n, 0), "ushll v%d.%s, v%d.%s, #0", d, wide, n, shape)
}

// shll widens 16-bit integers of the low or high half and shifts them left by 16.
func (f neon) shll(d, n int, high bool) {
	if high {
		f.word(0x6e613800|fields(d, n, 0), "shll2 v%d.4s, v%d.8h, #16", d, n)
		return
	}
	f.word(0x2e613800|fields(d, n, 0), "shll v%d.4s, v%d.4h, #16", d, n)
}

// across prints an instruction that brings all lanes of a 4s vector to lane 0: addv, umaxv, fmaxv.
func (f neon) across(name string, d, n int) {
	w := map[string]uint32{"addv": 0x4eb1b800, "umaxv": 0x6eb0a800, "fmaxv": 0x6e30f800}[name]
	f.word(w|fields(d, n, 0), "%s s%d, v%d.4s", name, d, n)
}

// saddlv adds 16 bytes to a 16-bit sum in lane 0.
func (f neon) saddlv(d, n int) { f.word(0x4e303800|fields(d, n, 0), "saddlv h%d, v%d.16b", d, n) }

// tbl looks up the bytes of m in n; indices beyond 15 give zero.
func (f neon) tbl(d, n, m int) {
	f.word(0x4e000000|fields(d, n, m), "tbl v%d.16b, {v%d.16b}, v%d.16b", d, n, m)
}

// ldr and str move a vector, or its low 4 bytes (ldrS) at offset(x base).
func (f neon) ldr(t, base, offset int)  { f.memory(0x3dc00000, "ldr q", 16, t, base, offset) }
func (f neon) str(t, base, offset int)  { f.memory(0x3d800000, "str q", 16, t, base, offset) }
func (f neon) ldrS(t, base, offset int) { f.memory(0xbd400000, "ldr s", 4, t, base, offset) }
func (f neon) strS(t, base, offset int) { f.memory(0xbd000000, "str s", 4, t, base, offset) }
func (f neon) strH(t, base, offset int) { f.memory(0x7d000000, "str h", 2, t, base, offset) }

func (f neon) memory(w uint32, name string, size, t, base, offset int) {
	if offset < 0 || offset%size != 0 || offset/size > 4095 {
		panic(fmt.Sprintf("%s%d: offset %d", name, t, offset))
	}
	f.word(w|uint32(offset/size)<<10|fields(t, base, 0), "%s%d, [x%d, #%d]", name, t, base, offset)
}

// fixed loads 16 constant bytes, repeated from pattern, using R19.
func (f neon) fixed(t int, name string, pattern ...byte) {
	f.op("MOVD $%s, R19", f.constant(name, 16, pattern))
	f.ldr(t, 19, 0)
}

// registers hands out vector registers.
type registers struct{ next int }

func (r *registers) take(n int) []int {
	var list []int
	for range n {
		list = append(list, r.next)
		r.next++
	}
	if r.next > 32 {
		panic("out of vector registers")
	}
	return list
}
