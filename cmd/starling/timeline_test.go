package main

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// TestTimeline draws a run of two peers; what a peer tells may be nonsense.
func TestTimeline(t *testing.T) {
	ms := time.Millisecond
	r := &control.Account{Prefill: 60 * ms,
		Stages: []control.StageAccount{{Peer: "12D3KooWstage", Layers: control.Layers{First: 0, Last: 2}, Chunks: 2, Compute: 30 * ms, WaitCredit: 10 * ms, Timeline: []control.ChunkTimes{
			{Start: 0, Count: 8, Ready: 0, Began: 0, Ended: 20 * ms, Pushed: 30 * ms, Imported: 40 * ms},
			{Start: 8, Count: 4, Ready: 10 * ms, Began: 30 * ms, Ended: 40 * ms, Pushed: 50 * ms, Imported: 60 * ms}}}},
		Decoder: control.StageAccount{Peer: "12D3KooWdecoder", Layers: control.Layers{First: 3, Last: 5}, Chunks: 2, Compute: 30 * ms, WaitInput: 20 * ms, Timeline: []control.ChunkTimes{
			{Start: 0, Count: 8, Ready: 20 * ms, Began: 20 * ms, Ended: 30 * ms},
			{Start: 8, Count: 4, Ready: 40 * ms, Began: 40 * ms, Ended: 60 * ms}}}}
	var b strings.Builder
	if err := printTimeline(&b, r, 28+2+24); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"60 ms from the first chunk to the first token; a mark is 2.5 ms",
		"stage …ooWstage 0-2         │████████▒▒▒▒████        │",
		"                            │        ════────════────│",
		"decoder …Wdecoder 3-5       │        ████····████████│",
		"first token                 │                       ▲│",
		"…ooWstage layers 0–2 (3): 2 chunks; computed 30 ms, waited 0 µs for input, 10 ms for the next stage, 0 µs for cache rows",
		"…Wdecoder layers 3–5 (3): 2 chunks; computed 30 ms, waited 20 ms for input, 0 µs for the next stage, 0 µs for cache rows",
		"positions  peer       input here  began  ended  rows sent  rows at the decoder",
		"0–7        …ooWstage  –           –      20 ms  30 ms      40 ms",
		"0–7        …Wdecoder  20 ms       20 ms  30 ms  –          –",
		"8–11       …ooWstage  10 ms       30 ms  40 ms  50 ms      60 ms",
	}
	for _, line := range want {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if t.Failed() {
		t.Log("\n" + b.String())
	}

	r.Stages[0].Timeline = []control.ChunkTimes{{Ready: 1 << 62, Began: -5, Ended: 7}, {Ready: 1<<63 - 1, Began: 1<<63 - 1, Ended: 3, Pushed: 1, Imported: 1<<63 - 1}}
	for range 100 {
		r.Stages[0].Timeline = append(r.Stages[0].Timeline, control.ChunkTimes{})
	}
	b.Reset()
	if err := printTimeline(&b, r, 1); err != nil || !strings.Contains(b.String(), "more lines: --json tells all") {
		t.Errorf("%v\n%s", err, b.String())
	}
	if err := printTimeline(&b, &control.Account{}, 80); err != nil { // nothing was timed
		t.Error(err)
	}
}
