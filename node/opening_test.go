package node

import (
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// stageNode is a node that serves layer 0 of the test model, and peers that
// open stages on it.
func stageNode(t *testing.T, delay time.Duration, maxKV int64) (*testNet, *Node, artifacts.ID) {
	tn := newTestNet(t)
	cfg, err := runtime.Inspect(tn.model)
	if err != nil {
		t.Fatal(err)
	}
	n := tn.start(func(c *Config) {
		c.Backend = &slowBackend{runtimetest.Fake{Config: cfg, Delay: delay, Tokenizer: tn.tokenizer()}}
		if maxKV > 0 {
			c.Engine.MaxKVBytes = maxKV
		}
	})
	id := tn.publish(n)
	tn.serve(n, id, 0, 1)
	return tn, n, id
}

// invitation is a valid StageOpen to n for one stage of layer 0.
func invitation(n *Node, id artifacts.ID, client, decoder *swarm.Identity, e wire.Epoch, capacity uint32) *wire.StageOpen {
	s := n.served(id)
	h := wire.Head{Session: wire.SessionID{1}, Epoch: e}
	m := &wire.StageOpen{Head: h}
	m.Grant = wire.Grant{Session: h.Session, Model: id, Client: client.ID(), Decoder: decoder.ID(), ClientEpoch: e.Client, Budget: capacity,
		Expires: uint64(time.Now().Add(time.Hour).Unix())}
	signGrant(client, &m.Grant)
	m.Plan = wire.Plan{Head: h, Model: id, Profile: s.exec.Profile().ID(), Decoder: decoder.ID(), DecoderFirst: 1, Layers: uint32(s.card.Layers),
		Capacity: capacity, Window: 3, Stages: []wire.PlanStage{{Peer: n.ID(), First: 0, Last: 1, RangeRoot: s.root(runtime.Range{First: 0, Last: 1})}}}
	signPlan(decoder, &m.Plan)
	return m
}

func TestStageOpenings(t *testing.T) {
	tn, n, id := stageNode(t, 0, 0)
	client, decoder, thief := swarm.Ephemeral(), swarm.Ephemeral(), swarm.Ephemeral()
	if _, r := n.openStage(decoder.ID(), invitation(n, id, client, decoder, wire.Epoch{Client: 1, Plan: 1}, 10)); r != nil {
		t.Fatal(r)
	}
	first := n.stage(wire.SessionID{1})

	// Another client can't take the session over, whatever its epoch.
	if _, r := n.openStage(thief.ID(), invitation(n, id, thief, thief, wire.Epoch{Client: 9, Plan: 1}, 10)); r == nil || r.Code != wire.CodeBusy {
		t.Errorf("another client's opening: %v", r)
	}
	if _, r := n.openStage(decoder.ID(), invitation(n, id, client, decoder, wire.Epoch{Client: 1, Plan: 1}, 10)); r == nil || r.Code != wire.CodeStaleEpoch {
		t.Errorf("a replayed opening: %v", r)
	}
	if n.stage(wire.SessionID{1}) != first || first.closed {
		t.Error("a refused opening ended the session")
	}

	// Openings that come at once, on several streams, leave one session.
	var wg sync.WaitGroup
	for i := range uint32(32) {
		m := invitation(n, id, client, decoder, wire.Epoch{Client: 2, Plan: 1 + i%4}, 10)
		wg.Go(func() { _, _ = n.openStage(decoder.ID(), m) }) // most are refused
	}
	wg.Wait()
	n.stage(wire.SessionID{1}).close()
	tn.mustBeIdle()
}

// A stage of a newer epoch takes the older one's KV, also while that computes.
func TestStageMakesRoomForItself(t *testing.T) {
	cfg, err := runtime.Inspect(newTestNet(t).model)
	if err != nil {
		t.Fatal(err)
	}
	const page = 256
	_, n, id := stageNode(t, time.Hour, 3*page*int64(cfg.KVRowBytes(0, runtime.KVF16)))
	client, decoder := swarm.Ephemeral(), swarm.Ephemeral()
	capacity := uint32(2 * page) // twice that doesn't fit
	for plan := range uint32(3) {
		if _, r := n.openStage(decoder.ID(), invitation(n, id, client, decoder, wire.Epoch{Client: 1, Plan: plan + 1}, capacity)); r != nil {
			t.Fatalf("epoch 1.%d: %v", plan+1, r)
		}
		st := n.stage(wire.SessionID{1})
		st.deliver(decoder.ID(), &wire.Chunk{Head: st.m.head, Count: 50, Tokens: somePrompt(50)})
		eventually(t, "the run to begin", func() bool { st.mu.Lock(); defer st.mu.Unlock(); return st.m.taken != nil })
	}
}

// A stage is freed when its decoder no longer says that it drives the session,
// even if it says other things.
func TestStageLease(t *testing.T) {
	tn, n, id := stageNode(t, 0, 0)
	client, decoder := swarm.Ephemeral(), swarm.Ephemeral()
	open := func(plan uint32) *stageSession {
		if _, r := n.openStage(decoder.ID(), invitation(n, id, client, decoder, wire.Epoch{Client: 1, Plan: plan}, 10)); r != nil {
			t.Fatal(r)
		}
		return n.stage(wire.SessionID{1})
	}
	st := open(1)
	st.mu.Lock()
	st.listed = time.Now().Add(-busyLease - time.Second)
	st.mu.Unlock()
	n.hear(decoder.ID(), fragment{})
	eventually(t, "the lease's end", func() bool { return n.stage(wire.SessionID{1}) == nil })

	st = open(2) // and after the decoder has said that it doesn't know it
	n.deliver(decoder.ID(), &wire.Refusal{Head: st.m.head, Code: wire.CodeUnknownSession})
	if n.stage(wire.SessionID{1}) != nil {
		t.Error("the stage outlives its decoder's session")
	}
	tn.mustBeIdle()
}

// A node may be a stage of one decoder when its client makes it the next one:
// frames go to the one whose epoch they have.
func TestStageBesideDecoder(t *testing.T) {
	_, n, id := stageNode(t, 0, 0)
	client, decoder := swarm.Ephemeral(), swarm.Ephemeral()
	if _, r := n.openStage(decoder.ID(), invitation(n, id, client, decoder, wire.Epoch{Client: 1, Plan: 1}, 10)); r != nil {
		t.Fatal(r)
	}
	d := &decoderSession{n: n, m: newMachine(t, runtimetest.FakeConfig(), wire.Route{Stages: []wire.PlanStage{{Peer: "S", Last: 3}, {Peer: "T", First: 3, Last: 4}},
		DecoderFirst: 4, Chunk: 4, LastChunk: 4}, 10), absent: map[string]int{}, opened: time.Now(), clientAt: time.Now()}
	d.outReady = sync.NewCond(&d.mu)
	d.m.head = wire.Head{Session: wire.SessionID{1}, Epoch: wire.Epoch{Client: 2}}
	if r := n.addDecoder(wire.SessionID{1}, d); r != nil {
		t.Fatal(r)
	}
	defer n.removeDecoder(wire.SessionID{1}, d)
	d.mu.Lock()
	d.m.start([32]byte{})
	d.mu.Unlock()
	n.deliver("S", &wire.StageOpened{Head: d.m.head})
	d.mu.Lock()
	if !d.m.opened[0] {
		t.Error("the stage's frame did not reach the decoder")
	}
	d.mu.Unlock()
	st := n.stage(wire.SessionID{1})
	n.deliver(decoder.ID(), &wire.Chunk{Head: st.m.head, Count: 3, Tokens: somePrompt(3)})
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.m.announced != 3 {
		t.Error("the decoder's frame did not reach the stage")
	}
}
