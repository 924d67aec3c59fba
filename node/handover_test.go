package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

// handoverSetups are sessions whose decoder lacks layers and has the rows of all.
func handoverSetups(t *testing.T) map[string]simSetup {
	u := simSetup{prompt: somePrompt(23), maxNew: 12, chunk: 4, cuts: []int{2, 3, 5}, how: simSampling, rows: true}
	all := map[string]simSetup{"fake": u}
	for _, arch := range []string{"llama", "gemma3", "qwen35moe"} {
		u := simSetup{prompt: turnTokens(1, 41), maxNew: 8, chunk: 4, cuts: []int{2, 3, 5}, how: simSampling, rows: true}
		u.model = filepath.Join(t.TempDir(), arch+".gguf")
		if err := (runtimetest.TinyModel{Arch: arch, Layers: 6}).Write(u.model); err != nil {
			t.Fatal(err)
		}
		all[arch] = u
	}
	return all
}

// TestHandover loses a stage of a decoder that can't absorb it, at any moment: another peer is handed what the decoder holds of its layers,
// the others go back to there, and nobody computes what is before once more.
func TestHandover(t *testing.T) {
	for name, u := range handoverSetups(t) {
		t.Run(name, func(t *testing.T) {
			want, logits, kv := u.alone(t)
			saved, step := 0, 7
			if u.model != "" {
				step = 23
			}
			for _, victim := range []string{"S0", "S1", "S2"} {
				for when := 1; ; when += step {
					s := u.start(t, uint64(when))
					s.spare = []string{"T"}
					for i := 0; i < when && s.step(); i++ {
					}
					if s.done != nil {
						break
					}
					before := len(s.ran)
					at, ended := min(s.d.checkpoint(), len(s.d.tokens)-1), s.d.ended || s.d.reason != "" && s.d.complete()
					s.kill(victim)
					s.run()
					if s.done.Err != nil {
						t.Fatalf("%s lost at %d: %v", victim, when, s.done.Err)
					}
					s.mustTell(want)
					from, end := int(s.d.resume.Position), len(s.d.tokens)-1
					if st := s.d.account(); !ended && (st.LogitsHash != logits || st.KVHash != kv) {
						t.Errorf("%s lost at %d: other logits or KV", victim, when)
					}
					for _, r := range s.refused {
						if r.Code != wire.CodeStaleEpoch && r.Code != wire.CodeUnknownSession && r.Code != wire.CodeWrongPeer {
							t.Errorf("%s lost at %d: a frame was refused: %v", victim, when, r)
						}
					}
					if len(s.stages) > 0 {
						t.Errorf("%d stages were left open", len(s.stages))
					}
					if s.d.plan == nil || from == 0 { // nothing was left to compute, or to go on from
						continue
					}
					if exact := u.model == "" || name == "llama"; exact && from < at {
						t.Errorf("%s lost at %d: went on from position %d, the checkpoint is %d", victim, when, from, at)
					}
					by := map[string]int{}
					for _, r := range s.ran[before:] {
						if by[r.stage] += r.n; r.start < from {
							t.Errorf("%s lost at %d: %s computed positions from %d on once more, the route goes on from %d", victim, when, r.stage, r.start, from)
						}
					}
					if by["T"] != end-from {
						t.Errorf("%s lost at %d: its successor computed %d positions, from %d to %d", victim, when, by["T"], from, end)
					}
					if saved += from; s.handed != from && name != "qwen35moe" { // whose survivors may lack the state of that position, and are handed all, too
						t.Errorf("%s lost at %d: %d positions were handed over, the route goes on from %d", victim, when, s.handed, from)
					}
				}
			}
			if saved == 0 {
				t.Error("nothing was handed over")
			}
			t.Log(fmt.Sprint(saved, " positions were not computed again"))
		})
	}
}

// TestHandoverOfSeveralRuns hands over more than one run has, while the stage acknowledges them one by one, and loses the one that is
// being handed them, too.
func TestHandoverOfSeveralRuns(t *testing.T) {
	u := simSetup{prompt: somePrompt(2*wire.HandRows + 300), maxNew: 3, chunk: 300, cuts: []int{2, 5}, how: simSampling, rows: true}
	want, _, _ := u.alone(t)
	for _, lost := range []bool{false, true} {
		s := u.start(t, 1)
		s.spare = []string{"T0", "T1"}
		for s.d.checkpoint() < 2*wire.HandRows+50 {
			s.step()
		}
		s.kill("S1")
		ends := map[uint32]bool{}
		s.onFrame = func(q simQueue, m wire.Message) {
			if m, ok := m.(*wire.KVAck); ok && q.to == simDecoder {
				ends[m.Upto] = true
			}
		}
		for lost && len(ends) == 0 {
			s.step()
		}
		if lost {
			if p, n := s.d.behind(); p != "T0" || n != wire.HandRows {
				t.Errorf("the session waits for %q, for %d positions", p, n)
			}
			s.kill("T0")
		}
		s.run()
		s.mustTell(want)
		if from := s.d.resume.Position; from < 2*wire.HandRows || len(ends) != 3 || !ends[wire.HandRows] || !ends[2*wire.HandRows] || !ends[from] {
			t.Errorf("went on from position %d, acknowledged were %v", from, ends)
		}
	}
}

// TestForeignHandovers sends a handover's frames from wrong peers, with other positions and prefixes, and once more: each is refused with
// the right type, and changes nothing.
func TestForeignHandovers(t *testing.T) {
	u := simSetup{prompt: somePrompt(23), maxNew: 5, chunk: 4, cuts: []int{2, 5}, how: simSampling, rows: true}
	s := u.start(t, 1)
	s.spare = []string{"T"}
	for s.d.checkpoint() < 8 {
		s.step()
	}
	tried := 0
	s.onFrame = func(q simQueue, m wire.Message) {
		try := func(from string, m wire.Message, want wire.Code) {
			t.Helper()
			tried++
			var r *wire.Refusal
			if q.to == simDecoder {
				_, r = s.d.handle(from, m)
			} else if st := s.stages[q.to]; st != nil {
				_, r = st.handle(from, m)
			}
			if r == nil || r.Code != want {
				t.Errorf("%T %+v from %s to %s: %v, want %v", m, m, from, q.to, r, want)
			}
		}
		switch m := m.(type) {
		case *wire.Handover:
			try("X", m, wire.CodeWrongPeer)
			c := *m
			c.Upto = 10000
			try(q.from, &c, wire.CodeBadGrant)
			c = *m
			c.Epoch.Plan--
			try(q.from, &c, wire.CodeStaleEpoch)
		case *wire.KVSlice:
			if q.to == simDecoder {
				return
			}
			try("X", m, wire.CodeWrongPeer)
			for _, change := range []func(c *wire.KVSlice){
				func(c *wire.KVSlice) { c.Layer++ },
				func(c *wire.KVSlice) { c.Start++ },
				func(c *wire.KVSlice) { c.Count++ },
				func(c *wire.KVSlice) { c.Total += 8 },
				func(c *wire.KVSlice) { c.Offset += 4 },
			} {
				c := *m
				change(&c)
				try(q.from, &c, wire.CodeBadFrame)
			}
			c := *m
			c.Prefix[3]++
			try(q.from, &c, wire.CodePrefix)
			try(q.from, &wire.Handover{Head: m.Head, Upto: 3}, wire.CodeBadFrame)
			if st := s.stages[q.to]; st != nil {
				_, r := st.handle(q.from, &wire.Chunk{Head: m.Head, Start: uint32(st.given.upto), Count: 1, Tokens: []int32{1}[:1-min(st.index, 1)]})
				if r == nil || r.Code != wire.CodeBadFrame {
					t.Errorf("a chunk before all is here: %v", r)
				}
			}
		case *wire.KVAck:
			if q.to == simDecoder {
				try("X", m, wire.CodeWrongPeer)
				try(q.from, &wire.KVAck{Head: m.Head, Upto: m.Upto + 1}, wire.CodeBadFrame)
			}
		}
	}
	s.kill("S1")
	s.run()
	want, _, _ := u.alone(t)
	s.mustTell(want)
	if tried < 20 {
		t.Errorf("only %d frames were tried", tried)
	}
}

// TestStagesLeave lets a stage leave at any moment: it ends its chunk, the decoder gets all its rows, and then goes on without it.
func TestStagesLeave(t *testing.T) {
	for _, local := range []bool{false, true} {
		u := simSetup{prompt: somePrompt(23), maxNew: 12, chunk: 4, cuts: []int{2, 3, 5}, how: simSampling, rows: true, whole: local, local: local}
		want, logits, kv := u.alone(t)
		left := 0
		for _, who := range []string{"S0", "S1", "S2"} {
			for when := 1; ; when += 3 {
				s := u.start(t, uint64(when))
				s.spare = []string{"T"}
				for i := 0; i < when && s.step(); i++ {
				}
				if s.done != nil {
					break
				}
				st := s.stages[who]
				if st == nil {
					continue
				}
				s.onFrame = func(q simQueue, m wire.Message) {
					if r, ok := m.(*wire.Refusal); ok && q.from == who && r.Code == wire.CodeLeaving && r.Epoch == s.d.head.Epoch && !s.d.ended {
						left++
						for l := st.layers.First; l < st.layers.Last; l++ {
							if n := s.d.seq.Len(l); n < int(st.computed) {
								t.Errorf("%s left at %d: the decoder has %d positions of layer %d, computed are %d", who, when, n, l, st.computed)
							}
						}
					}
				}
				s.stageDo(who, st, st.leave(wire.Refuse(wire.CodeLeaving, "the node is about to close")))
				s.drain()
				if s.d.ended && s.done == nil { // it left before it had accounted for itself, for which nobody waits long
					s.decoderDo(s.d.giveUpAccounts())
				}
				if s.done == nil {
					t.Fatalf("%s left at %d: the session stalled: computed %d, announced %d", who, when, s.d.computed, s.d.announced)
				}
				if s.done.Err != nil {
					t.Fatalf("%s left at %d: %v", who, when, s.done.Err)
				}
				s.mustTell(want)
				if sum := s.d.account(); sum.LogitsHash != logits || sum.KVHash != kv && sum.KVHash != [32]byte{} {
					t.Errorf("%s left at %d: other logits or KV", who, when)
				}
				if len(s.stages) > 0 {
					t.Errorf("%d stages were left open", len(s.stages))
				}
			}
		}
		if left < 20 {
			t.Errorf("a stage left %d times", left)
		}
	}
}

// TestSuccessorGoesOn loses, and lets leave, a stage of a decoder that lacks its layers and has its rows, since the plan says so: a peer that
// takes its place computes what follows the checkpoint only.
func TestSuccessorGoesOn(t *testing.T) {
	s := newSlowNet(t)
	ctx := testContext(t)
	want, err := s.run(ctx, s.client, s.id, s.k, nil)
	if err != nil {
		t.Fatal(err)
	}
	lose := map[string]func(victim, last *Node){
		"lost": func(victim, last *Node) { s.closeHeld(victim, last) },
		"leaves": func(victim, last *Node) {
			go func() {
				_, _ = victim.Leave(ctx, 0) // the session tells
				s.gates[last].release()
			}()
		},
	}
	for name, lose := range lose {
		t.Run(name, func(t *testing.T) {
			victim, last := s.startSlow(2*time.Millisecond, nil), s.startSlow(2*time.Millisecond, nil) // nobody has measured links to this one
			s.serve(victim, s.id, 1, 2)
			s.serve(last, s.id, 2, 3)
			eventually(t, "offers of all", func() bool {
				_ = s.client.host.Refresh(ctx)
				p, _ := s.client.planPeers(s.id)
				known := func(n *Node) bool { return slices.ContainsFunc(p, func(p route.Peer) bool { return p.ID == n.ID() }) }
				return known(victim) && known(last)
			})
			k := control.Constraints{Shape: "pipelined", Cuts: []int{1, 2}, Assign: []string{s.first.ID(), victim.ID()}, Decoder: last.ID(), Chunk: 4}
			texts := 0
			s.gates[last].hold(len(want.PromptTokens) + 4)
			got, err := s.run(ctx, s.client, s.id, k, func(ev control.Event) error {
				if p := ev.Plan; p != nil && !p.Plan.KVToDecoder {
					t.Errorf("the plan leaves rows where they are:\n%s", p.Explain)
				}
				if ev.Kind == "text" {
					if texts++; texts == 3 {
						lose(victim, last)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			sameAnswer(t, got, want)
			if len(got.Recovered) != 2 || !strings.Contains(got.Recovered[1], "went on over other peers from position") {
				t.Fatalf("what was done: %q", got.Recovered)
			}
			from := 0
			if _, err := fmt.Sscanf(got.Recovered[1], "went on over other peers from position %d", &from); err != nil || from < len(got.PromptTokens) {
				t.Errorf("%q: %v", got.Recovered[1], err)
			}
			for _, st := range got.Stages {
				if st.Layers.First == 1 && st.Peer != victim.ID() && st.Tokens != len(got.PromptTokens)+len(got.NewTokens)-1-from {
					t.Errorf("the successor computed %d positions from %d on, of %d and %d", st.Tokens, from, len(got.PromptTokens), len(got.NewTokens))
				}
			}
			victim.Close()
			s.nodes = slices.DeleteFunc(s.nodes, func(n *Node) bool { return n == victim })
			s.mustBeIdle()
		})
	}
}
