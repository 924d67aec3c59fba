package swarm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"
	lpswarm "github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Timeouts of dialling.
const (
	openTimeout = 15 * time.Second // for Open, if its context has no deadline
	findTimeout = 5 * time.Second  // for asking the DHT where a peer is
	pingTimeout = 3 * time.Second
)

// ErrNoProtocol is wrapped by Open when the peer answered but doesn't serve the
// protocol. It may also come from the stream's first Read.
var ErrNoProtocol = errors.New("the peer doesn't serve this protocol (it has another version or role)")

// Open opens a stream to peer for protocol. It connects if needed, at the
// addresses from earlier contact, from offers, or from the DHT. It waits a
// moment where a relayed connection may be about to be replaced by a direct
// one, and never uses a relay with limits. The caller owns the stream.
func (h *Host) Open(ctx context.Context, peer PeerID, protocolID string) (*Stream, error) {
	id, err := decodePeer(peer)
	if err != nil {
		return nil, err
	}
	if id == h.lp.ID() {
		return nil, fmt.Errorf("open %s: %s is this node itself", protocolID, peer)
	}
	if err := h.blockedPeer(peer); err != nil {
		return nil, fmt.Errorf("open %s: %w", protocolID, err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
	}
	if err := h.connect(ctx, id); err != nil {
		return nil, fmt.Errorf("open %s: %w", protocolID, err)
	}
	if protocolID != trackProtocol {
		h.awaitDirect(ctx, id)
	}
	s, err := h.newConnectedStream(ctx, id, protocolID)
	if err != nil && h.lp.Network().Connectedness(id) != network.Connected {
		// The connection was at its end. A new one will do, or the peer says why there is none.
		if err := h.connect(ctx, id); err != nil {
			return nil, fmt.Errorf("open %s: %w", protocolID, err)
		}
		s, err = h.newConnectedStream(ctx, id, protocolID)
	}
	if err != nil {
		var unsupported multistream.ErrNotSupported[protocol.ID]
		if errors.As(err, &unsupported) {
			return nil, fmt.Errorf("open %s to %s: %w", protocolID, peer, ErrNoProtocol)
		}
		return nil, fmt.Errorf("open %s to %s: %w", protocolID, peer, oneLine(err))
	}
	return h.newStream(s), nil
}

// newConnectedStream opens a stream over a connection that is there.
func (h *Host) newConnectedStream(ctx context.Context, id peer.ID, protocolID string) (network.Stream, error) {
	return h.lp.NewStream(network.WithNoDial(ctx, "connected before"), id, protocol.ID(protocolID))
}

// connect makes sure that there is a connection to id.
func (h *Host) connect(ctx context.Context, id peer.ID) error {
	if h.lp.Network().Connectedness(id) == network.Connected {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := h.members.bars(id.String()); err != nil {
		return err
	}
	h.awaitContact(ctx)
	err := h.dialKnown(ctx, id)
	if err == nil && h.lp.Network().Connectedness(id) == network.Limited {
		h.awaitDirect(ctx, id)
		if h.lp.Network().Connectedness(id) == network.Limited {
			return fmt.Errorf("%s is behind a NAT that lets nobody through, and the relay to it carries no sessions (%q on the relay lets it)", id, "--relay all")
		}
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	find, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	known := len(h.lp.Peerstore().Addrs(id))
	info, findErr := h.dht.FindPeer(find, id)
	if findErr != nil || len(info.Addrs) == 0 {
		if known == 0 {
			return fmt.Errorf("no address of %s is known; is it in this swarm and running?", id)
		}
		return err
	}
	h.clearBackoff(id)
	return dialError(id, h.lp.Connect(ctx, info))
}

// dialKnown connects to id at addresses from earlier contact and from offers.
func (h *Host) dialKnown(ctx context.Context, id peer.ID) error {
	addrs := parseAddrs(h.book.addrs(id.String(), time.Now()))
	h.lp.Peerstore().AddAddrs(id, addrs, peerstore.TempAddrTTL)
	h.clearBackoff(id)
	return dialError(id, h.lp.Connect(ctx, peer.AddrInfo{ID: id}))
}

// clearBackoff lets addresses be dialled that failed a moment ago: our own
// callers decide when to try again.
func (h *Host) clearBackoff(id peer.ID) {
	if s, ok := h.lp.Network().(*lpswarm.Swarm); ok {
		s.Backoff().Clear(id)
	}
}

// pings is how many round trips measure makes. The shortest says what the way takes; others may have waited for a busy processor.
const pings = 3

// measure pings a connected peer and records the round-trip time.
func (h *Host) measure(ctx context.Context, id peer.ID) error {
	ctx, cancel := context.WithTimeout(network.WithNoDial(ctx, "measure"), pingTimeout)
	defer cancel()
	results := ping.Ping(ctx, h.lp, id)
	for i := range pings {
		select {
		case r, ok := <-results:
			if !ok || r.Error != nil {
				return errors.Join(r.Error, ctx.Err())
			}
			h.mu.Lock()
			if i == 0 || r.RTT < h.rtts[id.String()] {
				h.rtts[id.String()] = r.RTT
			}
			h.mu.Unlock()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// recontact checks once whether a peer whose connection was lost is still
// there. If not, its offers are dropped and not passed on; a peer that lives
// but can't be dialled pushes them again when it is back.
func (h *Host) recontact(ctx context.Context, p PeerID) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	id, err := decodePeer(p)
	if err != nil || !sleep(ctx, 200*time.Millisecond) {
		return
	}
	if err := h.dialKnown(ctx, id); err != nil && h.ctx.Err() == nil {
		h.log.Info("peer is gone, its offers are dropped", "peer", p, "error", err)
		h.book.forget(p)
	}
}

// parseAddrs keeps the addresses that make sense; they come from the network.
func parseAddrs(addrs []string) []ma.Multiaddr {
	var good []ma.Multiaddr
	for _, s := range addrs {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			continue
		}
		if relayed(a) && !throughOne(a) {
			continue
		}
		good = append(good, a)
	}
	return good
}

// throughOne says whether an address leads to one relay, and says which.
func throughOne(a ma.Multiaddr) bool {
	circuits, named := 0, false
	for _, c := range a {
		switch c.Protocol().Code {
		case ma.P_CIRCUIT:
			circuits++
		case ma.P_P2P:
			named = circuits == 0
		}
	}
	return named && circuits == 1 && a[len(a)-1].Protocol().Code == ma.P_CIRCUIT && a[0].Protocol().Code != ma.P_P2P
}

// parseBootstrap groups full multiaddrs by the peer that they lead to.
func parseBootstrap(addrs []string) ([]peer.AddrInfo, error) {
	var all []ma.Multiaddr
	for _, s := range addrs {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			return nil, fmt.Errorf("address %q: %w", s, err)
		}
		if _, err := peer.AddrInfoFromP2pAddr(a); err != nil {
			return nil, fmt.Errorf("address %q: it must end in /p2p/<peer ID> (see \"starling status\" on that node)", s)
		}
		all = append(all, a)
	}
	return peer.AddrInfosFromP2pAddrs(all...)
}

// dialError turns libp2p's many-line errors into one that names the cause.
func dialError(id peer.ID, err error) error {
	if err == nil {
		return nil
	}
	var refused *wire.JoinRefused
	if errors.As(err, &refused) {
		return fmt.Errorf("%s refuses this node: %w", id, refused)
	}
	var dial *lpswarm.DialError
	if !errors.As(err, &dial) || len(dial.DialErrors) == 0 {
		if errors.Is(err, lpswarm.ErrNoAddresses) {
			return fmt.Errorf("no address of %s is known; is it in this swarm and running?", id)
		}
		return fmt.Errorf("%s can't be reached: %w", id, oneLine(err))
	}
	seen := map[string]bool{}
	var causes []string
	for _, e := range dial.DialErrors {
		if text := fmt.Sprintf("%s: %v", e.Address, oneLine(e.Cause)); !seen[text] && len(causes) < 3 {
			seen[text], causes = true, append(causes, text)
		}
	}
	return fmt.Errorf("%s can't be reached (%s)", id, strings.Join(causes, "; "))
}

// oneLine returns err with its text on one line.
func oneLine(err error) error {
	if err == nil || !strings.Contains(err.Error(), "\n") {
		return err
	}
	return &flatError{err}
}

type flatError struct{ err error }

func (e *flatError) Error() string { return strings.Join(strings.Fields(e.err.Error()), " ") }
func (e *flatError) Unwrap() error { return e.err }
