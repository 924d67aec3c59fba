package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// refRow is one query row's attention, written straight from docs/numerics.md, over whole blocks with rows of keys
// and values as float32. visible are the positions that it sees, counted from the start of the sequence.
func refRow(q, k, v []float32, visible Span, scale float32) []float32 {
	dim := len(q)
	M, L, O := float32(math.Inf(-1)), float32(0), make([]float32, dim)
	for at := visible.From / 256 * 256; at < visible.To; at += 256 {
		from, to := max(at, visible.From), min(at+256, visible.To)
		s := make([]float32, 256)
		m := float32(math.Inf(-1))
		for i := from; i < to; i++ {
			x := &s[i-at]
			for d := range dim {
				*x = FMA(q[d], k[i*dim+d], *x)
			}
			*x = float32(*x * scale)
			if *x > m {
				m = *x
			}
		}
		var lane [16]float32
		for i := from; i < to; i++ {
			s[i-at] = Exp(s[i-at] - m)
			lane[i%16] += s[i-at]
		}
		for w := 8; w > 0; w /= 2 {
			for j := range w {
				lane[j] += lane[j+w]
			}
		}
		out := make([]float32, dim)
		for d := range dim {
			for i := from; i < to; i++ {
				out[d] = FMA(s[i-at], v[i*dim+d], out[d])
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

// cache is the keys and values of one head, as blocks and as the rows that the blocks stand for.
type cache struct {
	dim    int
	blocks []KVBlock
	k, v   []float32
}

// newCache stores n positions. Everything beyond them is NaN.
func newCache(n, dim int, full bool, k, v []float32) *cache {
	c := &cache{dim: dim, k: k, v: v}
	for at := 0; at < n; at += AttnBlock {
		b := KVBlock{Key: dim, Value: dim}
		if full {
			b.Full = make([]float32, 2*AttnBlock*dim)
			for i := range b.Full {
				b.Full[i] = float32(math.NaN())
			}
		} else {
			b.Half = make([]uint16, 2*AttnBlock*dim)
			for i := range b.Half {
				b.Half[i] = 0x7e00
			}
		}
		for pos := at; pos < min(at+AttnBlock, n); pos++ {
			kr, vr := k[pos*dim:(pos+1)*dim], v[pos*dim:(pos+1)*dim]
			b.Store(pos-at, kr, vr)
			if !full {
				for d := range dim {
					kr[d], vr[d] = F16ToF32(clampF16(kr[d])), F16ToF32(clampF16(vr[d]))
				}
			}
		}
		c.blocks = append(c.blocks, b)
	}
	return c
}

// attend runs query rows through the blocks, merging as it goes, and returns the outputs.
func (c *cache) attend(q []float32, visible []Span, scale float32, s *AttnScratch) []float32 {
	var all, one Partial
	all.reset(len(visible), c.dim)
	spans := make([]Span, len(visible))
	for i, b := range c.blocks {
		for r, v := range visible {
			spans[r] = Span{max(v.From-i*AttnBlock, 0), min(v.To-i*AttnBlock, AttnBlock)}
		}
		AttendBlock(&one, q, b, spans, scale, KVBlock{}, s)
		all.Merge(&one, s)
	}
	dst := canaries(len(visible)*c.dim + 1)
	all.Finish(dst, 0, len(visible), s)
	if !isCanary(dst[len(visible)*c.dim]) {
		panic("wrote behind the output")
	}
	return dst[:len(visible)*c.dim]
}

// check compares all query rows with the reference.
func (c *cache) check(t *testing.T, q []float32, visible []Span, scale float32, s *AttnScratch) {
	t.Helper()
	got := c.attend(q, visible, scale, s)
	for r, span := range visible {
		want := refRow(q[r*c.dim:(r+1)*c.dim], c.k, c.v, span, scale)
		for d, w := range want {
			if g := got[r*c.dim+d]; !sameFloat(g, w) {
				t.Fatalf("%d rows of %d dimensions, row %d sees %v: dimension %d is %x, want %x", len(visible), c.dim, r, span, d, g, w)
			}
		}
	}
}

func TestAttend(t *testing.T) { eachVariant(t, testAttend) }

// testAttend tries every kind of head, number of rows, and range of positions, causal and windowed.
func testAttend(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 20))
	s := new(AttnScratch)
	for _, dim := range []int{1, 3, 8, 16, 20, 24, 40, 64, 65, 80, 96, 128, 256} {
		for _, n := range []int{1, 2, 15, 16, 17, 100, 255, 256, 257, 511, 513, 700} {
			if dim*n > 1<<15 && n != 257 && n != 700 || testing.Short() && dim*n > 1<<14 {
				continue
			}
			for _, full := range []bool{false, true} {
				c := newCache(n, dim, full, normal(r, n*dim), normal(r, n*dim))
				rows := 1 + r.IntN(9)
				if r.IntN(4) == 0 {
					rows = 9 + r.IntN(20)
				}
				visible := make([]Span, rows)
				for i := range visible {
					to := 1 + r.IntN(n)
					if i < 2 {
						to = n
					}
					visible[i] = Span{0, to}
					if i%2 == 1 {
						visible[i].From = r.IntN(to)
					}
				}
				c.check(t, normal(r, rows*dim), visible, float32(1/math.Sqrt(float64(dim))), s)
			}
		}
	}
}

func TestAttendRows(t *testing.T) { eachVariant(t, testAttendRows) }

// testAttendRows tries every number of rows that are done together.
func testAttendRows(t *testing.T) {
	r := rand.New(rand.NewPCG(24, 24))
	s := new(AttnScratch)
	const n = 70
	for rows := 1; rows <= 40; rows++ {
		for _, dim := range []int{8, 64, 80, 96} {
			if dim > 8 && rows > 13 && rows%4 > 0 {
				continue
			}
			c := newCache(n, dim, rows%2 == 0, normal(r, n*dim), normal(r, n*dim))
			visible := make([]Span, rows)
			for i := range visible {
				visible[i] = Span{i % 5, n - i%20}
			}
			c.check(t, normal(r, rows*dim), visible, 0.2, s)
		}
	}
}

func TestAttendVisible(t *testing.T) { eachVariant(t, testAttendVisible) }

// testAttendVisible tries every length of a block, and shows that what nobody sees is not used: it is NaN.
func testAttendVisible(t *testing.T) {
	const dim = 16
	r := rand.New(rand.NewPCG(22, 22))
	s := new(AttnScratch)
	for n := 1; n <= AttnBlock+1; n++ {
		c := newCache(n, dim, n%2 == 0, normal(r, n*dim), normal(r, n*dim))
		from := r.IntN(n)
		for pos := range from { // before every window
			for d := range dim {
				b := c.blocks[pos/AttnBlock]
				for _, i := range []int{b.KeyAt(pos%AttnBlock) + d*KVTile, b.ValueAt(pos%AttnBlock) + d} {
					if b.Full != nil {
						b.Full[i] = float32(math.NaN())
					} else {
						b.Half[i] = 0x7e00
					}
				}
			}
		}
		c.check(t, normal(r, 2*dim), []Span{{from, n}, {from, n}}, 0.3, s)
	}
}

// TestAttendExact compares with softmax in float64.
func TestAttendExact(t *testing.T) {
	const dim, n = 64, 600
	r := rand.New(rand.NewPCG(25, 25))
	c := newCache(n, dim, true, normal(r, n*dim), normal(r, n*dim))
	q := normal(r, dim)
	s, m := make([]float64, n), math.Inf(-1)
	for i := range s {
		for d := range dim {
			s[i] += float64(q[d]) * float64(c.k[i*dim+d])
		}
		s[i] /= 8
		m = max(m, s[i])
	}
	sum, exact := 0.0, make([]float64, dim)
	for i := range s {
		e := math.Exp(s[i] - m)
		sum += e
		for d := range dim {
			exact[d] += e * float64(c.v[i*dim+d])
		}
	}
	for d, got := range c.attend(q, []Span{{0, n}}, 0.125, new(AttnScratch)) {
		if diff := math.Abs(float64(got) - exact[d]/sum); diff > 2e-6 {
			t.Errorf("dimension %d: %v, exact softmax %v", d, got, exact[d]/sum)
		}
	}
}

func TestAttendExtremes(t *testing.T) { eachVariant(t, testAttendExtremes) }

// testAttendExtremes tries sizes that overflow, underflow and cancel.
func testAttendExtremes(t *testing.T) {
	r := rand.New(rand.NewPCG(26, 26))
	s := new(AttnScratch)
	const n = 300
	for _, dim := range []int{8, 24} {
		for _, sizes := range [][3]float32{ // of q, k, v
			{30, 30, 1}, {1e30, 60000, 1}, {3e38, 60000, 60000}, {1e-38, 1e-7, 1e-7}, {1e-44, 1, 6e-8}, {20, 20, 6e-8}, {0, 1, 60000}, {1, 0, 6e-8},
		} {
			for _, full := range []bool{false, true} {
				scaled := func(n int, by float32) []float32 {
					x := normal(r, n)
					for i := range x {
						x[i] = float32(x[i] * by)
						if r.IntN(9) == 0 {
							x[i] = float32(math.Copysign(0, float64(x[i])))
						}
						x[i] = max(min(x[i], math.MaxFloat32), -math.MaxFloat32)
					}
					return x
				}
				c := newCache(n, dim, full, scaled(n*dim, sizes[1]), scaled(n*dim, sizes[2]))
				c.check(t, scaled(7*dim, sizes[0]), []Span{{0, n}, {0, 256}, {0, 1}, {17, 200}, {250, 290}, {299, 300}, {256, 300}}, 0.5, s)
			}
		}
	}
}

func TestPartial(t *testing.T) { eachVariant(t, testPartial) }

// testPartial checks the states themselves: blocks are equal bit for bit to the specification's, whatever comes with
// them, rows that see nothing are left alone, and memory around is not touched.
func testPartial(t *testing.T) {
	const dim, rows = 40, 11
	r := rand.New(rand.NewPCG(27, 27))
	c := newCache(AttnBlock, dim, false, normal(r, AttnBlock*dim), normal(r, AttnBlock*dim))
	q := normal(r, rows*dim)
	for i := range q[:dim] {
		q[i] = 1e-44
	}
	visible := make([]Span, rows)
	for i := range visible {
		from := r.IntN(200)
		visible[i] = Span{from, from + r.IntN(50)}
	}
	visible[0], visible[3], visible[5] = Span{3, 256}, Span{9, 9}, Span{256, 0}
	s := new(AttnScratch)
	var got Partial
	AttendBlock(&got, q, c.blocks[0], visible, 0.3, c.blocks[0], s)
	state := new(Partial)
	state.reset(rows, dim)
	for i := range rows {
		state.m[i], state.l[i] = float32(r.NormFloat64()), 1+r.Float32()
		if i%4 == 1 {
			state.m[i], state.l[i] = float32(math.Inf(-1)), 0
		}
		copy(state.o[i*dim:(i+1)*dim], normal(r, dim))
	}
	merged := &Partial{rows: rows, dim: dim, m: append([]float32(nil), state.m...), l: append([]float32(nil), state.l...), o: append(append([]float32(nil), state.o...), canary)[:rows*dim]}
	merged.Merge(&got, s)
	if !isCanary(merged.o[:rows*dim+1][rows*dim]) {
		t.Fatal("Merge wrote behind the outputs")
	}
	before := Active()
	if err := Use(Generic); err != nil {
		t.Fatal(err)
	}
	defer Use(before)
	for i := range rows {
		var want Partial
		AttendBlock(&want, q[i*dim:(i+1)*dim], c.blocks[0], visible[i:i+1], 0.3, KVBlock{}, s)
		mine := &Partial{rows: 1, dim: dim, m: state.m[i : i+1], l: state.l[i : i+1], o: state.o[i*dim : (i+1)*dim]}
		m, l, o := got.row(i)
		same(t, i, visible[i], m, l, o, &want)
		mine.Merge(&want, s)
		m, l, o = merged.row(i)
		same(t, i, visible[i], m, l, o, mine)
	}
}

// TestSink compares with merging a block of one position that has the sink as its score and a value of zeros.
func TestSink(t *testing.T) {
	const dim = 24
	r := rand.New(rand.NewPCG(28, 28))
	for _, sink := range []float32{-200, -3, 0, 0.5, 3, 200} {
		var got, want, one Partial
		got.reset(2, dim)
		for i := range 2 {
			got.m[i], got.l[i] = float32(r.NormFloat64()), 1+r.Float32()
			copy(got.o[i*dim:], normal(r, dim))
		}
		want.reset(2, dim)
		copy(want.m, got.m)
		copy(want.l, got.l)
		copy(want.o, got.o)
		one.reset(2, dim)
		one.m[1], one.l[1] = sink, 1
		want.Merge(&one, new(AttnScratch))
		got.Sink(1, sink)
		for i := range 2 {
			m, l, o := got.row(i)
			wm, wl, wo := want.row(i)
			if m != wm || l != wl || !slices.Equal(o, wo) {
				t.Errorf("sink %v, row %d: %v %v %v, want %v %v %v", sink, i, m, l, o, wm, wl, wo)
			}
		}
	}
}

func same(t *testing.T, r int, v Span, m, l float32, o []float32, want *Partial) {
	t.Helper()
	wm, wl, wo := want.row(0)
	if math.Float32bits(m) != math.Float32bits(wm) || math.Float32bits(l) != math.Float32bits(wl) {
		t.Fatalf("row %d, which sees %v: M %x, L %x, want %x, %x", r, v, m, l, wm, wl)
	}
	for d := range wo {
		if math.Float32bits(o[d]) != math.Float32bits(wo[d]) {
			t.Fatalf("row %d, which sees %v: O[%d] %x, want %x", r, v, d, o[d], wo[d])
		}
	}
}

// TestKVBlock checks the layout against its description, and rows as bytes there and back.
func TestKVBlock(t *testing.T) { eachVariant(t, testKVBlock) }

func testKVBlock(t *testing.T) {
	r := rand.New(rand.NewPCG(28, 28))
	for _, dim := range []int{1, 3, 4, 7, 8, 13, 40} {
		half, full := KVBlock{Key: dim, Value: dim, Half: make([]uint16, 2*AttnBlock*dim)}, KVBlock{Key: dim, Value: dim, Full: make([]float32, 2*AttnBlock*dim)}
		k, v := normal(r, AttnBlock*dim), normal(r, AttnBlock*dim)
		k[0], v[0] = 1e6, -1e6
		for pos := range AttnBlock {
			half.Store(pos, k[pos*dim:], v[pos*dim:])
			full.Store(pos, k[pos*dim:], v[pos*dim:])
		}
		for pos := range AttnBlock {
			for d := range dim {
				key, value := (pos/16*dim+d)*16+pos%16, (AttnBlock+pos)*dim+d
				k, v := k[pos*dim+d], v[pos*dim+d]
				if full.Full[key] != k || full.Full[value] != v {
					t.Fatalf("position %d, dimension %d: %v, %v", pos, d, full.Full[key], full.Full[value])
				}
				if half.Half[key] != clampF16(k) || half.Half[value] != clampF16(v) {
					t.Fatalf("position %d, dimension %d: %x, %x", pos, d, half.Half[key], half.Half[value])
				}
			}
		}
		for _, b := range []KVBlock{half, full} {
			each := 2
			back := KVBlock{Key: dim, Value: dim, Half: make([]uint16, len(b.Half)), Full: make([]float32, len(b.Full))}
			if b.Full != nil {
				each, back.Half = 4, nil
			} else {
				back.Full = nil
			}
			size := 2*each*dim + 5 // keys at 1, values behind them and 2 bytes more
			rows := make([]byte, AttnBlock*size)
			for pos := 0; pos < AttnBlock; {
				n := min(1+r.IntN(16), 16-pos%16)
				b.PutRows(pos, n, rows[pos*size:(pos+n)*size], size, 1, each*dim+3)
				back.SetRows(pos, n, rows[pos*size:(pos+n)*size], size, 1, each*dim+3)
				pos += n
			}
			if !reflect.DeepEqual(b, back) {
				t.Fatalf("%d dimensions of %d bytes come back changed", dim, each)
			}
			for pos := range AttnBlock {
				row := rows[pos*size:]
				for d := range dim {
					var key, value float32
					if each == 2 {
						key = F16ToF32(uint16(row[1+2*d]) | uint16(row[2+2*d])<<8)
						value = F16ToF32(uint16(row[2*dim+3+2*d]) | uint16(row[2*dim+4+2*d])<<8)
					} else {
						key = math.Float32frombits(binary.LittleEndian.Uint32(row[1+4*d:]))
						value = math.Float32frombits(binary.LittleEndian.Uint32(row[4*dim+3+4*d:]))
					}
					if diff := max(math.Abs(float64(key-k[pos*dim+d])), math.Abs(float64(value-v[pos*dim+d]))); diff > 0.01 && pos+d > 0 {
						t.Fatalf("position %d, dimension %d: bytes for %v, %v, want %v, %v", pos, d, key, value, k[pos*dim+d], v[pos*dim+d])
					}
				}
				if row[0]|row[each*dim+1]|row[each*dim+2]|row[size-2]|row[size-1] != 0 {
					t.Fatalf("position %d: bytes between keys and values written", pos)
				}
			}
		}
	}
}
