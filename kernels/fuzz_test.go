package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// FuzzWeights takes any bytes for weights of any type, as a stranger's model file has them, and any activations: nothing
// may panic, bad scales must be refused, and the product must be the reference's.
func FuzzWeights(f *testing.F) {
	r := rand.New(rand.NewPCG(50, 50))
	for i, typ := range allTypes {
		elems, _ := typ.Block()
		cols := max(elems, 48)
		if elems > 1 {
			cols = elems
		}
		x := []byte{}
		for _, v := range testActivations(r, 1, cols) {
			x = binary.LittleEndian.AppendUint32(x, math.Float32bits(v))
		}
		f.Add(uint8(i), testMatrix(r, typ, 2, cols).Data, x)
		f.Add(uint8(i), make([]byte, 7), []byte{0, 0, 0x80, 0x7f})
	}
	f.Fuzz(func(t *testing.T, pick uint8, data, xs []byte) {
		typ := allTypes[int(pick)%len(allTypes)]
		x := make([]float32, len(xs)/4)
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(xs[4*i:]))
		}
		size, err := rowBytes(typ, len(x))
		if err != nil {
			return
		}
		w, err := NewMatrix(typ, len(data)/size, len(x), data)
		if err != nil {
			return
		}
		w.Row(make([]float32, len(x)), w.Rows-1)
		bad := w.CheckScales(0, w.Rows)
		var a Activations
		err = a.Prepare(x, 1, len(x), typ.Form())
		if (err != nil) != (CheckFinite(x) >= 0) {
			t.Fatalf("activations %v: %v", x, err)
		}
		if err != nil {
			return
		}
		dst := make([]float32, w.Rows)
		MatMul(dst, w.Rows, &w, &a, 0, w.Rows, new(Scratch))
		for o, got := range dst {
			if want := refDot(typ, w.row(o), x); bad == nil && !sameFloat(got, want) {
				t.Fatalf("%v output %d: %x, want %x", typ, o, got, want)
			}
		}
	})
}
