package node

import (
	"context"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
)

// Models have what the node's memory leaves for them, one after the other, and one that is served anew has its own share again.
func TestMaxMemory(t *testing.T) {
	tn := newTestNet(t)
	const most = 512 << 20
	var given []int64
	n := tn.start(func(c *Config) {
		c.Engine.MaxMemory = most
		c.Backend = noting{runtime.Engine{}, &given}
	})
	id := tn.publish(n)
	tn.serve(n, id, 0, tn.layers())
	if len(given) != 1 || given[0] != most-bufferMemory {
		t.Fatalf("the model had %v bytes", given)
	}
	tn.serve(n, id, 0, tn.layers())
	if given[1] != given[0] {
		t.Errorf("served anew it has %d bytes, and had %d", given[1], given[0])
	}
	st, err := n.Control().Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	use := st.Terms.Memory
	if use.Max != most || use.MaxKV <= 0 || use.KV != 0 {
		t.Errorf("the status says %+v", use)
	}
	if taken := n.modelMemory(artifacts.ID{}); taken != use.Packed+use.Mapped+use.MaxKV {
		t.Errorf("for others %d bytes are taken, and %+v are given", taken, use)
	}
	if _, err := tn.run(testContext(t), n, id, control.Constraints{}, nil); err != nil {
		t.Errorf("a run: %v", err)
	}

	n.cfg.Engine.MaxMemory = bufferMemory + n.modelMemory(artifacts.ID{})
	if free := n.memoryFor(artifacts.ID{1}); free != 0 {
		t.Errorf("where nothing is left another model could have %d bytes", free)
	}
	if exec, err := n.openModel(artifacts.ID{1}, "another", runtime.Range{}); err == nil || !strings.Contains(err.Error(), "--max-memory") {
		t.Errorf("where nothing is left: %v, %v", exec, err)
	}
	for _, bad := range []int64{-1, leastMemory - 1} {
		c := Config{DataDir: t.TempDir(), Swarm: n.cfg.Swarm}
		c.Engine.MaxMemory = bad
		if err := c.validate(); err == nil || !strings.Contains(err.Error(), "max-memory") {
			t.Errorf("%d bytes: %v", bad, err)
		}
	}
}

// noting notes within how much memory models are opened.
type noting struct {
	runtime.Backend
	given *[]int64
}

// Open implements runtime.Backend.
func (b noting) Open(o runtime.Options) (runtime.Executor, error) {
	*b.given = append(*b.given, o.MaxMemory)
	return b.Backend.Open(o)
}
