package node

import (
	"fmt"
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
			slack := 10 * time.Millisecond // of stages' clocks against the decoder's; more on a machine that has others to serve
			eventually(t, "times that agree", func() bool {
				slack = min(2*slack, 320*time.Millisecond)
				a, err := s.client.run(ctx, q, quiet)
				if err != nil {
					t.Fatal(err)
				}
				if len(a.Stages) != 2 || a.Text != plain.Text {
					t.Fatalf("%+v", a)
				}
				odd := checkTimeline(t, a, shape, slack)
				if len(odd) > 0 {
					t.Logf("once more: within %v %q", slack, odd)
				}
				return len(odd) == 0
			})
		})
	}
	s.mustBeIdle()
}

// checkTimeline checks an account's times. It returns what contradicts what must come before what: of different peers, or of different
// clocks, this may be a machine's that had others to serve between an event and the look at the clock.
func checkTimeline(t *testing.T, a *control.Account, shape string, slack time.Duration) (odd []string) {
	late := func(format string, args ...any) { odd = append(odd, fmt.Sprintf(format, args...)) }
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
			if c.Start != at || c.Began >= c.Ended || c.Began < free {
				t.Errorf("chunk %d of peer %d: %+v", j, i, c)
			}
			if c.Ready > c.Began+slack {
				late("chunk %d of peer %d: %+v", j, i, c)
			}
			at, free, compute = at+c.Count, c.Ended, compute+c.Ended-c.Began
			if i > 0 && c.Ready+slack < hops[i-1].Timeline[j].Ended {
				late("chunk %d reaches peer %d at %v, the one before ended it at %v", j, i, c.Ready, hops[i-1].Timeline[j].Ended)
			}
			pushes := i < 2 // the decoder holds all layers
			if pushes != (c.Imported > 0) || c.Pushed > 0 && !pushes {
				t.Errorf("chunk %d of peer %d: %+v", j, i, c)
			}
			if pushes && c.Imported+slack < c.Ended {
				late("chunk %d of peer %d: %+v", j, i, c)
			}
			if j < len(h.Timeline)-1 && pushes && c.Pushed == 0 { // the last one may come after the account
				t.Errorf("chunk %d of peer %d: %+v", j, i, c)
			}
		}
		if i < 2 && (compute-h.Compute).Abs() > slack/20 {
			late("peer %d computed %v by its times, %v by its account", i, compute, h.Compute)
		}
	}
	if last := a.Decoder.Timeline[4].Ended; shape == "across" && (a.Prefill < last || a.Prefill > last+time.Second) {
		late("the first token came after %v, the last chunk ended after %v", a.Prefill, last)
	}
	return odd
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
