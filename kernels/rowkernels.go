package kernels

import "unsafe"

// rowKernels are a variant's functions on rows of values, everything but quantised products and attention. Nil functions
// leave the work to the Go code; but a variant with quantised products has quantise, too. Each does n elements, a multiple of 8 (squares: of 16); the Go code beside the call
// does the rest. Where a value is NaN, which NaN it becomes is not specified.
type rowKernels struct {
	quantise [Q8x256 + 1]rowQuantiser // by form of activations
	dense    denseKernels

	squares          func(x *float32, n int) float32
	norm             func(dst, x, w *float32, n int, s float32)
	scale            func(dst, x *float32, n int, s float32)
	add              func(dst, a, b *float32, n int)
	exps             func(dst, x *float32, n int)
	mulSiLU, mulGELU func(dst, gate, up *float32, n int)
	mulSigmoid       func(dst, gate, up *float32, n int)
	silus            func(dst, x *float32, n int)
	mulAdd           func(dst, a, b *float32, n int)
	delta            func(*deltaArgs)
	ropeInterleaved  func(x *float32, heads, headDim, pairs int, cos, sin *float32)
	ropeHalf         func(x *float32, heads, headDim, pairs int, cos, sin *float32)
	largestBits      func(x *float32, n int) uint32
	widenF16         func(dst *float32, src *byte, n int)
	widenBF16        func(dst *float32, src *byte, n int)
	clampF16         func(dst *uint16, src *float32, n int)
	largest          func(x *float32, n int) float32
	seek             func(x *float32, n int, least float32) int
}

// pointerTo returns the address of the first element, or what an empty slice has in its place.
func pointerTo[E any](s []E) *E { return unsafe.SliceData(s) }
