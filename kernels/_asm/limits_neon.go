package main

// limitsNEON writes the limits of the machine in 128-bit registers, see kernels/limits.go. Registers: R0 arguments, R1
// memory, R2 bytes or rounds left.
func limitsNEON(g *file) {
	f := neon{g}
	f.fn("readNEON", "limitArgs", "R0", "reads memory, see ReadLoop.")
	f.op("MOVD limitArgs_p(R0), R1")
	f.op("MOVD limitArgs_n(R0), R2")
	for i := range 8 {
		f.movi(i, 0)
	}
	again := f.label("read")
	f.at(again)
	for i := range 4 { // 64 bytes each, to every other half of the sums
		sums := i % 2 * 4
		f.op("VLD1.P 64(R1), [V16.B16, V17.B16, V18.B16, V19.B16]")
		for j := range 4 {
			f.op("VEOR V%d.B16, V%d.B16, V%d.B16", 16+j, sums+j, sums+j)
		}
	}
	f.op("SUBS $256, R2")
	f.op("BNE %s", again)
	for half := 4; half > 0; half /= 2 {
		for i := range half {
			f.op("VEOR V%d.B16, V%d.B16, V%d.B16", i+half, i, i)
		}
	}
	f.op("ADD $limitArgs_sum, R0, R3")
	f.op("VST1 [V0.B16], (R3)")
	f.ret()

	// Like AVX2, the first arm64 has products of bytes that go to 16-bit sums.
	f.limit("peakInt8NEON", peakInt8Ops/16, func(i int) { f.smlal(i%limitSums, 30, 31, i%2 == 1) })
	f.limit("peakInt8DotProd", peakInt8Ops/32, func(i int) { f.sdot(i%limitSums, 30, 31) })
	f.limit("peakInt8I8MM", peakInt8Ops/64, func(i int) { f.smmla(i%limitSums, 30, 31) })
	f.limit("peakF32NEON", peakF32Ops/8, func(i int) { f.op("VFMLA V30.S4, V31.S4, V%d.S4", i%limitSums) })
}

// limitSums is how many independent sums hide the latency of up to four units.
const limitSums = 24

// limit writes a function that repeats a round of steps, which use registers that are zero.
func (f neon) limit(name string, steps int, step func(i int)) {
	f.fn(name, "limitArgs", "R0", "computes in registers only, see PeakInt8 and PeakF32.")
	f.op("MOVD limitArgs_n(R0), R2")
	for i := range 32 {
		if i < limitSums || i >= 30 {
			f.movi(i, 0)
		}
	}
	again := f.label("round")
	f.at(again)
	for i := range steps {
		step(i)
	}
	f.op("SUBS $1, R2")
	f.op("BNE %s", again)
	f.ret()
}
