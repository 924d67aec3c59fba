package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRMSNorm(t *testing.T) {
	r := rand.New(rand.NewPCG(40, 40))
	for _, n := range []int{1, 2, 15, 16, 17, 31, 32, 64, 100, 576} {
		x, w := normal(r, n), normal(r, n)
		var lane [16]float32
		exact := 0.0
		for i, v := range x {
			lane[i%16] = FMA(v, v, lane[i%16])
			exact += float64(v) * float64(v)
		}
		for k := 8; k > 0; k /= 2 {
			for j := range k {
				lane[j] += lane[j+k]
			}
		}
		scale := 1 / float32(math.Sqrt(float64(lane[0]/float32(n)+1e-5)))
		dst := canaries(n + 2)
		RMSNorm(dst[1:n+1], x, w, 1e-5)
		if !isCanary(dst[0]) || !isCanary(dst[n+1]) {
			t.Fatal("wrote outside")
		}
		for i := range x {
			y := x[i] * scale
			y *= w[i]
			if !sameFloat(dst[i+1], y) {
				t.Fatalf("%d values: index %d: %x, want %x", n, i, dst[i+1], y)
			}
			want := float64(x[i]) / math.Sqrt(exact/float64(n)+1e-5) * float64(w[i])
			if math.Abs(float64(y)-want) > 1e-6*math.Abs(want) {
				t.Fatalf("%d values: index %d: %v, exact %v", n, i, y, want)
			}
		}
		RMSNorm(x, x, w, 1e-5) // in place
		if !sameFloat(x[n-1], dst[n]) {
			t.Fatal("in place gives other bits")
		}
	}
}

// TestElementwise compares every element with the definition, also in place.
func TestElementwise(t *testing.T) {
	tests := []struct {
		name string
		run  func(dst, a, b []float32)
		want func(a, b float32) float32
	}{
		{"add", Add, func(a, b float32) float32 { return a + b }},
		{"gated SiLU", MulSiLU, func(a, b float32) float32 { s := SiLU(a); return s * b }},
		{"gated GELU", MulGELU, func(a, b float32) float32 { g := GELU(a); return g * b }},
		{"clamped SwiGLU", MulClampedSwiGLU, func(a, b float32) float32 {
			g, u := a, b
			if g > 7 {
				g = 7
			}
			if u > 7 {
				u = 7
			}
			if u < -7 {
				u = -7
			}
			minus := float32(-1.702 * g)
			glu := g / (1 + Exp(minus))
			return glu * (u + 1)
		}},
		{"scale", func(dst, a, _ []float32) { Scale(dst, a, 25.298222) }, func(a, _ float32) float32 { return a * 25.298222 }},
	}
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(41, 41))
		for n := range 71 {
			a, b := normal(r, n), normal(r, n)
			for i, x := range []float32{0, float32(math.Copysign(0, -1)), 0x1p-149, -0x1p-130, 1e30, -1e30, 90, -90} {
				if n > 40 {
					a[5*i] = x
				}
			}
			for _, c := range tests {
				dst := canaries(n + 2)
				c.run(dst[1:n+1], a, b)
				for i := range n {
					if want := c.want(a[i], b[i]); !sameFloat(dst[i+1], want) {
						t.Fatalf("%s, %d values: index %d: %v, want %v", c.name, n, i, dst[i+1], want)
					}
				}
				if !isCanary(dst[0]) || !isCanary(dst[n+1]) {
					t.Fatalf("%s, %d values: wrote outside", c.name, n)
				}
				for i, in := range [][]float32{slices.Clone(a), slices.Clone(b)} { // in place of either
					if i == 0 {
						c.run(in, in, b)
					} else {
						c.run(in, a, in)
					}
					for j := range n {
						if !sameFloat(in[j], dst[j+1]) {
							t.Fatalf("%s, %d values: in place of input %d: index %d: %v, want %v", c.name, n, i, j, in[j], dst[j+1])
						}
					}
				}
			}
		}
	})
}

func TestRope(t *testing.T) {
	r := rand.New(rand.NewPCG(42, 42))
	for _, c := range []struct{ heads, dim, rope int }{{1, 2, 2}, {3, 8, 8}, {2, 10, 6}, {9, 64, 64}, {1, 4, 0}} {
		n := c.heads * c.dim
		cos, sin := make([]float32, c.rope/2), make([]float32, c.rope/2)
		for i := range cos {
			sin[i], cos[i] = SinCos(r.Float64() * 1000)
		}
		x := normal(r, n)
		for name, f := range map[string]func([]float32, int, int, int, []float32, []float32){"interleaved": RopeInterleaved, "half": RopeHalf} {
			got := append(append([]float32(nil), x...), canary)
			f(got, c.heads, c.dim, c.rope, cos, sin)
			if !isCanary(got[n]) {
				t.Fatal("wrote outside")
			}
			for h := range c.heads {
				head, turned := x[h*c.dim:], got[h*c.dim:]
				for i := range c.rope / 2 {
					j, k := 2*i, 2*i+1
					if name == "half" {
						j, k = i, i+c.rope/2
					}
					a, b := float32(head[j]*cos[i]), float32(head[k]*sin[i])
					e, f := float32(head[j]*sin[i]), float32(head[k]*cos[i])
					if !sameFloat(turned[j], a-b) || !sameFloat(turned[k], e+f) {
						t.Fatalf("%s, head %d, pair %d: %v %v, want %v %v", name, h, i, turned[j], turned[k], a-b, e+f)
					}
				}
				for i := c.rope; i < c.dim; i++ {
					if turned[i] != head[i] {
						t.Fatalf("%s: dimension %d changed", name, i)
					}
				}
			}
		}
	}
}
