package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// attend runs all blocks of n positions and returns the output.
func attend(q, k, v []float32, n int, scale float32) []float32 {
	dim := len(q)
	var p Partial
	p.Reset(dim)
	scratch := make([]float32, AttnBlock+dim)
	for at := 0; at < n; at += AttnBlock {
		AttendBlock(&p, q, k[at*dim:], v[at*dim:], 0, min(AttnBlock, n-at), scale, scratch)
	}
	dst := make([]float32, dim)
	p.Finish(dst)
	return dst
}

// refAttend is the same written straight from DESIGN §4.5.
func refAttend(q, k, v []float32, n int, scale float32) []float32 {
	dim := len(q)
	M, L, O := float32(math.Inf(-1)), float32(0), make([]float32, dim)
	for at := 0; at < n; at += 256 {
		c := min(256, n-at)
		s := make([]float32, c)
		m := float32(math.Inf(-1))
		for i := range c {
			for d := range dim {
				s[i] = FMA(q[d], k[(at+i)*dim+d], s[i])
			}
			s[i] = float32(s[i] * scale)
			if s[i] > m {
				m = s[i]
			}
		}
		var lane [16]float32
		for i := range c {
			s[i] = Exp(s[i] - m)
			lane[i%16] += s[i]
		}
		for w := 8; w > 0; w /= 2 {
			for j := range w {
				lane[j] += lane[j+w]
			}
		}
		out := make([]float32, dim)
		for d := range dim {
			for i := range c {
				out[d] = FMA(s[i], v[(at+i)*dim+d], out[d])
			}
		}
		top := max(M, m)
		a, b := Exp(M-top), Exp(m-top)
		lb := float32(lane[0] * b)
		L = FMA(L, a, lb)
		for d := range dim {
			ob := float32(out[d] * b)
			O[d] = FMA(O[d], a, ob)
		}
		M = top
	}
	for d := range O {
		inv := 1 / L
		o := float32(O[d] * inv)
		O[d] = o + 0
	}
	return O
}

func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func TestAttend(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 20))
	for _, n := range []int{1, 2, 3, 15, 16, 17, 100, 255, 256, 257, 511, 512, 513, 700} {
		for _, dim := range []int{1, 3, 8, 20, 64, 65} {
			q, k, v := normal(r, dim), normal(r, n*dim), normal(r, n*dim)
			scale := float32(1 / math.Sqrt(float64(dim)))
			got, want := attend(q, k, v, n, scale), refAttend(q, k, v, n, scale)
			// An independent answer: softmax in float64.
			s, m := make([]float64, n), math.Inf(-1)
			for i := range s {
				for d := range dim {
					s[i] += float64(q[d]) * float64(k[i*dim+d])
				}
				s[i] *= float64(scale)
				m = max(m, s[i])
			}
			sum, exact := 0.0, make([]float64, dim)
			for i := range s {
				e := math.Exp(s[i] - m)
				sum += e
				for d := range dim {
					exact[d] += e * float64(v[i*dim+d])
				}
			}
			for d := range dim {
				if !sameFloat(got[d], want[d]) {
					t.Fatalf("%d positions, dimension %d of %d: %x, want %x", n, d, dim, got[d], want[d])
				}
				if diff := math.Abs(float64(got[d]) - exact[d]/sum); diff > 2e-6 {
					t.Fatalf("%d positions, dimension %d of %d: %v, exact softmax %v", n, d, dim, got[d], exact[d]/sum)
				}
			}
		}
	}
}

// TestAttendBlocks computes blocks apart, each from a fresh state, and merges them left to right: the same bits as one
// after the other, so they may go to different workers. A causal prefill row by row is the same as decoding.
func TestAttendBlocks(t *testing.T) {
	const dim, n = 32, 900
	r := rand.New(rand.NewPCG(21, 21))
	q, k, v := normal(r, dim), normal(r, n*dim), normal(r, n*dim)
	want := attend(q, k, v, n, 0.3)
	scratch := make([]float32, AttnBlock+dim)
	var parts []Partial
	for at := 0; at < n; at += AttnBlock {
		var p Partial
		p.Reset(dim)
		AttendBlock(&p, q, k[at*dim:], v[at*dim:], 0, min(AttnBlock, n-at), 0.3, scratch)
		parts = append(parts, p)
	}
	var all Partial
	all.Reset(dim)
	for i := range parts {
		all.Merge(parts[i].M, parts[i].L, parts[i].O)
	}
	got := make([]float32, dim)
	all.Finish(got)
	for d := range got {
		if !sameFloat(got[d], want[d]) {
			t.Fatalf("dimension %d: %x, want %x", d, got[d], want[d])
		}
	}
}

// TestAttendVisible shows that positions from n on are not read: the memory holds NaN there.
func TestAttendVisible(t *testing.T) {
	const dim = 24
	r := rand.New(rand.NewPCG(22, 22))
	for n := 1; n <= AttnBlock; n += 1 + r.IntN(9) {
		q, k, v := normal(r, dim), normal(r, n*dim), normal(r, n*dim)
		bad := canaries(AttnBlock * dim)
		var p Partial
		p.Reset(dim)
		scratch := canaries(AttnBlock + dim + 1)
		AttendBlock(&p, q, append(k[:n*dim:n*dim], bad[n*dim:]...), append(v[:n*dim:n*dim], bad[n*dim:]...), 0, n, 0.2, scratch[:AttnBlock+dim])
		got, want := make([]float32, dim), refAttend(q, k, v, n, 0.2)
		p.Finish(got)
		for d := range got {
			if !sameFloat(got[d], want[d]) {
				t.Fatalf("%d positions: %x, want %x", n, got[d], want[d])
			}
		}
		if !isCanary(scratch[AttnBlock+dim]) {
			t.Fatal("wrote outside the scratch")
		}
	}
}

func TestAttendExtremes(t *testing.T) {
	const dim = 16
	var p Partial
	scratch := make([]float32, AttnBlock+dim)
	q, k, v := make([]float32, dim), make([]float32, 2*dim), make([]float32, 2*dim)
	for d := range q {
		q[d], k[d], k[dim+d] = 30, 30, -30
		v[d], v[dim+d] = float32(math.Copysign(0, -1)), MaxF16
	}
	p.Reset(dim)
	AttendBlock(&p, q, k, v, 0, 2, 1, scratch) // scores ±14,400: the second weight is exactly +0
	dst := make([]float32, dim)
	p.Finish(dst)
	if p.M != 14400 || p.L != 1 || math.Float32bits(dst[0]) != 0 {
		t.Errorf("M %v, L %v, output %x: want 14400, 1, +0", p.M, p.L, dst[0])
	}
	// A later block that is far below must change nothing, one far above must replace everything.
	before := append([]float32(nil), p.O...)
	AttendBlock(&p, q, k[dim:], v[dim:], 0, 1, 1, scratch)
	if p.M != 14400 || p.L != 1 || p.O[3] != before[3] {
		t.Errorf("after a negligible block: M %v, L %v, O %v", p.M, p.L, p.O[3])
	}
	p.Reset(dim)
	AttendBlock(&p, q, k[dim:], v[dim:], 0, 1, 1, scratch)
	AttendBlock(&p, q, k, v, 0, 1, 1, scratch)
	if p.M != 14400 || p.L != 1 || p.O[3] != 0 {
		t.Errorf("after an overwhelming block: M %v, L %v, O %v", p.M, p.L, p.O[3])
	}
}

func BenchmarkAttendBlock(b *testing.B) {
	const dim = 64
	r := rand.New(rand.NewPCG(23, 23))
	q, k, v := normal(r, dim), normal(r, AttnBlock*dim), normal(r, AttnBlock*dim)
	scratch := make([]float32, AttnBlock+dim)
	var p Partial
	p.Reset(dim)
	for b.Loop() {
		AttendBlock(&p, q, k, v, 0, AttnBlock, 0.125, scratch)
	}
	b.ReportMetric(4*dim*AttnBlock*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
	b.ReportMetric(0, "ns/op")
}
