package runtime_test

import (
	goruntime "runtime"
	"testing"
	"time"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// TestCloseJoins checks that a model's threads end with it, packed or not, and when it fails to open.
func TestCloseJoins(t *testing.T) {
	good := tiny(t, runtimetest.TinyModel{Type: kernels.Q4_1})
	bad := tiny(t, runtimetest.TinyModel{Type: kernels.Q4_1})
	overwrite(t, bad, "blk.2.ffn_up.weight", []byte{0, 0x7c})
	before := goruntime.NumGoroutine()
	for _, pack := range []runtime.Packing{runtime.PackOff, runtime.PackOn} {
		for _, path := range []string{good, bad} {
			m, err := runtime.Open(runtime.Options{Path: path, Threads: 3, Pack: pack})
			if err != nil {
				continue
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	for wait := 0; goruntime.NumGoroutine() > before; wait++ {
		if wait == 100 {
			t.Fatalf("%d goroutines, %d before", goruntime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
