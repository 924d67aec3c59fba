package kernels_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// golden has digests made by the gguf Python package (tools/golden/dequant.py).
type golden struct {
	Files  map[string]map[string]struct{ Type, SHA256 string }
	Blocks map[string]string
}

func readGolden(t *testing.T) (g golden) {
	t.Helper()
	raw, err := os.ReadFile("testdata/dequant.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// rowsDigest returns the SHA-256 of all rows, dequantised to little-endian float32.
func rowsDigest(m kernels.Matrix) string {
	row, bytes, hash := make([]float32, m.Cols), make([]byte, 0, 4*m.Cols), sha256.New()
	for r := range m.Rows {
		m.Row(row, r)
		bytes = bytes[:0]
		for _, v := range row {
			bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(v))
		}
		hash.Write(bytes)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// madeUpBlocks returns 1024 blocks of bytes from xorshift64, of every eight one zero and one all ones but for its scales,
// which are finite and, of every eighth block, the largest, least, denormal and −0. halves are the offsets of scales.
func madeUpBlocks(typ kernels.Type, halves []int) []byte {
	const blocks = 1024
	_, size := typ.Block()
	data := make([]byte, blocks*size)
	state := uint64(0x9e3779b97f4a7c15)
	for i := range data {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		switch i / size % 8 {
		case 0:
		case 1:
			data[i] = 0xff
		default:
			data[i] = byte(state >> 56)
		}
	}
	for i := range blocks {
		b := data[i*size:][:size]
		for _, at := range halves {
			scale := binary.LittleEndian.Uint16(b[at:]) & 0xbfff
			if edge := []uint16{2: 0x7bff, 3: 0xfbff, 4: 0x0001, 5: 0x8000, 7: 0}[i%8]; i%8 >= 2 && i%8 <= 5 {
				scale = edge
			}
			binary.LittleEndian.PutUint16(b[at:], scale)
		}
		if typ == kernels.IQ1_M { // the scale's bits are the highest four of each of four words
			b[55] &= 0xbf
			if edge, ok := map[int]uint16{2: 0x7bff, 3: 0xfbff, 4: 0x0001, 5: 0x8000}[i%8]; ok {
				for j := range 4 {
					b[49+2*j] = b[49+2*j]&15 | byte(edge>>(4*j)<<4)
				}
			}
		}
		if typ == kernels.MXFP4 && b[0] == 0xff {
			b[0] = 0xfe
		}
	}
	return data
}

// TestDequantBlocks compares made-up blocks of every quantised type with the package.
func TestDequantBlocks(t *testing.T) {
	want := readGolden(t).Blocks
	for typ, halves := range map[kernels.Type][]int{
		kernels.Q4_0: {0}, kernels.Q4_1: {0, 2}, kernels.Q5_0: {0}, kernels.Q5_1: {0, 2}, kernels.Q8_0: {0},
		kernels.Q2_K: {80, 82}, kernels.Q3_K: {108}, kernels.Q4_K: {0, 2}, kernels.Q5_K: {0, 2}, kernels.Q6_K: {208},
		kernels.IQ4_NL: {0}, kernels.IQ4_XS: {0}, kernels.MXFP4: nil,
		kernels.IQ2_XXS: {0}, kernels.IQ2_XS: {0}, kernels.IQ2_S: {0}, kernels.IQ3_XXS: {0}, kernels.IQ3_S: {0}, kernels.IQ1_S: {0}, kernels.IQ1_M: nil,
	} {
		data := madeUpBlocks(typ, halves)
		elems, size := typ.Block()
		m, err := kernels.NewMatrix(typ, 1, len(data)/size*elems, data)
		if err == nil {
			err = m.CheckScales(0, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := rowsDigest(m); got != want[typ.String()] {
			t.Errorf("%v: SHA-256 %s, want %s", typ, got, want[typ.String()])
		}
	}
}

// TestDequant compares every tensor of golden files of every type, dequantised row by row, with those of the
// gguf Python package.
func TestDequant(t *testing.T) {
	compared := map[kernels.Type]int{}
	for name, tensors := range readGolden(t).Files {
		path := filepath.Join("..", "..", "shared", "golden", name)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			t.Skipf("%s is not there: golden files live outside the repository", path)
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range file.Tensors {
			if tensor.Type == gguf.I32 {
				continue // a table, no weights
			}
			want := tensors[tensor.Name]
			if tensor.Type.String() != want.Type {
				t.Errorf("%s: %s is %v, want %s", name, tensor.Name, tensor.Type, want.Type)
			}
			typ := kernels.Type(tensor.Type)
			if !typ.Supported() {
				continue
			}
			cols, rows := int(tensor.Cols()), int(tensor.Rows())
			m, err := kernels.NewMatrix(typ, rows, cols, data[tensor.Offset:tensor.Offset+tensor.Size])
			if err != nil {
				t.Fatalf("%s: %s: %v", name, tensor.Name, err)
			}
			if err := m.CheckScales(0, rows); err != nil {
				t.Errorf("%s: %s: %v", name, tensor.Name, err)
			}
			if got := rowsDigest(m); got != want.SHA256 {
				t.Errorf("%s: %s (%v): SHA-256 %s, want %s", name, tensor.Name, typ, got, want.SHA256)
			}
			compared[typ]++
		}
	}
	for _, typ := range []kernels.Type{kernels.F32, kernels.F16, kernels.BF16, kernels.Q4_0, kernels.Q4_1, kernels.Q5_0, kernels.Q5_1,
		kernels.Q8_0, kernels.Q2_K, kernels.Q3_K, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K, kernels.IQ4_NL, kernels.IQ4_XS, kernels.MXFP4, kernels.IQ3_S} {
		if compared[typ] == 0 {
			t.Errorf("no %v tensor was compared", typ)
		}
	}
}
