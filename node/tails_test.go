package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

// TestTailsTravel runs a model most of whose layers are gated delta nets, the golden one where it is there, as travel says.
func TestTailsTravel(t *testing.T) { travel(t, recurrent(t)) }

// recurrent is a model of 8 layers, most of which are gated delta nets: the golden one where it is there.
func recurrent(t *testing.T) string {
	model := filepath.Join("..", "..", "shared", "golden", "qwen3_5_moe", "model.gguf")
	if _, err := os.Stat(model); err != nil {
		t.Log("no golden models in ../shared: a tiny one stands in")
		model = filepath.Join(t.TempDir(), "recurrent.gguf")
		if err := (runtimetest.TinyModel{Arch: "qwen35moe", Layers: 8}).Write(model); err != nil {
			t.Fatal(err)
		}
	}
	return model
}

// TestTailsOfDecodedTokens lets decoded tokens, with guesses, walk a route whose rows are pushed past a position of snapshots: there, and only there,
// the decoder is sent tails, and from there it goes on when it grows, or when a stage is lost, with the bits of a run alone.
func TestTailsOfDecodedTokens(t *testing.T) {
	model := filepath.Join(t.TempDir(), "recurrent.gguf")
	if err := (runtimetest.TinyModel{Arch: "qwen35moe", Layers: 4}).Write(model); err != nil {
		t.Fatal(err)
	}
	const stop = 256
	for _, cuts := range [][]int{{1, 2}, {2, 3}, {3}} { // stages with tails alone among them
		u := simSetup{prompt: somePrompt(stop - 9), maxNew: 40, chunk: 64, cuts: cuts, how: simSampling, rows: true, model: model}
		guesses, went := uint32(0), 0
		for seed := range uint64(9) {
			s := guessing(t, u, seed)
			s.spare = []string{"T0", "T1"}
			sent := map[int]bool{} // ends of pieces with tails behind the prompt
			s.onFrame = func(q simQueue, m wire.Message) {
				if m, ok := m.(*wire.KVSlice); ok && q.to == simDecoder && s.d.seq.TailBytes(int(m.Layer)) > 0 {
					if end := int(m.Start + m.Count); end > len(u.prompt) {
						sent[end] = true
					}
				}
			}
			for s.done == nil && (s.d.computed < stop+4 || s.d.checkpoint() < stop) && s.step() {
			}
			if s.done != nil { // the tails were on their way for too long
				continue
			}
			if !sent[stop] || len(sent) != 1 || s.d.checkpoint() != stop || s.d.seq.Reach(stop) != stop {
				t.Errorf("cuts %v, seed %d: tails at %v, the decoder has all up to %d", cuts, seed, sent, s.d.checkpoint())
			}
			went++
			guesses += s.d.stats.Guessed
			switch seed % 3 {
			case 0:
				s.grow()
			case 1:
				s.kill("S0")
			}
			s.run()
			if seed%3 == 0 && s.d.stats.Switched == 0 {
				t.Errorf("cuts %v, seed %d: it grew, and stays on its route", cuts, seed)
			}
			if seed%3 == 1 && (len(s.d.stats.Recovered) != 2 || s.d.resume.Position != stop) {
				t.Errorf("cuts %v, seed %d: went on from %d: %q", cuts, seed, s.d.resume.Position, s.d.stats.Recovered)
			}
			if len(s.refused) > 0 && seed%3 != 1 {
				t.Errorf("frames of an honest session were refused: %v", s.refused)
			}
			told, _, _ := u.alone(t)
			s.mustTell(told)
		}
		if guesses == 0 || went < 5 {
			t.Errorf("cuts %v: %d tokens were guessed, %d sessions went past position %d with the tails there", cuts, guesses, went, stop)
		}
	}
}

// TestWindowsTravel does so with a model most of whose layers keep the latest 5 positions only.
func TestWindowsTravel(t *testing.T) {
	model := filepath.Join(t.TempDir(), "windows.gguf")
	if err := (runtimetest.TinyModel{Arch: "gemma3", Layers: 8}).Write(model); err != nil {
		t.Fatal(err)
	}
	travel(t, model)
}

// travel runs a model of 8 layers across peers, pipelined, and with a stage that is lost on the way, and asks for the bits of one
// process.
func travel(t *testing.T, model string) {
	tn := newTestNet(t)
	tn.model = model
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	whole, first, second, spare, last := tn.startGated(nil), tn.start(nil), tn.start(nil), tn.start(nil), tn.startGated(nil)
	client := tn.start(func(c *Config) { c.Client = true })
	tn.serve(whole, id, 0, 8)
	tn.serve(first, id, 0, 3)
	tn.serve(second, id, 3, 6)
	tn.serve(spare, id, 3, 6)
	tn.serve(last, id, 6, 8)
	ctx := testContext(t)
	eventually(t, "five offers", func() bool { _ = client.host.Refresh(ctx); p, _ := client.planPeers(id); return len(p) == 5 })

	prompt := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 9)
	ask := func(k control.Constraints, emit func(control.Event) error) (*control.Account, error) {
		return client.run(ctx, control.RunRequest{Model: id.String(), Prompt: prompt, MaxNew: 12, Sampling: control.Sampling{Temperature: 0.7, TopP: 0.9, Seed: 5}, Proof: true, Constraints: k}, emit)
	}
	want, err := ask(control.Constraints{Shape: "local", Decoder: whole.ID()}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	cuts := []int{3, 6}
	for _, c := range []struct {
		name   string
		k      control.Constraints
		victim *Node
	}{
		{"across", control.Constraints{Shape: "across", Cuts: cuts, Assign: []string{first.ID(), second.ID()}, Decoder: whole.ID(), Chunk: 32}, nil},
		{"pipelined", control.Constraints{Shape: "pipelined", Cuts: cuts, Assign: []string{first.ID(), second.ID()}, Decoder: last.ID(), Chunk: 32}, nil},
		{"across, stage lost", control.Constraints{Shape: "across", Cuts: cuts, Assign: []string{first.ID(), second.ID()}, Decoder: whole.ID(), Chunk: 2}, second},
		{"pipelined, stage lost", control.Constraints{Shape: "pipelined", Cuts: cuts, Assign: []string{first.ID(), spare.ID()}, Decoder: last.ID(), Chunk: 2}, spare},
	} {
		if c.victim == spare { // somebody must take its place
			replacement := tn.start(nil)
			tn.serve(replacement, id, 3, 6)
			eventually(t, "an offer of the replacement", func() bool {
				_ = client.host.Refresh(context.Background())
				_ = last.host.Refresh(context.Background())
				p, _ := client.planPeers(id)
				return len(p) >= 5
			})
		}
		killed := false
		decoder := map[string]*gate{whole.ID(): tn.gates[whole], last.ID(): tn.gates[last]}[c.k.Decoder]
		if c.victim != nil {
			decoder.hold(8)
		}
		got, err := ask(c.k, func(ev control.Event) error {
			if ev.Phase == "prefill" && c.victim != nil && !killed {
				killed = true
				c.victim.Close()
				decoder.release()
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		t.Run(c.name, func(t *testing.T) { sameAnswer(t, got, want) })
		if lost := len(got.Recovered) > 0; lost != (c.victim != nil) || killed != lost {
			t.Errorf("%s: killed: %t, recovered: %v", c.name, killed, got.Recovered)
		}
		t.Logf("%s: %v", c.name, got.Recovered)
	}
}

// TestTailsRecover loses a stage at any moment of a long prompt, of a model with gated delta nets: the decoder alone, or everybody with the
// peer that takes the lost one's place, goes on from the last snapshot of all tails, or from later on.
func TestTailsRecover(t *testing.T) {
	model := filepath.Join(t.TempDir(), "recurrent.gguf")
	if err := (runtimetest.TinyModel{Arch: "qwen35moe", Layers: 6}).Write(model); err != nil {
		t.Fatal(err)
	}
	for name, u := range map[string]simSetup{"alone": {local: true, whole: true}, "handover": {rows: true}} {
		u.model, u.prompt, u.maxNew, u.chunk, u.last, u.cuts, u.how = model, turnTokens(1, 620), 5, 100, 8, []int{2, 3, 5}, simSampling
		want, logits, kv := u.alone(t)
		most, seeds := 0, 12
		if testing.Short() {
			seeds = 8
		}
		for i := range seeds {
			s := u.start(t, uint64(i))
			s.spare = []string{"T"}
			lost := 0
			for until := 50 * i; s.d.checkpoint() < until && s.done == nil; {
				s.step()
			}
			if lost = s.d.checkpoint(); s.done != nil || s.d.plan == nil || s.d.released {
				continue
			}
			s.kill(fmt.Sprint("S", i%3))
			if s.d.running != nil { // recovery waits for the step, whose layers the loss doesn't touch
				lost = min(lost, s.d.computed)
			}
			s.run()
			if s.done.Err != nil {
				t.Fatalf("%s, lost at %d: %v", name, lost, s.done.Err)
			}
			s.mustTell(want)
			if st := s.d.account(); st.LogitsHash != logits || st.KVHash != kv {
				t.Errorf("%s, lost at %d: other logits or KV", name, lost)
			}
			from := s.d.routeEnd
			if name == "handover" {
				from = int(s.d.resume.Position)
			}
			if from < lost/256*256 {
				t.Errorf("%s, lost at %d: went on from position %d: %v", name, lost, from, s.d.stats.Recovered)
			}
			most = max(most, from)
		}
		if most < 256 {
			t.Errorf("%s: nobody went on from a snapshot", name)
		}
		t.Logf("%s: from %d at most", name, most)
	}
}
