package runtime_test

import (
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// TestForkShares counts what forks reserve: pages that they have in common once, whoever ends first, and again where one goes back
// behind the fork.
func TestForkShares(t *testing.T) {
	m := open(t, runtime.Options{Threads: 2, Path: tiny(t, runtimetest.TinyModel{Type: kernels.Q8_0, Meta: map[string]gguf.Value{"llama.context_length": gguf.ValueOf(uint32(4096))}})})
	c := m.Config()
	page := int64(256*c.KVRowBytes(0, runtime.KVF16)) * int64(c.Layers)
	start := m.FreeKVBytes()
	used := func(what string, pages int64) {
		t.Helper()
		if got := start - m.FreeKVBytes(); got != pages*page {
			t.Errorf("%s: %d bytes reserved, want %d pages of %d", what, got, pages, page)
		}
	}
	fork := func(s runtime.Sequence, n, capacity int) runtime.Sequence {
		t.Helper()
		f, err := s.Fork(n, capacity)
		if err != nil || f.Len(0) != n {
			t.Fatalf("Fork(%d, %d): %v", n, capacity, err)
		}
		return f
	}
	tokens := someTokens(1200)
	parent, err := m.NewSequence(1280, m.Layers())
	if err != nil {
		t.Fatal(err)
	}
	run(t, m, &runtime.Step{Seq: parent, Layers: m.Layers(), N: 1200, Tokens: tokens})
	used("a parent", 5)
	child := fork(parent, 1200, 1536)
	used("and a fork with 4 full pages in common", 5+2)
	second := fork(child, 700, 1024)
	used("and one with 2", 7+2)
	parent.Close()
	used("without the parent", 9-1)
	child.Close()
	used("with the last fork alone", 4)
	if second.Truncate(300); second.Len(0) != 300 {
		t.Errorf("went back to %d", second.Len(0))
	}
	used("which has gone back", 4)
	third := fork(second, 300, 300)
	used("a third", 5)
	second.Truncate(0)
	used("the second at its start, with all of its own", 6)
	third.Close()
	second.Close()
	used("nobody", 0)
}

// TestForkOverLongRope asks that nothing is kept where room for more positions means other rope factors (LongRope).
func TestForkOverLongRope(t *testing.T) {
	m := open(t, runtime.Options{Threads: 1, Path: tiny(t, runtimetest.TinyModel{Arch: "phi3", Type: kernels.Q8_0})})
	s := sequenceOf(t, m, 20)
	run(t, m, &runtime.Step{Seq: s, Layers: m.Layers(), N: 10, Tokens: someTokens(10)})
	for capacity, want := range map[int]int{m.Config().LongRope.Original: 10, m.Config().LongRope.Original + 1: 0} {
		f, err := s.Fork(10, capacity)
		if err != nil || f.Len(0) != want {
			t.Fatalf("a fork with room for %d: %v", capacity, err)
		}
		f.Close()
	}
}
