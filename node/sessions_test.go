package node

import (
	"fmt"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/swarm/wire"
)

func TestSessionsEqualTheRunAlone(t *testing.T) {
	prompt := somePrompt(23)
	for _, cuts := range [][]int{nil, {1}, {3}, {6}, {2, 4}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 6}} {
		for _, chunk := range []int{1, 3, 7, 23, 64} {
			for _, local := range []bool{true, false} {
				if !local && len(cuts) == 0 {
					continue
				}
				for seed := range uint64(4) {
					t.Run(fmt.Sprintf("%v/%d/%v/%d", cuts, chunk, local, seed), func(t *testing.T) {
						s := newSimulation(t, seed, prompt, 6, chunk, cuts, local)
						s.run()
						s.mustEqual()
						if len(s.refused) > 0 {
							t.Errorf("frames of an honest session were refused: %v", s.refused)
						}
						if len(s.stages) > 0 {
							t.Errorf("%d stages were left open", len(s.stages))
						}
					})
				}
			}
		}
	}
}

// Whatever stage is lost at whatever moment, the answer is the same bytes.
func TestSessionsSurviveLosses(t *testing.T) {
	prompt := somePrompt(23)
	for _, local := range []bool{true, false} {
		for _, victim := range []string{"S0", "S1", "S2"} {
			for when := 1; when < 160; when += 5 {
				t.Run(fmt.Sprintf("%v/%s/%d", local, victim, when), func(t *testing.T) {
					s := newSimulation(t, uint64(when), prompt, 5, 4, []int{2, 3, 5}, local)
					s.spare = []string{"T0", "T1"}
					for i := 0; i < when && s.step(); i++ {
					}
					if s.done != nil {
						t.Skip("the session was over before the loss")
					}
					s.kill(victim)
					s.run()
					if s.done.Err != nil {
						t.Fatalf("session failed: %v", s.done.Err)
					}
					tokens, _, _ := alone(t, prompt, 5)
					if fmt.Sprint(tokens) != fmt.Sprint(s.tokens) {
						t.Errorf("tokens %v, alone %v", s.tokens, tokens)
					}
					// The victim's account is lost with it; where the decoder holds
					// all KV, or the loss came before the route was left, the proof
					// is whole.
					if local {
						s.mustEqual()
					}
				})
			}
		}
	}
}

// A stage that lives but has stopped to compute, and any single frame that a
// peer doesn't send: the decoder knows for whom it waits, and without that one
// the answer is the same bytes.
func TestSessionsNeverWaitForNobody(t *testing.T) {
	prompt := somePrompt(23)
	check := func(t *testing.T, s *simulation, blamed string) {
		t.Helper()
		s.drain()
		if s.d.ended && s.done == nil { // the driver doesn't wait long for accounts
			s.decoderDo(s.d.giveUpAccounts())
		} else if s.done == nil {
			p, _ := s.d.behind()
			if p == "" || blamed != "" && p != blamed {
				t.Fatalf("the session stalls and waits for %q, want %q: computed %d, announced %d, due %v", p, blamed, s.d.computed, s.d.announced, s.d.due)
			}
			s.deaf = nil
			s.decoderDo(s.d.gone(p, "it got nothing done"))
			s.drain()
			if s.d.ended && s.done == nil {
				s.decoderDo(s.d.giveUpAccounts())
			}
		}
		if s.done == nil || s.done.Err != nil {
			t.Fatalf("the session ended with %v", s.done)
		}
		tokens, _, _ := alone(t, prompt, 4)
		if fmt.Sprint(tokens) != fmt.Sprint(s.tokens) {
			t.Errorf("tokens %v, alone %v", s.tokens, tokens)
		}
	}
	for _, local := range []bool{true, false} {
		for seed := range uint64(6) {
			for _, victim := range []string{"S0", "S1", "S2"} {
				t.Run(fmt.Sprintf("asleep/%v/%s/%d", local, victim, seed), func(t *testing.T) {
					s := newSimulation(t, seed, prompt, 4, 4, []int{2, 3, 5}, local)
					s.spare = []string{"T0", "T1"}
					for i := 0; i < int(seed)*17 && s.step(); i++ {
					}
					s.asleep = map[string]bool{victim: true}
					check(t, s, victim)
				})
			}
		}
		for nth := 0; ; nth += 3 {
			sent := 0
			s := newSimulation(t, uint64(nth), prompt, 4, 4, []int{2, 3, 5}, local)
			s.spare = []string{"T0", "T1"}
			s.deaf = func(q simQueue, _ wire.Message) bool {
				if q.from == simDecoder { // ourselves
					return false
				}
				sent++
				return sent == nth+1
			}
			check(t, s, "")
			if t.Failed() {
				t.Fatalf("local %v: after losing frame %d", local, nth)
			}
			if sent <= nth {
				break // every frame has been lost once
			}
		}
	}
}

func TestLosingTwoStagesInARow(t *testing.T) {
	prompt := somePrompt(40)
	for _, local := range []bool{true, false} {
		for gap := 0; gap < 60; gap += 7 {
			s := newSimulation(t, uint64(gap), prompt, 4, 5, []int{2, 4}, local)
			s.spare = []string{"T0", "T1"}
			for i := 0; i < 20 && s.step(); i++ {
			}
			s.kill("S0")
			for i := 0; i < gap && s.step(); i++ {
			}
			s.kill("S1")
			s.run()
			s.mustEqual()
		}
	}
}

func TestNoRouteLeft(t *testing.T) {
	s := newSimulation(t, 1, somePrompt(40), 4, 5, []int{2, 4}, false)
	for i := 0; i < 20 && s.step(); i++ {
	}
	s.kill("S1")
	s.run()
	if s.done.Err == nil || s.done.Err.Code != wire.CodePeerLost {
		t.Fatalf("session ended with %v, want a lost peer", s.done.Err)
	}
	if len(s.stages) > 0 {
		t.Error("a stage was left open")
	}
}

// TestForeignFrames sends every frame of a session again, from wrong peers, with
// old and future epochs, other prefixes and positions: each is refused with the
// right type, and the session ends as if they had never come.
func TestForeignFrames(t *testing.T) {
	prompt := somePrompt(23)
	for _, local := range []bool{true, false} {
		s := newSimulation(t, 3, prompt, 5, 4, []int{2, 4}, local)
		counts := map[wire.Code]int{}
		try := func(from, to string, m wire.Message, want ...wire.Code) {
			var r *wire.Refusal
			if to == simDecoder {
				var acts []action
				if acts, r = s.d.handle(from, m); r == nil && s.d.ended && len(acts) == 0 && (m.Type() == wire.TypeSeam || m.Type() == wire.TypeKVSlice) {
					return // it comes too late to be wrong
				}
			} else if st := s.stages[to]; st != nil {
				_, r = st.handle(from, m)
			} else {
				return
			}
			if r == nil {
				t.Fatalf("frame %T %+v from %s to %s was accepted", m, m, from, to)
			}
			counts[r.Code]++
			if to == simDecoder && s.d.ended { // it expects nothing from anybody now
				want = append(want, wire.CodeWrongPeer)
			}
			if slices.Contains(want, r.Code) {
				return
			}
			t.Fatalf("frame %T from %s to %s: %v, want %v", m, from, to, r, want)
		}
		s.onFrame = func(q simQueue, m wire.Message) {
			switch m.(type) {
			case *wire.Seam, *wire.KVSlice, *wire.Chunk, *wire.SeamCredit, *wire.KVAck:
			default:
				return
			}
			try("X", q.to, m, wire.CodeWrongPeer)
			try(q.from, q.to, changed(m, func(h *wire.Head) { h.Epoch.Plan-- }), wire.CodeStaleEpoch)
			try(q.from, q.to, changed(m, func(h *wire.Head) { h.Epoch.Plan++ }), wire.CodeBadGrant)
			try(q.from, q.to, changed(m, func(h *wire.Head) { h.Epoch.Client++ }), wire.CodeBadGrant)
			switch m := m.(type) {
			case *wire.Seam:
				c := *m
				c.Start++
				try(q.from, q.to, &c, wire.CodeBadFrame)
				c = *m
				c.Cut++
				try(q.from, q.to, &c, wire.CodeBadFrame)
				c = *m
				c.Rows = c.Rows[:len(c.Rows)-4]
				try(q.from, q.to, &c, wire.CodeBadFrame)
				if q.to == simDecoder { // a stage may not have the announcement yet
					c = *m
					c.Prefix[3]++
					try(q.from, q.to, &c, wire.CodePrefix)
				}
			case *wire.KVSlice:
				c := *m
				c.Prefix[3]++
				try(q.from, q.to, &c, wire.CodePrefix)
				c = *m
				c.Layer += 2
				try(q.from, q.to, &c, wire.CodeWrongPeer)
				c = *m
				c.Offset += 4
				try(q.from, q.to, &c, wire.CodeBadFrame)
				c = *m
				c.Start += 4
				try(q.from, q.to, &c, wire.CodeBadFrame)
			case *wire.Chunk:
				c := *m
				c.Start++
				try(q.from, q.to, &c, wire.CodeBadFrame)
				c = *m
				c.Count += 1000
				try(q.from, q.to, &c, wire.CodeBadGrant)
			case *wire.SeamCredit:
				try(q.from, q.to, &wire.SeamCredit{Head: m.Head, Upto: m.Upto + 1000}, wire.CodeBadFrame)
			case *wire.KVAck:
				try(q.from, q.to, &wire.KVAck{Head: m.Head, Upto: m.Upto + 1000}, wire.CodeBadFrame)
			}
		}
		replayed := 0
		deliver := s.onFrame
		var last wire.Message
		var lastQ simQueue
		s.onFrame = func(q simQueue, m wire.Message) {
			switch last.(type) { // the frame delivered just before, once more
			case *wire.Seam, *wire.KVSlice, *wire.Chunk:
				if h, _ := headOf(last); h == s.d.head && (lastQ.to == simDecoder || s.stages[lastQ.to] != nil) {
					try(lastQ.from, lastQ.to, last, wire.CodeBadFrame)
					replayed++
				}
			}
			last, lastQ = m, q
			deliver(q, m)
		}
		s.run()
		s.mustEqual()
		if replayed == 0 || counts[wire.CodeWrongPeer] == 0 || counts[wire.CodeStaleEpoch] == 0 {
			t.Errorf("local %v: %d replays, refusals %v: the test did not reach its frames", local, replayed, counts)
		}
	}
}

// changed returns a copy of m with another head.
func changed(m wire.Message, f func(*wire.Head)) wire.Message {
	switch m := m.(type) {
	case *wire.Seam:
		c := *m
		f(&c.Head)
		return &c
	case *wire.KVSlice:
		c := *m
		f(&c.Head)
		return &c
	case *wire.Chunk:
		c := *m
		f(&c.Head)
		return &c
	case *wire.SeamCredit:
		c := *m
		f(&c.Head)
		return &c
	case *wire.KVAck:
		c := *m
		f(&c.Head)
		return &c
	}
	panic(fmt.Sprintf("no head to change in %T", m))
}
