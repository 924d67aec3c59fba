package node

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// hindsight is what peers took in sessions that this node has asked for or decoded. What a peer offers is a hint: it counts as much as one
// session in which it was true. So a session alone condemns nobody, and from the second on a peer that is slower than it says is planned with
// as it was. Nobody is taken to be faster than it says: that it was is its own account.
//
// Sessions of a model say most of a peer with that model; where there are none, those of other models do. The zero value knows nothing.
type hindsight struct {
	mu    sync.Mutex
	peers map[string][]deed // the latest last
}

const (
	lateDeeds   = 9                      // of a peer are remembered
	deedsFor    = 24 * time.Hour         // and for how long: it may have been busy with other things
	leastDeed   = 200 * time.Millisecond // of computing say something: in less, waking up and waiting for a processor are much of it
	knownPeople = 1024                   // peers that are remembered

	// A peer that takes less than so many times what it should is taken at its word: so much may be the fault of the formulas (long
	// prompts' attention, a chunk's size), and as not all peers have been seen as often, equal ones would get unequal shares.
	doubted = 2
)

// deed is what a peer has computed in one session.
type deed struct {
	model  artifacts.ID
	flops  float64       // of all rows in its layers
	bytes  float64       // of weights, of all passes
	passes float64       // through its layers
	took   time.Duration // divided by the sessions that shared it
	at     time.Time
}

// slowness returns how many times longer that was than at speeds that a peer offers.
func (d *deed) slowness(flops, bytesPerSec float64) float64 {
	return d.took.Seconds() / (d.flops/flops + d.bytes/bytesPerSec + d.passes*route.PassOverhead)
}

// reads reports whether most of the time, at these speeds, should have gone into reading weights.
func (d *deed) reads(flops, bytesPerSec float64) bool { return d.bytes/bytesPerSec > d.flops/flops }

func (h *hindsight) add(peer string, d deed) {
	if d.took < leastDeed || d.passes <= 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.peers == nil {
		h.peers = map[string][]deed{}
	}
	if len(h.peers) >= knownPeople && h.peers[peer] == nil {
		oldest := ""
		for p, list := range h.peers {
			if oldest == "" || list[len(list)-1].at.Before(h.peers[oldest][len(h.peers[oldest])-1].at) {
				oldest = p
			}
		}
		delete(h.peers, oldest)
	}
	list := append(h.peers[peer], d)
	h.peers[peer] = list[max(len(list)-lateDeeds, 0):]
}

// slowness returns how many times slower than it says a peer is to be taken for, in arithmetic and in reading weights: 1, or doubted or more.
func (h *hindsight) slowness(peer string, model artifacts.ID, flops, bytesPerSec float64, now time.Time) (arithmetic, reading float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	deeds := slices.DeleteFunc(slices.Clone(h.peers[peer]), func(d deed) bool { return now.Sub(d.at) > deedsFor })
	if same := slices.DeleteFunc(slices.Clone(deeds), func(d deed) bool { return d.model != model }); len(same) > 0 {
		deeds = same
	}
	flops, bytesPerSec = cmp.Or(flops, route.DefaultPrefillFlops), cmp.Or(bytesPerSec, route.DefaultDecodeBytesPerSec)
	kinds := map[bool][]float64{}
	for _, d := range deeds {
		r := d.reads(flops, bytesPerSec)
		kinds[r] = append(kinds[r], d.slowness(flops, bytesPerSec))
	}
	median := func(list []float64) float64 { // with the offer's word, the lower of two
		list = slices.Sorted(slices.Values(append(list, 1)))
		if m := list[(len(list)-1)/2]; m >= doubted {
			return m
		}
		return 1
	}
	arithmetic, reading = median(kinds[false]), median(kinds[true])
	switch {
	case len(kinds[false]) == 0:
		arithmetic = reading
	case len(kinds[true]) == 0:
		reading = arithmetic
	}
	return arithmetic, reading
}

// speeds returns what a peer's offer says of its speeds, as far as sessions bear it out.
func (n *Node) speeds(o swarm.Offer) (flops, bytesPerSec float64) {
	arithmetic, reading := n.hindsight.slowness(o.Peer, o.Model, o.PrefillFlops, o.DecodeBytesPerSec, time.Now())
	flops, bytesPerSec = o.PrefillFlops, o.DecodeBytesPerSec
	if arithmetic > 1 {
		flops = cmp.Or(flops, route.DefaultPrefillFlops) / arithmetic
	}
	if reading > 1 {
		bytesPerSec = cmp.Or(bytesPerSec, route.DefaultDecodeBytesPerSec) / reading
	}
	return flops, bytesPerSec
}

// noteDeeds remembers what peers have computed in a session for a prompt of so many tokens, by their accounts.
func (n *Node) noteDeeds(id artifacts.ID, c *artifacts.Card, prompt int, stats []wire.StageStats) {
	m := planModel(c, prompt, prompt, runtime.KVF16, runtime.SeamF32)
	for _, x := range stats {
		if int(x.Last) > m.Layers || x.First > x.Last {
			continue
		}
		d := deed{model: id, passes: float64(x.Chunks), at: time.Now(), took: duration(x.ComputeNanos)}
		for l := x.First; l < x.Last; l++ {
			d.flops += float64(x.Tokens) * m.LayerFlops[l]
			d.bytes += float64(x.Chunks) * float64(m.LayerWeightBytes[l])
		}
		for _, o := range n.offersOf(id) {
			if o.Peer == x.Peer && o.Load > 1 {
				d.took = time.Duration(d.took.Seconds() / o.Load * float64(time.Second))
			}
		}
		n.hindsight.add(x.Peer, d)
	}
}
