package node

import (
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm/wire"
)

// TestTimeline runs a prompt over two stages and asks for the times: every chunk
// of every peer is there, in order, and what must come before what does.
func TestTimeline(t *testing.T) {
	s := newSlowNet(t)
	ctx := testContext(t)
	q := control.RunRequest{Model: s.id.String(), Tokens: somePrompt(23), MaxNew: 4, Constraints: s.k}
	q.Chunk = 5
	plain, err := s.client.run(ctx, q, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range append(plain.Stages, plain.Decoder) {
		if len(a.Timeline) > 0 {
			t.Errorf("times that nobody asked for: %+v", a)
		}
	}
	q.Timeline = true
	for _, shape := range []string{"across", "pipelined"} {
		t.Run(shape, func(t *testing.T) {
			q := q
			q.Shape = shape
			a, err := s.client.run(ctx, q, quiet)
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Stages) != 2 || a.Text != plain.Text {
				t.Fatalf("%+v", a)
			}
			const slack = 20 * time.Millisecond // of stages' clocks against the decoder's
			hops := append(a.Stages, a.Decoder)
			for i, h := range hops {
				want := h.Chunks
				if shape == "across" { // of the decoder the prompt's count
					want = a.Stages[0].Chunks
				}
				if len(h.Timeline) != want || want < 5 {
					t.Fatalf("%s: times of %d chunks, it ran %d", h.Peer, len(h.Timeline), want)
				}
				at, free, compute := 0, time.Duration(0), time.Duration(0)
				for j, c := range h.Timeline {
					if c.Start != at || c.Ready > c.Began+slack || c.Began >= c.Ended || c.Began < free {
						t.Errorf("chunk %d of peer %d: %+v", j, i, c)
					}
					at, free, compute = at+c.Count, c.Ended, compute+c.Ended-c.Began
					if i > 0 && c.Ready+slack < hops[i-1].Timeline[j].Ended {
						t.Errorf("chunk %d reaches peer %d at %v, the one before ended it at %v", j, i, c.Ready, hops[i-1].Timeline[j].Ended)
					}
					pushes := i < 2 // the decoder holds all layers
					if pushes != (c.Imported > 0) || pushes && c.Imported+slack < c.Ended || c.Pushed > 0 && !pushes {
						t.Errorf("chunk %d of peer %d: %+v", j, i, c)
					}
					if j < len(h.Timeline)-1 && pushes && c.Pushed == 0 { // the last one may come after the account
						t.Errorf("chunk %d of peer %d: %+v", j, i, c)
					}
				}
				if i < 2 && (compute > h.Compute+time.Millisecond || compute < h.Compute-time.Millisecond) {
					t.Errorf("peer %d computed %v by its times, %v by its account", i, compute, h.Compute)
				}
			}
			if last := a.Decoder.Timeline[4].Ended; shape == "across" && (a.Prefill < last || a.Prefill > last+time.Second) {
				t.Errorf("the first token came after %v, the last chunk ended after %v", a.Prefill, last)
			}
		})
	}
	s.mustBeIdle()
}

// Where no times are asked for nothing is kept and no clock is read.
func TestNoTiming(t *testing.T) {
	tm := newTiming(false)
	if n := testing.AllocsPerRun(10, func() {
		tm.arrived(nil)
		tm.computed(nil, 0, 0)
		tm.pushed(0)
		tm.imported("", nil)
		tm.align("", wire.Epoch{}, nil)
	}); tm != nil || n != 0 {
		t.Errorf("%v, %v allocations", tm, n)
	}
}
