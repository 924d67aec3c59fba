package node

import (
	"fmt"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

// newMachine makes a decoding machine for a made-up model over route, without
// anybody to talk to.
func newMachine(t *testing.T, cfg runtime.Config, route wire.Route, prompt int) *decoding {
	t.Helper()
	e, err := (&runtimetest.Fake{}).Open(runtime.Options{Path: "sim"})
	if err != nil {
		t.Fatal(err)
	}
	seq, err := e.NewSequence(prompt + 1)
	if err != nil {
		t.Fatal(err)
	}
	open := &wire.SessionOpen{Route: route, Tokens: somePrompt(prompt), MaxNew: 1, Grant: wire.Grant{Budget: uint32(prompt) + 1}}
	held := runtime.Range{First: int(route.DecoderFirst), Last: cfg.Layers}
	return newDecoding(simDecoder, open, [32]byte{}, cfg, held, seq, func(*wire.Plan) {})
}

// A client that leaves before its session has begun opens no stage: nobody
// would close it.
func TestEndedBeforeStart(t *testing.T) {
	d := newMachine(t, runtimetest.FakeConfig(), wire.Route{Stages: []wire.PlanStage{{Peer: "S", Last: 3}}, DecoderFirst: 3, Chunk: 4}, 10)
	d.fail(wire.Refuse(wire.CodeCancelled, "the client went away"))
	if acts := d.start([32]byte{}); len(acts) > 0 {
		t.Errorf("an ended session starts with %+v", acts)
	}
}

// A route of as many stages as the wire admits gives plans that stages accept.
func TestLongRoutes(t *testing.T) {
	cfg := runtimetest.FakeConfig()
	cfg.Layers = 300
	for _, n := range []int{1, wire.MaxWindow - maxAhead, wire.MaxWindow - maxAhead + 1, wire.MaxStages} {
		route := wire.Route{DecoderFirst: uint32(n), Chunk: 4}
		for i := range n {
			route.Stages = append(route.Stages, wire.PlanStage{Peer: fmt.Sprint(i), First: uint32(i), Last: uint32(i + 1)})
		}
		acts := newMachine(t, cfg, route, 10).start([32]byte{})
		if len(acts) != n {
			t.Fatalf("%d stages: %d actions", n, len(acts))
		}
		if err := acts[0].(send).Msg.(*wire.StageOpen).Plan.Check(); err != nil {
			t.Errorf("%d stages: %v", n, err)
		}
	}
}

// A chunk's seam always fits a frame, whatever the client asks for.
func TestChunksFitFrames(t *testing.T) {
	cfg := runtimetest.FakeConfig()
	cfg.Width = 1 << 22 // four rows of 16 MiB would be a frame, were it not for its head
	d := newMachine(t, cfg, wire.Route{Stages: []wire.PlanStage{{Peer: "S", Last: 3}}, DecoderFirst: 3, Chunk: 8}, 10)
	d.start([32]byte{})
	acts, r := d.handle("S", &wire.StageOpened{Head: d.head})
	if r != nil {
		t.Fatal(r)
	}
	for _, a := range acts {
		if m, ok := a.(send); ok {
			if c, ok := m.Msg.(*wire.Chunk); ok && c.Count != 3 {
				t.Errorf("chunk of %d positions, three rows fit a seam", c.Count)
			}
		}
	}
	if over := len(wire.Append(nil, &wire.Seam{Rows: []byte{1, 2, 3, 4}})) - 5 - 4; wire.MaxSeamRows+over != wire.MaxSeam {
		t.Errorf("a seam has %d bytes before its rows, MaxSeamRows allows for %d", over, wire.MaxSeam-wire.MaxSeamRows)
	}
}

// A stage that says twice that it is open is refused, and the client isn't told
// again.
func TestOpenedTwice(t *testing.T) {
	d := newMachine(t, runtimetest.FakeConfig(), wire.Route{Stages: []wire.PlanStage{{Peer: "S", Last: 3}}, DecoderFirst: 3, Chunk: 4}, 10)
	d.start([32]byte{})
	if _, r := d.handle("S", &wire.StageOpened{Head: d.head}); r != nil {
		t.Fatal(r)
	}
	if acts, r := d.handle("S", &wire.StageOpened{Head: d.head}); r == nil || r.Code != wire.CodeBadFrame {
		t.Errorf("the second StageOpened gave %v, %v", acts, r)
	}
}
