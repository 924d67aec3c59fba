package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// problems is how many random problems of n are tried: a fifth with -short, which is for the race detector. Planning has one goroutine.
func problems(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

// Whatever the order of offers, links and wishes, the plan is the same, down to the last word.
func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range problems(150) {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		peers := 2 + rng.IntN(7)
		if seed%10 == 0 {
			peers = 20
		}
		m, ps, links, r := random(rng, peers, 8)
		ps = append(ps, ps[0]) // announced twice
		ps[len(ps)-1].Up /= 2
		want, wantErr := Make(m, ps, links, r)
		for range 3 {
			rng.Shuffle(len(ps), func(i, j int) { ps[i], ps[j] = ps[j], ps[i] })
			rng.Shuffle(len(links), func(i, j int) { links[i], links[j] = links[j], links[i] })
			got, err := Make(m, ps, links, r)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("seed %d: error %v, in another order %v", seed, wantErr, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: plan\n%s\nin another order\n%s", seed, want.Explain(), got.Explain())
			}
		}
	}
}

// A further offer never makes the best plan worse: exactly so where no preference is at work, and within the margins
// where one is.
func TestMoreOffersNeverHurt(t *testing.T) {
	checked := 0
	for seed := range problems(400) {
		rng := rand.New(rand.NewPCG(uint64(seed), 2))
		m, ps, links, r := random(rng, 7, 8)
		r.Decoder, r.Assign, r.Include, r.Cuts, r.PreferSelf = "", nil, nil, nil, false
		r.Shape = []Shape{Any, Local, Across}[seed%3]
		slack := 1 + epsilon
		if r.Shape == Any {
			slack += RobustMargin
		}
		before := math.Inf(1)
		for n := 1; n <= len(ps); n++ {
			plan, err := Make(m, ps[:n], links, r)
			if err != nil {
				if !math.IsInf(before, 1) {
					t.Fatalf("seed %d: with peer %d there is no plan any more: %v", seed, n, err)
				}
				continue
			}
			if got := plan.Predicted.TotalSeconds; got > before*slack {
				t.Fatalf("seed %d: %g s with %d peers, %g s with one more", seed, before, n-1, got)
			} else if !math.IsInf(before, 1) {
				checked++
			}
			before = plan.Predicted.TotalSeconds
		}
	}
	if checked < problems(500) {
		t.Errorf("only %d steps checked", checked)
	}
}

// What Make says of a plan is what Predict says of it, and what Validate allows.
func TestPlansAreConsistent(t *testing.T) {
	for seed := range problems(300) {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		m, ps, links, r := random(rng, 1+rng.IntN(14), 10)
		plan, err := Make(m, ps, links, r)
		if err != nil {
			continue
		}
		if err := plan.Validate(m, ps); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, plan.Explain())
		}
		cost, err := plan.Predict(m, ps, links)
		if err != nil || !reflect.DeepEqual(cost, plan.Predicted) {
			t.Fatalf("seed %d: predicted %+v, then %+v (%v)", seed, plan.Predicted, cost, err)
		}
		if len(plan.Reasons) != len(ps) || !slices.IsSortedFunc(plan.Reasons, func(a, b Reason) int {
			return map[bool]int{true: 1, false: -1}[a.Peer > b.Peer]
		}) {
			t.Fatalf("seed %d: %d reasons for %d peers", seed, len(plan.Reasons), len(ps))
		}
		for _, why := range plan.Reasons {
			used := why.Peer == plan.Decoder || slices.ContainsFunc(plan.Stages, func(s Stage) bool { return s.Peer == why.Peer })
			if used != why.Used || why.Text == "" {
				t.Fatalf("seed %d: %+v, but used is %v", seed, why, used)
			}
		}
	}
}

// Above ExactPeers the search is a heuristic. Measured on problems that the exact search can still do: what it finds is as cheap, but for
// what preferences among shapes allow.
func TestHeuristicsAreNearTheOptimum(t *testing.T) {
	type measure struct {
		sum, worst float64
		n          int
	}
	var forced, free measure
	for seed := range problems(200) {
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		m, ps, links, r := random(rng, 8, 16)
		r.PreferSelf = false
		in := newInstance(m, ps, r)
		in.net.learn(links, in.everybody(), false)
		var usable []int
		for i := range in.peers {
			if in.barred[i] == "" {
				usable = append(usable, i)
			}
		}
		if in.checkWanted() != nil {
			continue
		}
		best, ok := in.exact(usable, math.MaxInt)
		if !ok {
			continue
		}
		if tired, ok := in.exact(usable, 10); !ok || in.total(tired) > 1.5*in.total(best) {
			t.Errorf("seed %d: an exact search cut short finds %v, %g s; the optimum is %g s", seed, ok, in.total(tired), in.total(best))
		}
		try := func(name string, to *measure, got route, ok bool) {
			if !ok {
				t.Errorf("seed %d: %s finds nothing", seed, name)
				return
			}
			ratio := in.total(got) / in.total(best)
			to.sum, to.worst, to.n = to.sum+ratio, max(to.worst, ratio), to.n+1
		}
		got, ok := in.heuristic(usable, []int{6, 32, 64}, links) // a pool smaller than the problem, as in a real crowd
		try("the search over a pool", &forced, got, ok)
		if len(r.Cuts) == 0 && len(r.Assign) == 0 && len(r.Include) == 0 {
			got, ok := in.crowd(usable, links, thorough)
			try("sweeping", &free, got, ok)
		}
	}
	for _, k := range []struct {
		name        string
		got         measure
		mean, worst float64
		n           int
	}{{"over a pool", forced, 1.02, 2, 80}, {"sweeping", free, 1.005, 1.1, 80}} {
		mean := k.got.sum / float64(k.got.n)
		t.Logf("%s, %d problems: mean ratio to the optimum %.4f, worst %.4f", k.name, k.got.n, mean, k.got.worst)
		if k.got.n < problems(k.n) || mean > k.mean || k.got.worst > k.worst {
			t.Errorf("%s, %d problems: mean ratio %.4f, worst %.4f", k.name, k.got.n, mean, k.got.worst)
		}
	}
}

// Up to 200 peers a plan costs within 1 % of one that many more decoders, periods and paths are tried for, on average, and within 3 % at worst; of larger crowds a
// little more, with a fraction of the time.
func TestPlansAreNearSlowOnes(t *testing.T) {
	slow := breadth{pool: 64, near: 1000, decoders: 8, paths: 8, arrivals: 48, coarse: 12, fine: 12, chunks: true}
	for _, k := range []struct {
		peers       []int
		wide        breadth
		mean, worst float64
	}{{[]int{48, 100, 200}, careful, 1.01, 1.03}, {[]int{1000}, swift, 1.03, 1.10}} {
		var sum, worst float64
		n := 0
		for _, peers := range k.peers {
			if testing.Short() && peers != 100 {
				continue
			}
			for seed, prompt := range []int{60, 300, 1000, 4000, 20000} {
				if seed%2 == 1 && !*soak {
					continue
				}
				for _, answer := range []int{20, 300} {
					m, ps, links, r := crowdOf(peers, rand.New(rand.NewPCG(uint64(peers), uint64(seed))))
					r.PromptTokens, r.NewTokens = prompt, answer
					solve := func(wide breadth) float64 {
						in := newInstance(m, ps, r)
						got, ok := in.crowd(in.everybody(), links, wide)
						if !ok {
							t.Fatalf("%d peers, %d tokens: no plan", peers, prompt)
						}
						return in.total(got)
					}
					ratio := solve(k.wide) / solve(slow)
					t.Logf("%d peers, %d + %d tokens: %.4f", peers, prompt, answer, ratio)
					sum, worst, n = sum+ratio, max(worst, ratio), n+1
				}
			}
		}
		t.Logf("%v peers: mean %.4f, worst %.4f", k.peers, sum/float64(n), worst)
		if n > 0 && sum/float64(n) > k.mean || worst > k.worst {
			t.Errorf("%v peers: mean ratio %.4f, worst %.4f", k.peers, sum/float64(n), worst)
		}
	}
}

// Everything four times as slow takes four times as long, but for [PassOverhead], which is the same for all.
func TestSlownessScales(t *testing.T) {
	for _, peers := range []int{3, 6, 8} {
		m, ps, _, r := crowd(peers)
		var links []Link
		for i := range ps {
			for k := range ps {
				if i != k {
					links = append(links, Link{From: ps[i].ID, To: ps[k].ID, RTT: 0.01 * float64(1+(i*7+k*3)%9)})
				}
			}
		}
		before, err := Make(m, ps, links, r)
		if err != nil {
			t.Fatal(err)
		}
		for i := range ps {
			p := &ps[i]
			p.PrefillFlops, p.DecodeBytesPerSec, p.Up, p.Down = p.PrefillFlops/4, p.DecodeBytesPerSec/4, p.Up/4, p.Down/4
		}
		for i := range links {
			links[i].RTT *= 4
		}
		after, err := Make(m, ps, links, r)
		if err != nil {
			t.Fatal(err)
		}
		if ratio := after.Predicted.TotalSeconds / before.Predicted.TotalSeconds; ratio > 4*(1+epsilon) || ratio < 3.98 {
			t.Errorf("%d peers: %g s, then %g", peers, before.Predicted.TotalSeconds, after.Predicted.TotalSeconds)
		}
	}
}

// Of two equal machines the one with nothing to do is used, whatever their names.
func TestIdleTwinIsPreferred(t *testing.T) {
	for _, peers := range []int{8, 40, 300} {
		m, ps, links, r := crowd(peers)
		for i := range ps { // everybody has a busy twin, named before or after
			ps[i].Load = 0
			twin := ps[i]
			twin.ID, twin.Load = fmt.Sprintf("%c%s", "0Z"[i%2], twin.ID), 2
			ps = append(ps, twin)
		}
		r.NewTokens, r.Shape = 1000, Local
		plan, err := Make(m, ps, links, r)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(ps[:peers], func(p Peer) bool { return p.ID == plan.Decoder }) {
			t.Errorf("%d peers: the busy %s decodes", peers, plan.Decoder)
		}
	}
}

// A round trip that nobody has measured costs something, but is no reason against a peer: more than a short one, less than a very long one.
func TestUnknownRoundTripIsNeitherZeroNorInfinite(t *testing.T) {
	m, ps, _, r := crowd(2)
	ps[0].Holds, ps[0].Head, ps[0].Embed = Range{0, 32}, true, true
	ps[1].Holds, ps[1].Head, ps[1].Embed, ps[1].NoDecode = Range{0, 32}, true, true, true
	r.Include, r.Shape = []string{ps[1].ID}, Across
	total := func(links ...Link) float64 {
		plan, err := Make(m, ps, links, r)
		if err != nil {
			t.Fatal(err)
		}
		return plan.Predicted.TotalSeconds
	}
	short, unknown, long := total(Link{From: ps[0].ID, To: ps[1].ID, RTT: 1e-3}), total(), total(Link{From: ps[0].ID, To: ps[1].ID, RTT: 2})
	if !(short < unknown && unknown < long) {
		t.Errorf("a short round trip makes %g s, an unknown one %g, a long one %g", short, unknown, long)
	}
}

// What can only make things worse never makes the best plan cheaper, and what can only help never makes it dearer: losses, short memory,
// slower disks, and guesses that are right.
func TestTermsPointTheRightWay(t *testing.T) {
	for seed := range problems(200) {
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		m, ps, links, r := random(rng, 5, 6)
		r.PreferSelf, r.Shape = false, []Shape{Local, Across}[seed%2] // no preference is at work
		r.Cuts, r.Assign = nil, nil
		total := func() float64 {
			p, err := Make(m, ps, links, r)
			if err != nil {
				return math.Inf(1)
			}
			return p.Predicted.TotalSeconds
		}
		before := total()
		worse := func(what string) {
			t.Helper()
			after := total()
			if after < before*(1-epsilon) {
				t.Errorf("seed %d: %g s, %s %g", seed, before, what, after)
			}
			before = after
		}
		p := &ps[rng.IntN(len(ps))]
		p.FailuresPerHour += 10
		worse("with more losses")
		if p.MemoryBytes == 0 {
			p.MemoryBytes = 1 << 40
		}
		if p.DiskBytesPerSec == 0 {
			p.DiskBytesPerSec = 1e9
		}
		before = total()
		p.MemoryBytes = min(p.MemoryBytes, 1+int64(float64(m.LayerWeightBytes[0])*3*rng.Float64()))
		worse("with less memory")
		p.DiskBytesPerSec /= 2
		worse("with a slower disk")
		r.Guesses++
		worse("with a wrong guess more")
	}
}

// Who is lost often is not given what a twin can do who isn't, in crowds of any size.
func TestReliableTwinIsPreferred(t *testing.T) {
	for _, peers := range []int{8, 40, 300} {
		m, ps, links, r := crowd(peers)
		for i := range ps { // everybody has a twin that is lost all the time, named before or after
			twin := ps[i]
			twin.ID, twin.FailuresPerHour = fmt.Sprintf("%c%s", "0Z"[i%2], twin.ID), 600
			ps = append(ps, twin)
		}
		plan, err := Make(m, ps, links, r)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Predicted.RiskSeconds > 0 {
			t.Errorf("%d peers: %v: losses are expected to take %g s of %g", peers, plan, plan.Predicted.RiskSeconds, plan.Predicted.TotalSeconds)
		}
	}
}

// After a loss the route is the one with the fewest rows on their way, where these are what matters: everybody else keeps a part, and who takes the
// lost one's is handed its rows alone. Nothing else makes it dearer than to put a twin in its place.
func TestRepairKeepsWhatItCan(t *testing.T) {
	checked := 0
	for seed := range problems(100) {
		rng := rand.New(rand.NewPCG(uint64(seed), 6))
		m, ps, links, r := random(rng, 6, 8)
		r = Request{PromptTokens: 300 + rng.IntN(500), NewTokens: 50, Shape: Pipelined}
		for i := range ps {
			ps[i].KVFreeBytes = 1 << 50
		}
		before, err := Make(m, ps, links, r)
		if err != nil || len(before.Stages) < 2 {
			continue
		}
		lost := rng.IntN(len(before.Stages))
		gone := before.Stages[lost].Peer
		twin := ps[slices.IndexFunc(ps, func(p Peer) bool { return p.ID == gone })]
		twin.ID = "twin"
		ps = append(ps, twin)
		r.HeldTokens, r.PromptTokens = r.PromptTokens, r.PromptTokens+1
		r.Former, r.Decoder, r.Exclude = before.Stages, before.Decoder, map[string]string{gone: "lost"}
		for i := range ps { // rows are what matters
			if ps[i].ID == before.Decoder {
				ps[i].Up = 1e3
			}
		}
		after, err := Make(m, ps, links, r)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		least := after
		least.Stages, least.DecoderLayers, least.KVToDecoder = slices.Clone(before.Stages), before.DecoderLayers, before.KVToDecoder
		least.Stages[lost].Peer = "twin"
		if cost, err := least.Predict(m, ps, links); err != nil || after.Predicted.TotalSeconds > cost.TotalSeconds*(1+RobustMargin) {
			t.Fatalf("seed %d: the repaired route takes %g s, with a twin for who was lost %g (%v)", seed, after.Predicted.TotalSeconds, cost.TotalSeconds, err)
		}
		moved := func(p Plan) (layers int) { // that are handed to somebody
			for _, s := range p.Stages {
				if !slices.Contains(before.Stages, s) {
					layers += s.Layers.Len()
				}
			}
			return layers
		}
		if got, want := moved(after), moved(least); got > want {
			t.Errorf("seed %d: rows of %d layers are handed over, %d had to be", seed, got, want)
		}
		checked++
	}
	if checked < problems(20) {
		t.Errorf("only %d repairs checked", checked)
	}
}
