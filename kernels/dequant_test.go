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

// TestDequant compares every tensor of the quants golden files, dequantised row by row, with digests made by the gguf
// Python package (tools/golden/dequant.py).
func TestDequant(t *testing.T) {
	raw, err := os.ReadFile("testdata/dequant.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Files map[string]map[string]struct{ Type, SHA256 string }
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	compared := map[kernels.Type]int{}
	for name, tensors := range golden.Files {
		path := filepath.Join("..", "..", "shared", "golden", "quants", name)
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
		if len(file.Tensors) != len(tensors) {
			t.Errorf("%s: %d tensors, want %d", name, len(file.Tensors), len(tensors))
		}
		for _, tensor := range file.Tensors {
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
			row, bytes, hash := make([]float32, cols), make([]byte, 0, 4*cols), sha256.New()
			for r := range rows {
				m.Row(row, r)
				bytes = bytes[:0]
				for _, v := range row {
					bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(v))
				}
				hash.Write(bytes)
			}
			if got := hex.EncodeToString(hash.Sum(nil)); got != want.SHA256 {
				t.Errorf("%s: %s (%v): SHA-256 %s, want %s", name, tensor.Name, typ, got, want.SHA256)
			}
			compared[typ]++
		}
	}
	for _, typ := range []kernels.Type{kernels.F32, kernels.F16, kernels.BF16, kernels.Q4_0, kernels.Q4_1, kernels.Q5_0, kernels.Q5_1,
		kernels.Q8_0, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K} {
		if compared[typ] == 0 {
			t.Errorf("no %v tensor was compared", typ)
		}
	}
}
