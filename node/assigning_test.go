package node

import (
	"testing"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// chosenLayers returns what n serves of a model.
func chosenLayers(n *Node, id artifacts.ID) runtime.Range {
	if s := n.served(id); s != nil {
		return s.asked
	}
	return runtime.Range{}
}

// Nodes with room for some layers, to whom their owners leave which, take what others lack.
func TestLayersAreChosen(t *testing.T) {
	tn := newTestNet(t)
	publisher := tn.start(nil)
	id := named(t, publisher, "Large Model", "", runtimetest.TinyModel{Seed: 9, Layers: 6})
	m, _ := publisher.store.Get(id)
	card, _ := m.Card()
	room := max(artifacts.SpanBytes(card.Spans(artifacts.LayerRange{First: 0, Last: 3})), artifacts.SpanBytes(card.Spans(artifacts.LayerRange{First: 3, Last: 6})))
	some := func(c *Config) { c.weightRoom, c.assignEvery = room, 100*time.Millisecond }
	ctx := testContext(t)
	choose := func(n *Node) runtime.Range {
		t.Helper()
		eventually(t, "the publisher's offer", func() bool { _ = n.host.Refresh(ctx); return len(n.holders(id)) > 0 })
		if _, err := n.serve(ctx, id, nil, false, "", quiet); err != nil {
			t.Fatal(err)
		}
		return chosenLayers(n, id)
	}
	a, b := tn.start(some), tn.start(some)
	first := choose(a)
	if first.Len() < 2 || first.Len() == card.Layers {
		t.Fatalf("with room for half of the model a node serves %v", first)
	}
	eventually(t, "the first node's offer", func() bool { _ = b.host.Refresh(ctx); return len(b.assignedPeers(id)) > 0 })
	if second := choose(b); first.Covers(second) {
		t.Errorf("where a node serves %v, another with as much room chooses %v", first, second)
	}
	told, roomy := tn.start(some), tn.start(nil)
	tn.serve(told, id, 0, card.Layers)
	if s := told.served(id); s.auto || s.asked.Len() != card.Layers {
		t.Errorf("a node that was told to serve all layers serves %v, chosen by itself: %v", s.asked, s.auto)
	}
	if r := choose(roomy); r.Len() != card.Layers {
		t.Errorf("a node with room for all layers serves %v", r)
	}
}

// Two nodes have the same layers, and nobody the others: one of them goes there, and then a prompt is answered.
func TestMoveToAGap(t *testing.T) {
	tn := newTestNet(t)
	publisher := tn.start(nil)
	id := named(t, publisher, "Large Model", "", runtimetest.TinyModel{Seed: 9, Layers: 6})
	m, _ := publisher.store.Get(id)
	card, _ := m.Card()
	half := func(c *Config) {
		c.weightRoom = max(artifacts.SpanBytes(card.Spans(artifacts.LayerRange{First: 0, Last: 3})), artifacts.SpanBytes(card.Spans(artifacts.LayerRange{First: 3, Last: 6})))
		c.assignEvery = 100 * time.Millisecond
	}
	a, b := tn.start(half), tn.start(half)
	ctx := testContext(t)
	for _, n := range []*Node{a, b} {
		eventually(t, "the publisher's offer", func() bool { _ = n.host.Refresh(ctx); return len(n.holders(id)) > 0 })
		if _, err := n.settleOn(ctx, loading{id: id, layers: &control.Layers{First: 0, Last: 2}, auto: true, budget: n.cfg.weightRoom}, quiet); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a move to the gap", func() bool {
		x, y := chosenLayers(a, id), chosenLayers(b, id)
		return max(x.Last, y.Last) == card.Layers && min(x.First, y.First) == 0 && max(x.First, y.First) <= min(x.Last, y.Last)
	})
	client := tn.start(func(c *Config) { c.Client = true })
	eventually(t, "both offers", func() bool { _ = client.host.Refresh(ctx); p, _ := client.planPeers(id); return len(p) == 2 })
	if _, err := tn.run(ctx, client, id, control.Constraints{}, nil); err != nil {
		t.Fatal(err)
	}
}
