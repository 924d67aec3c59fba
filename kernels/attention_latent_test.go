package kernels

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// shaped returns an empty block of a shape.
func shaped(key, value int, latent, full bool) KVBlock {
	b := KVBlock{Key: key, Value: value, Latent: latent}
	if full {
		b.Full = make([]float32, b.Len())
	} else {
		b.Half = make([]uint16, b.Len())
	}
	return b
}

func TestAttendLatent(t *testing.T) { eachVariant(t, testAttendLatent) }

// testAttendLatent compares values of another size than keys with the specification, and a latent block with one that has
// the same values beside its keys. What nobody sees is NaN.
func testAttendLatent(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 31))
	s := new(AttnScratch)
	for _, c := range []struct{ key, value, rows int }{
		{1, 1, 1}, {5, 3, 2}, {48, 32, 4}, {40, 24, 7}, {24, 20, 9}, {72, 64, 16}, {96, 80, 48}, {576, 512, 16}, {16, 16, 130},
	} {
		for _, full := range []bool{false, true} {
			from, n := r.IntN(60), 61+r.IntN(AttnBlock-60)
			if c.key == 48 {
				from, n = 0, AttnBlock
			}
			latent, plain := shaped(c.key, c.value, true, full), shaped(c.key, c.value, false, full)
			for i := range latent.Half {
				latent.Half[i] = 0x7e00
			}
			for i := range latent.Full {
				latent.Full[i] = float32(math.NaN())
			}
			k := make([]float32, n*c.key)
			for pos := from; pos < n; pos++ {
				row := k[pos*c.key:][:c.key]
				copy(row, normal(r, c.key))
				latent.StoreLatent(pos, row, make([]uint16, c.key))
				plain.Store(pos, row, row)
				if !full {
					for d, x := range row {
						row[d] = F16ToF32(clampF16(x))
					}
				}
			}
			visible := make([]Span, c.rows)
			for i := range visible {
				visible[i] = Span{from, n}
				if i > 1 {
					visible[i].From += r.IntN(n - from)
				}
			}
			q := normal(r, c.rows*c.key)
			var got, want Partial
			AttendBlock(&got, q, latent, visible, 0.25, KVBlock{}, s)
			AttendBlock(&want, q, plain, visible, 0.25, latent, s)
			a, b := canaries(c.rows*c.value+1), canaries(c.rows*c.value+1)
			got.Finish(a, 0, c.rows, s)
			want.Finish(b, 0, c.rows, s)
			if !isCanary(a[c.rows*c.value]) {
				t.Fatal("wrote behind the output")
			}
			for row, v := range visible {
				exact := refRow(q[row*c.key:(row+1)*c.key], k, k, v, 0.25)
				for d := range c.value {
					i := row*c.value + d
					if !sameFloat(a[i], exact[d]) || !sameFloat(b[i], exact[d]) {
						t.Fatalf("%+v, full %v, row %d sees %v: dimension %d is %x, %x beside the keys, want %x", c, full, row, v, d, a[i], b[i], exact[d])
					}
				}
			}
		}
	}
}

// TestKVBlockShapes takes rows of blocks whose values are of another size than their keys, or part of them, to bytes and
// back.
func TestKVBlockShapes(t *testing.T) { eachVariant(t, testKVBlockShapes) }

func testKVBlockShapes(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 32))
	for _, c := range []struct{ key, value int }{{1, 1}, {7, 3}, {48, 32}, {90, 65}} {
		for _, full := range []bool{false, true} {
			size := 2
			if full {
				size = 4
			}
			latent, plain := shaped(c.key, c.value, true, full), shaped(c.key, c.value, false, full)
			if latent.Len() != AttnBlock*c.key || plain.Len() != AttnBlock*(c.key+c.value) {
				t.Fatalf("%+v: %d and %d elements", c, latent.Len(), plain.Len())
			}
			for pos := range AttnBlock {
				k := normal(r, c.key)
				latent.StoreLatent(pos, k, make([]uint16, c.key))
				plain.Store(pos, k, k)
			}
			short, long := size*c.key, size*(c.key+c.value)
			backs := [2]KVBlock{shaped(c.key, c.value, true, full), shaped(c.key, c.value, false, full)}
			for pos := 0; pos < AttnBlock; {
				n := min(1+r.IntN(16), 16-pos%16)
				a, b := make([]byte, n*short), make([]byte, n*long)
				latent.PutRows(pos, n, a, short, 0, 0)
				plain.PutRows(pos, n, b, long, 0, short)
				for i := range n {
					key := a[i*short:][:short]
					if !bytes.Equal(b[i*long:][:short], key) || !bytes.Equal(b[i*long+short:(i+1)*long], key[:size*c.value]) {
						t.Fatalf("%+v, full %v: row %d is %x, without values %x", c, full, pos+i, b[i*long:(i+1)*long], key)
					}
				}
				backs[0].SetRows(pos, n, a, short, 0, 0)
				backs[1].SetRows(pos, n, b, long, 0, short)
				pos += n
			}
			if !reflect.DeepEqual(backs, [2]KVBlock{latent, plain}) {
				t.Fatalf("%+v, full %v: blocks come back changed", c, full)
			}
		}
	}
}
