package kernels

import (
	"fmt"
	"math"
)

// RMSNorm normalises one row: dst = round(round(x·scale)·weight) with scale = round(1/sqrt(round(mean+eps))).
// The sum of squares is taken in 16 lanes (lane j: k ≡ j mod 16, ascending, FMA(x, x, lane) from +0), folded 8-4-2-1;
// mean = round(sum/n). Square root and divisions are correctly rounded in float32. dst may be x.
func RMSNorm(dst, x, weight []float32, eps float32) {
	if len(dst) < len(x) || len(weight) != len(x) || len(x) == 0 {
		panic(fmt.Sprintf("kernels: RMSNorm of %d values with %d weights into %d", len(x), len(weight), len(dst)))
	}
	mean := sumSquares(x) / float32(len(x))
	scale := 1 / sqrt(mean+eps)
	dst, weight = dst[:len(x)], weight[:len(x)]
	n := 0
	if active.norm != nil {
		n = len(x) &^ 7
		active.norm(&dst[0], &x[0], &weight[0], n, scale)
	}
	for i := n; i < len(x); i++ {
		dst[i] = float32(float32(x[i]*scale) * weight[i])
	}
}

// sumSquares returns the sum of squares in 16 lanes, folded.
func sumSquares(x []float32) float32 {
	if active.squares != nil && len(x)%16 == 0 {
		return active.squares(pointerTo(x), len(x))
	}
	var l lanes
	fmaLanes(&l, x, x)
	return l.fold()
}

// sqrt is the correctly rounded float32 square root (float64 has more than twice the bits, so rounding twice is safe).
func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// Add sets dst[i] = a[i] + b[i] for every i of a. dst may be a or b.
func Add(dst, a, b []float32) {
	if len(dst) < len(a) || len(b) != len(a) {
		panic(fmt.Sprintf("kernels: Add of %d and %d values into %d", len(a), len(b), len(dst)))
	}
	dst, b = dst[:len(a)], b[:len(a)]
	n := 0
	if active.add != nil {
		n = len(a) &^ 7
		active.add(pointerTo(dst), pointerTo(a), pointerTo(b), n)
	}
	for i := n; i < len(a); i++ {
		dst[i] = a[i] + b[i]
	}
}

// MulSiLU sets dst[i] = round(SiLU(gate[i])·up[i]) for every i of gate. dst may be gate or up.
func MulSiLU(dst, gate, up []float32) {
	if len(dst) < len(gate) || len(up) != len(gate) {
		panic(fmt.Sprintf("kernels: MulSiLU of %d and %d values into %d", len(gate), len(up), len(dst)))
	}
	dst, up = dst[:len(gate)], up[:len(gate)]
	n := 0
	if active.mulSiLU != nil {
		n = len(gate) &^ 7
		active.mulSiLU(pointerTo(dst), pointerTo(gate), pointerTo(up), n)
	}
	for i := n; i < len(gate); i++ {
		dst[i] = float32(SiLU(gate[i]) * up[i])
	}
}

// The constants of MulClampedSwiGLU, as OpenAI's code for gpt-oss has them.
const (
	swigluAlpha = 1.702
	swigluLimit = 7
)

// MulClampedSwiGLU sets dst[i] = round(round(g / round(1 + Exp(−round(1.702·g))))·round(u + 1)) for every i of gate, where g is
// gate[i] but at most 7, and u is up[i] clamped to ±7. dst may be gate or up.
func MulClampedSwiGLU(dst, gate, up []float32) {
	if len(dst) < len(gate) || len(up) != len(gate) {
		panic(fmt.Sprintf("kernels: MulClampedSwiGLU of %d and %d values into %d", len(gate), len(up), len(dst)))
	}
	for i := range gate {
		g, u := min(gate[i], swigluLimit), max(min(up[i], swigluLimit), -swigluLimit)
		dst[i] = float32(g / (1 + Exp(-float32(swigluAlpha*g))) * (u + 1))
	}
}

// MulGELU sets dst[i] = round(GELU(gate[i])·up[i]) for every i of gate. dst may be gate or up.
func MulGELU(dst, gate, up []float32) {
	if len(dst) < len(gate) || len(up) != len(gate) {
		panic(fmt.Sprintf("kernels: MulGELU of %d and %d values into %d", len(gate), len(up), len(dst)))
	}
	dst, up = dst[:len(gate)], up[:len(gate)]
	n := 0
	if active.mulGELU != nil {
		n = len(gate) &^ 7
		active.mulGELU(pointerTo(dst), pointerTo(gate), pointerTo(up), n)
	}
	for i := n; i < len(gate); i++ {
		dst[i] = float32(GELU(gate[i]) * up[i])
	}
}

// MulSigmoid sets dst[i] = round(Sigmoid(gate[i])·up[i]) for every i of gate. dst may be gate or up.
func MulSigmoid(dst, gate, up []float32) {
	if len(dst) < len(gate) || len(up) != len(gate) {
		panic(fmt.Sprintf("kernels: MulSigmoid of %d and %d values into %d", len(gate), len(up), len(dst)))
	}
	dst, up = dst[:len(gate)], up[:len(gate)]
	n := 0
	if active.mulSigmoid != nil {
		n = len(gate) &^ 7
		active.mulSigmoid(pointerTo(dst), pointerTo(gate), pointerTo(up), n)
	}
	for i := n; i < len(gate); i++ {
		dst[i] = float32(Sigmoid(gate[i]) * up[i])
	}
}

// SiLUs sets dst[i] = SiLU(x[i]) for every i of x. dst may be x.
func SiLUs(dst, x []float32) {
	if len(dst) < len(x) {
		panic(fmt.Sprintf("kernels: SiLUs of %d values into %d", len(x), len(dst)))
	}
	dst = dst[:len(x)]
	n := 0
	if active.silus != nil {
		n = len(x) &^ 7
		active.silus(pointerTo(dst), pointerTo(x), n)
	}
	for i := n; i < len(x); i++ {
		dst[i] = SiLU(x[i])
	}
}

// MulAdd sets dst[i] = FMA(a[i], b[i], dst[i]) for every i of a. dst must be neither a nor b.
func MulAdd(dst, a, b []float32) {
	if len(dst) < len(a) || len(b) != len(a) {
		panic(fmt.Sprintf("kernels: MulAdd of %d and %d values to %d", len(a), len(b), len(dst)))
	}
	dst, b = dst[:len(a)], b[:len(a)]
	n := 0
	if active.mulAdd != nil {
		n = len(a) &^ 7
		active.mulAdd(pointerTo(dst), pointerTo(a), pointerTo(b), n)
	}
	for i := n; i < len(a); i++ {
		dst[i] = FMA(a[i], b[i], dst[i])
	}
}

// Scale sets dst[i] = round(x[i]·s) for every i of x. dst may be x.
func Scale(dst, x []float32, s float32) {
	if len(dst) < len(x) {
		panic(fmt.Sprintf("kernels: Scale of %d values into %d", len(x), len(dst)))
	}
	dst = dst[:len(x)]
	n := 0
	if active.scale != nil {
		n = len(x) &^ 7
		active.scale(pointerTo(dst), pointerTo(x), n, s)
	}
	for i := n; i < len(x); i++ {
		dst[i] = float32(x[i] * s)
	}
}
