package node

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// drafting is simSetup with a draft model: the model of that path.
func drafting(t *testing.T, u simSetup, seed uint64, path string, backend runtime.Backend) *simulation {
	t.Helper()
	u.guess = true
	s := u.start(t, seed)
	s.d.propose = func([]int32, int) []int32 { return nil }
	e, err := backend.Open(runtime.Options{Path: path, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	m := &draftModel{name: path, exec: e, batcher: newBatcher(e)}
	s.d.drafts, s.drafter = true, m.follow(len(u.prompt)+u.maxNew, u.how)
	t.Cleanup(func() {
		s.drafter.close()
		m.close()
	})
	return s
}

// TestDraftsChangeNothing: a model that drafts for itself is always right, another one hardly ever; the answer is the same.
func TestDraftsChangeNothing(t *testing.T) {
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for name, u := range guessSetups() {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				for _, path := range []string{"sim", "another"} {
					s := drafting(t, u, seed, path, u.backend())
					s.run()
					s.mustEqual()
					st := s.d.stats
					switch {
					case u.maxNew <= 2:
					case s.drafted == 0 || st.Guessed == 0:
						t.Errorf("%s drafted %d tokens, %d were tried", path, s.drafted, st.Guessed)
					case path == "sim" && st.Accepted != st.Guessed:
						t.Errorf("%d of %d of a model's own guesses were right", st.Accepted, st.Guessed)
					}
					if t.Failed() {
						t.Fatalf("seed %d, drafts by %s", seed, path)
					}
				}
			}
		})
	}
}

// Whatever stage is lost at whatever moment, the draft model's too, the answer is the same.
func TestDraftsSurviveLosses(t *testing.T) {
	for _, whole := range []bool{true, false} {
		u := simSetup{prompt: somePrompt(11), maxNew: 20, chunk: 4, cuts: []int{2, 3, 5}, whole: whole, how: simSampling}
		told, _, _ := u.alone(t)
		for when := 30; when < 400; when += 5 {
			s := drafting(t, u, uint64(when), "sim", u.backend())
			s.spare = []string{"T0", "T1"}
			for i := 0; i < when && s.step(); i++ {
			}
			if s.done != nil {
				continue
			}
			if when%2 == 0 {
				s.kill("S1")
			}
			if when%3 == 0 {
				s.drafter.close()
			}
			s.run()
			s.mustTell(told)
			if t.Failed() {
				t.Fatalf("whole %v, lost after %d steps", whole, when)
			}
		}
	}
}

// TestDraftModels serves a model with itself, a smaller one and unfit ones as its draft model.
func TestDraftModels(t *testing.T) {
	tn := newTestNet(t)
	n := tn.start(nil)
	id := tn.publish(n)
	publish := func(name string, m runtimetest.TinyModel) string {
		path := filepath.Join(t.TempDir(), name+".gguf")
		if err := m.Write(path); err != nil {
			t.Fatal(err)
		}
		p, err := n.publish(t.Context(), path, "", quiet)
		if err != nil {
			t.Fatal(err)
		}
		return p.ID().String()
	}
	small := publish("small", runtimetest.TinyModel{Seed: 3, Layers: 1})
	delta := publish("delta", runtimetest.TinyModel{Arch: "qwen35", Layers: 4})
	f, err := gguf.Open(tn.model)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := f.Strings("tokenizer.ggml.tokens")
	if err != nil {
		t.Fatal(err)
	}
	tokens = slices.Clone(tokens)
	tokens['a'], tokens['b'] = tokens['b'], tokens['a']
	foreign := publish("foreign", runtimetest.TinyModel{Meta: map[string]gguf.Value{"tokenizer.ggml.tokens": gguf.ArrayOf(tokens)}})
	serve := func(draft string) error {
		_, err := n.serve(testContext(t), id, nil, false, draft, quiet)
		return err
	}
	for draft, say := range map[string]string{delta: "can't be undone", foreign: "another vocabulary", "nothing": "no model"} {
		if err := serve(draft); err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "\n") {
			t.Errorf("a draft model that %q: %v", say, err)
		}
	}
	if _, err := n.serve(testContext(t), id, &control.Layers{First: 0, Last: 1}, false, small, quiet); err == nil || !strings.Contains(err.Error(), "decodes nothing") {
		t.Errorf("a draft model for the first layer alone: %v", err)
	}
	ask := func(noGuess bool) *control.Account {
		a, err := n.run(testContext(t), control.RunRequest{Model: id.String(), Prompt: "The quick brown fox", MaxNew: 50, Proof: true, Fresh: true, NoGuess: noGuess,
			Sampling: control.Sampling{Temperature: 0.7, Seed: 5, Logprobs: 2, LogitBias: []control.LogitBias{{Token: 256, Ban: true}, {Token: 258, Ban: true}}}}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, draft := range []string{id.String(), small} {
		if err := serve(draft); err != nil {
			t.Fatal(err)
		}
		got, want := ask(false), ask(true)
		sameAnswer(t, got, want)
		t.Logf("%d of %d guesses right", got.Accepted, got.Guessed)
		if want.Guessed != 0 {
			t.Errorf("%d guesses without guessing", want.Guessed)
		}
		eventually(t, "the draft's memory to be free", func() bool { e := n.served(id).draft.exec; return e.FreeKVBytes() == n.cfg.Engine.MaxKVBytes })
	}
	tn.mustBeIdle()
}

// TestDraftAskedFor lets a request choose the decoder that has a draft model, though another one is as good, and refuses what nobody has.
func TestDraftAskedFor(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	path := filepath.Join(t.TempDir(), "small.gguf")
	if err := (runtimetest.TinyModel{Seed: 3, Layers: 1, Meta: map[string]gguf.Value{"general.name": gguf.ValueOf("small")}}).Write(path); err != nil {
		t.Fatal(err)
	}
	small, err := tracker.publish(testContext(t), path, "", quiet)
	if err != nil {
		t.Fatal(err)
	}
	nodes := []*Node{tn.start(nil), tn.start(nil)}
	slices.SortFunc(nodes, func(a, b *Node) int { return strings.Compare(a.ID(), b.ID()) })
	plain, drafts := nodes[0], nodes[1] // ties go to the lower ID
	tn.serve(plain, id, 0, tn.layers())
	eventually(t, "the draft model's offer", func() bool {
		_, err := drafts.serve(testContext(t), id, nil, false, small.ID().String(), quiet)
		return err == nil
	})
	client := tn.start(func(c *Config) { c.Client = true })
	eventually(t, "an offer with a draft model", func() bool {
		_ = client.host.Refresh(testContext(t))
		peers, _ := client.planPeers(id)
		return len(peers) == 2 && slices.ContainsFunc(peers, func(p route.Peer) bool { return p.ID == drafts.ID() && p.Draft != "" })
	})
	ask := func(k control.Constraints) (a *control.Account, plan route.Plan) {
		a, err := client.run(testContext(t), control.RunRequest{Model: id.String(), Prompt: "The quick brown fox", MaxNew: 30, Proof: true, Fresh: true, Constraints: k}, func(ev control.Event) error {
			if ev.Plan != nil {
				plan = ev.Plan.Plan
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return a, plan
	}
	want, p := ask(control.Constraints{Decoder: plain.ID()})
	if p.Draft != "" {
		t.Errorf("a decoder without a draft model is said to have %s", p.Draft)
	}
	for _, name := range []string{small.ID().String(), "small"} {
		got, p := ask(control.Constraints{Draft: name})
		sameAnswer(t, got, want)
		if p.Decoder != drafts.ID() || !strings.Contains(p.Draft, small.ID().Short()) || !strings.Contains(p.Explain(), "guesses      "+p.Draft) {
			t.Errorf("asked for %s: decoder %s, draft %q:\n%s", name, p.Decoder, p.Draft, p.Explain())
		}
	}
	for what, k := range map[string]control.Constraints{"has no draft model": {Draft: small.ID().String(), Decoder: plain.ID()}, "draft model: no model": {Draft: "nothing"}, "with the draft model": {Draft: id.String()}} {
		if _, err := client.run(testContext(t), control.RunRequest{Model: id.String(), Prompt: "x", Constraints: k}, quiet); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%+v: %v", k, err)
		}
	}
	tn.mustBeIdle()
}
