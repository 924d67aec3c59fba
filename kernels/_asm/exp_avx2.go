package main

import (
	"encoding/binary"
	"math"
)

// expRegs are the three vector registers, YMM or ZMM, of one emission of exp: x holds the arguments and then the
// results, the others are scratch.
type expRegs struct{ x, t, n string }

// exp emits kernels.Exp over the registers x of all regs, interleaved so that they hide each other's latency: four sets
// fill the machine. Constants are read from memory; nothing but regs changes. With negative set, no argument may be
// above 0 (NaN may come), which saves the upper bound.
//
// The bits are those of the specification:
//   - Arguments are bounded to [-104, 89], where its steps give +0 and +Inf by themselves. The bound's operand order
//     lets NaN through, which then stays NaN in every step.
//   - n·hi is exact, so that fusing it with the subtraction changes nothing.
//   - 2^(k>>1) and 2^(k-k>>1) are made from the bits of t = 1.5·2^23 + k by shifts that drop all but k.
func (f *file) exp(negative bool, regs ...expRegs) {
	each := func(format string, args func(r expRegs) []any) {
		for _, r := range regs {
			f.op(format, args(r)...)
		}
	}
	xtn := func(order string, head ...any) func(r expRegs) []any {
		return func(r expRegs) []any {
			list := append([]any(nil), head...)
			for _, c := range order {
				list = append(list, map[rune]string{'x': r.x, 't': r.t, 'n': r.n}[c])
			}
			return list
		}
	}
	each("VMOVUPS %s, %s", xtn("n", f.float("least", -104)))
	each("VMAXPS %s, %s, %s", xtn("xnx"))
	if !negative {
		each("VMOVUPS %s, %s", xtn("n", f.float("beyond", 89)))
		each("VMINPS %s, %s, %s", xtn("xnx"))
	}
	each("VMULPS %s, %s, %s", xtn("xt", f.float("log2e", 0x1.715476p0)))
	each("VADDPS %s, %s, %s", xtn("tt", f.float("magic", 0x1.8p23)))
	each("VSUBPS %s, %s, %s", xtn("tn", f.float("magic", 0x1.8p23)))
	each("VFNMADD231PS %s, %s, %s", xtn("nx", f.float("ln2hi", 0x1.63p-1)))
	each("VFMADD231PS %s, %s, %s", xtn("nx", f.float("ln2lo", 0x1.bd0106p-13)))
	each("VMOVUPS %s, %s", xtn("n", f.float("exp5", 0x1.6a2414p-10)))
	for _, c := range []struct {
		name  string
		value float32
	}{{"exp4", 0x1.123a2p-7}, {"exp3", 0x1.5558f2p-5}, {"exp2", 0x1.555492p-3}, {"exp1", 0x1.fffffcp-2}, {"one", 1}, {"one", 1}} {
		each("VFMADD213PS %s, %s, %s", xtn("xn", f.float(c.name, c.value)))
	}
	each("VPSRLD $1, %s, %s", xtn("tx"))
	each("VPSLLD $23, %s, %s", xtn("xx"))
	each("VPSLLD $23, %s, %s", xtn("tt"))
	each("VPSUBD %s, %s, %s", xtn("xtt"))
	each("VPADDD %s, %s, %s", xtn("xx", f.float("one", 1)))
	each("VPADDD %s, %s, %s", xtn("tt", f.float("one", 1)))
	each("VMULPS %s, %s, %s", xtn("xnn"))
	each("VMULPS %s, %s, %s", xtn("tnx"))
}

// float returns a reference to a float32 constant, repeated to the length of a ZMM register.
func (f *file) float(name string, value float32) string {
	return f.constant(name, 64, binary.LittleEndian.AppendUint32(nil, math.Float32bits(value)))
}
