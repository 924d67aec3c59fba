package kernels

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
)

// SelfTest runs every kernel that computes a number of a model over fixed inputs, with as many rows, outputs and
// dimensions as take each of its ways, and compares the bits with those of the specification, in some tens of
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

// putInts adds integers.
func (s *selfTestData) putInts(x ...int) {
	for _, v := range x {
		s.hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(v)))
	}
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
	size, err := rowBytes(t, cols)
	if err != nil {
		panic(err)
	}
	data := make([]byte, rows*size)
	for i := range data {
		data[i] = byte(s.next() >> 56)
	}
	g := t.geometry()
	for i := 0; i < rows*cols/g.elems; i++ {
		at := i * g.bytes
		switch t {
		case F32:
			binary.LittleEndian.PutUint32(data[at:], math.Float32bits(s.uniform()))
		case BF16:
			binary.LittleEndian.PutUint16(data[at:], uint16(math.Float32bits(s.uniform())>>16))
		case IQ1_M:
			putHalfIQ1_M(data[at:], F32ToF16(s.uniform()))
		case MXFP4:
			data[at] = 128 - data[at]%8
		}
		for j := range g.halves {
			binary.LittleEndian.PutUint16(data[at+g.half+2*j:], F32ToF16(s.uniform()))
		}
	}
	return Matrix{Type: t, Rows: rows, Cols: cols, Data: data}
}

// putHalfIQ1_M sets d of an IQ1_M block.
func putHalfIQ1_M(b []byte, d uint16) {
	for i := range 4 {
		b[49+2*i] = b[49+2*i]&15 | byte(d>>(4*i)<<4)
	}
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

// selfTestFew is an odd number of groups of outputs by the numbers of rows that tiles are made of, or are left by them:
// those that are multiplied straight from packed blocks, and more; weights packed before, or for the product. Where
// blocks have 32 columns, a superblock is not full.
func selfTestFew(t Type) func(*selfTestData) {
	return func(s *selfTestData) {
		const outputs = 3 * groupRows
		cols := 288
		switch t.Form() {
		case Dense:
			cols += 7
		case Q8x256:
			cols = 256
		}
		w := s.weights(t, outputs, cols)
		packed := make([]byte, w.PackedBytes())
		if len(packed) > 0 {
			w.PackGroups(packed, 0, w.Groups())
		}
		var scratch Scratch
		for _, rows := range []int{1, 2, 3, 4, 5, 6, 7, 8, 13} {
			w.UsePacked(nil)
			if rows%2 == 1 && len(packed) > 0 {
				w.UsePacked(packed)
			}
			var a Activations
			if err := a.Prepare(s.floats(rows*cols), rows, cols, t.Form()); err != nil {
				panic(err)
			}
			dst := make([]float32, rows*outputs)
			MatMul(dst, outputs, &w, &a, 0, outputs, &scratch)
			s.put(dst...)
		}
	}
}

func selfTestRope(f func(x []float32, heads, headDim, ropeDim int, cos, sin []float32)) func(*selfTestData) {
	return func(s *selfTestData) {
		for _, dims := range [][2]int{{32, 24}, {48, 32}, {64, 64}} { // of a head, and that turn
			x := s.floats(5 * dims[0])
			f(x, 5, dims[0], dims[1], s.floats(dims[1]/2), s.floats(dims[1]/2))
			s.put(x...)
		}
	}
}

// selfTestDecode is attention to two blocks, merged, for the numbers of rows that share one head of keys and values when
// a token is made, and for more: heads of sixteens and of eights of dimensions, in both number formats.
func selfTestDecode(full bool) func(*selfTestData) {
	return func(s *selfTestData) {
		const n = 70
		var scratch AttnScratch
		for _, dim := range []int{64, 40} {
			kv := KVBlock{Key: dim, Value: dim}
			if full {
				kv.Full = make([]float32, 2*AttnBlock*dim)
			} else {
				kv.Half = make([]uint16, 2*AttnBlock*dim)
			}
			for pos := range n {
				kv.Store(pos, s.floats(dim), s.floats(dim))
			}
			for _, rows := range []int{1, 2, 3, 4, 5, 6, 7, 8, 11} {
				var all, block Partial
				all.reset(rows, dim)
				q, dst := s.floats(rows*dim), make([]float32, rows*dim)
				for _, first := range []int{0, 9} {
					visible := make([]Span, rows)
					for r := range visible {
						visible[r] = Span{first, n - r}
					}
					AttendBlock(&block, q, kv, visible, 2, kv, &scratch)
					all.Merge(&block, &scratch)
				}
				all.Finish(dst, 0, rows, &scratch)
				s.put(dst...)
			}
		}
	}
}

// selfTestAttention is a block of n positions for rows that see more and more of it.
func selfTestAttention(dim, rows, n int) func(*selfTestData) {
	return func(s *selfTestData) {
		kv := KVBlock{Key: dim, Value: dim, Half: make([]uint16, 2*AttnBlock*dim)}
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
		s.each(70000, func(x float32) float32 { return F16ToF32(clampF16(x)) })
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
	{"pow", "f949dcb4e307b4d7", func(s *selfTestData) {
		for i := 0; i < 2000; i++ {
			base := 1e4 + float64(s.next()>>40)
			s.putInts(int(math.Float64bits(Pow64(base, float64(s.uniform())))))
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
	{"gated sigmoid and fused sums", "9c6474900d2c90b4", func(s *selfTestData) {
		dst := s.floats(100)
		MulAdd(dst, s.floats(100), s.floats(100))
		SiLUs(dst, dst)
		MulSigmoid(dst, s.floats(100), dst)
		L2Norm(dst, dst, 1e-6)
		s.put(dst...)
	}},
	{"delta rule", "0047abf62c26c148", func(s *selfTestData) {
		for _, dims := range [][2]int{{32, 32}, {7, 45}, {128, 88}} { // of a key, of a value
			dk, dv := dims[0], dims[1]
			m, o := s.floats(dk*dv), make([]float32, dv)
			for range 3 {
				DeltaStep(o, m, s.floats(dk), s.floats(dk), s.floats(dv), 0.9375+s.uniform()/16, s.uniform())
				s.put(o...)
			}
			s.put(m...)
		}
	}},
	{"exp, rows", "a294d21bf2d82ffa", func(s *selfTestData) {
		x := s.floats(1003)
		for i := range x {
			x[i] = float32(x[i] * 105)
		}
		Exps(x, x)
		s.put(x...)
	}},
	{"f16, rows", "710d589f49903bf6", func(s *selfTestData) {
		x := s.floats(1003)
		for i := range x {
			x[i] = float32(x[i] * 70000)
		}
		x[3], x[500] = float32(math.Inf(1)), -0x1p-24
		half := make([]uint16, len(x))
		clampF16s(half, x)
		widenF16(x, half)
		s.put(x...)
	}},
	{"searches", "de49acef78fa64c3", func(s *selfTestData) {
		x := s.floats(1003)
		for n := len(x); n > 0; n -= 1 + n/8 {
			s.putInts(ArgMax(x[:n]), IndexAtLeast(x[:n], float32(1-4/float32(n))), CheckFinite(x[:n]))
		}
		for at := 0; at < len(x); at += 1 + at/3 {
			was := x[at]
			x[at] = float32(math.Inf(at%2*2 - 1))
			s.putInts(ArgMax(x), CheckFinite(x))
			x[at] = was
		}
	}},
	{"rope, interleaved", "4bf6e55c836c2c32", selfTestRope(RopeInterleaved)},
	{"rope, halves", "2a4cc9e0a3f0e29c", selfTestRope(RopeHalf)},
	{"attention", "8d5cef2fff7b532a", func(s *selfTestData) {
		const dim = 64
		var all, block Partial
		var scratch AttnScratch
		all.reset(1, dim)
		dst, q := make([]float32, dim), s.floats(dim)
		for _, n := range []int{AttnBlock, 100} {
			kv := KVBlock{Key: dim, Value: dim, Full: make([]float32, 2*AttnBlock*dim)}
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
	{"attention, f16 rows", "1c61af37daaba2e5", selfTestDecode(false)},
	{"attention, f32 rows", "cb522b0b7c1d7837", selfTestDecode(true)},
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
	{"Q2_K product", "b4724602defa9091", selfTestMatMul(Q2_K)},
	{"Q3_K product", "0a68a202d8ea40df", selfTestMatMul(Q3_K)},
	{"IQ4_NL product", "1a132c1bc0300887", selfTestMatMul(IQ4_NL)},
	{"IQ4_XS product", "1ffdb1526c1b97a5", selfTestMatMul(IQ4_XS)},
	{"MXFP4 product", "e80e873900f7cfe2", selfTestMatMul(MXFP4)},
	{"IQ2_XXS product", "35b9809e0ff7eb0f", selfTestMatMul(IQ2_XXS)},
	{"IQ2_XS product", "d75868dce0082644", selfTestMatMul(IQ2_XS)},
	{"IQ2_S product", "e56e5ba3192f61bb", selfTestMatMul(IQ2_S)},
	{"IQ3_XXS product", "29ca140f9c2f38dc", selfTestMatMul(IQ3_XXS)},
	{"IQ3_S product", "f3c1800a9e6c6871", selfTestMatMul(IQ3_S)},
	{"IQ1_S product", "d528b853e91b3351", selfTestMatMul(IQ1_S)},
	{"IQ1_M product", "baa4e6da5f255085", selfTestMatMul(IQ1_M)},
	{"F32 product, few rows", "7f503e4b436a8f0b", selfTestFew(F32)},
	{"F16 product, few rows", "3626ee79a5423ade", selfTestFew(F16)},
	{"BF16 product, few rows", "b884f57c913ecfa1", selfTestFew(BF16)},
	{"Q4_0 product, few rows", "e4161683293dc3de", selfTestFew(Q4_0)},
	{"Q4_1 product, few rows", "633cd457e57ff1d8", selfTestFew(Q4_1)},
	{"Q5_0 product, few rows", "a1c3f96173634a68", selfTestFew(Q5_0)},
	{"Q5_1 product, few rows", "fdb4907fc1a88410", selfTestFew(Q5_1)},
	{"Q8_0 product, few rows", "a11fe5f8930d07d4", selfTestFew(Q8_0)},
	{"Q4_K product, few rows", "3fce3645e8c7dfe3", selfTestFew(Q4_K)},
	{"Q5_K product, few rows", "4091f3b9e6e49e33", selfTestFew(Q5_K)},
	{"Q6_K product, few rows", "4dd4034ac2aed4e5", selfTestFew(Q6_K)},
	{"Q2_K product, few rows", "d5ec798e2405f480", selfTestFew(Q2_K)},
	{"Q3_K product, few rows", "bb8d589aa1fc65f3", selfTestFew(Q3_K)},
	{"IQ4_NL product, few rows", "599ce605c72191da", selfTestFew(IQ4_NL)},
	{"IQ4_XS product, few rows", "03529e773e9eaf80", selfTestFew(IQ4_XS)},
	{"MXFP4 product, few rows", "e97ea07ac02c09df", selfTestFew(MXFP4)},
	{"IQ2_XXS product, few rows", "0da5383bf3a4332a", selfTestFew(IQ2_XXS)},
	{"IQ2_XS product, few rows", "69b212d262e3105b", selfTestFew(IQ2_XS)},
	{"IQ2_S product, few rows", "afe18a0208bc4345", selfTestFew(IQ2_S)},
	{"IQ3_XXS product, few rows", "c0f7d4d2115b34f3", selfTestFew(IQ3_XXS)},
	{"IQ3_S product, few rows", "1b031cc8f56b7655", selfTestFew(IQ3_S)},
	{"IQ1_S product, few rows", "d38992c434aa7eef", selfTestFew(IQ1_S)},
	{"IQ1_M product, few rows", "ac8c89a1dc10e824", selfTestFew(IQ1_M)},
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
	{"Q2_K product, tiles", "bbc92fd1eaf313f1", selfTestTiles(Q2_K)},
	{"Q3_K product, tiles", "731fa03ace203b38", selfTestTiles(Q3_K)},
	{"IQ4_NL product, tiles", "65da3eccc77e376c", selfTestTiles(IQ4_NL)},
	{"IQ4_XS product, tiles", "c35bda45214bd5b6", selfTestTiles(IQ4_XS)},
	{"MXFP4 product, tiles", "35169bdc8e455ae1", selfTestTiles(MXFP4)},
	{"IQ2_XXS product, tiles", "f9b25799ed2d441c", selfTestTiles(IQ2_XXS)},
	{"IQ2_XS product, tiles", "527e17c2d4c7dcea", selfTestTiles(IQ2_XS)},
	{"IQ2_S product, tiles", "ed37d48a868a3c95", selfTestTiles(IQ2_S)},
	{"IQ3_XXS product, tiles", "86ee4125cd05beae", selfTestTiles(IQ3_XXS)},
	{"IQ3_S product, tiles", "4691369c2f7224fe", selfTestTiles(IQ3_S)},
	{"IQ1_S product, tiles", "91670445137443a0", selfTestTiles(IQ1_S)},
	{"IQ1_M product, tiles", "e84a6809ec323369", selfTestTiles(IQ1_M)},
}
