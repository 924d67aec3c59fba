//go:build !purego

package kernels

var rowKernelsAVX2 = rowKernels{
	quantise: [Q8x256 + 1]rowQuantiser{Q8x32: quantise32AVX2, Q8x256: quantise256AVX2},
	dense: denseKernels{
		native: [len(geometries)]func(*denseArgs){F32: denseF32AVX2, F16: denseF16AVX2, BF16: denseBF16AVX2},
		panel:  densePanelAVX2,
		fold:   foldDenseAVX2,
	},

	squares:         squaresAVX2,
	norm:            normAVX2,
	scale:           scaleAVX2,
	add:             addAVX2,
	exps:            expsAVX2,
	mulSiLU:         mulSiLUAVX2,
	mulGELU:         mulGELUAVX2,
	mulSigmoid:      mulSigmoidAVX2,
	silus:           silusAVX2,
	mulAdd:          mulAddAVX2,
	delta:           deltaAVX2,
	ropeInterleaved: ropeInterleavedAVX2,
	ropeHalf:        ropeHalfAVX2,
	largestBits:     largestBitsAVX2,
	widenF16:        widenF16AVX2,
	widenBF16:       widenBF16AVX2,
	clampF16:        clampF16AVX2,
	largest:         largestAVX2,
	seek:            seekAVX2,
}
