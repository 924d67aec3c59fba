package main

// The limits of the machine in 256-bit registers, see kernels/limits.go. SI bytes, CX bytes or rounds left, R9 arguments.

func limitsAVX2(f *file) {
	f.readLoop("readAVX2", "Y", 32)

	// Each VPMADDUBSW is 32 products and needs one VPADDW: two of each in a cycle where there are four vector units.
	const sums = 10
	f.peak("peakInt8AVX2", "Y", peakInt8Ops/64, sums, func(i int) {
		f.op("VPMADDUBSW Y15, Y14, Y%d", sums+i%4)
		f.op("VPADDW Y%d, Y%d, Y%d", sums+i%4, i%sums, i%sums)
	})
	f.peak("peakF32AVX2", "Y", peakF32Ops/16, 12, func(i int) {
		f.op("VFMADD231PS Y15, Y14, Y%d", i%12)
	})
}

// Operations of a round, as in kernels/limits.go.
const (
	peakInt8Ops = 4096
	peakF32Ops  = 1024
)

// readLoop writes a function that reads chunks of 256 bytes into accumulators of the given size in bytes (registers
// reg0 up), combines them and stores the first.
func (f *file) readLoop(name, reg string, size int) {
	f.fn(name, "limitArgs", "R9", "reads memory, see ReadLoop.")
	f.op("MOVQ limitArgs_p(R9), SI")
	f.op("MOVQ limitArgs_n(R9), CX")
	n := 256 / size
	for i := range n {
		f.op("VPXOR X%d, X%d, X%d", i, i, i)
	}
	xor := "VPXOR"
	if size == 64 {
		xor = "VPXORQ"
	}
	again := f.label("read")
	f.at(again)
	for i := range n {
		if i*size%64 == 0 {
			f.op("PREFETCHT0 %d(SI)", 4096+i*size)
		}
		f.op("%s %d(SI), %s%d, %s%d", xor, i*size, reg, i, reg, i)
	}
	f.op("ADDQ $256, SI")
	f.op("SUBQ $256, CX")
	f.op("JNE %s", again)
	for half := n / 2; half > 0; half /= 2 {
		for i := range half {
			f.op("%s %s%d, %s%d, %s%d", xor, reg, i+half, reg, i, reg, i)
		}
	}
	move := "VMOVDQU"
	if size == 64 {
		move = "VMOVDQU64"
	}
	f.op("%s %s0, limitArgs_sum(R9)", move, reg)
	f.ret()
}

// peak writes a function that repeats a round of steps, which use registers that are zero.
func (f *file) peak(name, reg string, steps, registers int, step func(i int)) {
	f.fn(name, "limitArgs", "R9", "computes in registers only, see PeakInt8 and PeakF32.")
	f.op("MOVQ limitArgs_n(R9), CX")
	for i := range registers {
		f.op("VPXOR X%d, X%d, X%d", i, i, i)
	}
	f.op("VPXOR X14, X14, X14")
	f.op("VPXOR X15, X15, X15")
	again := f.label("round")
	f.at(again)
	for i := range steps {
		step(i)
	}
	f.op("DECQ CX")
	f.op("JNE %s", again)
	f.ret()
}
