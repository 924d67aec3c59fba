package node

import (
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

// Only waits that ended count, each as what it was.
func TestWaiting(t *testing.T) {
	began := time.Unix(0, 0)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	w := waiting{what: waitInput, since: began}
	w.set(waitInput, at(1))
	w.set(waitNone, at(3))
	w.set(waitCredit, at(10))
	w.set(waitRows, at(14))
	w.set(waitNone, at(22))
	w.set(waitInput, at(30))
	w.set(waitInput, at(90))
	for what, want := range map[wait]uint64{waitInput: 3e9, waitCredit: 4e9, waitRows: 8e9} {
		if got := w.nanos(what); got != want {
			t.Errorf("wait %d: %d ns, want %d", what, got, want)
		}
	}
}

// A stage says what keeps it from going on: nothing to do, its successor, or the
// decoder's acknowledgements.
func TestStageWaits(t *testing.T) {
	cfg := runtimetest.FakeConfig()
	layers := runtime.Range{First: 0, Last: 2}
	e, err := (&runtimetest.Fake{}).Open(runtime.Options{Path: "waits", Layers: layers})
	if err != nil {
		t.Fatal(err)
	}
	seq, err := e.NewSequence(64, layers)
	if err != nil {
		t.Fatal(err)
	}
	plan := wire.Plan{Decoder: "D", Stages: []wire.PlanStage{{Peer: "S", Last: 2}, {Peer: "T", First: 2, Last: 4}},
		DecoderFirst: 4, Layers: uint32(cfg.Layers), Capacity: 64, Window: 8, PushKV: true}
	s := newStaging(&wire.StageOpen{Plan: plan}, cfg.Width, seq)
	tell := func(from string, m wire.Message) {
		t.Helper()
		acts, r := s.handle(from, m)
		if r != nil {
			t.Fatal(r)
		}
		for len(acts) > 0 {
			a := acts[0]
			acts = acts[1:]
			if a, ok := a.(run); ok {
				if s.waitsFor() != waitNone {
					t.Errorf("it computes and waits for %d", s.waitsFor())
				}
				acts = append(acts, s.ran(a.Step, 0, e.Run(t.Context(), []*runtime.Step{a.Step}))...)
			}
		}
	}
	want := func(what wait) {
		t.Helper()
		if got := s.waitsFor(); got != what {
			t.Errorf("it waits for %d, want %d", got, what)
		}
	}
	want(waitInput)
	for i := range uint32(3) {
		tell("D", &wire.Chunk{Start: 4 * i, Count: 4, Tokens: []int32{1, 2, 3, 4}})
	}
	want(waitCredit) // two are out, the third is announced
	tell("T", &wire.SeamCredit{Upto: 8})
	want(waitRows)
	tell("D", &wire.KVAck{Upto: 4})
	want(waitRows) // the third has been computed meanwhile
	tell("D", &wire.KVAck{Upto: 8})
	want(waitInput)
}
