package route

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// crowd builds a swarm like a public one: an 8-billion-parameter model of 32 layers, volunteers that hold a few layers
// each, some that hold everything.
func crowd(peers int) (Model, []Peer, []Link, Request) {
	return crowdOf(peers, rand.New(rand.NewPCG(uint64(peers), 9)))
}

func crowdOf(peers int, rng *rand.Rand) (Model, []Peer, []Link, Request) {
	m := Model{Layers: 32, HeadBytes: 430e6, EmbedBytes: 300e6, HeadFlops: 1.05e9, SeamBytes: 16384, Context: 131072}
	for i := range m.Layers {
		m.LayerWeightBytes = append(m.LayerWeightBytes, 125e6)
		m.LayerFlops = append(m.LayerFlops, 0.44e9)
		m.KVBytesPerToken = append(m.KVBytesPerToken, 4096)
		if i > 0 {
			m.Cuts = append(m.Cuts, i)
		}
	}
	var ps []Peer
	var links []Link
	for i := range peers {
		p := Peer{
			ID: fmt.Sprintf("12D3KooWLcUVZ1ybtJQKmqsBYczXVpBTVnqvWwfuNVfK%05d", i), Holds: Range{0, 32}, Head: true, Embed: true,
			PrefillFlops: 1e11 * (0.3 + 3*rng.Float64()), DecodeBytesPerSec: 1e10 * (0.5 + 4*rng.Float64()),
			KVFreeBytes: 4e9, Up: 1e6 * (1 + 50*rng.Float64()), Down: 1e7 * (1 + 10*rng.Float64()), Load: float64(rng.IntN(3)),
		}
		if i%5 != 0 {
			n := 4 + rng.IntN(12)
			p.Holds.First = rng.IntN(32 - n + 1)
			p.Holds.Last = p.Holds.First + n
			p.Head, p.Embed = p.Holds.Last == 32, p.Holds.First == 0
		}
		ps = append(ps, p)
		for range min(i, 16) { // as many as an offer tells
			links = append(links, Link{From: ps[rng.IntN(i)].ID, To: p.ID, RTT: 0.005 + 0.1*rng.Float64()})
		}
	}
	return m, ps, links, Request{PromptTokens: 4000, NewTokens: 300}
}

func BenchmarkPlan8(b *testing.B)     { benchmarkPlan(b, 8) }
func BenchmarkPlan50(b *testing.B)    { benchmarkPlan(b, 50) }
func BenchmarkPlan200(b *testing.B)   { benchmarkPlan(b, 200) }
func BenchmarkPlan1000(b *testing.B)  { benchmarkPlan(b, 1000) }
func BenchmarkPlan10000(b *testing.B) { benchmarkPlan(b, 10000) }

func benchmarkPlan(b *testing.B, offers int) {
	m, ps, links, r := crowd(offers)
	for b.Loop() {
		if _, err := Make(m, ps, links, r); err != nil {
			b.Fatal(err)
		}
	}
}

// The crowd's plans hold, whatever their price.
func TestCrowd(t *testing.T) {
	for _, peers := range []int{8, 30, 100} {
		m, ps, links, r := crowd(peers)
		plan, err := Make(m, ps, links, r)
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Validate(m, ps); err != nil {
			t.Error(err)
		}
		r.Shape = Local
		alone, err := Make(m, ps, links, r)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Predicted.TotalSeconds > alone.Predicted.TotalSeconds*(1+RobustMargin) {
			t.Errorf("%d peers: %v takes %g s, one peer alone %g s", peers, plan, plan.Predicted.TotalSeconds, alone.Predicted.TotalSeconds)
		}
		t.Logf("%d peers: %v, %.4g s; alone %.4g s", peers, plan, plan.Predicted.TotalSeconds, alone.Predicted.TotalSeconds)
	}
}
