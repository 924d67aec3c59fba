package kernels

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestTypes(t *testing.T) {
	for _, c := range []struct {
		typ          Type
		id           uint32
		elems, bytes int
		form         Form
	}{
		{F32, 0, 1, 4, Dense}, {F16, 1, 1, 2, Dense}, {BF16, 30, 1, 2, Dense},
		{Q4_0, 2, 32, 18, Q8x32}, {Q4_1, 3, 32, 20, Q8x32}, {Q5_0, 6, 32, 22, Q8x32}, {Q5_1, 7, 32, 24, Q8x32}, {Q8_0, 8, 32, 34, Q8x32},
		{Q2_K, 10, 256, 84, Q8x256}, {Q3_K, 11, 256, 110, Q8x256}, {IQ4_NL, 20, 32, 18, Q8x32}, {IQ4_XS, 23, 256, 136, Q8x256}, {MXFP4, 39, 32, 17, Q8x32},
		{IQ2_XXS, 16, 256, 66, Q8x256}, {IQ2_XS, 17, 256, 74, Q8x256}, {IQ2_S, 22, 256, 82, Q8x256}, {IQ3_XXS, 18, 256, 98, Q8x256}, {IQ3_S, 21, 256, 110, Q8x256},
		{IQ1_S, 19, 256, 50, Q8x256}, {IQ1_M, 29, 256, 56, Q8x256}, {Q4_K, 12, 256, 144, Q8x256}, {Q5_K, 13, 256, 176, Q8x256}, {Q6_K, 14, 256, 210, Q8x256},
	} {
		elems, bytes := c.typ.Block()
		if uint32(c.typ) != c.id || elems != c.elems || bytes != c.bytes || c.typ.Form() != c.form || !c.typ.Supported() {
			t.Errorf("%v: id %d, block %d elements, %d bytes, form %v", c.typ, uint32(c.typ), elems, bytes, c.typ.Form())
		}
	}
	for _, typ := range []Type{4, 5, 9, 15, 31, 34, 40, math.MaxUint32} {
		if elems, bytes := typ.Block(); typ.Supported() || elems != 0 || bytes != 0 || !strings.HasPrefix(typ.String(), "type ") {
			t.Errorf("%v is supported", typ)
		}
	}
}

func TestRowBytes(t *testing.T) {
	for _, c := range []struct {
		typ         Type
		cols, bytes int
	}{{F32, 3, 12}, {Q4_0, 64, 36}, {Q6_K, 512, 420}, {BF16, 1, 2}} {
		if n, err := rowBytes(c.typ, c.cols); err != nil || n != c.bytes {
			t.Errorf("%v by %d: %d, %v", c.typ, c.cols, n, err)
		}
	}
	for _, c := range []struct {
		typ  Type
		cols int
		says string
	}{{Q4_0, 0, "multiple of 32"}, {Q4_0, -32, "multiple of 32"}, {Q4_0, 33, "33 columns"}, {Q4_K, 128, "multiple of 256"}, {F32, 0, "multiple of 1"},
		{Type(9), 256, "type 9 is not supported"}, {Type(9), 256, "F32, F16, Q4_0"}, {F32, math.MaxInt, "too large"}} {
		if _, err := rowBytes(c.typ, c.cols); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v by %d: %v, want %q", c.typ, c.cols, err, c.says)
		}
	}
}

func TestNewMatrix(t *testing.T) {
	if _, err := NewMatrix(Q4_0, 3, 64, make([]byte, 3*36)); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ rows, cols, bytes int }{{3, 64, 3*36 - 1}, {3, 64, 3*36 + 1}, {0, 64, 0}, {-1, 64, 0}, {3, 65, 108}, {math.MaxInt, 64, 36}, {2, 64, 108}} {
		if _, err := NewMatrix(Q4_0, c.rows, c.cols, make([]byte, c.bytes)); err == nil {
			t.Errorf("%d by %d with %d bytes: no error", c.rows, c.cols, c.bytes)
		}
	}
}

// TestCheckScales plants every NaN and infinity in every scale of every type.
func TestCheckScales(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	for _, typ := range allTypes {
		const rows, cols = 4, 512
		elems, size := typ.Block()
		m := testMatrix(r, typ, rows, cols)
		if err := m.CheckScales(0, rows); err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		at := []int{0}
		if g := typ.geometry(); g.halves > 0 {
			at = []int{g.half, g.half + 2}[:g.halves]
		}
		for _, off := range at {
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				block := r.IntN(cols / elems)
				b := m.Data[2*cols/elems*size+block*size+off:]
				old := bytes.Clone(b[:min(size, len(b))])
				switch u := math.Float32bits(float32(bad)); typ {
				case F32:
					binary.LittleEndian.PutUint32(b, u)
				case BF16:
					binary.LittleEndian.PutUint16(b, uint16(u>>16))
				case IQ1_M:
					putHalfIQ1_M(b, F32ToF16(float32(bad)))
				case MXFP4:
					b[0] = 0xff
				default:
					binary.LittleEndian.PutUint16(b, F32ToF16(float32(bad)))
				}
				err := m.CheckScales(0, rows)
				if err == nil || !strings.Contains(err.Error(), "row 2") {
					t.Errorf("%v: %v at byte %d of block %d: %v", typ, bad, off, block, err)
				}
				if err := m.CheckScales(0, 2); err != nil {
					t.Errorf("%v: rows before: %v", typ, err)
				}
				if err := m.CheckScales(3, rows); err != nil {
					t.Errorf("%v: rows after: %v", typ, err)
				}
				copy(b, old)
			}
		}
	}
}

// TestRow compares dequantised rows with the formats' formulas on the reference's unpacked blocks. The comparison with
// another implementation is in dequant_test.go.
func TestRow(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 13))
	for _, typ := range allTypes {
		const rows, cols = 5, 768
		elems, bytes := typ.Block()
		m := testMatrix(r, typ, rows, cols)
		for row := range rows {
			dst := canaries(cols + 2)
			m.Row(dst[1:cols+1], row)
			if !isCanary(dst[0]) || !isCanary(dst[cols+1]) {
				t.Fatalf("%v: wrote outside", typ)
			}
			for k, got := range dst[1 : cols+1] {
				b := m.row(row)
				var want float32
				if typ.Form() == Dense {
					want = refDense(typ, b, k)
				} else {
					w := refUnpack(typ, b[k/elems*bytes:(k/elems+1)*bytes])
					d, i := w.d, k%elems
					if len(w.sc) > 0 {
						d = float32(d * float32(w.sc[i*len(w.sc)/elems]))
					}
					want = float32(d * float32(w.q[i]))
					switch typ {
					case Q4_1, Q5_1:
						want += w.m
					case Q2_K, Q4_K, Q5_K:
						mn := float32(w.m * float32(w.mn[i*len(w.mn)/elems]))
						want -= mn
					}
				}
				if !sameFloat(got, want) {
					t.Fatalf("%v row %d column %d: %v, want %v", typ, row, k, got, want)
				}
			}
		}
	}
}
