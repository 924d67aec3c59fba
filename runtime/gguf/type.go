package gguf

import "fmt"

// Type is a ggml tensor type, numbered as in the file's tensor table.
type Type uint32

// The ggml types. Ids 4, 5, 31–33 and 36–38 were used once and withdrawn.
const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q8_1    Type = 9 // activations only; no published file holds it
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	Q8_K    Type = 15 // activations only
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	I8      Type = 24
	I16     Type = 25
	I32     Type = 26
	I64     Type = 27
	F64     Type = 28
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	MXFP4   Type = 39
	NVFP4   Type = 40
	Q1_0    Type = 41
	Q2_0    Type = 42
)

// geometry is one type's block: how many consecutive elements of a row it holds, in how many bytes.
type geometry struct {
	name         string
	elems, bytes int
}

// geometries is indexed by Type; a gap is an id that has no current meaning. Sizes follow ggml's
// block structs (ggml-common.h).
var geometries = [...]geometry{
	F32:     {"F32", 1, 4},
	F16:     {"F16", 1, 2},
	Q4_0:    {"Q4_0", 32, 18},
	Q4_1:    {"Q4_1", 32, 20},
	Q5_0:    {"Q5_0", 32, 22},
	Q5_1:    {"Q5_1", 32, 24},
	Q8_0:    {"Q8_0", 32, 34},
	Q8_1:    {"Q8_1", 32, 36},
	Q2_K:    {"Q2_K", 256, 84},
	Q3_K:    {"Q3_K", 256, 110},
	Q4_K:    {"Q4_K", 256, 144},
	Q5_K:    {"Q5_K", 256, 176},
	Q6_K:    {"Q6_K", 256, 210},
	Q8_K:    {"Q8_K", 256, 292},
	IQ2_XXS: {"IQ2_XXS", 256, 66},
	IQ2_XS:  {"IQ2_XS", 256, 74},
	IQ3_XXS: {"IQ3_XXS", 256, 98},
	IQ1_S:   {"IQ1_S", 256, 50},
	IQ4_NL:  {"IQ4_NL", 32, 18},
	IQ3_S:   {"IQ3_S", 256, 110},
	IQ2_S:   {"IQ2_S", 256, 82},
	IQ4_XS:  {"IQ4_XS", 256, 136},
	I8:      {"I8", 1, 1},
	I16:     {"I16", 1, 2},
	I32:     {"I32", 1, 4},
	I64:     {"I64", 1, 8},
	F64:     {"F64", 1, 8},
	IQ1_M:   {"IQ1_M", 256, 56},
	BF16:    {"BF16", 1, 2},
	TQ1_0:   {"TQ1_0", 256, 54},
	TQ2_0:   {"TQ2_0", 256, 66},
	MXFP4:   {"MXFP4", 32, 17},
	NVFP4:   {"NVFP4", 64, 36},
	Q1_0:    {"Q1_0", 128, 18},
	Q2_0:    {"Q2_0", 64, 18},
}

// Block returns the block geometry of t: elems consecutive elements of a row are stored in bytes
// bytes. ok is false for an id without a current meaning.
func (t Type) Block() (elems, bytes int, ok bool) {
	if uint64(t) >= uint64(len(geometries)) || geometries[t].elems == 0 {
		return 0, 0, false
	}
	g := geometries[t]
	return g.elems, g.bytes, true
}

// String returns ggml's name of t in capitals ("Q4_K"); ids without a current meaning are named
// too where a meaning is known, else "type 77".
func (t Type) String() string {
	if _, _, ok := t.Block(); ok {
		return geometries[t].name
	}
	if name, ok := retired[t]; ok {
		return name
	}
	if name, ok := ikOnly[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// rowSize returns the bytes of one row of cols elements; ok is false when cols is not a whole
// number of blocks, the type is unknown or the size overflows.
func (t Type) rowSize(cols uint64) (size uint64, ok bool) {
	elems, bytes, ok := t.Block()
	if !ok || cols%uint64(elems) != 0 {
		return 0, false
	}
	return mul64(cols/uint64(elems), uint64(bytes))
}

// refuse explains why tensors of type t cannot be read; nil when they can.
func (t Type) refuse() error {
	if _, _, ok := t.Block(); ok {
		return nil
	}
	if name, ok := retired[t]; ok {
		return fmt.Errorf("type %d was %s, which ggml has withdrawn: quantize the model again with a current llama.cpp", uint32(t), name)
	}
	if name, ok := ikOnly[t]; ok {
		return fmt.Errorf("type %d is %s, which only ik_llama.cpp reads: use a file quantized by mainline llama.cpp", uint32(t), name)
	}
	return fmt.Errorf("type %d is not a ggml type known here: the file is damaged or newer than this program", uint32(t))
}
