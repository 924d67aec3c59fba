package runtime

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/starling-swarm/starling/kernels"
)

// cacheOf is the cache of layers that are alike.
func cacheOf(layers, heads, dim int) []LayerCache {
	return slices.Repeat([]LayerCache{{Heads: heads, Key: dim, Value: dim}}, layers)
}

// TestCanonicalRows checks the bytes of a row: K of each head, then V of each head, little endian.
func TestCanonicalRows(t *testing.T) {
	const heads, dim = 2, 3
	k, v := []float32{1, 2, 3, 4, 5, 6}, []float32{-1, -2, -3, -4, -5, 1e6}
	for _, kv := range []KVType{KVF16, KVF32} {
		s, err := newSequence(Range{4, 6}, NewProfile(kv), cacheOf(2, heads, dim), Snapshots{}, 300, 0, &kvBudget{limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for pos := range 258 { // into the second page
			if err := s.claim(Range{5, 6}, pos, 1); err != nil {
				t.Fatal(err)
			}
			s.store(5, pos, k, v)
			s.release(1)
		}
		var want []byte
		for _, x := range append(k[:6:6], v...) {
			if kv == KVF32 {
				want = binary.LittleEndian.AppendUint32(want, math.Float32bits(x))
			} else {
				want = binary.LittleEndian.AppendUint16(want, kernels.F32ToF16(min(x, 65504)))
			}
		}
		for _, pos := range []int{0, 255, 256, 257} {
			got, err := s.ExportKV(nil, 5, pos, pos+1)
			if err != nil || string(got) != string(want) {
				t.Errorf("%v, position %d: %x (%v), want %x", kv, pos, got, err, want)
			}
		}
		if s.Len(4) != 0 || s.Len(5) != 258 || s.RowBytes(5) != len(want) {
			t.Errorf("%v: %d and %d rows of %d bytes", kv, s.Len(4), s.Len(5), s.RowBytes(5))
		}
		// Attention sees the stored values: of head 1, V[2] is clamped in half precision.
		if err := s.claim(Range{5, 6}, 258, 1); err != nil {
			t.Fatal(err)
		}
		stored := func(i int) float32 {
			if b := s.block(5, 1, 1); kv == KVF32 {
				return b.Full[i]
			} else {
				return kernels.F16ToF32(b.Half[i])
			}
		}
		shape := kernels.KVBlock{Key: dim, Value: dim}
		gotK, gotV := stored(shape.KeyAt(1)+kernels.KVTile), stored(shape.ValueAt(1)+2)
		s.release(0)
		wantV := float32(1e6)
		if kv == KVF16 {
			wantV = 65504
		}
		if gotK != 5 || gotV != wantV {
			t.Errorf("%v: block has key %v, value %v", kv, gotK, gotV)
		}
		s.Close()
	}
}

// TestPagesAreLazy checks that memory is taken page by page, not with the reservation, and given back by Truncate.
func TestPagesAreLazy(t *testing.T) {
	b := &kvBudget{limit: 1 << 30}
	s, err := newSequence(Range{0, 2}, NewProfile(KVF16), cacheOf(2, 1, 4), Snapshots{}, 10000, 0, b)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(40*pageRows) * 16 * 2; b.used != want {
		t.Errorf("%d bytes reserved, want %d", b.used, want)
	}
	count := func() int { return len(s.pages[0]) + len(s.pages[1]) }
	if count() != 0 {
		t.Errorf("%d pages at the start", count())
	}
	if err := s.claim(Range{0, 2}, 0, 257); err != nil {
		t.Fatal(err)
	}
	s.release(257)
	if count() != 4 {
		t.Errorf("%d pages for 257 positions of 2 layers, want 4", count())
	}
	s.Truncate(256)
	if count() != 2 {
		t.Errorf("%d pages for 256 positions of 2 layers, want 2", count())
	}
	s.Close()
	if b.used != 0 {
		t.Errorf("%d bytes reserved after Close", b.used)
	}
}

// TestAbsurdReservation checks that sizes whose product overflows are refused like others that do not fit.
func TestAbsurdReservation(t *testing.T) {
	var e *CapacityError
	_, err := newSequence(Range{0, maxLayers}, NewProfile(KVF32), cacheOf(maxLayers, maxHeads, maxHeadDim), Snapshots{}, maxContext, 0, &kvBudget{limit: 1 << 40})
	if !errors.As(err, &e) || e.Asked < 1<<60 {
		t.Errorf("error %v", err)
	}
}

// TestImportNonFinite puts a NaN or infinity at every place of some rows.
func TestImportNonFinite(t *testing.T) {
	for _, kv := range []KVType{KVF16, KVF32} {
		s, err := newSequence(Range{0, 1}, NewProfile(kv), cacheOf(1, 1, 3), Snapshots{}, 10, 0, &kvBudget{limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		rows := make([]byte, 3*s.RowBytes(0))
		for i := range rows { // the largest finite numbers
			rows[i] = 0xff
			if kv == KVF16 && i%2 == 1 {
				rows[i] = 0xfb
			} else if kv == KVF32 && i%4 == 2 {
				rows[i] = 0x7f
			}
		}
		if bad := s.firstNonFinite(rows, s.RowBytes(0)); bad >= 0 {
			t.Errorf("%v: row %d of finite numbers is refused", kv, bad)
		}
		for at := kv.size() - 1; at < len(rows); at += kv.size() {
			bad := append([]byte(nil), rows...)
			if bad[at] = 0x7c; kv == KVF32 {
				bad[at-1], bad[at] = 0x80, 0x7f
			}
			var e *NonFiniteError
			if err := s.ImportKV(0, 0, len(bad)/s.RowBytes(0), bad); !errors.As(err, &e) || e.Pos != at/s.RowBytes(0) || s.Len(0) != 0 {
				t.Errorf("%v, byte %d: error %v, %d rows", kv, at, err, s.Len(0))
			}
		}
	}
}

// TestImportWaits checks that a running layer cannot be imported into, and another can.
func TestImportWaits(t *testing.T) {
	s, err := newSequence(Range{0, 2}, NewProfile(KVF16), cacheOf(2, 1, 4), Snapshots{}, 10, 0, &kvBudget{limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.claim(Range{1, 2}, 0, 2); err != nil {
		t.Fatal(err)
	}
	row := make([]byte, s.RowBytes(0))
	if err := s.ImportKV(0, 0, 1, row); err != nil {
		t.Errorf("a layer that is not running: %v", err)
	}
	done := make(chan error, 2)
	go func() { done <- s.ImportKV(1, 0, 1, row) }()
	select {
	case err := <-done:
		t.Fatalf("ImportKV into a running layer did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	s.release(2)
	var e *PositionError
	if err := <-done; !errors.As(err, &e) || e.Held != 2 {
		t.Errorf("afterwards: %v", err)
	}
}

// TestRope compares angles with the definition.
func TestRope(t *testing.T) {
	for _, c := range []struct {
		base, scale float64
		factors     []float32
	}{{10000, 1, nil}, {500000, 4, nil}, {1e6, 1, []float32{1, 2, 8, 32}}} {
		table := newRopeTable(8, c.base, c.scale, c.factors, Yarn{})
		cos, sin := make([]float32, 4), make([]float32, 4)
		for _, pos := range []int{0, 1, 77, 100000} {
			table.fill(angles{cos, sin}, pos)
			for i := range cos {
				freq := math.Pow(c.base, -2*float64(i)/8) / c.scale
				if c.factors != nil {
					freq /= float64(c.factors[i])
				}
				s, c := math.Sincos(float64(pos) * freq)
				if math.Abs(float64(cos[i])-c) > 1e-7 || math.Abs(float64(sin[i])-s) > 1e-7 {
					t.Errorf("position %d, pair %d: (%v, %v), want (%v, %v)", pos, i, cos[i], sin[i], c, s)
				}
			}
		}
	}
}

// TestYarn compares frequencies with the paper's formula, by hand: of pairs 0 to 3 the first turns often in 64 positions
// and stays, the second is scaled by half, the others wholly. The golden model qwen3_yarn has the same recipe.
func TestYarn(t *testing.T) {
	y := Yarn{Original: 64, BetaFast: 32, BetaSlow: 1, Amplitude: 1 + 0.1*math.Log(4)}
	table := newRopeTable(8, 10000, 4, nil, y)
	for i, want := range []float64{1, 0.0625, 0.0025, 0.00025} {
		if math.Abs(table.freq[i]-want) > 1e-9 {
			t.Errorf("pair %d: %v, want %v", i, table.freq[i], want)
		}
	}
	cos, sin := make([]float32, 4), make([]float32, 4)
	table.fill(angles{cos, sin}, 0)
	if want := float32(1.1386294361119891); cos[0] != want || sin[0] != 0 {
		t.Errorf("(%v, %v) at position 0, want (%v, 0)", cos[0], sin[0], want)
	}
}

func TestAvailableMemory(t *testing.T) {
	if got := AvailableMemory(); got < 16<<20 || got > 1<<50 {
		t.Errorf("%d bytes of memory available", got)
	}
}

func TestProfile(t *testing.T) {
	a, b := NewProfile(KVF16), NewProfile(KVF32)
	if a.ID() == b.ID() || a.ID() != NewProfile(KVF16).ID() {
		t.Error("profiles do not tell KV types apart")
	}
	if got := a.String(); got != "rules 1, kv f16, seam f32, block 256" {
		t.Errorf("the profile prints as %q", got)
	}
}
