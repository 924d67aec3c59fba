//go:build !purego

package kernels

import "golang.org/x/sys/cpu"

// addImplementations fills in what this processor can run.
func addImplementations() {
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA && hasF16C() {
		implementations[AVX2] = &implementation{
			variant: AVX2,
			group: [len(geometries)]func(*groupArgs){
				Q4_0: groupQ4_0AVX2, Q4_1: groupQ4_1AVX2, Q5_0: groupQ5_0AVX2, Q5_1: groupQ5_1AVX2, Q8_0: groupQ8_0AVX2,
				Q4_K: groupQ4_KAVX2, Q5_K: groupQ5_KAVX2, Q6_K: groupQ6_KAVX2,
			},
			pack:       packAVX2,
			rowKernels: rowKernelsAVX2, attnKernels: attnKernelsAVX2,
			read: readAVX2, peakInt8: peakInt8AVX2, peakF32: peakF32AVX2,
		}
	}
}

// hasF16C reports whether the processor converts binary16 (CPUID leaf 1, ECX bit 29; Intel's manual, volume 2).
func hasF16C() bool
