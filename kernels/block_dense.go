package kernels

import (
	"encoding/binary"
	"math"
)

// widenF32 reads little-endian float32 values.
func widenF32(dst []float32, b []byte) {
	for ; len(dst) > 0; dst, b = dst[1:], b[4:] {
		dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(b))
	}
}

// widenF16Bytes reads little-endian binary16 values.
func widenF16Bytes(dst []float32, b []byte) {
	n := 0
	if active.widenF16 != nil {
		n = len(dst) &^ 7
		active.widenF16(first(dst), first(b[:2*len(dst)]), n)
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
		active.widenBF16(first(dst), first(b[:2*len(dst)]), n)
	}
	for i := n; i < len(dst); i++ {
		dst[i] = BF16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
	}
}
