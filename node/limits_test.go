package node

import (
	"context"
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
	seq, err := e.NewSequence(prompt+1, e.Layers())
	if err != nil {
		t.Fatal(err)
	}
	open := &wire.SessionOpen{Route: route, Tokens: somePrompt(prompt), MaxNew: 1, Grant: wire.Grant{Budget: uint32(prompt) + 1}}
	held := runtime.Range{First: int(route.DecoderFirst), Last: cfg.Layers}
	d, refusal := newDecoding(simDecoder, open, runtime.Sampling{}, [32]byte{}, cfg, func(*wire.Plan) {})
	if refusal != nil {
		t.Fatal(refusal)
	}
	d.reserved(held, held, seq, 0, nil)
	return d
}

// A client that leaves before its session has begun opens no stage: nobody
// would close it.
func TestEndedBeforeStart(t *testing.T) {
	d := newMachine(t, runtimetest.FakeConfig(), wire.Route{Stages: []wire.PlanStage{{Peer: "S", Last: 3}}, DecoderFirst: 3, Chunk: 4, LastChunk: 4}, 10)
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
		route := wire.Route{DecoderFirst: uint32(n), Chunk: 4, LastChunk: 4}
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
	d := newMachine(t, cfg, wire.Route{Stages: []wire.PlanStage{{Peer: "S", Last: 3}}, DecoderFirst: 3, Chunk: 8, LastChunk: 8}, 10)
	d.start([32]byte{})
	acts, r := d.handle("S", &wire.StageOpened{Head: d.head})
	if r != nil {
		t.Fatal(r)
	}
	longest := uint32(0)
	for _, a := range acts {
		if m, ok := a.(send); ok {
			if c, ok := m.Msg.(*wire.Chunk); ok {
				longest = max(longest, c.Count)
			}
		}
	}
	if longest != 3 {
		t.Errorf("chunks of %d positions, three rows fit a seam", longest)
	}
	if over := len(wire.Append(nil, &wire.Seam{Rows: []byte{1, 2, 3, 4}})) - 5 - 4; wire.MaxSeamRows+over != wire.MaxSeam {
		t.Errorf("a seam has %d bytes before its rows, MaxSeamRows allows for %d", over, wire.MaxSeam-wire.MaxSeamRows)
	}
}

// A stage that says twice that it is open is refused, and the client isn't told
// again.
func TestOpenedTwice(t *testing.T) {
	d := newMachine(t, runtimetest.FakeConfig(), wire.Route{Stages: []wire.PlanStage{{Peer: "S", Last: 3}}, DecoderFirst: 3, Chunk: 4, LastChunk: 4}, 10)
	d.start([32]byte{})
	if _, r := d.handle("S", &wire.StageOpened{Head: d.head}); r != nil {
		t.Fatal(r)
	}
	if acts, r := d.handle("S", &wire.StageOpened{Head: d.head}); r == nil || r.Code != wire.CodeBadFrame {
		t.Errorf("the second StageOpened gave %v, %v", acts, r)
	}
}

// twoStages is a machine in the middle of a prompt: two stages are open and
// have been told of chunks.
func twoStages(t *testing.T) *decoding {
	t.Helper()
	route := wire.Route{Stages: []wire.PlanStage{{Peer: "S", Last: 2}, {Peer: "T", First: 2, Last: 4}}, DecoderFirst: 4, Chunk: 4, LastChunk: 4}
	d := newMachine(t, runtimetest.FakeConfig(), route, 10)
	d.start([32]byte{})
	for _, p := range []string{"S", "T"} {
		if _, r := d.handle(p, &wire.StageOpened{Head: d.head}); r != nil {
			t.Fatal(r)
		}
	}
	return d
}

// Who is lost after a stage's refusal: the peer whose error it is.
func TestBlame(t *testing.T) {
	for _, c := range []struct {
		code       wire.Code
		from, peer string
		lost       string // "" when the session fails
	}{
		{wire.CodeBusy, "S", "S", "S"},
		{wire.CodePeerLost, "S", "T", "T"},
		{wire.CodeUnknownSession, "S", "T", "T"},
		{wire.CodeBadFrame, "S", "T", "S"},
		{wire.CodePeerLost, "S", "X", "S"},
		{wire.CodeNonFinite, "T", "S", "S"},
		{wire.CodeNonFinite, "T", "T", ""},
		{wire.CodeBadGrant, "T", "T", "T"}, // its clock may be wrong
	} {
		d := twoStages(t)
		if _, r := d.handle(c.from, &wire.Refusal{Head: d.head, Code: c.code, Peer: c.peer, Text: "x"}); r != nil {
			t.Fatal(r)
		}
		if c.lost == "" {
			if !d.ended {
				t.Errorf("%v from %s about %s: the session goes on", c.code, c.from, c.peer)
			}
			continue
		}
		if len(d.lost) != 1 || d.lost[0] != c.lost {
			t.Errorf("%v from %s about %s: lost are %v, want %s", c.code, c.from, c.peer, d.lost, c.lost)
		}
		for peer := range d.closing {
			if peer == c.lost || c.code == wire.CodeNonFinite {
				t.Errorf("%v from %s about %s: an account of %s is waited for", c.code, c.from, c.peer, peer)
			}
		}
	}
}

// A seam that is no number is its sender's fault, not the session's.
func TestSeamThatIsNoNumber(t *testing.T) {
	d := twoStages(t)
	c := d.chunks[0]
	rows := make([]byte, int(c.Count)*4*d.config.Width)
	for i := range rows {
		rows[i] = 0xff
	}
	acts, r := d.handle("T", &wire.Seam{Head: d.head, Cut: 4, Count: c.Count, Prefix: c.Prefix, Rows: rows})
	if r != nil {
		t.Fatal(r)
	}
	for _, a := range acts {
		if a, ok := a.(run); ok {
			e, err := (&runtimetest.Fake{}).Open(runtime.Options{Path: "sim"})
			if err != nil {
				t.Fatal(err)
			}
			a.Step.Seq, err = e.NewSequence(10, e.Layers())
			if err != nil {
				t.Fatal(err)
			}
			err = e.Run(context.Background(), []*runtime.Step{a.Step})
			d.ran(a.Step, 0, err)
		}
	}
	if d.ended || len(d.lost) != 1 || d.lost[0] != "T" {
		t.Errorf("ended %v, lost %v", d.ended, d.lost)
	}
}

// Accounts are believed only about the layers that the plan gave to the peer;
// one of an older plan says nothing about the KV of this one.
func TestAccounts(t *testing.T) {
	d := twoStages(t)
	old := d.head
	d.gone("T", "killed")
	route := wire.Route{Stages: []wire.PlanStage{{Peer: "U", Last: 4}}, DecoderFirst: 4, Chunk: 4, LastChunk: 4}
	d.replanned(route, [32]byte{}, nil)
	d.fail(wire.Refuse(wire.CodeCancelled, "enough"))
	account := func(from string, h wire.Head, first, last uint32, digests int) *wire.Refusal {
		m := &wire.StageClosed{Head: h, Stats: wire.StageStats{First: first, Last: last, KVDigests: make([][32]byte, digests)}}
		for i := range m.Stats.KVDigests {
			m.Stats.KVDigests[i][0] = from[0]
		}
		_, r := d.handle(from, m)
		return r
	}
	for _, r := range []*wire.Refusal{
		account("U", d.head, 0, 5, 0), account("U", d.head, 0, 4, 3), account("U", d.head, 0, 4, 60000), account("U", old, 0, 4, 4),
	} {
		if r == nil {
			t.Error("a wrong account was accepted")
		}
	}
	if r := account("U", d.head, 0, 4, 4); r != nil {
		t.Error(r)
	}
	if r := account("S", old, 0, 2, 2); r != nil {
		t.Error(r)
	}
	for l, h := range d.digests {
		if h[0] != 'U' {
			t.Errorf("layer %d's digest is the one of %q", l, h[0])
		}
	}
}

func TestCheckRoute(t *testing.T) {
	held := runtime.Range{First: 2, Last: 6}
	stage := func(peer string, first, last uint32) wire.PlanStage {
		return wire.PlanStage{Peer: peer, First: first, Last: last}
	}
	for _, c := range []struct {
		route wire.Route
		ok    bool
	}{
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 2, Stages: []wire.PlanStage{stage("S", 0, 2)}}, true},
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 6, Stages: []wire.PlanStage{stage("S", 0, 2), stage("T", 2, 6)}}, true},
		{wire.Route{Chunk: 0, LastChunk: 0, DecoderFirst: 2, Stages: []wire.PlanStage{stage("S", 0, 2)}}, false},
		{wire.Route{Chunk: 4, LastChunk: 0, DecoderFirst: 2, Stages: []wire.PlanStage{stage("S", 0, 2)}}, false},
		{wire.Route{Chunk: 4, LastChunk: 5, DecoderFirst: 2, Stages: []wire.PlanStage{stage("S", 0, 2)}}, false},
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 1, Stages: []wire.PlanStage{stage("S", 0, 1)}}, false},                    // not held
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 2, DecodeLocal: true, Stages: []wire.PlanStage{stage("S", 0, 2)}}, false}, // likewise
		{wire.Route{Chunk: 4, LastChunk: 4}, false},                                                                                                  // likewise
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 3, Stages: []wire.PlanStage{stage("S", 0, 2)}}, false},                                     // a hole
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 3, Stages: []wire.PlanStage{stage("S", 0, 1), stage("T", 2, 3)}}, false},                   // a hole
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 2, Stages: []wire.PlanStage{stage("S", 0, 1), stage("S", 1, 2)}}, false},                   // twice
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 2, Stages: []wire.PlanStage{stage(simDecoder, 0, 2)}}, false},                              // the decoder itself
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 2, Stages: []wire.PlanStage{stage("", 0, 2)}}, false},                                      // nobody
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 2, Stages: []wire.PlanStage{stage("S", 0, 2), stage("T", 2, 2)}}, false},                   // empty
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 1 << 31, Stages: []wire.PlanStage{stage("S", 0, 1<<31)}}, false},                           // absurd
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 7, Stages: []wire.PlanStage{stage("S", 0, 7)}}, false},                                     // beyond the model
		{wire.Route{Chunk: 1 << 30, LastChunk: 1 << 30, DecoderFirst: 2, DecodeLocal: false, Stages: []wire.PlanStage{stage("S", 0, 2)}}, false},     // no such chunk
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 2, Stages: []wire.PlanStage{stage("S", 1, 2)}}, false},                                     // not from 0
		{wire.Route{Chunk: 4, LastChunk: 4, DecoderFirst: 2, Stages: []wire.PlanStage{stage("S", 0, 1), stage("T", 1, 3), stage("U", 3, 2)}}, false}, // backwards
	} {
		if r := checkRoute(&c.route, simDecoder, 6, held); (r == nil) != c.ok {
			t.Errorf("%+v: %v", c.route, r)
		}
	}
}
