//go:build !purego

package kernels

var rowKernelsNEON = rowKernels{
	quantise: [Q8x256 + 1]rowQuantiser{Q8x32: quantise32NEON, Q8x256: quantise256NEON},

	squares:         squaresNEON,
	norm:            normNEON,
	scale:           scaleNEON,
	add:             addNEON,
	mulSiLU:         mulSiLUNEON,
	mulGELU:         mulGELUNEON,
	ropeInterleaved: ropeInterleavedNEON,
	ropeHalf:        ropeHalfNEON,
	largestBits:     largestBitsNEON,
	widenF16:        widenF16NEON,
	widenBF16:       widenBF16NEON,
	clampF16:        clampF16NEON,
	largest:         largestNEON,
	seek:            seekNEON,
}
