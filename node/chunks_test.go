package node

import (
	"fmt"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

// costs is a model of n layers with a row's operations in matrices and, for each position that it attends to, in attention. Every sixth
// layer, or with window 0 every one, sees all positions.
func costs(n int, matrices, attention float64, window int) runtime.Config {
	c := runtime.Config{Layers: n, AttnFlops: attention}
	for l := range n {
		kept := runtime.LayerCache{Heads: 1, Window: window}
		if l%6 == 5 {
			kept.Window = 0
		}
		c.Cache, c.LayerFlops = append(c.Cache, kept), append(c.LayerFlops, matrices)
	}
	return c
}

func TestCutPrompt(t *testing.T) {
	smol := costs(30, 7.1e6, 2304, 0)
	for _, c := range []struct {
		start, end, most, last, every int
		want                          []int
	}{
		{0, 1000, 64, 4, 0, []int{28, 32, 32, 40, 64, 64, 64, 64, 64, 56, 56, 56, 56, 56, 56, 48, 48, 48, 32, 16, 8, 4, 4, 4}},
		{0, 100, 32, 4, 0, []int{16, 16, 16, 16, 16, 8, 4, 4, 4}},
		{90, 100, 32, 4, 0, []int{2, 4, 4}},
		{0, 3, 32, 4, 0, []int{3}},
		{0, 10, 4, 4, 0, []int{2, 4, 4}},
		{0, 3, 1, 1, 0, []int{1, 1, 1}},
		{5, 5, 32, 4, 0, nil},
		{100, 700, 128, 8, 256, []int{28, 64, 64, 40, 40, 88, 88, 52, 64, 32, 16, 8, 8, 8}},
	} {
		if got := cutPrompt(smol, c.start, c.end, c.most, c.last, c.every); !slices.Equal(got, c.want) {
			t.Errorf("[%d, %d) in chunks of %d, last ones of %d: %v, want %v", c.start, c.end, c.most, c.last, got, c.want)
		}
	}
}

// Whatever is cut: all positions are there, chunks are as large as they may be, the last three are small, and none takes
// longer than one in the middle.
func TestCutPromptPromises(t *testing.T) {
	for name, c := range map[string]runtime.Config{"dense": costs(30, 7.1e6, 2304, 0), "windows": costs(18, 1.1e7, 4096, 512), "free": costs(2, 0, 0, 0),
		"fake": runtimetest.FakeConfig()} {
		for _, most := range []int{1, 3, 8, 50, 64, 256, 512} {
			for _, last := range []int{1, 4, 7, 64, 512} {
				for _, length := range []int{1, 2, 13, 100, 1000, 7500, 16000} {
					sizes := cutPrompt(c, 0, length, most, last, 0)
					mustEnd(t, cutPrompt(c, 5, length, most, last, 512), 5, length, most, 512)
					at, longest := 0, float64(most)*rowCost(c, length/2)
					for i, n := range sizes {
						rest := len(sizes) - i
						if n < 1 || n > most || rest <= lastChunks && i > 0 && n != min(last, most) {
							t.Fatalf("%s, %d rows in chunks of %d, last ones of %d: %v", name, length, most, last, sizes)
						}
						if at += n; at > length/2 && n > max(last, chunkStep) && float64(n)*rowCost(c, at) > 1.001*longest {
							t.Errorf("%s, %d rows in chunks of %d: chunk %d of %d has %d and costs %g, one in the middle %g", name, length, most, i, len(sizes), n,
								float64(n)*rowCost(c, at), longest)
						}
					}
					if at != length {
						t.Fatalf("%s: %d of %d rows in %v", name, at, length, sizes)
					}
				}
			}
		}
	}
}

// mustEnd fails unless chunks [start, end) end at all multiples of every, but in the last ones.
func mustEnd(t *testing.T, sizes []int, start, end, most, every int) {
	t.Helper()
	at := start
	for i, n := range sizes {
		if n < 1 || n > most || at/every != (at+n-1)/every && len(sizes)-i > lastChunks {
			t.Fatalf("chunk %d of %v, which begins at %d, has %d rows", i, sizes, at, n)
		}
		at += n
	}
	if at != max(start, end) {
		t.Fatalf("%v end at %d, not %d", sizes, at, end)
	}
}

// When the last seam comes, the decoder has no more left to compute than lastChunks small chunks, however slow it is.
func TestLastSeamFindsLittleLeft(t *testing.T) {
	prompt := somePrompt(200)
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			u := simSetup{prompt: prompt, maxNew: 2, chunk: 32, last: 2, cuts: []int{1 + int(seed%5)}, local: true, whole: true, how: simSampling}
			s := u.start(t, seed)
			came := false
			s.onFrame = func(q simQueue, m wire.Message) {
				if m, ok := m.(*wire.Seam); ok && int(m.Start+m.Count) == len(prompt) {
					came = true
					if left := len(prompt) - s.d.computed; left > lastChunks*u.last {
						t.Errorf("%d rows are left when the last seam comes", left)
					}
				}
			}
			s.run()
			s.mustEqual()
			if !came {
				t.Error("the last seam never came")
			}
		})
	}
}
