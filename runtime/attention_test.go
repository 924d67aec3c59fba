package runtime

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/starling-swarm/starling/kernels"
)

// attentionModel is a model that can do nothing but attend.
func attentionModel(t testing.TB, heads, kvHeads, dim, threads int, kv KVType) *Model {
	m := &Model{cfg: Config{Heads: heads, Cache: []LayerCache{{Heads: kvHeads, Key: dim, Value: dim}}}, kv: kv, loaded: loaded{layers: Range{0, 1}}}
	m.buf.attention.bind(m, threads)
	m.pool = newPool(threads)
	t.Cleanup(m.pool.close)
	return m
}

func randoms(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// filled returns a sequence of n stored positions.
func (m *Model) filled(t testing.TB, r *rand.Rand, n int) *sequence {
	c := m.cfg.Cache[0]
	s, err := newSequence(m.layers, m.Profile(), m.cfg.Cache, Snapshots{}, n, 0, &kvBudget{limit: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.claim(m.layers, 0, n); err != nil {
		t.Fatal(err)
	}
	for pos := range n {
		if c.Latent {
			s.storeLatent(0, pos, randoms(r, c.Key), make([]uint16, c.Key))
		} else {
			s.store(0, pos, randoms(r, c.Heads*c.Key), randoms(r, c.Heads*c.Value))
		}
	}
	s.release(n)
	return s
}

// wide returns the stored rows of a sequence, [positions][K, V][KV heads × elements].
func (s *sequence) wide(t testing.TB) []float32 {
	rows, err := s.ExportKV(nil, 0, 0, s.Len(0))
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, len(rows)/s.profile.KV.size())
	for i := range x {
		if s.profile.KV == KVF32 {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(rows[4*i:]))
		} else {
			x[i] = kernels.F16ToF32(binary.LittleEndian.Uint16(rows[2*i:]))
		}
	}
	return x
}

// plainAttention is one query head's attention from DESIGN §4.5, over stored rows whose keys begin at k and values at v.
func plainAttention(q, rows []float32, size, k, v, from, to int, scale float32) []float32 {
	out, l, m := make([]float32, len(q)), float32(0), float32(math.Inf(-1))
	for at := from / 256 * 256; at < to; at += 256 {
		first, last := max(at, from), min(at+256, to)
		scores, top := make([]float32, 256), float32(math.Inf(-1))
		for i := first; i < last; i++ {
			for d, x := range q {
				scores[i-at] = kernels.FMA(x, rows[i*size+k+d], scores[i-at])
			}
			scores[i-at] = float32(scores[i-at] * scale)
			top = max(top, scores[i-at])
		}
		var lanes [16]float32
		for i := first; i < last; i++ {
			scores[i-at] = kernels.Exp(scores[i-at] - top)
			lanes[i%16] += scores[i-at]
		}
		for w := 8; w > 0; w /= 2 {
			for j := range w {
				lanes[j] += lanes[j+w]
			}
		}
		both := max(m, top)
		a, c := kernels.Exp(m-both), kernels.Exp(top-both)
		m, l = both, kernels.FMA(l, a, float32(lanes[0]*c))
		for d := range out {
			acc := float32(0)
			for i := first; i < last; i++ {
				acc = kernels.FMA(scores[i-at], rows[i*size+v+d], acc)
			}
			out[d] = kernels.FMA(out[d], a, float32(acc*c))
		}
	}
	inverse := 1 / l
	for d := range out {
		out[d] = float32(out[d]*inverse) + 0
	}
	return out
}

// checkAttention runs attend and compares every head of every row.
func (m *Model) checkAttention(t *testing.T, r *rand.Rand, rows []row, window int) {
	t.Helper()
	c, kv := &m.cfg, m.cfg.Cache[0]
	q := randoms(r, len(rows)*c.Heads*kv.Key)
	dst := make([]float32, len(rows)*c.Heads*kv.Value)
	m.attend(0, rows, dst, q, window, 0.3, nil)
	stored := map[*sequence][]float32{}
	for i, row := range rows {
		if stored[row.seq] == nil {
			stored[row.seq] = row.seq.wide(t)
		}
		for h := range c.Heads {
			at, k := (i*c.Heads+h)*kv.Key, h/(c.Heads/kv.Heads)*kv.Key
			size := kv.RowElems()
			v := size/2 + k
			if kv.Latent {
				v = 0
			}
			want := plainAttention(q[at:at+kv.Key], stored[row.seq], size, k, v, windowStart(row.pos, window), row.pos+1, 0.3)
			for d, x := range want[:kv.Value] {
				if got := dst[(i*c.Heads+h)*kv.Value+d]; math.Float32bits(got) != math.Float32bits(x) {
					t.Fatalf("row %d at position %d, head %d, dimension %d: %x, want %x", i, row.pos, h, d, got, x)
				}
			}
		}
	}
}

// TestAttention compares prefill, decoding and mixed batches with the specification: every group size, windows, threads
// that share a sequence, both formats.
func TestAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for i, c := range []struct{ kvHeads, group, dim, window, threads int }{
		{3, 1, 16, 0, 1}, {2, 2, 24, 0, 2}, {3, 3, 64, 0, 2}, {1, 4, 32, 300, 3}, {1, 5, 8, 5, 2}, {2, 6, 16, 256, 1}, {1, 7, 40, 0, 3},
		{1, 8, 20, 1, 2}, {1, 9, 16, 77, 2}, {1, 16, 24, 0, 2}, {1, 100, 24, 0, 2}, {2, 50, 8, 0, 3},
	} {
		for _, kv := range []KVType{KVF16, KVF32} {
			t.Run(fmt.Sprintf("%dx%dx%d/window%d/threads%d/%v", c.kvHeads, c.group, c.dim, c.window, c.threads, kv), func(t *testing.T) {
				if testing.Short() && kv != KVF16 {
					t.Skip("-short takes one type of rows")
				}
				m := attentionModel(t, c.kvHeads*c.group, c.kvHeads, c.dim, c.threads, kv)
				if c.group > 9 && c.kvHeads == 1 { // values are the first part of keys
					m.cfg.Cache[0] = LayerCache{Heads: 1, Key: c.dim, Value: c.dim - 8, Latent: true}
				}
				short, long, new := m.filled(t, r, 90), m.filled(t, r, 1100), m.filled(t, r, 1)
				decode := []row{{seq: long, pos: 1099}, {seq: short, pos: 89}, {seq: new, pos: 0}}
				m.checkAttention(t, r, decode[:1], c.window)
				m.checkAttention(t, r, decode, c.window)
				var rows []row
				for pos := 250 - 3*i; pos < 275; pos++ {
					rows = append(rows, row{seq: long, pos: pos})
				}
				m.checkAttention(t, r, rows, c.window)
				rows = rows[:0]
				for pos := range 70 {
					rows = append(rows, row{seq: short, pos: pos})
				}
				m.checkAttention(t, r, append(rows, decode[0], row{seq: short, pos: 4}), c.window)
			})
		}
	}
}

// TestAttentionSplits makes sure that the test above meets the ways of cutting that it is for.
func TestAttentionSplits(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	m := attentionModel(t, 6, 2, 64, 2, KVF16)
	a := &m.buf.attention
	seq := m.filled(t, r, 2000)
	q := randoms(r, 100*6*64)
	m.attend(0, []row{{seq: seq, pos: 1999}}, q, q, 0, 1, nil)
	if len(a.units) != 2 || len(a.parts) < 8 {
		t.Errorf("one row of 8 blocks: %d units in %d parts", len(a.units), len(a.parts))
	}
	m.attend(0, []row{{seq: seq, pos: 1999}}, q, q, 300, 1, nil)
	if a.units[0].block != 6 || a.units[0].end != 8 {
		t.Errorf("a window of 300 at position 1999: blocks [%d, %d)", a.units[0].block, a.units[0].end)
	}
	rows := make([]row, 100)
	for i := range rows {
		rows[i] = row{seq: seq, pos: 1000 + i}
	}
	m.attend(0, rows, q, q, 0, 1, nil)
	if len(a.units) != 14 || a.units[0].last-a.units[0].first != 16 || a.units[0].last != 100 || a.units[6].first != 0 {
		t.Errorf("100 rows: %d units, the first has rows [%d, %d)", len(a.units), a.units[0].first, a.units[0].last)
	}
	m.attend(0, rows[:20], q, q, 0, 1, nil)
	if len(a.units) != 6 || a.units[0].last-a.units[0].first != 8 {
		t.Errorf("20 rows: %d units, the first has rows [%d, %d)", len(a.units), a.units[0].first, a.units[0].last)
	}
}

// TestAttentionAllocates nothing once it has its memory.
func TestAttentionAllocates(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, threads := range []int{1, 2} {
		m := attentionModel(t, 6, 2, 64, threads, KVF16)
		seq := m.filled(t, r, 1500)
		q, rows := randoms(r, 6*64), []row{{seq: seq, pos: 1499}}
		dst := make([]float32, len(q))
		for range 20 { // every worker gets to know every task
			m.attend(0, rows, dst, q, 0, 1, nil)
		}
		if n := testing.AllocsPerRun(50, func() { m.attend(0, rows, dst, q, 0, 1, nil) }); n >= 1 {
			t.Errorf("%d threads: %v allocations a token", threads, n)
		}
	}
}
