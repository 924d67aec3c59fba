package kernels

import (
	"encoding/binary"
	"math"
)

// widenF32 reads little-endian float32 values.
func widenF32(dst []float32, b []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
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
