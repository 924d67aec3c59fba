package main

// limitsAVX512 writes the limits of the machine in 512-bit registers, see limitsAVX2.
func limitsAVX512(f *file) {
	f.readLoop("readAVX512", "Z", 64)
	f.peak("peakInt8AVX512", "Z", peakInt8Ops/128, 12, func(i int) {
		f.op("VPDPBUSD Z15, Z14, Z%d", i%12)
	})
	f.peak("peakF32AVX512", "Z", peakF32Ops/32, 12, func(i int) {
		f.op("VFMADD231PS Z15, Z14, Z%d", i%12)
	})
}

// limitsVNNI writes the limit of products of bytes by VPDPBUSD in 256-bit registers.
func limitsVNNI(f *file) {
	f.peak("peakInt8AVXVNNI", "Y", peakInt8Ops/64, 12, func(i int) { f.vpdpbusd(15, 14, i%12) })
}
