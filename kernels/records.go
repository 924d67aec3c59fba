package kernels

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Assembly kernels read quantised activations as records, one for each row and superblock of 256 columns (the last one
// may be shorter), in the order [superblock][row]. All numbers are little endian.
//
//	Q8x256  q [256]int8, sums of 16 [16]int16, sums of 32 [8]int16, d float32, 12 bytes unused
//	Q8x32   q [256]int8, d [8]float32, round(d·float(S)) [8]float32, S [8]int32
const (
	record256 = 320
	record32  = 352

	record256Sum16, record256Sum32, record256D = 256, 288, 304
	record32D, record32DSum, record32S         = 256, 288, 320
)

// record returns the size of a record.
func (f Form) record() int {
	if f == Q8x256 {
		return record256
	}
	return record32
}

// superblocks returns the number of records of a row.
func superblocks(cols int) int { return (cols + 255) / 256 }

// aligned returns n bytes that start at a multiple of 64, in b's memory if it suffices. The contents are arbitrary.
func aligned(b []byte, n int) []byte {
	if cap(b) < n {
		b = make([]byte, n+63)
		skip := int(-uintptr(unsafe.Pointer(&b[0])) & 63)
		b = b[skip : skip+n : skip+n]
	}
	return b[:n]
}

// rowQuantiser makes records of a row of cols values, a multiple of the form's block: the first at rec, each next bytes
// after the one before. It returns the largest magnitude of the row by its bits, which is 0x7f800000 or more if a value
// is NaN or infinite; the records are then worthless.
type rowQuantiser func(rec *byte, next int, x *float32, cols int) (largest uint32)

// quantiseRecords makes the records of row r in all superblocks, or returns the index of a value that is NaN or infinite.
// −1 says that all is well.
func (a *Activations) quantiseRecords(r int, x []float32) int {
	rec := a.form.record()
	if f := active.quantise[a.form]; f != nil {
		if f(&a.records[r*rec], a.rows*rec, &x[0], len(x)) >= 0x7f800000 {
			return CheckFinite(x)
		}
		return -1
	}
	for c := 0; c < len(x); c += 256 {
		if i := quantiseRecord(a.records[(c/256*a.rows+r)*rec:][:rec], x[c:min(c+256, len(x))], a.form); i >= 0 {
			return c + i
		}
	}
	return -1
}

// quantiseRecord fills a record from up to 256 values (for Q8x256: 256), or returns the index of a value that is NaN or
// infinite. A value ≥ 0 is that index; −1 says that all is well.
func quantiseRecord(rec []byte, x []float32, form Form) int {
	size := form.block()
	for c := 0; c < len(x); c += size {
		xs := x[c : c+size]
		amax := float32(0)
		for i, v := range xs {
			b := math.Float32bits(v) & 0x7fffffff
			if b >= 0x7f800000 {
				return c + i
			}
			amax = max(amax, math.Float32frombits(b))
		}
		d, id := quantScale(amax)
		const magic = 0x1.8p23 // see packed.quantise
		sum16, sum32 := int32(0), int32(0)
		for i, v := range xs {
			q := int32(math.Float32bits(float32(v*id)+magic)) - 0x4b400000
			rec[c+i] = byte(q)
			sum16 += q
			sum32 += q
			if size != 256 {
				continue
			}
			if i%16 == 15 {
				binary.LittleEndian.PutUint16(rec[record256Sum16+i/16*2:], uint16(sum16))
				sum16 = 0
			}
			if i%32 == 31 {
				binary.LittleEndian.PutUint16(rec[record256Sum32+i/32*2:], uint16(sum32))
				sum32 = 0
			}
		}
		if size == 256 {
			putFloat(rec[record256D:], d)
			continue
		}
		b := c / 32 * 4
		putFloat(rec[record32D+b:], d)
		putFloat(rec[record32DSum+b:], float32(d*float32(sum32)))
		binary.LittleEndian.PutUint32(rec[record32S+b:], uint32(sum32))
	}
	return -1
}

func putFloat(b []byte, f float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(f)) }
