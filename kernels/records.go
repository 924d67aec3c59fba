package kernels

import "unsafe"

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
	if active.quantise[a.form](&a.records[r*rec], a.rows*rec, &x[0], len(x)) >= 0x7f800000 {
		return CheckFinite(x)
	}
	return -1
}
