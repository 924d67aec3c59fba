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
	for i := range dst {
		dst[i] = F16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
	}
}

// widenBF16 reads little-endian bfloat16 values.
func widenBF16(dst []float32, b []byte) {
	for i := range dst {
		dst[i] = BF16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
	}
}
