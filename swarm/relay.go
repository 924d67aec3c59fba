package swarm

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/host/autorelay"
	circuit "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/proto"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	"github.com/libp2p/go-libp2p/p2p/protocol/holepunch"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// A node behind a NAT keeps reservations with one or two members that can be
// dialled, and has addresses that lead through them. Who dials such an address
// gets a relayed connection: its bytes are encrypted from end to end, and in a
// private swarm the exchange of admit.go stands at its beginning as everywhere.
// Over it both sides tell each other where they were seen from, and dial at the
// same moment (DCUtR); if the NATs let that through, the connection that comes
// of it is direct, and everything new goes there.

// RelayMode is what a node that others can dial relays for them.
type RelayMode string

// What to relay.
const (
	RelayAuto RelayMode = "auto" // members of a private swarm everything; strangers of a public one what it takes to punch holes
	RelayAll  RelayMode = "all"  // everything, in a public swarm too
	RelayOff  RelayMode = "off"
)

// Check reports whether m is one of the three.
func (m RelayMode) Check() error {
	switch m {
	case RelayAuto, RelayAll, RelayOff, "":
		return nil
	}
	return fmt.Errorf("relay %q: write %s, %s or %s", string(m), RelayAuto, RelayAll, RelayOff)
}

// Limits of a relay. libp2p's defaults are for strangers: 128 KiB or two
// minutes a connection, through buffers of 2 KiB, which halve its throughput
// (53 and 111 MB/s with buffers of 64 KiB on one machine).
const (
	relayBuffer       = 64 << 10
	relayReservations = 512 // peers that may be reached through this node
	relayPerIP        = 64  // of them behind one address: a provider's NAT has many homes
	relayCircuits     = 64  // connections of one peer
	strangerBytes     = 128 << 10
	strangerTime      = 2 * time.Minute
)

// relayOptions says for whom and how much a node relays. members is nil in a public swarm.
func relayOptions(mode RelayMode, members *membership) []relay.Option {
	r := relay.DefaultResources()
	r.BufferSize, r.MaxReservations, r.MaxReservationsPerIP, r.MaxReservationsPerASN, r.MaxCircuits = relayBuffer, relayReservations, relayPerIP, relayReservations, relayCircuits
	r.Limit = nil
	if members == nil && mode != RelayAll {
		r.Limit = &relay.RelayLimit{Duration: strangerTime, Data: strangerBytes}
	}
	return []relay.Option{relay.WithResources(r), relay.WithACL(relayRights{members})}
}

// relayRights lets members use the relay, as long as they are.
type relayRights struct{ members *membership }

// AllowReserve implements relay.ACLFilter.
func (r relayRights) AllowReserve(p peer.ID, _ ma.Multiaddr) bool {
	return r.members.admits(p.String()) == nil
}

// AllowConnect implements relay.ACLFilter.
func (r relayRights) AllowConnect(from peer.ID, _ ma.Multiaddr, to peer.ID) bool {
	return r.members.admits(from.String()) == nil && r.members.admits(to.String()) == nil
}

// gatedCircuit is the transport of relayed connections behind the admission.
// libp2p asks what a transport can do by its methods, so the wrapper has the
// inner one's.
type gatedCircuit struct {
	gatedTransport
	client *circuit.Client
}

var (
	_ transport.SkipResolver = (*gatedCircuit)(nil)
	_ io.Closer              = (*gatedCircuit)(nil)
)

// SkipResolve implements transport.SkipResolver.
func (t *gatedCircuit) SkipResolve(ctx context.Context, a ma.Multiaddr) bool {
	return t.client.SkipResolve(ctx, a)
}

// Close implements io.Closer.
func (t *gatedCircuit) Close() error { return t.client.Close() }

// addCircuits lets h dial and be dialled through relays.
func addCircuits(h host.Host, u transport.Upgrader, admit admission) error {
	n, ok := h.Network().(transport.TransportNetwork)
	if !ok {
		return fmt.Errorf("%T takes no transports", h.Network())
	}
	client, err := circuit.New(h, u)
	if err != nil {
		return err
	}
	var t transport.Transport = client
	if admit != nil {
		t = &gatedCircuit{gatedTransport{client, admit}, client}
	}
	if err := n.AddTransport(t); err != nil {
		return err
	}
	if err := n.Listen(ma.StringCast("/p2p-circuit")); err != nil {
		return err
	}
	client.Start()
	return nil
}

// How reservations are kept.
const (
	wantedRelays = 2
	relayLook    = 500 * time.Millisecond // between two looks for relays while there are too few
	relayRetry   = 30 * time.Second       // until a relay that has refused is asked again
)

// keepReservations has relays reserve a place for h while it is private, or
// doesn't know. Only members of the swarm that are connected come into question.
func keepReservations(h host.Host) (*autorelay.AutoRelay, error) {
	candidates := func(ctx context.Context, n int) <-chan peer.AddrInfo {
		found := make(chan peer.AddrInfo, n)
		defer close(found)
		for _, p := range h.Network().Peers() {
			if protocols, err := h.Peerstore().SupportsProtocols(p, proto.ProtoIDv2Hop); err != nil || len(protocols) == 0 || direct(h, p) == nil {
				continue
			}
			select {
			case found <- peer.AddrInfo{ID: p}:
			default:
				return found
			}
		}
		return found
	}
	return autorelay.NewAutoRelay(h, autorelay.WithPeerSource(candidates), autorelay.WithNumRelays(wantedRelays), autorelay.WithMinCandidates(1),
		autorelay.WithBootDelay(0), autorelay.WithMinInterval(relayLook), autorelay.WithBackoff(relayRetry))
}

// noteSeen keeps where a peer has seen this node.
func (h *Host) noteSeen(e event.EvtPeerIdentificationCompleted) {
	if e.ObservedAddr == nil || relayed(e.ObservedAddr) || relayed(e.Conn.RemoteMultiaddr()) || !manet.IsPublicAddr(e.ObservedAddr) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !e.Conn.IsClosed() { // else disconnected may have been here
		h.seen[e.Conn] = e.ObservedAddr
	}
}

// publicAddrs returns where others can aim at: this node's own public addresses
// and those at which it is seen now. One peer's word is enough, a hole costs a few
// packets.
func (h *Host) publicAddrs() []ma.Multiaddr {
	addrs := h.lp.Addrs()
	h.mu.Lock()
	for _, a := range h.seen {
		addrs = append(addrs, a)
	}
	h.mu.Unlock()
	addrs = slices.DeleteFunc(addrs, func(a ma.Multiaddr) bool { return relayed(a) || !manet.IsPublicAddr(a) })
	slices.SortFunc(addrs, ma.Multiaddr.Compare)
	addrs = slices.CompactFunc(addrs, ma.Multiaddr.Equal)
	return addrs[:min(len(addrs), maxAimed)]
}

const maxAimed = 16 // addresses that a peer is told to dial

// startTraversal adds what gets a member through NATs: places with relays, and
// the service that punches holes.
func (h *Host) startTraversal() (err error) {
	ids, ok := h.lp.(interface{ IDService() identify.IDService })
	if !ok {
		return fmt.Errorf("%T identifies nobody", h.lp)
	}
	if h.punching, err = holepunch.NewService(h.lp, ids.IDService(), h.publicAddrs, holepunch.DirectDialTimeout(punchLimit)); err != nil {
		return err
	}
	if h.reservations, err = keepReservations(h.lp); err != nil {
		h.punching.Close()
		return err
	}
	h.reservations.Start()
	return nil
}

const punchLimit = 5 * time.Second // for one attempt

// punchAgain is when a hole is tried for again, from when a relayed connection
// has come in; libp2p tries at once, and only then, when one side may not know
// yet where it is seen. The last pause repeats.
var punchAgain = []time.Duration{300 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute, 5 * time.Minute}

// punch tries for a direct connection to a peer from which a relayed one has come, as long as
// there is no other. It is the side that was dialled that tries.
func (h *Host) punch(ctx context.Context, c network.Conn) {
	id := c.RemotePeer()
	for i := 0; sleep(ctx, punchAgain[min(i, len(punchAgain)-1)]) && !c.IsClosed() && direct(h.lp, id) == nil; i++ {
		if len(h.publicAddrs()) == 0 || !slices.Contains(h.lp.Mux().Protocols(), holepunch.Protocol) {
			continue
		}
		tried := make(chan error, 1)
		go func() { tried <- h.punching.DirectConnect(id) }() // ends with the service
		select {
		case err := <-tried:
			if err != nil {
				h.log.Debug("no hole punched", "peer", id.String(), "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// relayed says whether an address leads, or a connection went, through a relay.
func relayed(a ma.Multiaddr) bool {
	_, err := a.ValueForProtocol(ma.P_CIRCUIT)
	return err == nil
}

// direct returns a connection to p that needs no relay, or nil.
func direct(h host.Host, p peer.ID) network.Conn {
	for _, c := range h.Network().ConnsToPeer(p) {
		if !c.IsClosed() && !relayed(c.RemoteMultiaddr()) {
			return c
		}
	}
	return nil
}

// Relay returns the relay through which peer is connected, "" if it is connected
// directly, or not at all.
func (h *Host) Relay(peer PeerID) PeerID {
	id, err := decodePeer(peer)
	if err != nil || direct(h.lp, id) != nil {
		return ""
	}
	for _, c := range h.lp.Network().ConnsToPeer(id) {
		if via, err := c.RemoteMultiaddr().ValueForProtocol(ma.P_P2P); err == nil && relayed(c.RemoteMultiaddr()) {
			return via
		}
	}
	return ""
}

// OnDirect calls f, on a goroutine of its own, each time a peer that was reached
// through a relay is connected directly. Streams that are open stay where they
// are; new ones go over the direct connection.
func (h *Host) OnDirect(f func(peer PeerID)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onDirect = append(h.onDirect, f)
}

// firstDirect says whether c is direct and stands alone beside relayed connections to its peer.
func (h *Host) firstDirect(c network.Conn) bool {
	if relayed(c.RemoteMultiaddr()) {
		return false
	}
	through := false
	for _, other := range h.lp.Network().ConnsToPeer(c.RemotePeer()) {
		switch {
		case relayed(other.RemoteMultiaddr()):
			through = true
		case other.ID() != c.ID():
			return false
		}
	}
	return through
}

// becameDirect runs when a peer has got its first direct connection beside a relayed one.
func (h *Host) becameDirect(id peer.ID) {
	p := id.String()
	h.log.Info("connected directly, no longer through a relay", "peer", p)
	h.mu.Lock()
	fs := h.onDirect
	h.mu.Unlock()
	h.goDo(func(ctx context.Context) {
		h.measure(ctx, id)
		for _, f := range fs {
			f(p)
		}
	})
}

// dropRelayed closes relayed connections that a direct one has replaced, when
// no stream of ours is left on them.
func (h *Host) dropRelayed() {
	for _, id := range h.lp.Network().Peers() {
		if direct(h.lp, id) == nil {
			continue
		}
		for _, c := range h.lp.Network().ConnsToPeer(id) {
			if relayed(c.RemoteMultiaddr()) && !carries(c) {
				c.Close()
			}
		}
	}
}

// carries says whether a connection has streams of ours, those of the DHT aside.
func carries(c network.Conn) bool {
	for _, s := range c.GetStreams() {
		if p := string(s.Protocol()); p == "" || strings.HasPrefix(p, "/starling/") && !strings.Contains(p, "/kad/") {
			return true
		}
	}
	return false
}

// directWait is how long a stream that isn't in a hurry waits for a hole to be
// punched, from when the relayed connection came about. It takes some round
// trips where it succeeds at once.
const directWait = 2 * time.Second

// awaitDirect waits while a relayed connection to id is so young that a direct
// one may come about any moment.
func (h *Host) awaitDirect(ctx context.Context, id peer.ID) {
	for ctx.Err() == nil && direct(h.lp, id) == nil {
		young := false
		for _, c := range h.lp.Network().ConnsToPeer(id) {
			young = young || time.Since(c.Stat().Opened) < directWait
		}
		if !young || !sleep(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// RelayedOnly says whether an offer's addresses are such that its peer is
// reached from elsewhere only through a relay, at least at first.
func (o *Offer) RelayedOnly() bool {
	through := false
	for _, s := range o.Addrs {
		a, err := ma.NewMultiaddr(s)
		switch {
		case err != nil:
		case relayed(a):
			through = true
		case manet.IsPublicAddr(a):
			return false
		}
	}
	return through
}
