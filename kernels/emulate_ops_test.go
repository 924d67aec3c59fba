package kernels

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// address returns how to compute the address of a memory operand, or nil.
func address(operand string) func(e *emulator) int64 {
	m := memoryForm.FindStringSubmatch(operand)
	if m == nil {
		return nil
	}
	off := int64(0)
	if m[1] != "" {
		off = immediate(m[1])
	}
	base, ok := integerRegisters[m[2]]
	if !ok {
		return nil
	}
	if m[3] == "" {
		return func(e *emulator) int64 { return e.integer[base] + off }
	}
	index, scale := integerRegisters[m[3]], int64(m[4][0]-'0')
	return func(e *emulator) int64 { return e.integer[base] + e.integer[index]*scale + off }
}

// immediate returns the value of an operand after its $.
func immediate(text string) int64 {
	if v, ok := argumentOffsets[text]; ok {
		return v
	}
	if name, ok := strings.CutPrefix(text, "(4*"); ok {
		return 4 * argumentOffsets[strings.TrimSuffix(name, ")")]
	}
	v, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		panic(err)
	}
	return v
}

// integerSource returns how to read a 64-bit operand.
func integerSource(operand string) func(e *emulator) int64 {
	if r, ok := integerRegisters[operand]; ok {
		return func(e *emulator) int64 { return e.integer[r] }
	}
	if imm, ok := strings.CutPrefix(operand, "$"); ok {
		u := immediate(imm)
		return func(*emulator) int64 { return u }
	}
	if a := address(operand); a != nil {
		return func(e *emulator) int64 { return int64(binary.LittleEndian.Uint64(e.memory(a(e), 8))) }
	}
	panic("operand " + operand)
}

// register returns the number of a vector register, or -1.
func register(operand string) int {
	if len(operand) > 1 && strings.Contains("XYZ", operand[:1]) {
		if n, err := strconv.Atoi(operand[1:]); err == nil {
			return n
		}
	}
	return -1
}

// source returns how to read a vector operand of n bytes; 4 bytes are broadcast.
func source(operand string, n int, constants map[string][]byte) func(e *emulator) *vector {
	if r := register(operand); r >= 0 {
		return func(e *emulator) *vector { return &e.v[r] }
	}
	fill := func(b []byte) *vector {
		var v vector
		for i := range v {
			if n == 4 {
				v[i] = binary.LittleEndian.Uint32(b)
			} else if 4*i < n {
				v[i] = binary.LittleEndian.Uint32(b[4*i:])
			}
		}
		return &v
	}
	if m := constForm.FindStringSubmatch(operand); m != nil {
		v := fill(constants[m[1]][:n])
		return func(*emulator) *vector { return v }
	}
	a := address(operand)
	if a == nil {
		panic("operand " + operand)
	}
	return func(e *emulator) *vector { return fill(e.memory(a(e), n)) }
}

// compile returns what an instruction does.
func compile(op string, operands []string, constants map[string][]byte) func(e *emulator) {
	if f := compileInteger(op, operands); f != nil {
		return f
	}
	last := operands[len(operands)-1]
	width := 64
	op, broadcast := strings.CutSuffix(op, ".BCST")
	if broadcast || strings.HasPrefix(op, "VPBROADCAST") || op == "VBROADCASTSS" {
		width = 4
	}
	switch op {
	case "VCVTPH2PS", "VPMOVZXWD":
		width = 32
	case "VPMOVZXBD":
		width = 16
	}
	dst := register(last)
	if strings.HasPrefix(op, "VMOV") && dst < 0 { // a store
		a, r := address(last), register(operands[0])
		return func(e *emulator) {
			b := e.v[r].bytes()
			addr := a(e)
			if strings.HasPrefix(op, "VMOVDQA") || op == "VMOVAPS" {
				checkAligned(addr)
			}
			n := 64
			if op == "VMOVSS" {
				n = 4
			}
			copy(e.memory(addr, n), b[:])
		}
	}
	shift, isShift := strings.CutPrefix(operands[0], "$")
	if isShift && op != "VPTERNLOGD" && op != "VPCMPUD" {
		r, n := register(operands[1]), int(immediate(shift))
		if move := lanesOp(op, n); move != nil {
			return func(e *emulator) { e.v[dst] = move(&e.v[r]) }
		}
		f := shiftOp(op, n)
		return func(e *emulator) {
			v := e.v[r]
			for i, d := range v {
				v[i] = f(d)
			}
			e.v[dst] = v
		}
	}
	switch op {
	case "VPTERNLOGD":
		imm, _ := strconv.ParseUint(operands[0][1:], 0, 8)
		c, b := source(operands[1], width, constants), register(operands[2])
		return func(e *emulator) { e.v[dst] = ternary(uint8(imm), &e.v[dst], &e.v[b], c(e)) }
	case "VPCMPUD": // 5: not less
		if operands[0] != "$5" {
			panic("predicate " + operands[0])
		}
		x, y, k := source(operands[1], width, constants), register(operands[2]), int(last[1]-'0')
		return func(e *emulator) {
			limit := x(e)
			e.mask[k] = 0
			for i, d := range e.v[y] {
				if d >= limit[i] {
					e.mask[k] |= 1 << i
				}
			}
		}
	case "VADDSS":
		x, y := register(operands[0]), register(operands[1])
		return func(e *emulator) {
			var v vector
			copy(v[:4], e.v[y][:4])
			v.setFloat(0, e.v[x].float(0)+e.v[y].float(0))
			e.v[dst] = v
		}
	case "VPTESTMB":
		x, y, k := source(operands[0], width, constants), register(operands[1]), int(last[1]-'0')
		return func(e *emulator) {
			xs, ys := x(e).bytes(), e.v[y].bytes()
			e.mask[k] = 0
			for i := range xs {
				if xs[i]&ys[i] != 0 {
					e.mask[k] |= 1 << i
				}
			}
		}
	case "VBROADCASTI32X4":
		x := source(operands[0], 16, constants)
		return func(e *emulator) {
			v := *x(e)
			for i := range v {
				e.v[dst][i] = v[i%4]
			}
		}
	case "VPADDB": // all, or merging under a mask
		x, y, k := source(operands[0], width, constants), register(operands[1]), -1
		if len(operands) == 4 {
			k = int(operands[2][1] - '0')
		}
		return func(e *emulator) {
			xs, ys, ds := x(e).bytes(), e.v[y].bytes(), e.v[dst].bytes()
			for i := range ds {
				if k < 0 || e.mask[k]>>i&1 != 0 {
					ds[i] = xs[i] + ys[i]
				}
			}
			e.v[dst] = vectorOf(ds)
		}
	case "VPSHUFB":
		x, y := source(operands[0], width, constants), register(operands[1])
		return func(e *emulator) {
			pattern, from := x(e).bytes(), e.v[y].bytes()
			var out [64]byte
			for i, p := range pattern {
				if p < 0x80 {
					out[i] = from[i&^15+int(p&15)]
				}
			}
			e.v[dst] = vectorOf(out)
		}
	case "VPSUBB":
		x, y := register(operands[0]), register(operands[1])
		return func(e *emulator) {
			xs, ys := e.v[x].bytes(), e.v[y].bytes()
			for i := range ys {
				ys[i] -= xs[i]
			}
			e.v[dst] = vectorOf(ys)
		}
	case "VPMOVDW":
		x := register(operands[0])
		return func(e *emulator) {
			var v vector
			for i, d := range e.v[x] {
				v[i/2] |= d & 0xffff << (16 * (i % 2))
			}
			e.v[dst] = v
		}
	case "VPMOVZXBD":
		x := source(operands[0], width, constants)
		return func(e *emulator) {
			v := *x(e)
			for i := range 16 {
				e.v[dst][i] = v[i/4] >> (8 * (i % 4)) & 0xff
			}
		}
	case "VPMOVZXWD":
		x := source(operands[0], width, constants)
		return func(e *emulator) {
			v := *x(e)
			for i := range 16 {
				e.v[dst][i] = v[i/2] >> (16 * (i % 2)) & 0xffff
			}
		}
	case "VCVTPH2PS":
		x := source(operands[0], width, constants)
		return func(e *emulator) {
			v := *x(e)
			for i := range 16 {
				e.v[dst].setFloat(i, F16ToF32(uint16(v[i/2]>>(16*(i%2)))))
			}
		}
	}
	x := source(operands[0], width, constants)
	if len(operands) == 2 {
		f := unary(op)
		a := address(operands[0])
		spread := op == "VBROADCASTSS" && a == nil
		return func(e *emulator) {
			if a != nil && (strings.HasPrefix(op, "VMOVDQA") || op == "VMOVAPS") {
				checkAligned(a(e))
			}
			v := *x(e)
			for i, d := range v {
				if spread {
					d = x(e)[0]
				}
				v[i] = f(d)
			}
			e.v[dst] = v
		}
	}
	f, y := lanewise(op), register(operands[1])
	if y < 0 {
		panic(op + " of " + operands[1])
	}
	lanes := map[byte]int{'X': 4, 'Y': 8, 'Z': 16}[last[0]]
	return func(e *emulator) {
		var v vector
		first, second := x(e), &e.v[y]
		for i := range lanes {
			v[i] = f(first[i], second[i], e.v[dst][i])
		}
		e.v[dst] = v
	}
}

// checkAligned panics for addresses that an aligned move would fault on. Regions start aligned.
func checkAligned(addr int64) {
	if addr%64 != 0 {
		panic("aligned move of an address that is not")
	}
}

// compileInteger returns what an instruction on integers does, or nil if it isn't one.
func compileInteger(op string, operands []string) func(e *emulator) {
	last := operands[len(operands)-1]
	f := map[string]func(x, d int64) int64{
		"MOVQ":    func(x, _ int64) int64 { return x },
		"ADDQ":    func(x, d int64) int64 { return d + x },
		"SUBQ":    func(x, d int64) int64 { return d - x },
		"ANDQ":    func(x, d int64) int64 { return d & x },
		"IMULQ":   func(x, d int64) int64 { return d * x },
		"SHLQ":    func(x, d int64) int64 { return d << x },
		"SHRQ":    func(x, d int64) int64 { return int64(uint64(d) >> x) },
		"DECQ":    func(_, d int64) int64 { return d - 1 },
		"INCQ":    func(_, d int64) int64 { return d + 1 },
		"CMOVQLT": nil, "CMPQ": nil, "TESTQ": nil, "LEAQ": nil, "IMUL3Q": nil, "MOVL": nil, "VZEROUPPER": nil,
		"PREFETCHT0": nil, "PREFETCHT1": nil, "KORTESTW": nil,
	}
	step, ok := f[op]
	if !ok {
		return nil
	}
	switch op {
	case "VZEROUPPER", "PREFETCHT0", "PREFETCHT1":
		return func(*emulator) {}
	case "KORTESTW":
		k := last[1] - '0'
		return func(e *emulator) { e.compare = int64(e.mask[k]) }
	case "CMPQ":
		x, y := integerSource(operands[0]), integerSource(operands[1])
		return func(e *emulator) { e.compare = x(e) - y(e) }
	case "MOVL":
		x, a := uint32(immediate(operands[0][1:])), address(last)
		return func(e *emulator) { binary.LittleEndian.PutUint32(e.memory(a(e), 4), x) }
	}
	r, ok := integerRegisters[last]
	if !ok { // to memory
		x, a := integerSource(operands[0]), address(last)
		return func(e *emulator) {
			b := e.memory(a(e), 8)
			v := step(x(e), int64(binary.LittleEndian.Uint64(b)))
			binary.LittleEndian.PutUint64(b, uint64(v))
			if op != "MOVQ" {
				e.compare = v
			}
		}
	}
	if operands[0] == "a+0(FP)" {
		return func(e *emulator) { e.integer[r] = e.args }
	}
	if op == "LEAQ" {
		a := address(operands[0])
		return func(e *emulator) { e.integer[r] = a(e) }
	}
	x := integerSource(operands[0])
	switch op {
	case "CMOVQLT":
		return func(e *emulator) {
			if e.compare < 0 {
				e.integer[r] = x(e)
			}
		}
	case "TESTQ":
		return func(e *emulator) { e.compare = x(e) & e.integer[r] }
	case "IMUL3Q":
		y := integerSource(operands[1])
		return func(e *emulator) { e.integer[r] = x(e) * y(e) }
	}
	return func(e *emulator) {
		e.integer[r] = step(x(e), e.integer[r])
		if op != "MOVQ" {
			e.compare = e.integer[r]
		}
	}
}

// shiftOp returns a shift of a dword, or of its words, by a constant.
func shiftOp(op string, n int) func(uint32) uint32 {
	switch op {
	case "VPSRLD":
		return func(d uint32) uint32 { return d >> n }
	case "VPSLLD":
		return func(d uint32) uint32 { return d << n }
	case "VPSRAD":
		return func(d uint32) uint32 { return uint32(int32(d) >> n) }
	case "VPSRLW":
		return func(d uint32) uint32 { return d&0xffff>>n | d>>16>>n<<16 }
	case "VPSLLW":
		return func(d uint32) uint32 { return d<<n&0xffff | d>>16<<n<<16 }
	}
	panic("no instruction " + op)
}

// lanesOp returns what moves lanes by a constant, or nil.
func lanesOp(op string, n int) func(x *vector) vector {
	switch op {
	case "VEXTRACTF64X4", "VEXTRACTF128": // of 512, of 256 bits
		size := 8
		if op == "VEXTRACTF128" {
			size = 4
		}
		return func(x *vector) (v vector) {
			copy(v[:size], x[n*size:])
			return v
		}
	case "VPERMILPS": // of 128 bits
		return func(x *vector) (v vector) {
			for i := range 4 {
				v[i] = x[n>>(2*i)&3]
			}
			return v
		}
	}
	return nil
}

// unary returns what moves and conversions do to a lane.
func unary(op string) func(uint32) uint32 {
	switch op {
	case "VMOVDQA64", "VMOVDQU64", "VMOVUPS", "VMOVAPS", "VPBROADCASTD", "VBROADCASTSS":
		return func(d uint32) uint32 { return d }
	case "VCVTDQ2PS":
		return func(d uint32) uint32 { return math.Float32bits(float32(int32(d))) }
	}
	panic("no instruction " + op)
}

// lanewise returns what an instruction does to a lane: x is of the first operand, y of the second, d of the last before.
func lanewise(op string) func(x, y, d uint32) uint32 {
	f := math.Float32frombits
	switch op {
	case "VPXOR", "VPXORD", "VXORPS":
		return func(x, y, _ uint32) uint32 { return x ^ y }
	case "VPANDD":
		return func(x, y, _ uint32) uint32 { return x & y }
	case "VPADDD":
		return func(x, y, _ uint32) uint32 { return y + x }
	case "VPSUBD":
		return func(x, y, _ uint32) uint32 { return y - x }
	case "VPMULLD":
		return func(x, y, _ uint32) uint32 { return y * x }
	case "VPROLVD":
		return func(x, y, _ uint32) uint32 { return y<<(x&31) | y>>(-x&31) }
	case "VPDPBUSD": // unsigned bytes of y, signed ones of x
		return func(x, y, d uint32) uint32 {
			for range 4 {
				d += uint32(int32(y&0xff) * int32(int8(x)))
				x, y = x>>8, y>>8
			}
			return d
		}
	case "VPDPWSSD":
		return func(x, y, d uint32) uint32 {
			return d + uint32(int32(int16(x))*int32(int16(y))) + uint32(int32(x)>>16*(int32(y)>>16))
		}
	case "VMULPS":
		return func(x, y, _ uint32) uint32 { return math.Float32bits(float32(f(y) * f(x))) }
	case "VADDPS":
		return func(x, y, _ uint32) uint32 { return math.Float32bits(f(y) + f(x)) }
	case "VSUBPS":
		return func(x, y, _ uint32) uint32 { return math.Float32bits(f(y) - f(x)) }
	case "VMAXPS": // the first operand unless the second is more
		return func(x, y, _ uint32) uint32 {
			if f(y) > f(x) {
				return y
			}
			return x
		}
	case "VPMAXUD":
		return func(x, y, _ uint32) uint32 { return max(x, y) }
	case "VFMADD213PS":
		return func(x, y, d uint32) uint32 { return math.Float32bits(FMA(f(y), f(d), f(x))) }
	case "VFNMSUB231PS":
		return func(x, y, d uint32) uint32 { return math.Float32bits(FMA(-f(y), f(x), -f(d))) }
	case "VFMADD231PS":
		return func(x, y, d uint32) uint32 { return math.Float32bits(FMA(f(y), f(x), f(d))) }
	case "VFNMADD231PS":
		return func(x, y, d uint32) uint32 { return math.Float32bits(FMA(-f(y), f(x), f(d))) }
	}
	panic("no instruction " + op)
}

// ternary is VPTERNLOGD: bit 4a+2b+c of imm.
func ternary(imm uint8, a, b, c *vector) (v vector) {
	for i := range v {
		for index := range 8 {
			if imm>>index&1 == 0 {
				continue
			}
			term := ^uint32(0)
			for j, x := range []uint32{c[i], b[i], a[i]} {
				if index>>j&1 == 0 {
					x = ^x
				}
				term &= x
			}
			v[i] |= term
		}
	}
	return v
}
