package node

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

// TestTurnsInAnyOrder holds conversations of two clients over peers that keep caches: further turns, answers made again, edited questions, the
// same text from both, while caches are lost here and there and frames come in any order. Every answer is the one of a process that
// computes everything alone and afresh, bit for bit; no client gets another's cache.
func TestTurnsInAnyOrder(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	walked, forked, catches, read, snapshots := 0, 0, 0, 0, 0
	for _, arch := range []string{"", "llama", "gemma3", "qwen35moe"} {
		for seed := range seeds {
			t.Run(fmt.Sprint(arch, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, uint64(len(arch))))
				u := simSetup{chunk: 8 + rng.IntN(60), cuts: []int{1, 3}, how: simSampling, guess: rng.IntN(2) == 0}
				u.local = rng.IntN(3) > 0
				u.whole = u.local
				if arch != "" {
					u.model = filepath.Join(t.TempDir(), "turns.gguf")
					if err := (runtimetest.TinyModel{Arch: arch, Layers: 4}).Write(u.model); err != nil {
						t.Fatal(err)
					}
				}
				fake := &runtimetest.Fake{Config: runtimetest.FakeConfig()}
				fake.Config.Context = 4096
				u.caches = &simCaches{backend: fake, peers: map[string]*prefixes{}}
				if rng.IntN(2) == 0 { // all goes to the disk at once
					u.caches.disk = newTestSpill(t, 64<<20)
				}
				if arch != "" {
					u.caches.backend = runtime.Engine{}
				}
				words := func(n int) []int32 {
					list := make([]int32, n)
					for i := range list {
						list[i] = int32('a' + rng.IntN(26))
					}
					return list
				}
				said := [][]int32{words(250 + rng.IntN(300))} // what either client may go on from
				for range 7 {
					u.client, u.maxNew = fmt.Sprint("client ", rng.IntN(2)), 1+rng.IntN(12)
					old := said[rng.IntN(len(said))]
					switch rng.IntN(3) {
					case 0: // the next turn, or the same again
						u.prompt = slices.Concat(old, words(rng.IntN(2)*(1+rng.IntN(200))))
					case 1: // edited
						u.prompt = slices.Concat(old[:rng.IntN(len(old))], words(1+rng.IntN(50)))
					default: // again
						u.prompt = old
					}
					s := u.start(t, seed)
					begins, reused := -1, s.d.reused
					if arch == "qwen35moe" && reused > 0 && reused%wire.PageRows == 0 {
						snapshots++
					}
					s.onFrame = func(q simQueue, m wire.Message) {
						if c, ok := m.(*wire.Chunk); ok {
							if begins < 0 {
								begins = int(c.Start)
							}
							if c.Held {
								catches++
							}
						}
						if m, ok := m.(*wire.KVSlice); ok && int(m.Start) < reused {
							t.Errorf("rows from position %d on are pushed, the decoder has %d", m.Start, reused)
						}
						if m, ok := m.(*wire.Seam); ok && q.to == simDecoder && int(m.Start) < reused {
							t.Errorf("a seam of position %d is sent to the decoder, which has %d", m.Start, reused)
						}
					}
					s.run()
					s.mustEqual()
					if u.caches.disk != nil {
						read += u.caches.fromDisk
						u.caches.fromDisk = 0
					}
					if begins > 0 {
						forked++
					}
					if begins >= 0 {
						walked++
					}
					if len(s.refused) > 0 {
						t.Errorf("refused: %v", s.refused)
					}
					said = append(said, slices.Clone(s.d.tokens))
					for _, p := range u.caches.peers {
						for p.disk != nil && p.spillOne() {
						}
						if rng.IntN(5) == 0 || p.disk != nil && rng.IntN(2) == 0 {
							p.dropLeast()
						}
					}
				}
			})
		}
	}
	if walked == 0 || forked == 0 || catches == 0 || read == 0 || snapshots == 0 {
		t.Errorf("%d sessions walked a route, %d from a cache on, %d chunks were for stages alone, %d positions came from disks, %d began at a snapshot", walked, forked, catches, read, snapshots)
	}
	t.Logf("%d sessions walked a route, %d from a cache on, %d chunks were for stages alone, %d positions came from disks, %d began at a snapshot", walked, forked, catches, read, snapshots)
}
