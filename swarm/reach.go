package swarm

import (
	"context"
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Reachability is whether others can dial this node at public addresses.
type Reachability string

// What a node can be told about itself, and what it finds out.
const (
	ReachUnknown Reachability = "unknown" // told: find out. Found: nobody has dialled back yet
	ReachPublic  Reachability = "public"  // others can dial it; it relays for those who can't be dialled
	ReachPrivate Reachability = "private" // behind a NAT or firewall; it asks public members to relay for it
)

// Check reports whether r is one of the three.
func (r Reachability) Check() error {
	switch r {
	case ReachUnknown, ReachPublic, ReachPrivate, "":
		return nil
	}
	return fmt.Errorf("reachability %q: write %s, %s or %s", string(r), ReachUnknown, ReachPublic, ReachPrivate)
}

// option returns libp2p's option for what the node was told.
func (r Reachability) option() libp2p.Option {
	switch r {
	case ReachPublic:
		return libp2p.ForceReachabilityPublic()
	case ReachPrivate:
		return libp2p.ForceReachabilityPrivate()
	}
	return func(*libp2p.Config) error { return nil }
}

// reachLoop keeps what is known of the node's reachability.
//
// Peers that dial back say so within two seconds if they get through, and after
// seventeen if not: they don't tell how a dial fails. So a node that is seen at
// a public address while it has none itself takes itself for private at once;
// if the router lets others in, the peers' word soon corrects that.
func (h *Host) reachLoop(ctx context.Context) {
	changes, err := h.lp.EventBus().Subscribe([]any{new(event.EvtLocalReachabilityChanged), new(event.EvtLocalAddressesUpdated),
		new(event.EvtPeerIdentificationCompleted), new(event.EvtNATDeviceTypeChanged)}, eventbus.Name("starling"), eventbus.BufSize(256))
	if err != nil {
		h.log.Warn("reachability isn't followed", "error", err)
		return
	}
	defer changes.Close()
	presume, err := h.lp.EventBus().Emitter(new(event.EvtLocalReachabilityChanged), eventbus.Stateful)
	if err != nil {
		h.log.Warn("reachability isn't presumed", "error", err)
		return
	}
	defer presume.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-changes.Out():
			if !ok {
				return
			}
			switch e := e.(type) {
			case event.EvtPeerIdentificationCompleted:
				h.noteSeen(e)
				if h.Reachability() == ReachUnknown && translated(e, h.lp.Addrs()) {
					presume.Emit(event.EvtLocalReachabilityChanged{Reachability: network.ReachabilityPrivate})
				}
				continue
			case event.EvtNATDeviceTypeChanged:
				h.noteNAT(e)
				continue
			case event.EvtLocalReachabilityChanged:
				h.setReachability(e.Reachability)
			}
			// Offers have the node's addresses: those of relays come and go.
			h.mu.Lock()
			h.nextSeqLocked(0)
			h.mu.Unlock()
			h.kickPublisher()
		}
	}
}

// translated says whether a peer elsewhere sees a node with these addresses at
// a public one, and it has none: a NAT is between them. What one peer says can
// be wrong; the relays that it makes a node ask for do no harm.
func translated(e event.EvtPeerIdentificationCompleted, addrs []ma.Multiaddr) bool {
	from := e.Conn.RemoteMultiaddr()
	return e.ObservedAddr != nil && manet.IsPublicAddr(e.ObservedAddr) && manet.IsPublicAddr(from) && !relayed(from) &&
		!slices.ContainsFunc(addrs, manet.IsPublicAddr)
}

func (h *Host) setReachability(r network.Reachability) {
	now := ReachUnknown
	switch r {
	case network.ReachabilityPublic:
		now = ReachPublic
	case network.ReachabilityPrivate:
		now = ReachPrivate
	}
	h.mu.Lock()
	before := h.reach
	h.reach = now
	h.mu.Unlock()
	if before != now {
		h.log.Info("reachability", "is", string(now))
	}
}

// Reachability returns what is known of this node's reachability.
func (h *Host) Reachability() Reachability {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reach
}

// The kinds of NAT, as peers' views of this node's addresses tell them apart.
const (
	NATCone      = "cone"      // every peer sees the same port: direct ways can be made
	NATSymmetric = "symmetric" // each peer sees another one: they can't
)

// noteNAT keeps what peers' views tell of the router before this node, for each transport.
func (h *Host) noteNAT(e event.EvtNATDeviceTypeChanged) {
	kind := map[network.NATDeviceType]string{network.NATDeviceTypeEndpointIndependent: NATCone, network.NATDeviceTypeEndpointDependent: NATSymmetric}[e.NatDeviceType]
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nat[e.TransportProtocol] = kind
}

// NAT returns the kind of the NAT that this node is behind, "" where it isn't known or there is none. Where TCP and UDP fare
// differently it is the better one, since one direct way is enough.
func (h *Host) NAT() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reach != ReachPrivate {
		return ""
	}
	best := ""
	for _, kind := range h.nat {
		if best == "" || kind == NATCone {
			best = kind
		}
	}
	return best
}
