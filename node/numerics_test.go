package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

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
