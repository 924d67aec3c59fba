package node

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// A meter measures the links that lead to this node, from what comes over them anyway.
//
// Throughput: a peer writes a frame of seams or rows as fast as its link takes it, so between the first piece of the frame and its last one
// bytes come at the rate of the link, and how long the peer computed before doesn't count. Everything that came from it meanwhile, on any
// stream, is part of that. Frames are gathered to samples of sampleBytes, since a single one may fit in the buffers on its way; the median
// of the latest samples is what a link makes. Others that share it, or this machine when it is too busy to read, make some samples differ.
//
// Round trips: the pings of sessions. The shortest of the latest ones counts: others waited behind seams.
type meter struct {
	mu    sync.Mutex
	links map[string]*inlet // by peer
}

const (
	sampleBytes = 256 << 10
	lateSamples = 16        // of throughput, and of round trips, are remembered
	sureSamples = 3         // make a throughput that plans reckon with
	measuredFor = time.Hour // they do so
)

// inlet is what is known of the link from one peer.
type inlet struct {
	bytes    int64         // that have come
	gathered int64         // of frames, towards the next sample
	spent    time.Duration // in which these came
	rates    []float64     // bytes/s, the latest last
	trips    []time.Duration
	pinged   time.Time // the latest ping that wasn't answered yet
	nonce    uint64    // … and its number
	at       time.Time // of the latest sample or round trip
}

// arrival is a moment in what comes from a peer.
type arrival struct {
	at    time.Time
	bytes int64 // that have come before
}

func newMeter() *meter { return &meter{links: map[string]*inlet{}} }

func (m *meter) fromLocked(peer string) *inlet {
	l := m.links[peer]
	if l == nil {
		l = &inlet{}
		m.links[peer] = l
	}
	return l
}

// piece notes that n bytes have come.
func (m *meter) piece(peer string, n int, now time.Time) arrival {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.fromLocked(peer)
	l.bytes += int64(n)
	return arrival{now, l.bytes}
}

// frame notes that the pieces of a large frame have come, the first and the last of which were these.
func (m *meter) frame(peer string, first, last arrival) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.fromLocked(peer)
	l.gathered += last.bytes - first.bytes
	l.spent += last.at.Sub(first.at)
	if l.gathered < sampleBytes {
		return
	}
	l.rates = latest(append(l.rates, float64(l.gathered)/max(l.spent, time.Microsecond).Seconds()))
	l.gathered, l.spent, l.at = 0, 0, last.at
}

// ping notes that a peer is being pinged.
func (m *meter) ping(peer string, nonce uint64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.fromLocked(peer)
	l.pinged, l.nonce = now, nonce
}

// pong notes a peer's answer; one to an earlier ping says nothing.
func (m *meter) pong(peer string, nonce uint64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.links[peer]; l != nil && l.nonce == nonce && !l.pinged.IsZero() {
		l.trips, l.at = latest(append(l.trips, now.Sub(l.pinged))), now
		l.pinged = time.Time{}
	}
}

// forget drops what was measured of the link from a peer, and the ping that is on its way: it goes another way now.
func (m *meter) forget(peer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.links[peer]; l != nil {
		m.links[peer] = &inlet{bytes: l.bytes}
	}
}

func latest[T any](list []T) []T { return list[max(len(list)-lateSamples, 0):] }

// rate returns what the link from a peer makes, in bytes/s; 0 where nothing was measured.
func (m *meter) rate(peer string) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.links[peer]; l != nil {
		return l.rate()
	}
	return 0
}

// rate returns the median of the latest samples, 0 of none.
func (l *inlet) rate() float64 {
	if len(l.rates) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(l.rates))[(len(l.rates)-1)/2]
}

// measured returns what was measured lately, the latest first, no more than an offer has room for; older figures are forgotten.
func (m *meter) measured(now time.Time) []swarm.Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.links, func(_ string, l *inlet) bool { return !l.at.IsZero() && now.Sub(l.at) > measuredFor })
	var list []swarm.Link
	for peer, l := range m.links {
		link := swarm.Link{From: peer, BytesPerSec: l.rate(), Samples: len(l.rates), Age: now.Sub(l.at)}
		if len(l.trips) > 0 {
			link.RTT = slices.Min(l.trips)
		}
		if !l.at.IsZero() {
			list = append(list, link)
		}
	}
	slices.SortFunc(list, func(a, b swarm.Link) int { return cmp.Or(cmp.Compare(a.Age, b.Age), cmp.Compare(a.From, b.From)) })
	return list[:min(len(list), wire.MaxOfferLinks)]
}
