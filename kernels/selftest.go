package kernels

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
)

// SelfTest runs every kernel over fixed inputs and compares the bits with those of the specification, in some tens of
// milliseconds. It returns the digest of all results, which peers compare, and an error naming the first kernel that
// differs: a miscompiled binary, or a processor state that flushes denormals or rounds differently (a foreign library
// can set that).
func SelfTest() (digest [32]byte, err error) {
	all := sha256.New()
	for _, u := range selfTests {
		sum := u.digest()
		all.Write(sum[:])
		if err == nil && hex.EncodeToString(sum[:8]) != u.want {
			err = fmt.Errorf("kernels self-test: %s gives %x, want %s: numbers of this build or processor can't be trusted", u.name, sum[:8], u.want)
		}
	}
	return [32]byte(all.Sum(nil)), err
}

// selfTest is one kernel's part: run writes results, want is the start of their SHA-256.
type selfTest struct {
	name, want string
	run        func(s *selfTestData)
}

func (u *selfTest) digest() [32]byte {
	s := &selfTestData{state: 0x9e3779b97f4a7c15, hash: sha256.New()}
	u.run(s)
	return [32]byte(s.hash.Sum(nil))
}

// selfTestData makes inputs (xorshift64, always the same) and takes results.
type selfTestData struct {
	state uint64
	hash  hash.Hash
}

func (s *selfTestData) next() uint64 {
	s.state ^= s.state << 13
	s.state ^= s.state >> 7
	s.state ^= s.state << 17
	return s.state
}

// uniform returns a value of [-1, 1) with 24 bits.
func (s *selfTestData) uniform() float32 { return float32(int32(s.next()>>40)-1<<23) / (1 << 23) }

// wide returns any finite float32, all exponents alike.
func (s *selfTestData) wide() float32 {
	for {
		if f := math.Float32frombits(uint32(s.next() >> 32)); f-f == 0 {
			return f
		}
	}
}

func (s *selfTestData) floats(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = s.uniform()
	}
	return x
}

// put adds results; every NaN counts as the same, since its bits differ between architectures.
func (s *selfTestData) put(x ...float32) {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		u := math.Float32bits(v)
		if v != v {
			u = 0x7fc00000
		}
		b = binary.LittleEndian.AppendUint32(b, u)
	}
	s.hash.Write(b)
}

// each applies f to specials, to values in ±span and to values of all sizes.
func (s *selfTestData) each(span float32, f func(float32) float32) {
	inf := float32(math.Inf(1))
	for _, x := range []float32{0, 1, 0x1p-126, 0x1p-149, math.MaxFloat32, inf, float32(math.NaN())} {
		s.put(f(x), f(-x))
	}
	for i := 0; i < 2000; i++ {
		s.put(f(float32(s.uniform()*span)), f(s.wide()))
	}
}

// weights returns a random matrix with small scales.
func (s *selfTestData) weights(t Type, rows, cols int) Matrix {
	size, err := RowBytes(t, cols)
	if err != nil {
		panic(err)
	}
	data := make([]byte, rows*size)
	for i := range data {
		data[i] = byte(s.next() >> 56)
	}
	elems, bytes := t.Block()
	half := func(at int) { binary.LittleEndian.PutUint16(data[at:], F32ToF16(s.uniform())) }
	for i := 0; i < rows*cols/elems; i++ {
		at := i * bytes
		switch t {
		case F32:
			binary.LittleEndian.PutUint32(data[at:], math.Float32bits(s.uniform()))
		case BF16:
			binary.LittleEndian.PutUint16(data[at:], uint16(math.Float32bits(s.uniform())>>16))
		case Q4_1, Q5_1, Q4_K, Q5_K:
			half(at)
			half(at + 2)
		case Q6_K:
			half(at + bytes - 2)
		default:
			half(at)
		}
	}
	return Matrix{Type: t, Rows: rows, Cols: cols, Data: data}
}

// selfTestMatMul is three rows by part of a group of outputs.
func selfTestMatMul(t Type) func(*selfTestData) { return selfTestProduct(t, 3, 7) }

// selfTestTiles is more rows and outputs than any tile has, and a remainder of both.
func selfTestTiles(t Type) func(*selfTestData) { return selfTestProduct(t, 23, 50) }

func selfTestProduct(t Type, rows, outputs int) func(*selfTestData) {
	return func(s *selfTestData) {
		const cols = 768
		w := s.weights(t, outputs, cols)
		var a Activations
		if err := a.Prepare(s.floats(rows*cols), rows, cols, t.Form()); err != nil {
			panic(err)
		}
		dst := make([]float32, rows*outputs)
		MatMul(dst, outputs, &w, &a, 0, outputs, new(Scratch))
		s.put(dst...)
		deq := make([]float32, cols)
		w.Row(deq, outputs-1)
		s.put(deq...)
	}
}

func selfTestRope(f func(x []float32, heads, headDim, ropeDim int, cos, sin []float32)) func(*selfTestData) {
	return func(s *selfTestData) {
		x := s.floats(5 * 32)
		f(x, 5, 32, 24, s.floats(12), s.floats(12))
		s.put(x...)
	}
}

// selfTestAttention is a block of n positions for rows that see more and more of it.
func selfTestAttention(dim, rows, n int) func(*selfTestData) {
	return func(s *selfTestData) {
		kv := KVBlock{Dim: dim, Half: make([]uint16, KVBlockLen(dim))}
		for pos := range n {
			kv.Store(pos, s.floats(dim), s.floats(dim))
		}
		visible := make([]Span, rows)
		for r := range visible {
			visible[r] = Span{r * r / 3, n - rows + r}
		}
		var p Partial
		var scratch AttnScratch
		AttendBlock(&p, s.floats(rows*dim), kv, visible, 1.5, KVBlock{}, &scratch)
		dst := make([]float32, rows*dim)
		p.Finish(dst, 0, rows, &scratch)
		s.put(dst...)
	}
}

var selfTests = []selfTest{
	{"f16", "694d7c6f75bb65f6", func(s *selfTestData) {
		s.each(70000, func(x float32) float32 { return F16ToF32(F32ToF16(x)) })
		s.each(70000, func(x float32) float32 { return F16ToF32(ClampF16(x)) })
		s.each(0.0001, func(x float32) float32 { return F16ToF32(F32ToF16(x)) })
	}},
	{"fma", "62953103db2ef7f5", func(s *selfTestData) {
		for i := 0; i < 2000; i++ {
			z := s.uniform()
			s.put(FMA(s.uniform(), s.uniform(), z), FMA(s.wide(), s.wide(), s.wide()))
			// z plus or minus nearly half a unit in its last place
			u := math.Float32frombits(math.Float32bits(z)&0x7f800000 | 1)
			v := math.Float32frombits(0x337fffff - uint32(i&3))
			s.put(FMA(u, v, z), FMA(-u, v, z), FMA(u, float32(v*0x1p-100), float32(z*0x1p-126)))
		}
	}},
	{"exp", "5f3d5c061cc6c3a5", func(s *selfTestData) { s.each(105, Exp) }},
	{"silu", "df521e309e997f05", func(s *selfTestData) { s.each(30, SiLU) }},
	{"gelu", "800842354451bce8", func(s *selfTestData) { s.each(6, GELU) }},
	{"softplus", "9c313942fd61c0d1", func(s *selfTestData) { s.each(30, Softplus) }},
	{"log", "5e5196025646c00f", func(s *selfTestData) { s.each(4, Log) }},
	{"sincos", "c6b6860e65d793a4", func(s *selfTestData) {
		for i := 0; i < 4000; i++ {
			angle := float64(float64(s.uniform()) * float64(uint64(1)<<(i%29)))
			sin, cos := SinCos(angle)
			s.put(sin, cos)
		}
	}},
	{"pow", "a894ddf9ab66c43c", func(s *selfTestData) {
		for i := 0; i < 2000; i++ {
			base := 1e4 + float64(s.next()>>40)
			u := math.Float64bits(Pow64(base, float64(s.uniform())))
			s.put(math.Float32frombits(uint32(u)&0x3fffffff), math.Float32frombits(uint32(u>>32)))
		}
	}},
	{"rms norm", "847c053d57f7b9fe", func(s *selfTestData) {
		for _, n := range []int{1, 15, 16, 100, 576} {
			dst := make([]float32, n)
			RMSNorm(dst, s.floats(n), s.floats(n), 1e-5)
			s.put(dst...)
		}
	}},
	{"gated silu and sum", "095813957644f4cb", func(s *selfTestData) {
		dst := make([]float32, 100)
		MulSiLU(dst, s.floats(100), s.floats(100))
		Add(dst, dst, s.floats(100))
		s.put(dst...)
	}},
	{"gated gelu and scale", "afa6e1b5a8acef57", func(s *selfTestData) {
		dst := make([]float32, 100)
		MulGELU(dst, s.floats(100), s.floats(100))
		Scale(dst, dst, 25.298222)
		s.put(dst...)
	}},
	{"rope, interleaved", "f32f9e4ea9e6aad2", selfTestRope(RopeInterleaved)},
	{"rope, halves", "16f31a966bc76bcd", selfTestRope(RopeHalf)},
	{"attention", "8d5cef2fff7b532a", func(s *selfTestData) {
		const dim = 64
		var all, block Partial
		var scratch AttnScratch
		all.Reset(1, dim)
		dst, q := make([]float32, dim), s.floats(dim)
		for _, n := range []int{AttnBlock, 100} {
			kv := KVBlock{Dim: dim, Full: make([]float32, KVBlockLen(dim))}
			k, v := s.floats(n*dim), s.floats(n*dim)
			for pos := range n {
				kv.Store(pos, k[pos*dim:], v[pos*dim:])
			}
			AttendBlock(&block, q, kv, []Span{{0, n}}, 2, KVBlock{}, &scratch)
			all.Merge(&block, &scratch)
		}
		all.Finish(dst, 0, 1, &scratch)
		s.put(dst...)
	}},
	{"attention, rows", "ffd24ea2da13e932", selfTestAttention(40, 19, 200)},
	{"attention, tiles", "29350fe73978912a", selfTestAttention(64, 31, 256)},
	{"F32 product", "23ee1bed05f373d1", selfTestMatMul(F32)},
	{"F16 product", "03f7ab1da3bf6f24", selfTestMatMul(F16)},
	{"BF16 product", "77d99e5135fc7b2e", selfTestMatMul(BF16)},
	{"Q4_0 product", "c4ffee38cd23d1c0", selfTestMatMul(Q4_0)},
	{"Q4_1 product", "05b7d81c4d6f32a1", selfTestMatMul(Q4_1)},
	{"Q5_0 product", "5c51f4c7be22968a", selfTestMatMul(Q5_0)},
	{"Q5_1 product", "bf507774c9777ac2", selfTestMatMul(Q5_1)},
	{"Q8_0 product", "4d340e68d06cf897", selfTestMatMul(Q8_0)},
	{"Q4_K product", "e6477384b2d260f7", selfTestMatMul(Q4_K)},
	{"Q5_K product", "ba76c1b358ab381b", selfTestMatMul(Q5_K)},
	{"Q6_K product", "8900e424eeee67a3", selfTestMatMul(Q6_K)},
	{"F32 product, tiles", "4ac2179ca5aac112", selfTestTiles(F32)},
	{"F16 product, tiles", "8d5cb28435dcfdc1", selfTestTiles(F16)},
	{"BF16 product, tiles", "2aa9091a33d4a20c", selfTestTiles(BF16)},
	{"Q4_0 product, tiles", "0c0ef60db2582f87", selfTestTiles(Q4_0)},
	{"Q4_1 product, tiles", "d8172e5310e5b737", selfTestTiles(Q4_1)},
	{"Q5_0 product, tiles", "3ef7ee31bf9e7dfe", selfTestTiles(Q5_0)},
	{"Q5_1 product, tiles", "954cd2765b975835", selfTestTiles(Q5_1)},
	{"Q8_0 product, tiles", "36a08f4da48760f9", selfTestTiles(Q8_0)},
	{"Q4_K product, tiles", "ed1ad3cdfcc94509", selfTestTiles(Q4_K)},
	{"Q5_K product, tiles", "2bdc78dc650d9fe8", selfTestTiles(Q5_K)},
	{"Q6_K product, tiles", "4d87d271d4301b7d", selfTestTiles(Q6_K)},
}
