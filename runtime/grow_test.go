package runtime_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// TestGrow expects of every family, packed and not, tied and not, the bits of a model that has been opened whole, and what a model
// that has been opened whole takes.
func TestGrow(t *testing.T) {
	for _, arch := range runtime.Architectures() {
		for _, pack := range []runtime.Packing{runtime.PackOff, runtime.PackOn} {
			for _, tied := range []bool{false, true} {
				if tied && (arch == "glm4moe" || arch == "gpt-oss") {
					continue // there is none
				}
				path := tiny(t, runtimetest.TinyModel{Arch: arch, Type: kernels.Q4_K, Layers: 4, Tied: tied})
				o := runtime.Options{Path: path, Threads: 2, Pack: pack}
				whole := open(t, o)
				want := sayings(t, whole)
				for _, r := range []runtime.Range{{First: 2, Last: 4}, {First: 4, Last: 4}, {First: 0, Last: 2}, {First: 1, Last: 3}} {
					o.Layers = r
					m := open(t, o)
					if err := m.Grow(t.Context(), runtime.Range{First: 0, Last: 4}); err != nil {
						t.Fatalf("%s, packing %v, tied %t, from %v: %v", arch, pack, tied, r, err)
					}
					if got := sayings(t, m); !equalRows(got, want) {
						t.Errorf("%s, packing %v, tied %t, from %v: other logits", arch, pack, tied, r)
					}
					if got, all := m.Memory(), whole.Memory(); got.Mapped < all.Mapped || !(tied && r.First == 0) && got != all {
						t.Errorf("%s, packing %v, tied %t, from %v: %+v, opened whole %+v", arch, pack, tied, r, got, all)
					}
				}
			}
		}
	}
}

// TestGrowFails checks that a model which cannot grow goes on as it was, and grows once it can, and that nothing is left of it.
func TestGrowFails(t *testing.T) {
	const damaged = "blk.0.ffn_up.weight"
	path := tiny(t, runtimetest.TinyModel{Type: kernels.Q4_1})
	sound := overwrite(t, path, damaged, []byte{0, 0x7c})
	before := goruntime.NumGoroutine()
	m := open(t, runtime.Options{Path: path, Threads: 2, Layers: runtime.Range{First: 1, Last: 3}, Pack: runtime.PackOn})
	mem := m.Memory()
	all := runtime.Range{First: 0, Last: 3}
	for range 3 {
		var bad *runtime.WeightError
		if err := m.Grow(t.Context(), all); !errors.As(err, &bad) || bad.Tensor != damaged {
			t.Fatalf("a damaged tensor: %v", err)
		}
		if m.Layers() == all || m.Memory() != mem {
			t.Fatalf("after a failure there is %v, %+v, before %+v", m.Layers(), m.Memory(), mem)
		}
	}
	overwrite(t, path, damaged, sound)
	if err := m.Grow(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for wait := 0; goruntime.NumGoroutine() > before; wait++ {
		if wait == 10_000 { // others may have the processor meanwhile
			t.Fatalf("%d goroutines, %d before", goruntime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}

	full := open(t, runtime.Options{Path: path, Layers: runtime.Range{First: 1, Last: 3}, MaxKVBytes: 1 << 50})
	if err := full.Grow(context.Background(), all); err == nil || !strings.Contains(err.Error(), "beside what is for the KV") {
		t.Errorf("no memory: %v", err)
	}
}
