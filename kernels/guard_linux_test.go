package kernels

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"
)

// guarded returns a copy of x that ends, or if it doesn't, begins at a page that can't be read: the least read beyond it
// ends the test binary. (A prefetch may go beyond.)
func guarded[E any](t testing.TB, x []E, ends bool) []E {
	t.Helper()
	page := syscall.Getpagesize()
	n := len(x) * int(unsafe.Sizeof(*new(E)))
	size := (n + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(all) })
	for _, guard := range [][]byte{all[:page], all[page+size:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	at := page
	if ends {
		at += size - n
	}
	y := unsafe.Slice((*E)(unsafe.Pointer(&all[at])), len(x))
	copy(y, x)
	return y
}

// guardLengths are how many values rows have: those that kernels do one way or another.
var guardLengths = []int{1, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 100, 576, 1003}

// guardEnds runs test under every variant, for inputs before a page that can't be read, and behind one.
func guardEnds(t *testing.T, test func(t *testing.T, r *rand.Rand, ends bool)) {
	eachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(81, 81))
		for _, ends := range []bool{true, false} {
			test(t, r, ends)
		}
	})
}

// TestGuardRows reads and writes rows beside pages that can't be.
func TestGuardRows(t *testing.T) {
	guardEnds(t, func(t *testing.T, r *rand.Rand, ends bool) {
		for _, n := range guardLengths {
			row := func() []float32 { return guarded(t, rowOf(r, n, 0), ends) }
			x, y, dst := row(), row(), row()
			half := guarded(t, make([]uint16, n), ends)
			RMSNorm(dst, x, y, 1e-5)
			Add(dst, x, y)
			Scale(dst, x, 3)
			Exps(dst, x)
			MulSiLU(dst, x, y)
			MulGELU(dst, x, y)
			clampF16s(half, x)
			widenF16(dst, half)
			widenBF16(dst, unsafe.Slice((*byte)(unsafe.Pointer(&half[0])), 2*n))
			ArgMax(x)
			IndexAtLeast(x, 1e30)
			CheckFinite(x)
			if n%2 == 0 {
				for _, rope := range []func(x []float32, heads, headDim, ropeDim int, cos, sin []float32){RopeInterleaved, RopeHalf} {
					rope(x, 1, n, n, guarded(t, y[:n/2], ends), guarded(t, y[n/2:], ends))
				}
			}
		}
	})
}

// TestGuardQuantised has the weights and packed weights, activations and outputs of quantised products beside pages that
// can't be read.
func TestGuardQuantised(t *testing.T) {
	guardEnds(t, func(t *testing.T, r *rand.Rand, ends bool) {
		for _, typ := range allTypes {
			if typ.Form() == Dense {
				continue
			}
			elems, _ := typ.Block()
			for blocks := 1; blocks <= 9; blocks += 1 + blocks/3 {
				cols, outputs := blocks*elems, 3*groupRows
				w := testMatrix(r, typ, outputs, cols)
				w.Data = guarded(t, w.Data, ends)
				packed := guarded(t, make([]byte, w.PackedBytes()), ends)
				w.PackGroups(packed, 0, w.Groups())
				w.Row(guarded(t, make([]float32, cols), ends), outputs-1)
				for _, rows := range []int{2, 4, 8, 14} { // of which records end at a multiple of 64
					x := guarded(t, testActivations(r, rows, cols), ends)
					dst := guarded(t, make([]float32, rows*outputs), ends)
					a := &Activations{records: guarded(t, make([]byte, superblocks(cols)*rows*typ.Form().record()), ends)}
					if err := a.Prepare(x, rows, cols, typ.Form()); err != nil {
						t.Fatal(err)
					}
					for _, p := range [][]byte{nil, packed} {
						w.UsePacked(p)
						MatMul(dst, outputs, &w, a, 0, outputs, new(Scratch))
					}
				}
			}
		}
	})
}

// TestGuardDense has the weights and outputs of dense products beside pages that can't be read.
func TestGuardDense(t *testing.T) {
	guardEnds(t, func(t *testing.T, r *rand.Rand, ends bool) {
		for _, typ := range []Type{F32, F16, BF16} {
			for _, cols := range guardLengths {
				for _, outputs := range []int{1, denseGroup, 2*denseGroup + 3} {
					w := denseMatrix(r, typ, outputs, cols, 0)
					w.Data = guarded(t, w.Data, ends)
					for _, rows := range []int{1, 2, 3, 4, denseFew, denseFew + 1} {
						a := prepare(t, rowOf(r, rows*cols, 0), rows, cols, Dense)
						a.dense = guarded(t, a.dense, ends)
						MatMul(guarded(t, make([]float32, rows*outputs), ends), outputs, &w, a, 0, outputs, new(Scratch))
					}
				}
			}
		}
	})
}

// TestGuardAttention has queries, keys and values, and outputs beside pages that can't be read.
func TestGuardAttention(t *testing.T) {
	guardEnds(t, func(t *testing.T, r *rand.Rand, ends bool) {
		var s AttnScratch
		for _, dim := range []int{1, 8, 24, 40, 64} {
			for _, full := range []bool{false, true} {
				kv := newCache(AttnBlock, dim, full, normal(r, AttnBlock*dim), normal(r, AttnBlock*dim)).blocks[0]
				if full {
					kv.Full = guarded(t, kv.Full, ends)
				} else {
					kv.Half = guarded(t, kv.Half, ends)
				}
				for rows := 1; rows <= 14; rows++ {
					visible := make([]Span, rows)
					for i := range visible {
						visible[i] = Span{i, AttnBlock - i%3}
					}
					q := guarded(t, normal(r, rows*dim), ends)
					var all, block Partial
					all.reset(rows, dim)
					block.o, all.o = guarded(t, make([]float32, rows*dim), ends), guarded(t, all.o, ends)
					AttendBlock(&block, q, kv, guarded(t, visible, ends), 0.3, KVBlock{}, &s)
					all.Merge(&block, &s)
					all.Finish(guarded(t, make([]float32, rows*dim), ends), 0, rows, &s)
				}
			}
		}
	})
}
