//go:build !purego

package kernels

var attnKernelsAVX2 = attnKernels{
	attnProduct: [2]func(*attnProductArgs){attnProductF16AVX2, attnProductF32AVX2},
	attnFirst:   [2]func(*attnProductArgs){attnFirstF16AVX2, attnFirstF32AVX2},
	attnSoftmax: attnSoftmaxAVX2,
	attnMerge:   attnMergeAVX2,
	attnFinish:  attnFinishAVX2,
}

var attnKernelsAVX512 = attnKernels{
	attnProduct: [2]func(*attnProductArgs){
		sixteens(attnProductF16AVX512, attnProductF16AVX2), sixteens(attnProductF32AVX512, attnProductF32AVX2),
	},
	attnFirst: [2]func(*attnProductArgs){
		sixteens(attnFirstF16AVX512, attnFirstF16AVX2), sixteens(attnFirstF32AVX512, attnFirstF32AVX2),
	},
	attnSoftmax: attnSoftmaxAVX512,
	attnMerge:   attnMergeAVX2,
	attnFinish:  attnFinishAVX2,
}

// sixteens chooses between a kernel for lanes in sixteens and one for lanes in eights.
func sixteens(wide, narrow func(*attnProductArgs)) func(*attnProductArgs) {
	return func(a *attnProductArgs) {
		if a.lanes%KVTile == 0 {
			wide(a)
		} else {
			narrow(a)
		}
	}
}
