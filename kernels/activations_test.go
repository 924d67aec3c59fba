package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"
)

// unpack returns the 32 integers of p.
func (p *actBlock) unpack() (q [32]int) {
	for g := range 4 {
		for k := range 2 {
			u := int64(p.pairs[2*g+k])
			for lane := range 4 {
				v := int16(u)
				q[8*g+6-2*lane+k] = int(v)
				u = (u - int64(v)) >> 16
			}
		}
	}
	return q
}

// group returns the integers of block b of 32 columns of a row, their scale and sum, and for Q8x32 round(scale·sum).
func (a *Activations) group(row, b int) (q [32]int, d float32, sum int32, dsum float32) {
	if !a.inRecords {
		p := &a.blocks[row*(a.cols/32)+b]
		return p.unpack(), p.d, p.sum, p.dsum
	}
	size := a.form.record()
	rec := a.records[(b/8*a.rows+row)*size:][:size]
	b %= 8
	sum16 := int32(0)
	for i := range q {
		q[i] = int(int8(rec[32*b+i]))
	}
	float := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(rec[at:])) }
	word := func(at int) int32 { return int32(int16(binary.LittleEndian.Uint16(rec[at:]))) }
	if a.form == Q8x32 {
		return q, float(record32D + 4*b), int32(binary.LittleEndian.Uint32(rec[record32S+4*b:])), float(record32DSum + 4*b)
	}
	sum16 = word(record256Sum16+4*b) + word(record256Sum16+4*b+2)
	if sum = word(record256Sum32 + 2*b); sum != sum16 {
		panic("sums of 16 and of 32 differ")
	}
	d = float(record256D)
	return q, d, sum, float32(d * float32(sum))
}

// recordsGo is a rowQuantiser that copies what the Go code quantises.
func recordsGo(form Form) rowQuantiser {
	return func(first *byte, next int, x *float32, cols int) uint32 {
		var a Activations
		var err error
		underGeneric(func() { err = a.Prepare(unsafe.Slice(x, cols), 1, cols, form) })
		if err != nil {
			return 0x7f800000
		}
		size := form.record()
		all := unsafe.Slice(first, (superblocks(cols)-1)*next+size)
		for b := range cols / 32 {
			q, d, sum, dsum := a.group(0, b)
			rec, b := all[b/8*next:][:size], b%8
			word := func(at int, v int32) { binary.LittleEndian.PutUint16(rec[at:], uint16(v)) }
			long := func(at int, v uint32) { binary.LittleEndian.PutUint32(rec[at:], v) }
			half := int32(0)
			for i, v := range q {
				rec[32*b+i] = byte(v)
				if i < 16 {
					half += int32(v)
				}
			}
			if form == Q8x32 {
				long(record32D+4*b, math.Float32bits(d))
				long(record32DSum+4*b, math.Float32bits(dsum))
				long(record32S+4*b, uint32(sum))
				continue
			}
			long(record256D, math.Float32bits(d))
			word(record256Sum16+4*b, half)
			word(record256Sum16+4*b+2, sum-half)
			word(record256Sum32+2*b, sum)
		}
		return 0
	}
}

func TestPrepare(t *testing.T) { eachVariant(t, testPrepare) }

func testPrepare(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	for _, form := range []Form{Q8x32, Q8x256} {
		size := form.block()
		for range 50 {
			rows, cols := 1+r.IntN(4), size*(1+r.IntN(3))
			x := testActivations(r, rows, cols)
			a := prepare(t, x, rows, cols, form)
			for row := range rows {
				for c := 0; c < cols; c += size {
					wantD, wantQ := refQuantise(x[row*cols+c : row*cols+c+size])
					for i, want := range wantQ {
						q, _, _, _ := a.group(row, (c+i)/32)
						if got := q[(c+i)%32]; got != want {
							t.Fatalf("%v row %d column %d: %d, want %d", form, row, c+i, got, want)
						}
					}
					for b := c / 32; b < (c+size)/32; b++ {
						q, d, gotSum, dsum := a.group(row, b)
						sum := int32(0)
						for _, v := range q {
							sum += int32(v)
						}
						if d != wantD || gotSum != sum || dsum != float32(wantD*float32(sum)) {
							t.Fatalf("%v row %d block %d: scale %v sum %d product %v, want %v %d", form, row, b, d, gotSum, dsum, wantD, sum)
						}
					}
				}
			}
		}
	}
}

// TestPrepareEdges checks the rule's corners by literal values.
func TestPrepareEdges(t *testing.T) { eachVariant(t, testPrepareEdges) }

func testPrepareEdges(t *testing.T) {
	negZero := float32(math.Copysign(0, -1))
	// With amax 127 the inverse scale is 1, so values are their own quotients: ties go to even.
	for _, c := range []struct {
		name string
		x    []float32
		d    float32
		q    []int
	}{
		{"zero", []float32{0, negZero}, 0, []int{0, 0}},
		{"just below 2^-100", []float32{math.Nextafter32(0x1p-100, 0), -0x1p-101}, 0, []int{0, 0}},
		{"2^-100", []float32{0x1p-100, -0x1p-101}, 0x1p-100 / 127, []int{127, -64}},
		{"denormal", []float32{0x1p-149}, 0, []int{0}},
		{"ties", []float32{127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5}, 1, []int{127, 0, 2, 2, 0, -2, -2, 126, -126}},
		{"near ties", []float32{127, math.Nextafter32(0.5, 1), math.Nextafter32(0.5, 0), math.Nextafter32(126.5, 127)}, 1, []int{127, 1, 0, 127}},
		{"negative largest", []float32{-127, 127, negZero}, 1, []int{-127, 127, 0}},
		{"largest", []float32{math.MaxFloat32, -math.MaxFloat32}, math.MaxFloat32 / 127, []int{127, -127}},
	} {
		for _, form := range []Form{Q8x32, Q8x256} {
			for at := range 3 {
				x := make([]float32, 256)
				copy(x[at*100:], c.x)
				a := prepare(t, x, 1, 256, form)
				for i, want := range c.q {
					k := at*100 + i
					q, _, _, _ := a.group(0, k/32)
					if got := q[k%32]; got != want {
						t.Errorf("%s (%v, at %d): value %v became %d, want %d", c.name, form, k, c.x[i], got, want)
					}
				}
				if _, d, _, _ := a.group(0, at*100/32); d != c.d {
					t.Errorf("%s (%v): scale %x, want %x", c.name, form, d, c.d)
				}
			}
		}
	}
}

// TestPrepareNever128 searches for the rounding that would give ±128.
func TestPrepareNever128(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	for range 200_000 {
		amax := math.Float32frombits(uint32(0x0d800000 + r.Uint32N(0x7f800000-0x0d800000)))
		_, id := quantScale(amax)
		if y := float32(amax * id); !(math.Abs(float64(y)) < 127.5) {
			t.Fatalf("amax %x: quotient %v", amax, y)
		}
	}
}

func TestPrepareRefuses(t *testing.T) { eachVariant(t, testPrepareRefuses) }

func testPrepareRefuses(t *testing.T) {
	for _, form := range []Form{Dense, Q8x32, Q8x256} {
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			x := make([]float32, 3*512)
			x[512+300] = float32(bad)
			var a Activations
			err := a.Prepare(x, 3, 512, form)
			if err == nil || !strings.Contains(err.Error(), "row 1, column 300") {
				t.Errorf("%v in %v: %v", bad, form, err)
			}
			if err := a.PrepareRows(x, 2, 3); err != nil {
				t.Errorf("a good row: %v", err)
			}
		}
	}
	var a Activations
	if err := a.Prepare(make([]float32, 48), 1, 48, Q8x32); err == nil || !strings.Contains(err.Error(), "48 columns") {
		t.Errorf("48 columns: %v", err)
	}
	if err := a.Prepare(make([]float32, 128), 1, 128, Q8x256); err == nil {
		t.Error("128 columns in blocks of 256: no error")
	}
}

// TestPrepareCopies shows that Dense keeps no reference to its input, and that reuse doesn't allocate.
func TestPrepareCopies(t *testing.T) {
	x := make([]float32, 2*256)
	for i := range x {
		x[i] = float32(i)
	}
	var a Activations
	for _, form := range []Form{Q8x32, Q8x256, Dense} {
		if err := a.Prepare(x, 2, 256, form); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(10, func() { a.Prepare(x[:256], 1, 256, form) }); n != 0 {
			t.Errorf("%v: %v allocations on reuse", form, n)
		}
	}
	w, err := NewMatrix(F32, 1, 256, make([]byte, 1024))
	if err != nil {
		t.Fatal(err)
	}
	w.Data[3], w.Data[2] = 0x3f, 0x80 // w[0] = 1
	x[0] = 5
	a.Prepare(x, 1, 256, Dense)
	x[0] = 6
	dst := []float32{0}
	MatMul(dst, 1, &w, &a, 0, 1, new(Scratch))
	if dst[0] != 5 {
		t.Errorf("got %v, want 5: input was kept by reference", dst[0])
	}
}
