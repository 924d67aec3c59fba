//go:build !purego

package kernels

var attnKernelsAVX2 = attnKernels{
	attnProduct: [2]func(*attnProductArgs){attnProductF16AVX2, attnProductF32AVX2},
	attnFirst:   [2]func(*attnProductArgs){attnFirstF16AVX2, attnFirstF32AVX2},
	attnSoftmax: attnSoftmaxAVX2,
	attnMerge:   attnMergeAVX2,
	attnFinish:  attnFinishAVX2,
}
