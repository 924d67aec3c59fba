package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// canary is what outputs are surrounded with.
var canary = math.Float32frombits(0x7fabcdef)

func canaries(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = canary
	}
	return x
}

func isCanary(f float32) bool { return math.Float32bits(f) == math.Float32bits(canary) }

func prepare(t testing.TB, x []float32, rows, cols int, form Form) *Activations {
	t.Helper()
	a := new(Activations)
	if err := a.Prepare(x, rows, cols, form); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestMatMul compares every type with the reference, in all rows and several ranges of outputs at once, and looks for
// writes outside.
func TestMatMul(t *testing.T) { eachVariant(t, testMatMul) }

func testMatMul(t *testing.T) {
	for _, typ := range allTypes {
		t.Run(typ.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(4, uint64(typ)))
			elems, _ := typ.Block()
			for trial := range 25 {
				cols := elems * (1 + r.IntN(4))
				if elems == 1 {
					cols = 1 + r.IntN(600)
				}
				if trial == 0 { // more than a span, not a multiple of it
					cols = 2*32*spanBlocks + 256
				}
				rows, outputs := 1+r.IntN(2*rowTile+2), 1+r.IntN(9)
				if trial%3 == 0 { // whole groups, and several
					outputs = 1 + r.IntN(100)
				}
				w := testMatrix(r, typ, outputs, cols)
				if trial%2 == 0 && typ.Form() != Dense {
					packed := make([]byte, w.PackedBytes())
					w.PackGroups(packed, 0, w.Groups())
					w.UsePacked(packed)
				}
				x := testActivations(r, rows, cols)
				a := prepare(t, x, rows, cols, typ.Form())
				first := r.IntN(outputs)
				last := first + 1 + r.IntN(outputs-first)
				stride := outputs + r.IntN(3)
				dst := canaries(8 + rows*stride)
				MatMul(dst[4:4+(rows-1)*stride+last], stride, &w, a, first, last, new(Scratch))
				for i, got := range dst {
					row, o := (i-4)/stride, (i-4)%stride
					if i < 4 || row >= rows || o < first || o >= last {
						if !isCanary(got) {
							t.Fatalf("wrote outside: index %d (row %d, output %d)", i, row, o)
						}
						continue
					}
					if want := refDot(typ, w.row(o), x[row*cols:(row+1)*cols]); !sameFloat(got, want) {
						t.Fatalf("row %d of %d, output %d, %d columns: %x, want %x", row, rows, o, cols, got, want)
					}
				}
			}
		})
	}
}

// TestMatMulPasses compares products of more than a pass of rows, and of several passes of groups, with the Go code,
// packed before and for the product.
func TestMatMulPasses(t *testing.T) {
	const outputs = (passGroups+1)*groupRows + 5
	r := rand.New(rand.NewPCG(9, 9))
	for _, typ := range allTypes {
		if typ.Form() == Dense {
			continue // TestMatMulDense
		}
		cols := map[Form]int{Q8x32: 288, Q8x256: 512}[typ.Form()]
		w := testMatrix(r, typ, outputs, cols)
		const most = 2*passRows + 2
		x, want := testActivations(r, most, cols), make([]float32, most*outputs)
		var s Scratch
		underGeneric(func() { MatMul(want, outputs, &w, prepare(t, x, most, cols, typ.Form()), 0, outputs, &s) })
		packed := make([]byte, w.PackedBytes())
		w.PackGroups(packed, 0, w.Groups())
		eachVariant(t, func(t *testing.T) {
			for _, rows := range []int{passRows - 1, passRows, passRows + 1, most} {
				a := prepare(t, x, rows, cols, typ.Form())
				for _, p := range [][]byte{nil, packed} {
					w.UsePacked(p)
					got := fence(rows*outputs, nil)
					MatMul(got.data, outputs, &w, a, 0, outputs, &s)
					if err := sameBits(got.data, want[:rows*outputs]); err != nil || !got.intact() {
						t.Fatalf("%v, %d rows, packed %t: %v, intact: %t", typ, rows, p != nil, err, got.intact())
					}
				}
			}
		})
	}
}

// TestMatMulSaturated takes the largest integers there can be: extreme weights against ±127 whose signs follow the
// weights, oppose them, alternate or are random. It would show any overflow of the packed sums.
func TestMatMulSaturated(t *testing.T) { eachVariant(t, testMatMulSaturated) }

func testMatMulSaturated(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, typ := range allTypes {
		if typ.Form() == Dense {
			continue
		}
		elems, _ := typ.Block()
		for trial := range 200 {
			w := testMatrix(r, typ, 1, elems)
			for i := range w.Data {
				w.Data[i] = []byte{0, 0xff, 0x0f, 0xf0, 0x80, 0x7f, 0x88, 0x77}[[]int{trial % 8, r.IntN(8), r.IntN(2), r.IntN(4)}[trial/8%4]]
			}
			g := typ.geometry()
			for i := range g.halves {
				binary.LittleEndian.PutUint16(w.Data[g.half+2*i:], 0x3c00) // 1
			}
			switch typ {
			case MXFP4:
				w.Data[0] = 128
			case IQ1_M:
				putHalfIQ1_M(w.Data, 0x3c00)
			}
			q := refUnpack(typ, w.Data).q
			x := make([]float32, elems)
			for i := range x {
				x[i] = 1
				flip := false
				switch trial % 5 {
				case 1:
					flip = q[i] < 0
				case 2:
					flip = q[i] >= 0
				case 3:
					flip = i%2 == 0
				case 4:
					flip = r.IntN(2) == 0
				}
				if flip {
					x[i] = -1
				}
			}
			dst := []float32{0}
			MatMul(dst, 1, &w, prepare(t, x, 1, elems, typ.Form()), 0, 1, new(Scratch))
			if want := refDot(typ, w.Data, x); !sameFloat(dst[0], want) {
				t.Fatalf("%v: %v, want %v", typ, dst[0], want)
			}
		}
	}
}

// TestMatMulIndependent computes one product whole, one row at a time, one output at a time and with rows prepared by
// ranges into a dirty Activations: all the same bits.
func TestMatMulIndependent(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	var dirty Activations
	for _, typ := range allTypes {
		const rows, outputs, cols = 2*rowTile + 3, 11, 512
		w := testMatrix(r, typ, outputs, cols)
		x := testActivations(r, rows, cols)
		whole := make([]float32, rows*outputs)
		MatMul(whole, outputs, &w, prepare(t, x, rows, cols, typ.Form()), 0, outputs, new(Scratch))

		dirty.Reset(rows, cols, typ.Form())
		for _, span := range [][2]int{{5, rows}, {0, 2}, {2, 5}} {
			if err := dirty.PrepareRows(x, span[0], span[1]); err != nil {
				t.Fatal(err)
			}
		}
		pieces := make([]float32, rows*outputs)
		for o := 0; o < outputs; {
			n := min(1+r.IntN(3), outputs-o)
			MatMul(pieces, outputs, &w, &dirty, o, o+n, new(Scratch))
			o += n
		}
		single := make([]float32, outputs)
		for i := range rows {
			MatMul(single, outputs, &w, prepare(t, x[i*cols:], 1, cols, typ.Form()), 0, outputs, new(Scratch))
			for o := range outputs {
				want := whole[i*outputs+o]
				if !sameFloat(single[o], want) || !sameFloat(pieces[i*outputs+o], want) {
					t.Fatalf("%v row %d, output %d: whole %x, row alone %x, by pieces %x", typ, i, o, want, single[o], pieces[i*outputs+o])
				}
			}
		}
	}
}

func TestMatMulNothing(t *testing.T) {
	w := testMatrix(rand.New(rand.NewPCG(7, 7)), Q4_0, 3, 32)
	MatMul(nil, 0, &w, prepare(t, nil, 0, 32, Q8x32), 0, 3, new(Scratch))
	MatMul(nil, 0, &w, prepare(t, make([]float32, 32), 1, 32, Q8x32), 2, 2, new(Scratch))
}

func TestMatMulPanics(t *testing.T) {
	w := testMatrix(rand.New(rand.NewPCG(8, 8)), Q4_0, 3, 64)
	x := make([]float32, 128)
	dst := make([]float32, 6)
	for name, f := range map[string]func(){
		"wrong form":    func() { MatMul(dst, 3, &w, prepare(t, x, 2, 64, Dense), 0, 3, new(Scratch)) },
		"wrong columns": func() { MatMul(dst, 3, &w, prepare(t, x, 2, 32, Q8x32), 0, 3, new(Scratch)) },
		"range":         func() { MatMul(dst, 3, &w, prepare(t, x, 2, 64, Q8x32), 0, 4, new(Scratch)) },
		"negative":      func() { MatMul(dst, 3, &w, prepare(t, x, 2, 64, Q8x32), -1, 3, new(Scratch)) },
		"short":         func() { MatMul(dst[:5], 3, &w, prepare(t, x, 2, 64, Q8x32), 0, 3, new(Scratch)) },
		"stride":        func() { MatMul(dst, 2, &w, prepare(t, x, 2, 64, Q8x32), 0, 3, new(Scratch)) },
		"data": func() {
			short := w
			short.Data = w.Data[1:]
			MatMul(dst, 3, &short, prepare(t, x, 2, 64, Q8x32), 0, 3, new(Scratch))
		},
		"packing data": func() { short := w; short.Data = w.Data[1:]; short.PackGroups(make([]byte, w.PackedBytes()), 0, 1) },
		"no type": func() {
			MatMul(dst, 3, &Matrix{Type: 5, Rows: 3, Cols: 64}, prepare(t, x, 2, 64, Dense), 0, 3, new(Scratch))
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
