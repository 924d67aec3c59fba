package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// Whatever the order of offers, links and wishes, the plan is the same, down to the last word.
func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range 150 {
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
	for seed := range 400 {
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
	if checked < 500 {
		t.Errorf("only %d steps checked", checked)
	}
}

// What Make says of a plan is what Predict says of it, and what Validate allows.
func TestPlansAreConsistent(t *testing.T) {
	for seed := range 300 {
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

// Above ExactPeers the search is a heuristic. Measured on problems that the exact search can still do.
func TestHeuristicIsNearTheOptimum(t *testing.T) {
	var sum, worst float64
	n := 0
	for seed := range 200 {
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		m, ps, links, r := random(rng, 8, 16)
		r.PreferSelf = false
		in := newInstance(m, ps, links, r)
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
		got, ok := in.heuristic(usable, []int{6, 32, 64}) // a pool smaller than the problem, as in a real crowd
		if !ok {
			t.Errorf("seed %d: the heuristic found nothing", seed)
			continue
		}
		if tired, ok := in.exact(usable, 10); !ok || in.total(tired) > 1.5*in.total(best) {
			t.Errorf("seed %d: an exact search cut short finds %v, %g s; the optimum is %g s", seed, ok, in.total(tired), in.total(best))
		}
		ratio := in.predict(got).TotalSeconds / in.predict(best).TotalSeconds
		sum += ratio
		worst = max(worst, ratio)
		n++
	}
	t.Logf("%d problems: mean ratio to the optimum %.4f, worst %.4f", n, sum/float64(n), worst)
	if n < 80 || sum/float64(n) > 1.02 || worst > 2 {
		t.Errorf("%d problems: mean ratio %.4f, worst %.4f", n, sum/float64(n), worst)
	}
}
