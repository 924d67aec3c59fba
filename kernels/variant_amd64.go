//go:build !purego

package kernels

import "golang.org/x/sys/cpu"

// addImplementations fills in what this processor can run.
func addImplementations() {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA || !hasF16C() {
		return
	}
	base := implementation{
		variant: AVX2,
		group: [len(geometries)]func(*groupArgs){
			Q4_0: groupQ4_0AVX2, Q4_1: groupQ4_1AVX2, Q5_0: groupQ5_0AVX2, Q5_1: groupQ5_1AVX2, Q8_0: groupQ8_0AVX2,
			Q2_K: groupQ2_KAVX2, Q3_K: groupQ3_KAVX2, Q4_K: groupQ4_KAVX2, Q5_K: groupQ5_KAVX2, Q6_K: groupQ6_KAVX2,
			IQ4_NL: groupIQ4_NLAVX2, IQ4_XS: groupIQ4_XSAVX2, MXFP4: groupMXFP4AVX2,
			IQ2_XXS: groupGrid7AVX2, IQ2_XS: groupGrid7AVX2, IQ2_S: groupGrid7AVX2,
			IQ3_XXS: groupGrid6AVX2, IQ3_S: groupGrid6AVX2, IQ1_S: groupGrid6AVX2, IQ1_M: groupGrid6AVX2,
		},
		pack:  packAVX2,
		store: storeAVX2,
		read:  readAVX2, peakInt8: peakInt8AVX2, peakF32: peakF32AVX2,
		rowKernels: rowKernelsAVX2, attnKernels: attnKernelsAVX2,
	}
	implementations[AVX2] = &base
	if x.HasAVXVNNI {
		vnni := base
		vnni.variant, vnni.unproven = AVXVNNI, true
		vnni.group = [len(geometries)]func(*groupArgs){
			Q4_0: groupQ4_0AVXVNNI, Q4_1: groupQ4_1AVXVNNI, Q5_0: groupQ5_0AVXVNNI, Q5_1: groupQ5_1AVXVNNI, Q8_0: groupQ8_0AVXVNNI,
			Q2_K: groupQ2_KAVXVNNI, Q3_K: groupQ3_KAVXVNNI, Q4_K: groupQ4_KAVXVNNI, Q5_K: groupQ5_KAVXVNNI, Q6_K: groupQ6_KAVXVNNI,
			IQ4_NL: groupIQ4_NLAVXVNNI, IQ4_XS: groupIQ4_XSAVXVNNI, MXFP4: groupMXFP4AVXVNNI,
			IQ2_XXS: groupGrid7AVXVNNI, IQ2_XS: groupGrid7AVXVNNI, IQ2_S: groupGrid7AVXVNNI,
			IQ3_XXS: groupGrid6AVXVNNI, IQ3_S: groupGrid6AVXVNNI, IQ1_S: groupGrid6AVXVNNI, IQ1_M: groupGrid6AVXVNNI,
		}
		vnni.peakInt8 = peakInt8AVXVNNI
		implementations[AVXVNNI] = &vnni
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI {
		wide := base
		wide.variant, wide.unproven = AVX512, true
		wide.group = [len(geometries)]func(*groupArgs){
			Q4_0: groupQ4_0AVX512, Q4_1: groupQ4_1AVX512, Q5_0: groupQ5_0AVX512, Q5_1: groupQ5_1AVX512, Q8_0: groupQ8_0AVX512,
			Q2_K: groupQ2_KAVX512, Q3_K: groupQ3_KAVX512, Q4_K: groupQ4_KAVX512, Q5_K: groupQ5_KAVX512, Q6_K: groupQ6_KAVX512,
			IQ4_NL: groupIQ4_NLAVX512, IQ4_XS: groupIQ4_XSAVX512, MXFP4: groupMXFP4AVX512,
			IQ2_XXS: groupGrid7AVX512, IQ2_XS: groupGrid7AVX512, IQ2_S: groupGrid7AVX512,
			IQ3_XXS: groupGrid6AVX512, IQ3_S: groupGrid6AVX512, IQ1_S: groupGrid6AVX512, IQ1_M: groupGrid6AVX512,
		}
		wide.pairs = true
		wide.attnKernels = attnKernelsAVX512
		wide.dense = denseKernels{
			native: [len(geometries)]func(*denseArgs){F32: denseF32AVX512, F16: denseF16AVX512, BF16: denseBF16AVX512},
			panel:  densePanelAVX512,
			fold:   foldDenseAVX2,
		}
		wide.read, wide.peakInt8, wide.peakF32 = readAVX512, peakInt8AVX512, peakF32AVX512
		implementations[AVX512] = &wide
	}
}

// hasF16C reports whether the processor converts binary16 (CPUID leaf 1, ECX bit 29; Intel's manual, volume 2).
func hasF16C() bool
