//go:build !purego

package kernels

import "golang.org/x/sys/cpu"

// addImplementations fills in what this processor can run. NEON is part of every arm64.
func addImplementations() {
	neon := implementation{
		variant: NEON,
		group: [len(geometries)]func(*groupArgs){
			Q4_0: groupQ4_0NEON, Q4_1: groupQ4_1NEON, Q5_0: groupQ5_0NEON, Q5_1: groupQ5_1NEON, Q8_0: groupQ8_0NEON,
			Q2_K: groupQ2_KNEON, Q3_K: groupQ3_KNEON, Q4_K: groupQ4_KNEON, Q5_K: groupQ5_KNEON, Q6_K: groupQ6_KNEON,
			IQ4_NL: groupIQ4_NLNEON, IQ4_XS: groupIQ4_XSNEON, MXFP4: groupMXFP4NEON,
			IQ2_XXS: groupGrid7NEON, IQ2_XS: groupGrid7NEON, IQ2_S: groupGrid7NEON,
			IQ3_XXS: groupGrid6NEON, IQ3_S: groupGrid6NEON, IQ1_S: groupGrid6NEON, IQ1_M: groupGrid6NEON,
		},
		pack: packNEON,
		read: readNEON, peakInt8: peakInt8NEON, peakF32: peakF32NEON,
		rowKernels: rowKernelsNEON, attnKernels: attnKernelsNEON,
	}
	implementations[NEON] = &neon
	if !cpu.ARM64.HasASIMDDP {
		return
	}
	dot := neon
	dot.variant = DotProd
	dot.group = [len(geometries)]func(*groupArgs){
		Q4_0: groupQ4_0DotProd, Q4_1: groupQ4_1DotProd, Q5_0: groupQ5_0DotProd, Q5_1: groupQ5_1DotProd, Q8_0: groupQ8_0DotProd,
		Q2_K: groupQ2_KDotProd, Q3_K: groupQ3_KDotProd, Q4_K: groupQ4_KDotProd, Q5_K: groupQ5_KDotProd, Q6_K: groupQ6_KDotProd,
		IQ4_NL: groupIQ4_NLDotProd, IQ4_XS: groupIQ4_XSDotProd, MXFP4: groupMXFP4DotProd,
		IQ2_XXS: groupGrid7DotProd, IQ2_XS: groupGrid7DotProd, IQ2_S: groupGrid7DotProd,
		IQ3_XXS: groupGrid6DotProd, IQ3_S: groupGrid6DotProd, IQ1_S: groupGrid6DotProd, IQ1_M: groupGrid6DotProd,
	}
	dot.peakInt8 = peakInt8DotProd
	implementations[DotProd] = &dot
	if !cpu.ARM64.HasI8MM {
		return
	}
	matrix := dot
	matrix.variant = I8MM
	matrix.group = [len(geometries)]func(*groupArgs){
		Q4_0: groupQ4_0I8MM, Q4_1: groupQ4_1I8MM, Q5_0: groupQ5_0I8MM, Q5_1: groupQ5_1I8MM, Q8_0: groupQ8_0I8MM,
		Q2_K: groupQ2_KI8MM, Q3_K: groupQ3_KI8MM, Q4_K: groupQ4_KI8MM, Q5_K: groupQ5_KI8MM, Q6_K: groupQ6_KI8MM,
		IQ4_NL: groupIQ4_NLI8MM, IQ4_XS: groupIQ4_XSI8MM, MXFP4: groupMXFP4I8MM,
		IQ2_XXS: groupGrid7I8MM, IQ2_XS: groupGrid7I8MM, IQ2_S: groupGrid7I8MM,
		IQ3_XXS: groupGrid6I8MM, IQ3_S: groupGrid6I8MM, IQ1_S: groupGrid6I8MM, IQ1_M: groupGrid6I8MM,
	}
	matrix.peakInt8 = peakInt8I8MM
	implementations[I8MM] = &matrix
}
