package main

import (
	"encoding/binary"
	"math"
	"strings"
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
	each := f.expEach(regs)
	each("VMOVUPS %s, %s", args("n", f.float("least", -104)))
	each("VMAXPS %s, %s, %s", args("xnx"))
	if !negative {
		each("VMOVUPS %s, %s", args("n", f.float("beyond", 89)))
		each("VMINPS %s, %s, %s", args("xnx"))
	}
	each("VMULPS %s, %s, %s", args("xt", f.float("log2e", 0x1.715476p0)))
	each("VADDPS %s, %s, %s", args("tt", f.float("magic", 0x1.8p23)))
	each("VSUBPS %s, %s, %s", args("tn", f.float("magic", 0x1.8p23)))
	each("VFNMADD231PS %s, %s, %s", args("nx", f.float("ln2hi", 0x1.63p-1)))
	each("VFMADD231PS %s, %s, %s", args("nx", f.float("ln2lo", 0x1.bd0106p-13)))
	f.expPolynomial(each)
	each("VPSRLD $1, %s, %s", args("tx"))
	each("VPSLLD $23, %s, %s", args("xx"))
	each("VPSLLD $23, %s, %s", args("tt"))
	each("VPSUBD %s, %s, %s", args("xtt"))
	each("VPADDD %s, %s, %s", args("xx", f.float("one", 1)))
	each("VPADDD %s, %s, %s", args("tt", f.float("one", 1)))
	each("VMULPS %s, %s, %s", args("xnn"))
	each("VMULPS %s, %s, %s", args("tnx"))
}

// expNear emits kernels.Exp(-x) over the registers x of all regs for x >= 0 (or NaN): by a shorter way
// if all are below 87, where results are normal and the power of two is added to their exponent; else as exp does it.
// flag is a general register for the test of YMM registers; that of ZMM takes K1.
func (f *file) expNear(flag string, regs ...expRegs) {
	far, end := f.label("far"), f.label("near")
	each := f.expEach(regs)
	most := regs[0].x
	for _, r := range regs[1:] {
		f.op("VPMAXUD %s, %s, %s", r.x, most, regs[0].t) // as integers NaN is the largest
		most = regs[0].t
	}
	if strings.HasPrefix(most, "Z") {
		f.op("VPCMPUD $5, %s, %s, K1", f.float("near", 87), most) // not below
		f.op("KORTESTW K1, K1")
	} else {
		f.op("VPMINUD %s, %s, %s", f.float("near", 87), most, regs[0].t)
		f.op("VPCMPEQD %s, %s, %s", f.float("near", 87), regs[0].t, regs[0].t)
		f.op("VMOVMSKPS %s, %s", regs[0].t, flag)
		f.op("TESTL %s, %s", flag, flag)
	}
	f.op("JNE %s", far)
	each("VMULPS %s, %s, %s", args("xt", f.float("minusLog2e", -0x1.715476p0)))
	each("VADDPS %s, %s, %s", args("tt", f.float("magic", 0x1.8p23)))
	each("VSUBPS %s, %s, %s", args("tn", f.float("magic", 0x1.8p23)))
	each("VFNMSUB231PS %s, %s, %s", args("nx", f.float("ln2hi", 0x1.63p-1)))
	each("VFMADD231PS %s, %s, %s", args("nx", f.float("ln2lo", 0x1.bd0106p-13)))
	f.expPolynomial(each)
	each("VPSLLD $23, %s, %s", args("tt"))
	each("VPADDD %s, %s, %s", args("tnx"))
	f.op("JMP %s", end)
	f.at(far)
	each("VXORPS %s, %s, %s", args("xx", f.float("sign", float32(math.Copysign(0, -1)))))
	f.exp(true, regs...)
	f.at(end)
}

// expPolynomial emits n = e^x for the reduced arguments x.
func (f *file) expPolynomial(each func(format string, args func(r expRegs) []any)) {
	each("VMOVUPS %s, %s", args("n", f.float("exp5", 0x1.6a2414p-10)))
	for _, c := range []struct {
		name  string
		value float32
	}{{"exp4", 0x1.123a2p-7}, {"exp3", 0x1.5558f2p-5}, {"exp2", 0x1.555492p-3}, {"exp1", 0x1.fffffcp-2}, {"one", 1}, {"one", 1}} {
		each("VFMADD213PS %s, %s, %s", args("xn", f.float(c.name, c.value)))
	}
}

// expEach returns a function that emits one instruction for each set of registers.
func (f *file) expEach(regs []expRegs) func(format string, args func(r expRegs) []any) {
	return func(format string, args func(r expRegs) []any) {
		for _, r := range regs {
			f.op(format, args(r)...)
		}
	}
}

// args returns an instruction's arguments: head, then the registers that order names.
func args(order string, head ...any) func(r expRegs) []any {
	return func(r expRegs) []any {
		list := append([]any(nil), head...)
		for _, c := range order {
			list = append(list, map[rune]string{'x': r.x, 't': r.t, 'n': r.n}[c])
		}
		return list
	}
}

// float returns a reference to a float32 constant, repeated to the length of a ZMM register.
func (f *file) float(name string, value float32) string {
	return f.constant(name, 64, binary.LittleEndian.AppendUint32(nil, math.Float32bits(value)))
}
