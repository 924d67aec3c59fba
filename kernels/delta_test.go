package kernels

import (
	"math/rand/v2"
	"testing"
)

// refDelta is DeltaStep of one element j of the value, as its comment says it.
func refDelta(m, q, k []float32, dv, j int, v, decay, beta float32) float32 {
	u := float32(0)
	for i := range k {
		m[i*dv+j] = float32(m[i*dv+j] * decay)
		u = FMA(k[i], m[i*dv+j], u)
	}
	delta := v - u
	delta = float32(delta * beta)
	o := float32(0)
	for i := range k {
		m[i*dv+j] = FMA(k[i], delta, m[i*dv+j])
		o = FMA(q[i], m[i*dv+j], o)
	}
	return o
}

// TestDeltaStep compares states and outputs of several steps with the definition, for values of ordinary and of all sizes,
// and looks at the memory around them.
func TestDeltaStep(t *testing.T) {
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(70, 70))
		for _, dk := range []int{1, 5, 32, 128} {
			for _, dv := range []int{1, 4, 7, 8, 9, 15, 16, 31, 32, 33, 40, 72, 128} {
				for kind := range 2 {
					m, o := fence(dk*dv, rowOf(r, dk*dv, kind)), fence(dv, nil)
					want := append([]float32(nil), m.data...)
					for range 3 {
						q, k, v := rowOf(r, dk, kind), rowOf(r, dk, kind), rowOf(r, dv, kind)
						decay, beta := r.Float32(), r.Float32()
						out := make([]float32, dv)
						for j := range dv {
							out[j] = refDelta(want, q, k, dv, j, v[j], decay, beta)
						}
						DeltaStep(o.data, m.data, q, k, v, decay, beta)
						if err := sameBits(o.data, out); err != nil {
							t.Fatalf("keys of %d, values of %d, kind %d: %v", dk, dv, kind, err)
						}
						if err := sameBits(m.data, want); err != nil {
							t.Fatalf("state of keys of %d, values of %d, kind %d: %v", dk, dv, kind, err)
						}
						DeltaStep(v, append([]float32(nil), m.data...), q, k, v, decay, beta) // in v's place: no panic
					}
					if !m.intact() || !o.intact() {
						t.Fatalf("keys of %d, values of %d: wrote outside", dk, dv)
					}
				}
			}
		}
	})
}

// TestMulAdd compares with FMA, element by element.
func TestMulAdd(t *testing.T) {
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(71, 71))
		for _, n := range lengths {
			for kind := range 3 {
				a, b, sum := rowOf(r, n, kind), rowOf(r, n, kind), rowOf(r, n, kind)
				got := fence(n, sum)
				MulAdd(got.data, a, b)
				for i := range sum {
					sum[i] = FMA(a[i], b[i], sum[i])
				}
				if err := sameBits(got.data, sum); err != nil || !got.intact() {
					t.Fatalf("kind %d: %v, intact: %t", kind, err, got.intact())
				}
			}
		}
	})
}

// TestL2Norm checks lengths: the sum of squares of what comes out is 1 but for rounding and eps.
func TestL2Norm(t *testing.T) {
	r := rand.New(rand.NewPCG(72, 72))
	for _, n := range []int{16, 32, 100, 128} {
		x, sum := normal(r, n), 0.0
		L2Norm(x, x, 1e-6)
		for _, v := range x {
			sum += float64(v) * float64(v)
		}
		if sum < 1-1e-5 || sum > 1+1e-5 {
			t.Errorf("%d values: squared length %v", n, sum)
		}
	}
	zero := make([]float32, 16)
	L2Norm(zero, zero, 1e-6)
	if err := sameBits(zero, make([]float32, 16)); err != nil {
		t.Error(err)
	}
}
