package swarm

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// Usage is what a connected peer has of this node.
type Usage struct {
	Peer           PeerID
	Streams        int   // that it has opened and that stand
	Sent, Received int64 // bytes of Streams, in both directions opened, since its last connection came about
}

// traffic counts one peer's bytes.
type traffic struct{ sent, received atomic.Int64 }

// trafficOf returns a peer's counters.
func (h *Host) trafficOf(p peer.ID) *traffic {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.traffic[p.String()]
	if t == nil {
		t = &traffic{}
		if h.lp.Network().Connectedness(p) != network.NotConnected { // else nobody would forget it
			h.traffic[p.String()] = t
		}
	}
	return t
}

// StreamsPerPeer is how many streams a peer may have opened here at once.
func (h *Host) StreamsPerPeer() int { return limitsFor(h.members != nil).streams }

// Usage returns what the connected peers have, those with the most bytes first.
func (h *Host) Usage() []Usage {
	var all []Usage
	for _, p := range h.Connected() {
		u := Usage{Peer: p}
		h.mu.Lock()
		if t := h.traffic[p]; t != nil {
			u.Sent, u.Received = t.sent.Load(), t.received.Load()
		}
		h.mu.Unlock()
		if id, err := peer.Decode(p); err == nil {
			_ = h.lp.Network().ResourceManager().ViewPeer(id, func(s network.PeerScope) error { // what f returns
				u.Streams = s.Stat().NumStreamsInbound
				return nil
			})
		}
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(b.Sent+b.Received, a.Sent+a.Received), cmp.Compare(a.Peer, b.Peer))
	})
	return all
}
