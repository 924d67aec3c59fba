package assign

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/route"
)

// testModel has layers of 1 byte and 1e9 FLOPs, cut anywhere.
func testModel(layers int) *route.Model {
	m := &route.Model{Layers: layers, EmbedBytes: 1, HeadBytes: 1}
	for x := range layers {
		m.LayerWeightBytes, m.LayerFlops = append(m.LayerWeightBytes, 1), append(m.LayerFlops, 1e9)
		if x > 0 {
			m.Cuts = append(m.Cuts, x)
		}
	}
	return m
}

func order(id string) func(route.Range) uint64 {
	return func(r route.Range) uint64 {
		h := fnv.New64a()
		fmt.Fprint(h, id, r.First, r.Last)
		return h.Sum64()
	}
}

func TestChooseLiftsTheWorst(t *testing.T) {
	m := testModel(10)
	others := []Peer{
		{ID: "a", Holds: route.Range{First: 0, Last: 5}, PrefillFlops: 1e11},
		{ID: "b", Holds: route.Range{First: 4, Last: 8}, PrefillFlops: 1e11},
	}
	v := Volunteer{ID: "v", Budget: 4}
	if got, want := Choose(m, v, others), (route.Range{First: 7, Last: 10}); got != want {
		t.Errorf("with layers 8 and 9 uncovered it takes %v, want %v", got, want)
	}
	others = append(others, Peer{ID: "c", Holds: route.Range{First: 7, Last: 10}, Joining: true})
	if got, want := Choose(m, v, others), (route.Range{First: 7, Last: 10}); got != want {
		t.Errorf("with a slow peer on its way there it takes %v, want %v", got, want)
	}
	others[2].PrefillFlops = 1e12
	if got, want := Choose(m, v, others), (route.Range{First: 1, Last: 5}); got != want { // as thin as 0–2, and longer
		t.Errorf("with a fast peer on its way there it takes %v, want %v", got, want)
	}
}

func TestChoosePrefersItsDisk(t *testing.T) {
	m := testModel(12)
	v := Volunteer{ID: "v", Budget: 4, OnDisk: make([]bool, 12)}
	v.OnDisk[5], v.OnDisk[6] = true, true
	if got, want := Choose(m, v, nil), (route.Range{First: 3, Last: 7}); got != want {
		t.Errorf("it takes %v, want %v", got, want)
	}
	if got := Choose(m, Volunteer{ID: "v"}, nil); got.Len() != 0 {
		t.Errorf("with no budget it takes %v", got)
	}
	if got, want := Choose(m, Volunteer{ID: "v", Budget: 100}, nil), (route.Range{First: 0, Last: 12}); got != want {
		t.Errorf("with room for all it takes %v, want %v", got, want)
	}
}

// member is one of a swarm that tests play.
type member struct {
	Volunteer
	Watch
	claim route.Range // where it is going
}

// others returns what everybody but one offers and claims.
func others(all []*member, but *member) (out []Peer) {
	for _, p := range all {
		if p == but {
			continue
		}
		if p.Serves.Len() > 0 {
			out = append(out, Peer{ID: p.ID, Holds: p.Serves, PrefillFlops: p.PrefillFlops})
		}
		if p.claim.Len() > 0 {
			out = append(out, Peer{ID: p.ID, Holds: p.claim, Joining: true, PrefillFlops: p.PrefillFlops})
		}
	}
	return out
}

func served(m *route.Model, all []*member) []float64 {
	var out []Peer
	for _, p := range all {
		out = append(out, Peer{ID: p.ID, Holds: p.Serves, PrefillFlops: p.PrefillFlops})
	}
	return Coverage(m, out)
}

func crowd(rng *rand.Rand, m *route.Model, n int) (all []*member) {
	for i := range n {
		id := fmt.Sprintf("peer%02d", i)
		all = append(all, &member{Volunteer: Volunteer{ID: id, PrefillFlops: 1e10 * (1 + 9*rng.Float64()), Budget: int64(m.Layers/6 + 1 + rng.IntN(m.Layers/3)), Order: order(id)}})
	}
	return all
}

// TestStartTogether lets twenty volunteers choose at the same moment, knowing of nobody, and move from then on; half of them act on what they knew a round earlier.
func TestStartTogether(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 9))
		m := testModel(24 + rng.IntN(60))
		all := crowd(rng, m, 20)
		for _, p := range all {
			p.Serves = Choose(m, p.Volunteer, nil)
		}
		moves, quiet := 0, 0
		was := served(m, all)
		for round := 0; quiet < 50; round++ {
			if round == 2000 {
				t.Fatalf("seed %d: after %d moves there is no end", seed, moves)
			}
			views := make([][]Peer, len(all))
			for i, p := range all {
				views[i] = others(all, p)
			}
			quiet++
			for i, p := range all {
				view := views[i] // of the round's begin: whoever acts in this round doesn't know of the others that do
				if p.claim.Len() > 0 {
					p.Serves, p.claim = p.claim, route.Range{} // it has fetched them
					quiet = 0
					continue
				}
				if to, ok := p.Look(m, p.Volunteer, view, rng.Float64()); ok {
					p.claim = to
					moves++
					quiet = 0
				}
			}
			now := served(m, all)
			for x := range now {
				if was[x] > 0 && now[x] == 0 {
					t.Fatalf("seed %d: round %d leaves layer %d to nobody", seed, round, x)
				}
			}
			was = now
		}
		if moves > 3*len(all) {
			t.Errorf("seed %d: %d volunteers need %d moves", seed, len(all), moves)
		}
		if slices.Min(was) == 0 {
			t.Errorf("seed %d: layers stay uncovered: %v", seed, was)
		}
	}
}

// TestMoveNeverUncovers lets everybody who would move do so at once, out of different and incomplete knowledge.
func TestMoveNeverUncovers(t *testing.T) {
	moved := 0
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := testModel(6 + rng.IntN(30))
		all := crowd(rng, m, 2+rng.IntN(20))
		for _, p := range all {
			w := windows(m, p.Budget)
			p.Serves = w[rng.IntN(len(w))]
		}
		was := served(m, all)
		to := make([]route.Range, len(all))
		for i, p := range all {
			view := slices.DeleteFunc(others(all, p), func(Peer) bool { return rng.IntN(4) == 0 })
			to[i] = p.Serves
			if r, ok := Move(m, p.Volunteer, view); ok {
				to[i] = r
				moved++
			}
		}
		for i, p := range all {
			p.Serves = to[i]
		}
		for x, now := range served(m, all) {
			if was[x] > 0 && now == 0 {
				t.Fatalf("seed %d: layer %d is left to nobody", seed, x)
			}
		}
	}
	if moved < 100 {
		t.Errorf("only %d moves were tried", moved)
	}
}

func TestPermutationChangesNothing(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := testModel(6 + rng.IntN(30))
		all := crowd(rng, m, 12)
		for _, p := range all {
			w := windows(m, p.Budget)
			p.Serves = w[rng.IntN(len(w))]
			if rng.IntN(3) == 0 {
				p.claim = w[rng.IntN(len(w))]
			}
		}
		view := others(all, all[3])
		chosen := Choose(m, all[3].Volunteer, view)
		to, ok := Move(m, all[3].Volunteer, view)
		rng.Shuffle(len(view), func(i, j int) { view[i], view[j] = view[j], view[i] })
		if again := Choose(m, all[3].Volunteer, view); again != chosen {
			t.Fatalf("seed %d: it chooses %v and, of the same peers in another order, %v", seed, chosen, again)
		}
		if to2, ok2 := Move(m, all[3].Volunteer, view); to2 != to || ok2 != ok {
			t.Fatalf("seed %d: it moves to %v (%v) and, with the same peers in another order, %v (%v)", seed, to, ok, to2, ok2)
		}
	}
}

// TestHysteresis asks for moves only where a gap stays.
func TestHysteresis(t *testing.T) {
	m := testModel(8)
	v := Volunteer{ID: "z", Serves: route.Range{First: 0, Last: 3}, Budget: 4, PrefillFlops: 1e11}
	gap := []Peer{{ID: "a", Holds: route.Range{First: 0, Last: 4}, PrefillFlops: 1e11}}
	whole := append(slices.Clone(gap), Peer{ID: "b", Holds: route.Range{First: 3, Last: 8}, PrefillFlops: 5e11})
	var w Watch
	for i := range 10 {
		others := gap
		if i%Patience == Patience-1 {
			others = whole
		}
		if to, ok := w.Look(m, v, others, 0); ok {
			t.Fatalf("look %d: it moves to %v though the gap doesn't stay", i, to)
		}
	}
	w = Watch{}
	for i := range Patience {
		if to, ok := w.Look(m, v, gap, 0); ok != (i == Patience-1) {
			t.Fatalf("look %d at a gap that stays: %v, %v", i, to, ok)
		}
	}
	if _, ok := Move(m, Volunteer{ID: "A", Serves: v.Serves, Budget: 4, PrefillFlops: 1e11}, gap); ok {
		t.Error("the holder with the first ID leaves its layers")
	}
	// Coverages that differ a little are no reason.
	even := []Peer{{ID: "a", Holds: route.Range{First: 0, Last: 4}, PrefillFlops: 1e11}, {ID: "b", Holds: route.Range{First: 4, Last: 8}, PrefillFlops: 1.9e11}}
	if to, ok := Move(m, v, even); ok {
		t.Errorf("it moves to %v for little", to)
	}
}

// TestStrangersWords has ranges and speeds that no peer can have.
func TestStrangersWords(t *testing.T) {
	m := testModel(8)
	inf := 1e308
	odd := []Peer{{ID: "a", Holds: route.Range{First: -3, Last: 4}}, {ID: "b", Holds: route.Range{First: 2, Last: 99}}, {ID: "c", Holds: route.Range{First: 6, Last: 2}},
		{ID: "d", Holds: route.Range{First: 0, Last: 8}, PrefillFlops: inf * 10}, {ID: "e", Holds: route.Range{First: 0, Last: 8}, PrefillFlops: -1}}
	if r := Choose(m, Volunteer{ID: "v", Budget: 3, Serves: route.Range{First: 5, Last: 90}}, odd); r.Len() < 2 {
		t.Errorf("it takes %v", r)
	}
	if _, ok := Move(m, Volunteer{ID: "v", Budget: 3, Serves: route.Range{First: 5, Last: 90}}, odd); ok {
		t.Error("it moves from where it can't be")
	}
}
