package node

import (
	"context"
	"errors"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// What is served or pinned stays, also while the node serves nothing yet; the rest goes, and is fetched again when it is wanted.
func TestCollect(t *testing.T) {
	if goruntime.GOOS != "linux" {
		t.Skip("freeing a part of a file is not to be had here")
	}
	tn := newTestNet(t)
	if err := (runtimetest.TinyModel{Layers: 6}).Write(tn.model); err != nil {
		t.Fatal(err)
	}
	pub := tn.start(nil)
	id := tn.publish(pub)
	n := tn.start(nil)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	e := engine{n}
	eventually(t, "the model's offer", func() bool {
		_ = n.host.Refresh(ctx)
		return len(n.holders(id)) > 0
	})
	pull := func() {
		t.Helper()
		if _, err := e.Pull(ctx, control.PullRequest{Model: id.String()}, quiet); err != nil {
			t.Fatal(err)
		}
	}
	collect := func(q control.CollectRequest) control.Collected {
		t.Helper()
		r, err := e.Collect(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Models) != 1 || r.Bytes != r.Models[0].Free || r.Models[0].Problem != "" {
			t.Fatalf("%+v", r)
		}
		return r.Models[0]
	}
	held := func() *control.Layers {
		t.Helper()
		m, ok := n.store.Get(id)
		if !ok {
			return nil
		}
		v := n.modelView(m)
		return v.Held
	}
	pull()
	whole := tn.layers()

	// Nobody needs it: it would go, and does when that is asked for.
	if c := collect(control.CollectRequest{}); !c.Remove || c.Free == 0 || len(c.Keep) > 0 {
		t.Errorf("%+v", c)
	}
	if r := held(); r == nil || r.Last != whole-1 {
		t.Fatalf("only looking took something: %v", r)
	}
	collect(control.CollectRequest{Free: true})
	if _, ok := n.store.Get(id); ok {
		t.Error("the model is still there")
	}

	// A pin keeps its layers, and so does what is asked for this time.
	pull()
	if _, err := e.Pin(ctx, control.PinRequest{Model: id.String(), Layers: &control.Layers{First: 1, Last: 1}}); err != nil {
		t.Fatal(err)
	}
	c := collect(control.CollectRequest{Model: id.String(), Keep: &control.Layers{First: 2, Last: 2}, Free: true})
	if c.Remove || len(c.Keep) != 2 || c.Keep[0].Why != "pinned" || c.Keep[1].Why != "asked for" {
		t.Errorf("%+v", c)
	}
	if r := held(); r == nil || *r != (control.Layers{First: 1, Last: 2}) {
		t.Errorf("held %v", r)
	}

	// A node that serves less than it has: the difference goes, and what it computes is right afterwards.
	pull()
	tn.serve(n, id, 0, whole)
	if r, err := e.Collect(ctx, control.CollectRequest{Free: true}); err != nil || len(r.Models) != 0 {
		t.Errorf("all is served, and %+v can be freed (%v)", r, err)
	}
	tn.serve(n, id, 0, 2)
	if c := collect(control.CollectRequest{Free: true}); !slices.Contains(c.Keep, control.KeptLayers{Layers: control.Layers{First: 0, Last: 1}, Why: "served"}) {
		t.Errorf("%+v", c)
	}
	if r := held(); r == nil || *r != (control.Layers{First: 0, Last: 1}) {
		t.Errorf("held %v", r)
	}
	m, _ := n.store.Get(id)
	if p, err := m.Pins(); err != nil || p.Served == nil || p.Served.Last != 2 {
		t.Errorf("what is served is recorded as %+v (%v)", p, err)
	}

	// While something is loaded nothing is freed.
	n.weights.RLock()
	if _, err := e.Collect(ctx, control.CollectRequest{Free: true}); !errors.Is(err, errInUse) {
		t.Errorf("a collection while a model is being loaded: %v", err)
	}
	n.weights.RUnlock()

	for _, bad := range []struct {
		e    engine
		q    control.CollectRequest
		want string
	}{
		{engine{pub}, control.CollectRequest{Model: id.String()}, "published"},
		{e, control.CollectRequest{Keep: &control.Layers{}}, "without a model"},
		{e, control.CollectRequest{Model: id.String(), Keep: &control.Layers{First: 3, Last: 99}}, "the model has layers"},
		{e, control.CollectRequest{Model: strings.Repeat("0", 64)}, "pull it first"},
	} {
		if _, err := bad.e.Collect(ctx, bad.q); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v", bad.q, err)
		}
	}
	if r, err := (engine{pub}).Collect(ctx, control.CollectRequest{Free: true}); err != nil || len(r.Models) != 0 {
		t.Errorf("of a published model %+v can be freed (%v)", r, err)
	}
}
