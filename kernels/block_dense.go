package kernels

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// widenDense reads values of a dense type.
func widenDense(dst []float32, b []byte, t Type) {
	switch t {
	case F32:
		widenF32(dst, b)
	case F16:
		widenF16Bytes(dst, b)
	case BF16:
		widenBF16(dst, b)
	}
}

// widenF32 reads little-endian float32 values.
func widenF32(dst []float32, b []byte) {
	if len(dst) > 0 && active.variant != Generic { // on processors that are little-endian
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), b)
		return
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
}

// widenF16Bytes reads little-endian binary16 values.
func widenF16Bytes(dst []float32, b []byte) {
	n := 0
	if active.widenF16 != nil {
		n = len(dst) &^ 7
		active.widenF16(pointerTo(dst), pointerTo(b[:2*len(dst)]), n)
	}
	for i := n; i < len(dst); i++ {
		dst[i] = F16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
	}
}

// widenBF16 reads little-endian bfloat16 values.
func widenBF16(dst []float32, b []byte) {
	n := 0
	if active.widenBF16 != nil {
		n = len(dst) &^ 7
		active.widenBF16(pointerTo(dst), pointerTo(b[:2*len(dst)]), n)
	}
	for i := n; i < len(dst); i++ {
		dst[i] = bf16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
	}
}
