package node

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// TestProfilesGiveOneAnswer runs sessions of random profiles over random cuts, which need not be the profile's, loses stages at
// random times, and asks for the answer of that profile alone on one machine.
func TestProfilesGiveOneAnswer(t *testing.T) {
	const layers = 6
	someCuts := func(rng *rand.Rand, most int) (cuts []int) {
		for l := 1; l < layers && len(cuts) < most; l++ {
			if rng.IntN(2) == 0 {
				cuts = append(cuts, l)
			}
		}
		return cuts
	}
	answers := map[string]bool{}
	for seed := range uint64(160) {
		rng := rand.New(rand.NewPCG(seed, 2))
		kv := []runtime.KVType{runtime.KVF16, runtime.KVQ8}[rng.IntN(2)]
		seam := []runtime.SeamType{runtime.SeamBF16, runtime.SeamQ8}[rng.IntN(2)]
		cuts := someCuts(rng, layers)
		if rng.IntN(3) == 0 {
			cuts = append(cuts, layers)
		}
		if len(cuts) == 0 {
			seam = runtime.SeamF32
		}
		u := simSetup{prompt: somePrompt(30), maxNew: 5, chunk: 1 + rng.IntN(9), cuts: someCuts(rng, 3), how: simSampling, guess: rng.IntN(2) == 0,
			numerics: numericsOf(kv, seam, cuts)}
		if len(u.cuts) == 0 {
			u.cuts = []int{3}
		}
		u.local = rng.IntN(2) == 0
		u.whole = u.local || rng.IntN(2) == 0
		u.tails = rng.IntN(4) == 0
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := u.start(t, seed)
			s.spare = []string{"T0", "T1"}
			for range rng.IntN(150) {
				s.step()
			}
			if rng.IntN(3) > 0 && s.done == nil {
				s.kill(fmt.Sprintf("S%d", rng.IntN(len(u.cuts))))
			}
			s.run()
			if s.done.Err != nil {
				t.Fatalf("session failed: %v", s.done.Err)
			}
			told, _, _ := u.alone(t)
			if s.mustTell(told); u.local { // else the account of a lost stage may be missing
				s.mustEqual()
			}
			answers[fmt.Sprint(s.tokens)] = true
		})
	}
	if len(answers) < 20 {
		t.Errorf("%d answers: the profiles change too little for this test to tell", len(answers))
	}
}

// TestProfilesOfRealCaches is the same for the engine itself, where rows have another size on the wire and recovery goes on from
// imported ones.
func TestProfilesOfRealCaches(t *testing.T) {
	model := newTestNet(t).model
	cfg, err := runtime.Inspect(model)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []wire.Numerics{
		numericsOf(runtime.KVQ8, runtime.SeamF32, nil),
		numericsOf(runtime.KVF16, runtime.SeamF16, []int{1, cfg.Layers}),
		numericsOf(runtime.KVQ8, runtime.SeamQ8, []int{1, 2}),
		numericsOf(runtime.KVF16, runtime.SeamBF16, []int{2}),
	} {
		for j, cuts := range [][]int{{1, 2}, {2}, {1, cfg.Layers}} {
			u := simSetup{prompt: somePrompt(40), maxNew: 4, chunk: 7, cuts: cuts, local: true, whole: true, how: simSampling, model: model, numerics: n}
			s := u.start(t, uint64(i))
			for range 20 * j {
				s.step()
			}
			if j > 0 {
				s.kill("S0")
			}
			s.run()
			s.mustEqual()
		}
	}
}

// TestForeignProfiles asks a node for profiles that nobody can compute.
func TestForeignProfiles(t *testing.T) {
	u := simSetup{prompt: somePrompt(4), maxNew: 1}
	e := u.open(t, u.backend(), runtime.Range{})
	for _, n := range []wire.Numerics{
		{Seam: uint8(runtime.SeamQ8), Cuts: []uint32{7}},
	} {
		if _, r := profileOf(e, n); r == nil || r.Code != wire.CodeProfile {
			t.Errorf("%+v: %v", n, r)
		}
	}
	m, err := runtime.Open(runtime.Options{Path: newTestNet(t).model, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, n := range []wire.Numerics{{KV: 9}, {Seam: 9, Cuts: []uint32{1}}, {Seam: 1, Cuts: []uint32{1 << 31}}, {Seam: 1, Cuts: []uint32{2, 1}}} {
		if _, r := profileOf(m, n); r == nil || r.Code != wire.CodeProfile {
			t.Errorf("%+v: %v", n, r)
		}
	}
	for _, n := range []wire.Numerics{{}, numericsOf(runtime.KVQ8, runtime.SeamQ8, []int{1, 2}), numericsOf(runtime.KVF32, runtime.SeamF32, nil)} {
		p, r := profileOf(m, n)
		if back := numericsOf(p.KV, p.Seam, p.Cuts); r != nil || back.KV != n.KV || back.Seam != n.Seam || !slices.Equal(back.Cuts, n.Cuts) {
			t.Errorf("%+v became %v (%v)", n, p, r)
		}
	}
}

// roundNet is a decoder with all three layers, stages for the first two, and a client.
func roundNet(t *testing.T) (tn *testNet, id artifacts.ID, whole, first, second, client *Node) {
	tn = newTestNet(t)
	whole, first, second = tn.start(nil), tn.start(nil), tn.start(nil)
	id = tn.publish(whole)
	tn.serve(whole, id, 0, 3)
	tn.serve(first, id, 0, 2)
	tn.serve(second, id, 1, 3)
	client = tn.start(func(c *Config) { c.Client = true })
	eventually(t, "three offers", func() bool {
		_ = client.host.Refresh(testContext(t))
		p, _ := client.planPeers(id)
		return len(p) == 3
	})
	return tn, id, whole, first, second, client
}

// TestProfilesInASwarm asks for one answer of a profile over several routes, and alone.
func TestProfilesInASwarm(t *testing.T) {
	tn, id, whole, first, second, client := roundNet(t)
	ctx := testContext(t)
	seen := map[string]string{}
	for _, c := range []struct{ kv, seam string }{{"f16", "f32"}, {"q8_0", "f32"}, {"f16", "bf16"}, {"f16", "f16"}, {"q8_0", "q8_0"}} {
		k := control.Constraints{Shape: "across", Cuts: []int{1, 2}, Assign: []string{first.ID(), second.ID()}, Decoder: whole.ID(), KV: c.kv, Seam: c.seam}
		got, err := tn.run(ctx, client, id, k, nil)
		if err != nil {
			t.Fatal(err)
		}
		exact := c.seam
		if c.seam != "f32" {
			exact += "@1,2"
		}
		if got.KV != c.kv || got.Seam != exact {
			t.Errorf("asked for KV %s and seams %s, the account has %s and %s", c.kv, c.seam, got.KV, got.Seam)
		}
		if other, ok := seen[got.LogitsHash]; ok {
			t.Errorf("%s has the logits of %s", c, other)
		}
		seen[got.LogitsHash] = fmt.Sprint(c)
		cfg := whole.served(id).exec.Config()
		kv, _ := runtime.ParseKVType(c.kv)
		seam, _, _ := runtime.ParseSeam(c.seam)
		for i, st := range got.Stages {
			if st.SeamBytes != int64(st.Tokens*seam.Bytes(cfg.Width)) || st.KVBytes != int64(st.Tokens*cfg.KVRowBytes(i, kv)) {
				t.Errorf("%s: stage %d sent %d bytes of seams and %d of KV for %d tokens", c, i, st.SeamBytes, st.KVBytes, st.Tokens)
			}
		}
		for name, other := range map[string]control.Constraints{
			"alone":     {Shape: "local", Decoder: whole.ID()},
			"one cut":   {Shape: "across", Cuts: []int{2}, Assign: []string{first.ID()}, Decoder: whole.ID()},
			"pipelined": {Shape: "pipelined", Cuts: []int{1}, Assign: []string{first.ID()}, Decoder: second.ID()},
		} {
			other.KV, other.Seam = got.KV, got.Seam
			again, err := tn.run(ctx, client, id, other, nil)
			if err != nil {
				t.Fatal(err)
			}
			if sameAnswer(t, again, got); again.LogitsHash != got.LogitsHash || again.KVHash != got.KVHash {
				t.Errorf("%s, %s: other bits", c, name)
			}
		}
	}
}

// TestProfileRequests has profiles that make no sense, and the one that a plan chooses.
func TestProfileRequests(t *testing.T) {
	tn, id, whole, _, _, client := roundNet(t)
	ctx := testContext(t)
	for _, k := range []control.Constraints{{KV: "q4"}, {Seam: "f8"}, {Seam: "q8_0@4"}, {Seam: "q8_0@2,1"}} {
		if _, err := tn.run(ctx, client, id, k, nil); err == nil {
			t.Errorf("%+v is taken", k)
		}
	}
	for _, k := range []control.Constraints{{Seam: "auto", KV: "auto", Shape: "across", Cuts: []int{1}}, {Seam: "q8_0", Shape: "local", Decoder: whole.ID()}} {
		a, err := tn.run(ctx, client, id, k, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a.Seam != "f32" || a.KV != "f16" { // seams and rows of this model are nothing, and local plans have none
			t.Errorf("%+v: seams are %s, rows %s", k, a.Seam, a.KV)
		}
	}
}

// TestProfilesSurviveLosses loses a stage, and the decoder, of sessions that round.
func TestProfilesSurviveLosses(t *testing.T) {
	s := newSlowNet(t)
	ctx := testContext(t)
	s.k.KV, s.k.Seam = "q8_0", "bf16"
	want, err := s.run(ctx, s.client, s.id, s.k, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, victim := range []*Node{s.second, s.decoder} {
		killed := false
		s.gates[s.decoder].hold(map[*Node]int{s.second: 8, s.decoder: len(want.PromptTokens) + 6}[victim])
		got, err := s.run(ctx, s.client, s.id, s.k, func(ev control.Event) error {
			if !killed && (ev.Phase == "prefill" && victim == s.second || ev.Kind == "text") {
				killed = true
				s.closeHeld(victim, s.decoder)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got.Text != want.Text || fmt.Sprint(got.NewTokens) != fmt.Sprint(want.NewTokens) || got.KVHash != want.KVHash {
			t.Errorf("answer %q %v, want %q %v", got.Text, got.NewTokens, want.Text, want.NewTokens)
		}
		if got.Seam != "bf16@1,2" || len(got.Recovered) == 0 {
			t.Errorf("seams %s, recovered %v", got.Seam, got.Recovered)
		}
		s.k.Assign[1] = s.spare.ID()
	}
}

// TestProfilesOfTurns asks for a second turn: the cache of the first is found by the same profile only.
func TestProfilesOfTurns(t *testing.T) {
	_, id, whole, first, _, client := roundNet(t)
	ctx := testContext(t)
	ask := func(prompt []int32, k control.Constraints) *control.Account {
		t.Helper()
		a, err := client.run(ctx, control.RunRequest{Model: id.String(), Tokens: prompt, MaxNew: 8, Sampling: control.Sampling{Seed: 1}, Constraints: k}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	prompt := turnTokens(1, 60)
	one := ask(prompt, control.Constraints{Seam: "q8_0", Shape: "across", Cuts: []int{2}, Assign: []string{first.ID()}, Decoder: whole.ID()})
	next := slices.Concat(prompt, one.NewTokens, turnTokens(2, 10))
	if a := ask(next, control.Constraints{Decoder: whole.ID(), Shape: "local"}); a.Reused != 0 {
		t.Errorf("a session in f32 reused %d tokens of one in q8_0", a.Reused)
	}
	if a := ask(next, control.Constraints{Decoder: whole.ID(), Shape: "local", Seam: "q8_0@2", KV: "q8_0"}); a.Reused != 0 {
		t.Errorf("a session with another KV type reused %d tokens", a.Reused)
	}
	if a := ask(slices.Concat(next, []int32{5}), control.Constraints{Seam: "q8_0"}); a.Reused < 60 || a.Seam != "q8_0@2" {
		t.Errorf("the next turn reused %d tokens, with seams %s", a.Reused, a.Seam)
	}
}

// TestEffect asks what rounding changes, of a node that computes it itself and of one that asks the route.
func TestEffect(t *testing.T) {
	_, id, whole, first, second, client := roundNet(t)
	for _, n := range []*Node{whole, client} {
		k := control.Constraints{Shape: "across", Cuts: []int{1, 2}, Assign: []string{first.ID(), second.ID()}, Decoder: whole.ID(), KV: "q8_0", Seam: "q8_0"}
		r, err := n.Control().Plan(testContext(t), control.PlanRequest{Model: id.String(), PromptTokens: 500, NewTokens: 5, Constraints: k})
		if err != nil {
			t.Fatal(err)
		}
		e := r.Effect
		where := map[bool]string{true: "on this node", false: "over the plan's route"}[n == whole]
		if e == nil || e.NotMeasured != "" || e.Where != where || e.Positions < 20 || !(e.Largest > 0) || !(e.KL > 0) || e.Top1 < e.Positions/2 || len(e.Links) != 2 {
			t.Fatalf("%+v", e)
		}
		if l := e.Links[1]; l.From != second.ID() || l.To != whole.ID() || l.Seam*3 > l.SeamPlain || l.KV*3 > l.KVPlain*2 || !(e.FirstToken < e.FirstTokenPlain) {
			t.Errorf("%+v", e)
		}
		if !strings.Contains(r.Explain, "KL divergence") || !strings.Contains(r.Explain, "instead of") {
			t.Error(r.Explain)
		}
	}
	r, err := client.Control().Plan(testContext(t), control.PlanRequest{Model: id.String(), PromptTokens: 500, NewTokens: 5})
	if err != nil || r.Effect != nil {
		t.Errorf("a plan that rounds nothing has the effect %+v (%v)", r.Effect, err)
	}
}

func TestCompareLogits(t *testing.T) {
	if largest, kl, same := compareLogits([]float32{1, 2, 3}, []float32{1, 2, 3}); largest != 0 || kl != 0 || !same {
		t.Error(largest, kl, same)
	}
	largest, kl, same := compareLogits([]float32{0, 0}, []float32{0, float32(math.Log(3))})
	if want := math.Log(2) - math.Log(3)/2; math.Abs(largest-math.Log(3)) > 1e-6 || math.Abs(kl-want) > 1e-6 || same {
		t.Error(largest, kl, want, same)
	}
}
