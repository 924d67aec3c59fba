//go:build !purego

package kernels

var rowKernelsNEON = rowKernels{
	quantise: [Q8x256 + 1]rowQuantiser{Q8x32: quantise32NEON, Q8x256: quantise256NEON},
	dense: denseKernels{
		native: [len(geometries)]func(*denseArgs){F32: denseF32NEON, F16: denseF16NEON, BF16: denseBF16NEON},
		panel:  densePanelNEON,
		fold:   foldDenseNEON,
	},

	squares:         squaresNEON,
	norm:            normNEON,
	scale:           scaleNEON,
	add:             addNEON,
	mulSiLU:         mulSiLUNEON,
	mulGELU:         mulGELUNEON,
	mulSigmoid:      mulSigmoidNEON,
	silus:           silusNEON,
	mulAdd:          mulAddNEON,
	delta:           deltaNEON,
	ropeInterleaved: ropeInterleavedNEON,
	ropeHalf:        ropeHalfNEON,
	largestBits:     largestBitsNEON,
	widenF16:        widenF16NEON,
	widenBF16:       widenBF16NEON,
	clampF16:        clampF16NEON,
	largest:         largestNEON,
	seek:            seekNEON,
}
