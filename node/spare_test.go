package node

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// spareOne is a view of one model: others' copies by portion, and which portions are spare copies here. Portions have 10 bytes, the
// header 2.
func spareOne(others []int, spare ...int) []spareModel {
	m := spareModel{header: 2, others: others, bytes: make([]int64, len(others)), held: make([]bool, len(others)), spare: make([]bool, len(others))}
	for p := range others {
		m.bytes[p] = 10
		m.held[p] = slices.Contains(spare, p)
		m.spare[p] = m.held[p]
	}
	return []spareModel{m}
}

func TestNextSpare(t *testing.T) {
	for _, c := range []struct {
		name   string
		others []int
		spare  []int
		budget int64
		drop   []int
		fetch  int // -1: nothing
	}{
		{"the rarest that somebody has", []int{3, 0, 1, 2}, nil, 100, nil, 2},
		{"the first in order of several", []int{1, 1, 1, 1}, nil, 100, nil, 0},
		{"none of what there is enough", []int{4, 5, 9}, nil, 100, nil, -1},
		{"none without room", []int{1, 1, 4}, nil, 11, nil, -1},
		{"the header counts once", []int{1, 1, 1}, []int{0}, 22, nil, 1},
		{"the last portion has the header", []int{4, 4, 1}, nil, 10, nil, 2},
		{"room from what is most common", []int{5, 3, 1, 4}, []int{0, 1}, 22, []int{0}, 2},
		{"the only copy elsewhere counts double", []int{2, 1, 4}, []int{0}, 12, []int{0}, 1},
		{"no swap for one copy more", []int{3, 2, 4}, []int{0}, 12, nil, -1},
		{"a swap for two", []int{4, 2, 4}, []int{0}, 12, []int{0}, 1},
		{"the budget has shrunk", []int{1, 2, 3}, []int{0, 1}, 15, []int{1}, -1},
		{"and to nothing", []int{1, 2, 3}, []int{0, 1, 2}, 0, []int{2, 1, 0}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			drop, fetch := nextSpare(spareOne(c.others, c.spare...), c.budget, func(p portion) uint64 { return uint64(p.index) }, func(portion) bool { return false })
			var dropped []int
			for _, p := range drop {
				dropped = append(dropped, p.index)
			}
			got := -1
			if fetch != nil {
				got = fetch.index
			}
			if got != c.fetch || !slices.Equal(dropped, c.drop) {
				t.Errorf("fetches %d and drops %v, want %d and %v", got, dropped, c.fetch, c.drop)
			}
		})
	}
	if _, fetch := nextSpare(spareOne([]int{1, 1}), 100, func(p portion) uint64 { return uint64(p.index) }, func(p portion) bool { return p.index == 0 }); fetch == nil || fetch.index != 1 {
		t.Errorf("what is to be skipped is not: %v", fetch)
	}
}

// TestSpareSpreads has 20 nodes with little disk act on what they saw some moves ago: the rarest portion gains most, and they come to rest.
func TestSpareSpreads(t *testing.T) {
	const nodes, portions = 20, 30
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		base := make([]int, portions) // copies of those who give no disk
		for p := range base {
			base[p] = 1 + rng.IntN(3)
		}
		spare := make([][]int, nodes)
		count := func(held [][]int) (all []int) {
			all = slices.Clone(base)
			for _, s := range held {
				for _, p := range s {
					all[p]++
				}
			}
			return all
		}
		clone := func() [][]int {
			c := make([][]int, nodes)
			for n := range spare {
				c[n] = slices.Clone(spare[n])
			}
			return c
		}
		seen := [][][]int{clone()} // after each move
		still := 0
		for moves := 0; still < 3*nodes; moves++ {
			if moves > 5000 {
				t.Fatalf("seed %d: 20 nodes with 3 portions each are not at rest after %d looks", seed, moves)
			}
			n := rng.IntN(nodes)
			old := seen[max(0, len(seen)-1-rng.IntN(3))]
			others := count(old)
			for _, p := range old[n] {
				others[p]--
			}
			order := func(p portion) uint64 {
				h := fnv.New64a()
				fmt.Fprint(h, n, p.index)
				return h.Sum64()
			}
			drop, fetch := nextSpare(spareOne(others, spare[n]...), 2+3*10, order, func(portion) bool { return false })
			still++
			for _, d := range drop {
				spare[n] = slices.DeleteFunc(spare[n], func(p int) bool { return p == d.index })
				still = 0
			}
			if fetch != nil {
				spare[n] = append(spare[n], fetch.index)
				still = 0
			}
			seen = append(seen, clone())
		}
		all := count(spare)
		if least := slices.Min(all); least < 3 || slices.Max(all) > spareEnough+2 {
			t.Errorf("seed %d: %d to %d copies, of %v before", seed, least, slices.Max(all), base)
		}
	}
}

// TestSpareDisk has one copy of half a model's portions, two of the others, and two nodes that give disk for some: they take what
// there is one copy of, so that the whole model can be had when its publisher has gone.
func TestSpareDisk(t *testing.T) {
	tn := newTestNet(t)
	publisher := tn.start(nil)
	id := named(t, publisher, "Spare Model", "", runtimetest.TinyModel{Seed: 9, Layers: 6})
	m, _ := publisher.store.Get(id)
	card, _ := m.Card()
	half := tn.start(nil)
	ctx := testContext(t)
	tn.serve(half, id, 0, 3)

	rare := []int{3, 4, 5, 6} // the last one is what no layer owns
	man, need := m.Manifest(), int64(0)
	for _, p := range rare {
		need += man.PieceBytes(card.Portion(p))
	}
	budget := man.PieceBytes(card.HeaderSpans) + max(need*2/3, man.PieceBytes(card.Portion(6))+man.PieceBytes(card.Portion(5)))
	give := func(c *Config) {
		c.SeedSpare, c.SeedModels, c.spareEvery = budget, []string{"Spare Model"}, 200*time.Millisecond
	}
	seeders := []*Node{tn.start(give), tn.start(give)}
	spared := func(n *Node) (portions []int) {
		if m, ok := n.store.Get(id); ok {
			if c, ok := m.Card(); ok {
				for _, p := range n.spareOf(m, c) {
					if m.Have(c.Portion(p)) {
						portions = append(portions, p)
					}
				}
			}
		}
		return portions
	}
	// One that is about to give up a portion, since the other had it when they last heard of each other, would leave a hole when the publisher goes.
	rests := func(n *Node) bool {
		if n.host.RefreshModel(ctx, id) != nil {
			return false
		}
		drop, fetch := nextSpare(n.spareView(), budget, n.spareOrder, func(portion) bool { return false })
		return fetch == nil && len(drop) == 0
	}
	eventually(t, "copies of what there was one of, and rest", func() bool {
		if !rests(seeders[0]) || !rests(seeders[1]) {
			return false
		}
		both := append(spared(seeders[0]), spared(seeders[1])...)
		return !slices.ContainsFunc(rare, func(p int) bool { return !slices.Contains(both, p) })
	})
	for _, n := range seeders {
		st, err := n.Control().Status(ctx)
		if err != nil || st.Spare == nil || st.Spare.Used > budget || st.Spare.Used == 0 || st.Spare.Limit != budget || len(st.Spare.Models) != 1 || st.Spare.Models[0].Name != "Spare Model" {
			t.Errorf("status of spare disk: %+v, %v", st.Spare, err)
		}
		if m, _ := n.store.Get(id); m.HeldBytes() > budget+budget/20 { // the header comes in whole steps
			t.Errorf("%d bytes are on a disk that gives %d", m.HeldBytes(), budget)
		}
	}

	other := named(t, publisher, "Not Wanted", "", runtimetest.TinyModel{Seed: 10})
	whole := tn.start(nil)
	eventually(t, "everybody's offers", func() bool { return len(whole.holders(id)) == 4 })
	publisher.Close()
	eventually(t, "a whole copy", func() bool {
		_, _, _, err := whole.pull(ctx, id, nil, quiet)
		return err == nil
	})
	for _, n := range seeders {
		if _, ok := n.store.Get(other); ok {
			t.Error("disk goes to a model that its owner doesn't name")
		}
	}

	// What is pulled is spare no more; and what is spare goes when it may.
	n := seeders[0]
	mine := spared(n)
	layer := mine[slices.IndexFunc(mine, func(p int) bool { return p < 6 })]
	if _, _, _, err := n.pull(ctx, id, &control.Layers{First: layer, Last: layer}, quiet); err != nil {
		t.Fatal(err)
	}
	if got := spared(n); slices.Contains(got, layer) {
		t.Errorf("layer %d was pulled, and is among the spare copies %v", layer, got)
	}
	for _, p := range spared(n) {
		if err := n.dropSpare(portion{id, p}); err != nil {
			t.Fatal(err)
		}
	}
	sm, _ := n.store.Get(id)
	if c, ok := sm.Card(); !ok || !sm.Have(c.Portion(layer)) {
		t.Error("what was pulled went with the spare copies")
	}
}
