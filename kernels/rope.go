package kernels

import "fmt"

// RopeInterleaved rotates one row of heads·headDim values in place: in each head the pairs (2i, 2i+1) for
// i < ropeDim/2; the rest of the head stays. cos and sin have ropeDim/2 values, those of the row's position.
//
//	y0 = round(x0·cos) - round(x1·sin)
//	y1 = round(x0·sin) + round(x1·cos)
func RopeInterleaved(x []float32, heads, headDim, ropeDim int, cos, sin []float32) {
	pairs := checkRope(x, heads, headDim, ropeDim, cos, sin)
	if active.ropeInterleaved != nil && pairs%8 == 0 {
		active.ropeInterleaved(pointerTo(x), heads, headDim, pairs, pointerTo(cos), pointerTo(sin))
		return
	}
	for h := 0; h < heads; h++ {
		row := x[h*headDim : h*headDim+ropeDim]
		for i := 0; i < pairs; i++ {
			x0, x1, c, s := row[2*i], row[2*i+1], cos[i], sin[i]
			row[2*i] = float32(x0*c) - float32(x1*s)
			row[2*i+1] = float32(x0*s) + float32(x1*c)
		}
	}
}

// RopeHalf is RopeInterleaved with the pairs (i, i+ropeDim/2).
func RopeHalf(x []float32, heads, headDim, ropeDim int, cos, sin []float32) {
	pairs := checkRope(x, heads, headDim, ropeDim, cos, sin)
	if active.ropeHalf != nil && pairs%8 == 0 {
		active.ropeHalf(pointerTo(x), heads, headDim, pairs, pointerTo(cos), pointerTo(sin))
		return
	}
	for h := 0; h < heads; h++ {
		lo := x[h*headDim : h*headDim+pairs]
		hi := x[h*headDim+pairs : h*headDim+ropeDim]
		for i := 0; i < pairs; i++ {
			x0, x1, c, s := lo[i], hi[i], cos[i], sin[i]
			lo[i] = float32(x0*c) - float32(x1*s)
			hi[i] = float32(x0*s) + float32(x1*c)
		}
	}
}

// checkRope panics on shapes that don't fit together and returns the number of pairs.
func checkRope(x []float32, heads, headDim, ropeDim int, cos, sin []float32) int {
	if heads < 0 || headDim <= 0 || len(x) < heads*headDim || ropeDim < 0 || ropeDim > headDim || ropeDim%2 != 0 ||
		len(cos) < ropeDim/2 || len(sin) < ropeDim/2 {
		panic(fmt.Sprintf("kernels: rope over %d of %d dimensions, %d heads, %d values, %d cosines, %d sines",
			ropeDim, headDim, heads, len(x), len(cos), len(sin)))
	}
	return ropeDim / 2
}
