package node

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

func newTestSpill(t testing.TB, limit int64) *spill {
	t.Helper()
	s, err := newSpill(filepath.Join(t.TempDir(), "kv"), limit, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// spillRig has a model's caches, and a budget of disk for all of them.
type spillRig struct {
	*prefixes
	t testing.TB
}

func newSpillRig(t testing.TB, arch string, disk int64) *spillRig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spill.gguf")
	if err := (runtimetest.TinyModel{Arch: arch, Layers: 4}).Write(path); err != nil {
		t.Fatal(err)
	}
	e, err := runtime.Engine{}.Open(runtime.Options{Path: path, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return &spillRig{&prefixes{exec: e, limit: 1 << 62, disk: newTestSpill(t, disk)}, t}
}

func (r *spillRig) known(tokens []int32) known {
	return known{client: "C", profile: r.exec.Profile().ID(), layers: r.exec.Layers(), tokens: tokens, marks: marksOf(wire.Mark{}, tokens)}
}

// compute returns a sequence of tokens, computed here.
func (r *spillRig) compute(tokens []int32) runtime.Sequence {
	r.t.Helper()
	seq, err := r.exec.NewSequence(len(tokens)+10, r.exec.Layers())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.exec.Run(context.Background(), []*runtime.Step{{Seq: seq, Layers: r.exec.Layers(), N: len(tokens), Tokens: tokens}}); err != nil {
		r.t.Fatal(err)
	}
	return seq
}

// write puts the cache of tokens on the disk, and nowhere else.
func (r *spillRig) write(tokens []int32) *spilled {
	r.t.Helper()
	seq := r.compute(tokens)
	r.keep(r.known(tokens), seq)
	seq.Close()
	for r.spillOne() {
	}
	for r.dropLeast() {
	}
	if len(r.files) == 0 {
		r.t.Fatal("nothing was written")
	}
	return r.files[len(r.files)-1]
}

// read loads what the disk has of tokens and compares it with what is computed. It returns how many positions that are.
func (r *spillRig) read(tokens []int32) int {
	r.t.Helper()
	seq, err := r.exec.NewSequence(len(tokens)+10, r.exec.Layers())
	if err != nil {
		r.t.Fatal(err)
	}
	defer seq.Close()
	n, _ := r.load(context.Background(), r.known(tokens), len(tokens), 0, nil, seq)
	if got := held(seq, r.exec.Layers()); got != n {
		r.t.Errorf("%d positions loaded, the sequence holds %d", n, got)
	}
	if n > 0 {
		want := r.compute(tokens[:n])
		defer want.Close()
		for l := range r.exec.Layers().Last {
			if seq.Digest(l) != want.Digest(l) {
				r.t.Errorf("layer %d of %d loaded positions is not what is computed", l, n)
			}
		}
	}
	return n
}

// TestDamagedKVFiles reads files that are not what was written: at most whole pages before the damage are taken, and the file goes.
func TestDamagedKVFiles(t *testing.T) {
	tokens, other := turnTokens(1, 600), turnTokens(2, 600)
	for _, arch := range []string{"llama", "gemma3", "qwen35moe"} {
		for name, damage := range map[string]func(file, another []byte, f *kvLayout) []byte{
			"nothing":             func(b, _ []byte, _ *kvLayout) []byte { return b },
			"another's":           func(_, b []byte, _ *kvLayout) []byte { return b },
			"another's records":   func(a, b []byte, _ *kvLayout) []byte { return append(slices.Clone(a[:kvHeader]), b[kvHeader:]...) },
			"a bit":               func(b, _ []byte, _ *kvLayout) []byte { b[len(b)-1] ^= 1; return b },
			"the first bit":       func(b, _ []byte, _ *kvLayout) []byte { b[0] ^= 1; return b },
			"a bit in the middle": func(b, _ []byte, _ *kvLayout) []byte { b[len(b)/2] ^= 8; return b },
			"a length":            func(b, _ []byte, _ *kvLayout) []byte { b[kvHeader+3] = 0xff; return b },
			"its end":             func(b, _ []byte, _ *kvLayout) []byte { return b[:len(b)-1] },
			"half":                func(b, _ []byte, _ *kvLayout) []byte { return b[:len(b)/2] },
			"all":                 func([]byte, []byte, *kvLayout) []byte { return nil },
			"two pages swapped": func(b, _ []byte, f *kvLayout) []byte {
				n := int(f.pageBytes)
				if n == 0 {
					return nil
				}
				p := b[kvHeader:]
				return slices.Concat(b[:kvHeader], p[n:2*n], p[:n], p[2*n:])
			},
		} {
			t.Run(arch+" "+name, func(t *testing.T) {
				r := newSpillRig(t, arch, 1<<30)
				another := r.write(other)
				k := r.write(tokens)
				read := func(k *spilled) []byte {
					b, err := os.ReadFile(r.disk.path(k.file))
					if err != nil {
						t.Fatal(err)
					}
					return b
				}
				whole := read(k)
				if int64(len(whole)) != k.file.bytes {
					t.Errorf("%d bytes were written, %d reserved", len(whole), k.file.bytes)
				}
				if bytes.Contains(whole, bytes.Repeat([]byte{0}, 64)) {
					t.Error("the file has a run of zeros: it is not sealed")
				}
				if err := os.WriteFile(r.disk.path(k.file), damage(slices.Clone(whole), read(another), k.layout), 0o600); err != nil {
					t.Fatal(err)
				}
				n := r.read(tokens)
				if name == "nothing" {
					if n != len(tokens) {
						t.Errorf("%d of %d positions loaded", n, len(tokens))
					}
					// Rows are cut anywhere, tails have snapshots at page ends, windows have nothing but the end.
					if n, want := r.read(slices.Concat(tokens[:333], other[:50])), map[string]int{"llama": 333, "qwen35moe": 256}[arch]; n != want {
						t.Errorf("%d of 333 positions loaded, want %d", n, want)
					}
					if arch == "qwen35moe" {
						seq, err := r.exec.NewSequence(610, r.exec.Layers())
						if err != nil {
							t.Fatal(err)
						}
						defer seq.Close()
						if n, _ := r.load(context.Background(), r.known(tokens), 600, 0, nil, seq); n != 600 || seq.Reach(599) != 512 || seq.Reach(511) != 256 {
							t.Errorf("%d positions loaded, which can go back to %d and %d", n, seq.Reach(599), seq.Reach(511))
						}
					}
					return
				}
				if n == len(tokens) || n%wire.PageRows != 0 || n > 0 && arch == "gemma3" {
					t.Errorf("%d of %d positions loaded", n, len(tokens))
				}
				if _, err := os.Stat(r.disk.path(k.file)); err == nil || r.disk.bytes() != another.file.bytes {
					t.Errorf("the damaged file is still there, %d bytes are", r.disk.bytes())
				}
				if n := r.read(tokens); n != 0 {
					t.Errorf("%d positions loaded of a file that is gone", n)
				}
			})
		}
	}
}

// TestSpillBudget writes more than the budget: what is cheapest to compute again, by the byte, and longest unused goes first.
func TestSpillBudget(t *testing.T) {
	s := newTestSpill(t, 100)
	a, b := s.reserve(40, 1), s.reserve(40, 1)
	s.wasRead(a, 1, time.Second)
	costly := s.reserve(20, 50)
	c := s.reserve(40, 1) // a and b are worth the same: the older one goes
	if !a.gone || b.gone || costly.gone || c.gone {
		t.Errorf("gone: %t %t %t %t", a.gone, b.gone, costly.gone, c.gone)
	}
	s.wasRead(b, 1, time.Second) // used since the first had to go
	if d := s.reserve(40, 1); d == nil || !c.gone && !b.gone || costly.gone {
		t.Errorf("gone: %t %t %t", b.gone, c.gone, costly.gone)
	}
	for range 200 { // in time, even what is costly
		s.reserve(80, 1)
	}
	if !costly.gone || s.bytes() > 100 {
		t.Errorf("%d bytes, the costly one is gone: %t", s.bytes(), costly.gone)
	}
	if s.reserve(101, 1000) != nil {
		t.Error("more than the budget was reserved")
	}
}

// TestSpillFails lets the disk refuse: nothing is written for a while, and what is in memory stays.
func TestSpillFails(t *testing.T) {
	r := newSpillRig(t, "llama", 1<<30)
	if err := os.RemoveAll(r.disk.dir); err != nil {
		t.Fatal(err)
	}
	tokens := turnTokens(1, 300)
	seq := r.compute(tokens)
	defer seq.Close()
	r.keep(r.known(tokens), seq)
	for r.spillOne() {
	}
	if len(r.files) != 0 || r.disk.bytes() != 0 || len(r.kept) != 1 {
		t.Errorf("%d files, %d bytes, %d caches in memory", len(r.files), r.disk.bytes(), len(r.kept))
	}
	if r.disk.reserve(1, 1) != nil {
		t.Error("the next one is tried at once")
	}
	if fork, n, _ := r.take(r.known(tokens), 200, 300); fork == nil || n != 200 {
		t.Errorf("%d positions from memory", n)
	} else {
		fork.Close()
	}
}

// TestSpill fills a node's memory with conversations and goes on with the first ones: they come from the disk, and the answers are those
// of a node that computes everything.
func TestSpill(t *testing.T) {
	for _, arch := range []string{"llama", "gemma3", "qwen35moe"} {
		t.Run(arch, func(t *testing.T) {
			if testing.Short() && arch != "qwen35moe" {
				t.Skip("-short takes one family")
			}
			tn := newTestNet(t)
			tn.model = filepath.Join(t.TempDir(), "spill.gguf")
			if err := (runtimetest.TinyModel{Arch: arch, Layers: 4}).Write(tn.model); err != nil {
				t.Fatal(err)
			}
			tracker := tn.start(nil)
			id := tn.publish(tracker)
			dir := t.TempDir()
			stale := filepath.Join(dir, "kv", "7"+spillSuffix)
			if err := os.MkdirAll(filepath.Dir(stale), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(stale, []byte("of an earlier process"), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := runtime.Inspect(tn.model)
			if err != nil {
				t.Fatal(err)
			}
			session := int64(0)
			for l, k := range c.Cache {
				session += int64(k.Positions(512)*c.KVRowBytes(l, runtime.KVF16) + 2*k.TailBytes())
			}
			n := tn.start(func(c *Config) { c.DataDir, c.KVDisk, c.Engine.MaxKVBytes = dir, 1<<30, 4*session })
			if _, err := os.Stat(stale); err == nil {
				t.Error("an earlier process's file is still there")
			}
			tn.serve(n, id, 0, 4)
			ctx := testContext(t)
			ask := func(fresh bool, prompt []int32) *control.Account {
				t.Helper()
				a, err := n.run(ctx, control.RunRequest{Model: id.String(), Tokens: prompt, MaxNew: 5, Proof: true, Fresh: fresh, Constraints: control.Constraints{Decoder: n.ID()}}, quiet)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			var said [][]int32
			for i := range 8 {
				prompt := turnTokens(i, 300)
				a := ask(false, prompt)
				said = append(said, slices.Concat(prompt, a.NewTokens))
				eventually(t, "the cache to be written", func() bool {
					p := n.served(id).prefixes
					p.mu.Lock()
					defer p.mu.Unlock()
					return !slices.ContainsFunc(p.kept, func(k *keptPrefix) bool { return !k.spilled }) || p.exec.FreeKVBytes() >= p.limit/2
				})
			}
			fromDisk := 0
			for i, s := range said[:5] {
				p := n.served(id).prefixes
				for p.dropLeast() {
				}
				next := slices.Concat(s, turnTokens(50+i, 20))
				got, want := ask(false, next), ask(true, next)
				sameAnswer(t, got, want)
				if got.Reused > 0 {
					fromDisk++
				}
			}
			if fromDisk == 0 {
				t.Error("nothing came from the disk")
			}
			if hits := figure(t, n, fmt.Sprintf("starling_prefix_hits_total{model=%q,place=\"disk\"}", id.Short())); hits != fmt.Sprint(fromDisk) {
				t.Errorf("%s hits are counted, %d were", hits, fromDisk)
			}
			if st, err := n.Control().Status(ctx); err != nil || st.Kept.Disk <= 0 || st.Kept.Hits < int64(fromDisk) || st.Kept.Positions < 300 {
				t.Errorf("status: %+v, %v", st, err)
			}
			tn.mustBeIdle()
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			if files, _ := filepath.Glob(filepath.Join(dir, "kv", "*")); len(files) > 0 {
				t.Errorf("a closed node leaves %v", files)
			}
		})
	}
}

// FuzzKVFile puts any bytes in a file's place: nothing but what was written is ever read from it.
func FuzzKVFile(f *testing.F) {
	r := newSpillRig(f, "llama", 1<<30)
	tokens := turnTokens(1, 300)
	k := r.write(tokens)
	whole, err := os.ReadFile(r.disk.path(k.file))
	if err != nil {
		f.Fatal(err)
	}
	page := kvHeader + int(k.layout.pageBytes)
	f.Add(0, whole[:kvHeader])
	f.Add(kvHeader, []byte{0, 0, 0, 0x80})
	f.Add(page, whole[kvHeader:kvHeader+100])
	f.Add(len(whole)-3, []byte{1, 2, 3})
	f.Add(len(whole)/2, []byte{})
	f.Fuzz(func(t *testing.T, at int, data []byte) {
		at = max(0, min(at, len(whole)))
		b := slices.Concat(whole[:at], data) // empty data: cut off there
		if len(data) > 0 && len(b) < len(whole) {
			b = append(b, whole[len(b):]...)
		}
		rd, err := newKVReader(bytes.NewReader(b), r.disk.aead, k.file.number, k.layout, 0)
		if err != nil {
			return
		}
		good := 0
		for p := range k.layout.pages() {
			for _, rec := range k.layout.page(p) {
				if _, err := rd.read(&rec); err != nil {
					return
				}
				if good += kvFrame + rec.bytes; !bytes.Equal(b[:kvHeader+good], whole[:kvHeader+good]) {
					t.Fatalf("a record up to byte %d was read, which nobody wrote", kvHeader+good)
				}
			}
		}
	})
}
