package kernels

import (
	"fmt"
	"strings"
)

// Type is the storage type of a weight matrix. Its values are ggml's type numbers, as found in GGUF files.
type Type uint32

// The weight types that this package computes with.
const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	IQ1_M   Type = 29
	BF16    Type = 30
	MXFP4   Type = 39
)

// Form says how activations must be prepared before they meet weights of some type.
type Form uint8

const (
	// Dense keeps activations as they are (F32, F16 and BF16 weights).
	Dense Form = iota
	// Q8x32 quantises activations to 8 bits in blocks of 32 (weights in blocks of 32).
	Q8x32
	// Q8x256 quantises activations to 8 bits in blocks of 256 (weights in blocks of 256).
	Q8x256
)

// geometry describes one weight type: elements and bytes of a block, what activations it wants, and where in a block its
// binary16 scales and minimums are: as many as halves says, from byte half on.
type geometry struct {
	name         string
	elems, bytes int
	form         Form
	half, halves int
}

var geometries = [...]geometry{
	F32:     {"F32", 1, 4, Dense, 0, 0},
	F16:     {"F16", 1, 2, Dense, 0, 1},
	Q4_0:    {"Q4_0", 32, bytesQ4_0, Q8x32, 0, 1},
	Q4_1:    {"Q4_1", 32, bytesQ4_1, Q8x32, 0, 2},
	Q5_0:    {"Q5_0", 32, bytesQ5_0, Q8x32, 0, 1},
	Q5_1:    {"Q5_1", 32, bytesQ5_1, Q8x32, 0, 2},
	Q8_0:    {"Q8_0", 32, bytesQ8_0, Q8x32, 0, 1},
	Q2_K:    {"Q2_K", 256, bytesQ2_K, Q8x256, 80, 2},
	Q3_K:    {"Q3_K", 256, bytesQ3_K, Q8x256, 108, 1},
	Q4_K:    {"Q4_K", 256, bytesQ4_K, Q8x256, 0, 2},
	Q5_K:    {"Q5_K", 256, bytesQ5_K, Q8x256, 0, 2},
	Q6_K:    {"Q6_K", 256, bytesQ6_K, Q8x256, 208, 1},
	IQ2_XXS: {"IQ2_XXS", 256, bytesIQ2_XXS, Q8x256, 0, 1},
	IQ2_XS:  {"IQ2_XS", 256, bytesIQ2_XS, Q8x256, 0, 1},
	IQ3_XXS: {"IQ3_XXS", 256, bytesIQ3_XXS, Q8x256, 0, 1},
	IQ1_S:   {"IQ1_S", 256, bytesIQ1_S, Q8x256, 0, 1},
	IQ4_NL:  {"IQ4_NL", 32, bytesIQ4_NL, Q8x32, 0, 1},
	IQ3_S:   {"IQ3_S", 256, bytesIQ3_S, Q8x256, 0, 1},
	IQ2_S:   {"IQ2_S", 256, bytesIQ2_S, Q8x256, 0, 1},
	IQ4_XS:  {"IQ4_XS", 256, bytesIQ4_XS, Q8x256, 0, 1},
	IQ1_M:   {"IQ1_M", 256, bytesIQ1_M, Q8x256, 0, 0},
	BF16:    {"BF16", 1, 2, Dense, 0, 0},
	MXFP4:   {"MXFP4", 32, bytesMXFP4, Q8x32, 0, 0},
}

func (t Type) geometry() geometry {
	if int64(t) < int64(len(geometries)) {
		return geometries[t]
	}
	return geometry{}
}

// String returns ggml's name of the type, or "type N" for one this package doesn't compute with.
func (t Type) String() string {
	if g := t.geometry(); g.elems != 0 {
		return g.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Supported reports whether this package computes with weights of type t.
func (t Type) Supported() bool { return t.geometry().elems != 0 }

// SupportedTypes lists the types that this package computes with, for messages.
func SupportedTypes() string {
	var names []string
	for _, g := range geometries {
		if g.elems != 0 {
			names = append(names, g.name)
		}
	}
	return strings.Join(names, ", ")
}

// Block returns the number of elements in one block of the type and the bytes they take, or zeros if it is unsupported.
func (t Type) Block() (elems, bytes int) {
	g := t.geometry()
	return g.elems, g.bytes
}

// Form returns how activations must be prepared for weights of type t.
func (t Type) Form() Form { return t.geometry().form }

// String names the form.
func (f Form) String() string {
	switch f {
	case Dense:
		return "Dense"
	case Q8x32:
		return "Q8x32"
	case Q8x256:
		return "Q8x256"
	}
	return fmt.Sprintf("form %d", uint8(f))
}

// block returns the number of columns that share one activation scale; 1 for Dense.
func (f Form) block() int {
	switch f {
	case Q8x32:
		return 32
	case Q8x256:
		return 256
	}
	return 1
}

// rowBytes returns the size of one row of cols elements. It fails for unsupported types and for a cols that is not a
// positive multiple of the type's block.
func rowBytes(t Type, cols int) (int, error) {
	g := t.geometry()
	if g.elems == 0 {
		return 0, fmt.Errorf("weight %v is not supported (supported: %s)", t, SupportedTypes())
	}
	if cols <= 0 || cols%g.elems != 0 {
		return 0, fmt.Errorf("%v row of %d columns: want a positive multiple of %d", t, cols, g.elems)
	}
	const maxInt = int(^uint(0) >> 1)
	if cols/g.elems > maxInt/g.bytes {
		return 0, fmt.Errorf("%v row of %d columns is too large", t, cols)
	}
	return cols / g.elems * g.bytes, nil
}
