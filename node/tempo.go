package node

import (
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// tempo are how long stages have taken for chunks, by stage and by size:
// the latest ones of each power of two. What one token takes says little of a
// whole chunk, and what another stage takes little of this one.
type tempo map[string]map[int][]span

// span is what one chunk took, from when the session waited for it.
type span struct {
	positions int
	took      time.Duration
}

// sizes is how many powers of two a chunk's positions may have (wire.MaxTokens).
const sizes = 21

func (c tempo) add(peer string, positions int, took time.Duration) {
	if c[peer] == nil {
		c[peer] = map[int][]span{}
	}
	size := bits.Len(uint(positions))
	c[peer][size] = latest(append(c[peer][size], span{positions, took}))
}

// expected returns how long a stage is expected to take for a chunk, by its slowest ones of that size; else by its larger ones, in proportion, or
// those of other stages; only else by smaller ones, whose waits are more of the links' than of the rows'. 0: nothing is known yet.
func (c tempo) expected(peer string, positions int) time.Duration {
	size, all := bits.Len(uint(positions)), slices.Collect(maps.Keys(c))
	for _, peers := range [][]string{{peer}, all} {
		for i := size; i <= sizes; i++ {
			if t := c.slowest(peers, i, positions); t > 0 {
				return t
			}
		}
	}
	for i := size - 1; i > 0; i-- {
		if t := c.slowest(all, i, positions); t > 0 {
			return t
		}
	}
	return 0
}

// slowest returns how long the slowest chunk of a size took, in proportion to positions.
func (c tempo) slowest(peers []string, size, positions int) (t time.Duration) {
	for _, p := range peers {
		for _, k := range c[p][size] {
			t = max(t, k.took*time.Duration(positions)/time.Duration(k.positions))
		}
	}
	return t
}

// reckoned is what a stage's chunks should take by the speeds that it offers.
type reckoned struct{ once, each time.Duration } // of any chunk, and of each of its positions

func (r reckoned) of(positions int) time.Duration { return r.once + time.Duration(positions)*r.each }

// reckon returns what a stage of a session of so many positions should take for chunks; 0 where nobody has heard what it offers, or it has measured nothing.
func (n *Node) reckon(m *served, st wire.PlanStage, positions int) reckoned {
	for _, o := range n.host.Offers() {
		if o.Peer != st.Peer || artifacts.ID(o.Model) != m.id || o.PrefillFlops <= 0 || o.DecodeBytesPerSec <= 0 {
			continue
		}
		model := planModel(m.card, positions, positions, runtime.KVF16, runtime.SeamF32)
		flops, read := n.speeds(o)
		peer := route.Peer{PrefillFlops: flops, DecodeBytesPerSec: read, Load: o.Load}
		seconds := func(tokens int) time.Duration {
			return time.Duration(route.ChunkSeconds(&model, &peer, route.Range{First: int(st.First), Last: int(st.Last)}, tokens) * float64(time.Second))
		}
		return reckoned{once: seconds(0), each: seconds(1) - seconds(0)}
	}
	return reckoned{}
}
