package kernels

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestPackGroups compares the packed copy with the Go code's, for every type and blocks that are few, in whole groups
// and others, and looks for writes outside.
func TestPackGroups(t *testing.T) { eachVariant(t, testPackGroups) }

func testPackGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(80, 80))
	for _, typ := range allTypes {
		if typ.Form() == Dense {
			continue
		}
		elems, _ := typ.Block()
		for blocks := 1; blocks <= 3; blocks++ {
			for _, rows := range []int{1, groupRows, groupRows + 1, 3*groupRows - 1, 3 * groupRows} {
				w := testMatrix(r, typ, rows, blocks*elems)
				w.Data = append(make([]byte, 1), w.Data...)[1:] // at an odd address
				n := w.PackedBytes()
				want := make([]byte, n)
				underGeneric(func() { w.PackGroups(want, 0, w.Groups()) })
				fenced := bytes.Repeat([]byte{0xa5}, n+128)
				got := fenced[64:][:n:n]
				for g := range w.Groups() {
					w.PackGroups(got, g, g+1)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("%v, %d rows of %d blocks: packed bytes differ", typ, rows, blocks)
				}
				if fence := bytes.Repeat([]byte{0xa5}, 64); !bytes.Equal(fenced[:64], fence) || !bytes.Equal(fenced[64+n:], fence) {
					t.Fatalf("%v, %d rows of %d blocks: wrote outside", typ, rows, blocks)
				}
			}
		}
	}
}
