//go:build !purego

package kernels

var attnKernelsNEON = attnKernels{
	attnProduct: [2]func(*attnProductArgs){attnHalf: attnProductF16NEON, attnFull: attnProductF32NEON},
	attnFirst:   [2]func(*attnProductArgs){attnHalf: attnFirstF16NEON, attnFull: attnFirstF32NEON},
	attnSoftmax: attnSoftmaxNEON,
	attnMerge:   attnMergeNEON,
	attnFinish:  attnFinishNEON,
}
