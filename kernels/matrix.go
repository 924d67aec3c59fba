package kernels

import (
	"encoding/binary"
	"fmt"
)

// Matrix is a weight matrix as GGUF stores it: Rows outputs by Cols inputs, row-major, each row a whole number of
// blocks. Data usually aliases the mapping of the model file; the package never writes to it.
type Matrix struct {
	Type       Type
	Rows, Cols int
	Data       []byte
	packed     []byte // the packed copy, or nil; see UsePacked
}

// NewMatrix checks that data is exactly rows rows of cols elements of type t. The matrix keeps data, it doesn't copy.
func NewMatrix(t Type, rows, cols int, data []byte) (Matrix, error) {
	rb, err := rowBytes(t, cols)
	if err != nil {
		return Matrix{}, err
	}
	if rows <= 0 || len(data)/rb != rows || len(data)%rb != 0 {
		return Matrix{}, fmt.Errorf("%v matrix of %d rows by %d columns: %d bytes of data, want %d a row", t, rows, cols, len(data), rb)
	}
	return Matrix{Type: t, Rows: rows, Cols: cols, Data: data}, nil
}

// check panics unless Data is as long as the shape says: assembly doesn't look.
func (m *Matrix) check() {
	if len(m.Data) != m.Rows*m.rowBytes() {
		panic(fmt.Sprintf("kernels: %v matrix of %d rows by %d columns has %d bytes of data", m.Type, m.Rows, m.Cols, len(m.Data)))
	}
}

// rowBytes returns the size of a row.
func (m *Matrix) rowBytes() int {
	g := m.Type.geometry()
	return m.Cols / g.elems * g.bytes
}

// row returns the bytes of one row.
func (m *Matrix) row(row int) []byte {
	rb := m.rowBytes()
	return m.Data[row*rb : (row+1)*rb : (row+1)*rb]
}

// CheckScales looks for NaN and infinity in rows [firstRow, lastRow): in the scales of quantised types, in every value
// of dense ones. The error names the row and the block (for dense types: the column).
func (m *Matrix) CheckScales(firstRow, lastRow int) error {
	if firstRow < 0 || lastRow > m.Rows || firstRow > lastRow {
		panic(fmt.Sprintf("kernels: CheckScales of rows [%d,%d) of %d", firstRow, lastRow, m.Rows))
	}
	for r := firstRow; r < lastRow; r++ {
		if b := badScale(m.Type, m.row(r)); b >= 0 {
			what := "scale of block"
			if m.Type.Form() == Dense {
				what = "value in column"
			}
			return fmt.Errorf("%v matrix: row %d: %s %d is NaN or infinite", m.Type, r, what, b)
		}
	}
	return nil
}

// badScale returns the index of the first block of a row that has a NaN or infinite scale, or -1.
func badScale(t Type, row []byte) int {
	switch t {
	case F32:
		for i := 0; i+4 <= len(row); i += 4 {
			if binary.LittleEndian.Uint32(row[i:])&0x7f800000 == 0x7f800000 {
				return i / 4
			}
		}
		return -1
	case MXFP4: // an exponent of all ones stands for NaN
		for i := 0; i < len(row); i += bytesMXFP4 {
			if row[i] == 0xff {
				return i / bytesMXFP4
			}
		}
		return -1
	case IQ1_M:
		for i := 0; i < len(row); i += bytesIQ1_M {
			if halfIQ1_M(row[i:])&0x7c00 == 0x7c00 {
				return i / bytesIQ1_M
			}
		}
		return -1
	}
	// A 16-bit float is NaN or infinite when its exponent bits are all ones.
	g, exp := t.geometry(), uint16(0x7c00)
	size, at, n := g.bytes, g.half, g.halves
	if t == BF16 {
		exp, n = 0x7f80, 1
	}
	// Several at once: adding the lowest exponent bit carries out of the exponent, and no further, if all its bits are ones.
	low, i := exp&-exp, 0
	switch {
	case t == F16 || t == BF16:
		const lanes = 0x0001000100010001
		exps, lows := uint64(exp)*lanes, uint64(low)*lanes
		for i+8 <= len(row) && (binary.LittleEndian.Uint64(row[i:])&exps+lows)&(0x8000*lanes) == 0 {
			i += 8
		}
	case n == 2:
		const lanes = 0x00010001
		exps, lows := uint32(exp)*lanes, uint32(low)*lanes
		for i+size <= len(row) && (binary.LittleEndian.Uint32(row[i+at:])&exps+lows)&(0x8000*lanes) == 0 {
			i += size
		}
	}
	for ; i+size <= len(row); i += size {
		for j := 0; j < n; j++ {
			if binary.LittleEndian.Uint16(row[i+at+2*j:])&exp == exp {
				return i / size
			}
		}
	}
	return -1
}

// Row dequantises one row into dst[:Cols]. The values are those of the reference dequantisation (the gguf Python
// package) bit for bit: products and sums are rounded one by one to float32.
func (m *Matrix) Row(dst []float32, row int) {
	if row < 0 || row >= m.Rows || len(dst) < m.Cols {
		panic(fmt.Sprintf("kernels: Row %d of %d into %d of %d values", row, m.Rows, len(dst), m.Cols))
	}
	dst = dst[:m.Cols]
	b := m.row(row)
	switch m.Type {
	case F32, F16, BF16:
		widenDense(dst, b, m.Type)
	case Q4_0:
		dequantQ4_0(dst, b)
	case Q4_1:
		dequantQ4_1(dst, b)
	case Q5_0:
		dequantQ5_0(dst, b)
	case Q5_1:
		dequantQ5_1(dst, b)
	case Q8_0:
		dequantQ8_0(dst, b)
	case Q2_K:
		dequantQ2_K(dst, b)
	case Q3_K:
		dequantQ3_K(dst, b)
	case Q4_K:
		dequantQ4_K(dst, b)
	case Q5_K:
		dequantQ5_K(dst, b)
	case Q6_K:
		dequantQ6_K(dst, b)
	case IQ4_NL:
		dequantIQ4_NL(dst, b)
	case IQ4_XS:
		dequantIQ4_XS(dst, b)
	case MXFP4:
		dequantMXFP4(dst, b)
	case IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M:
		dequantGrid(dst, b, m.Type)
	default:
		panic(fmt.Sprintf("kernels: Row of %v", m.Type))
	}
}
