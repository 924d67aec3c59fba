//go:build !purego

package kernels

var rowKernelsAVX2 = rowKernels{
	quantise: [Q8x256 + 1]rowQuantiser{Q8x32: quantise32AVX2, Q8x256: quantise256AVX2},
}
