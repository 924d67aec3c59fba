package runtime_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// Within a bound on memory weights go first and the KV of sessions has half of what they leave; what doesn't fit is said. No bit changes.
func TestMaxMemory(t *testing.T) {
	path := tiny(t, runtimetest.TinyModel{Type: kernels.Q8_0, Layers: 4})
	free := open(t, runtime.Options{Path: path, Threads: 1, Pack: runtime.PackOn})
	weights, want := free.Memory(), sayings(t, free)
	all := weights.Packed + weights.Mapped
	for _, most := range []int64{64 * all, 4 * all, 2 * all, all * 3 / 2, all, all / 2} {
		m := open(t, runtime.Options{Path: path, Threads: 1, MaxMemory: most})
		mem, kv := m.Memory(), m.FreeKVBytes()
		if mem.Packed+kv > most || kv < most/20 {
			t.Errorf("of %d bytes packed weights take %d, and KV %d", most, mem.Packed, kv)
		}
		if fits := mem.Packed+mem.Mapped < most*4/5; fits && kv > (most-mem.Packed-mem.Mapped)/2 {
			t.Errorf("of %d bytes weights take %+v, and KV %d is more than half of the rest", most, mem, kv)
		}
		if most >= 4*all && kernels.Active() != kernels.Generic && mem.Packed != weights.Packed {
			t.Errorf("of %d bytes packed weights take %d, not %d", most, mem.Packed, weights.Packed)
		}
		if most <= all && mem.Packed != 0 {
			t.Errorf("of %d bytes packed weights take %d", most, mem.Packed)
		}
		if kv < 1<<18 {
			continue // sayings needs that much
		}
		if got := sayings(t, m); !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
			t.Errorf("within %d bytes it computes other logits", most)
		}
	}
	some := open(t, runtime.Options{Path: path, Layers: runtime.Range{First: 1, Last: 3}, MaxMemory: all / 2})
	if err := some.CanGrow(runtime.Range{First: 0, Last: 4}); err == nil || !strings.Contains(err.Error(), "of memory are available") {
		t.Errorf("growing beyond the bound: %v", err)
	}
	for _, c := range []struct {
		o    runtime.Options
		want string
	}{
		{runtime.Options{MaxMemory: all / 2, Pack: runtime.PackOn}, "use --pack off"},
		{runtime.Options{MaxMemory: all, MaxKVBytes: all}, "--kv-memory"},
	} {
		c.o.Path = path
		if m, err := runtime.Open(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
			if err == nil {
				m.Close()
			}
		}
	}
}
