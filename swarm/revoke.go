package swarm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Revoke ends peer's membership of the private swarm id and returns the
// sequence number of the list that says so. It needs the owner key. A running
// node spreads the list with Host.Revoke; this is for when none runs.
func (s *Swarms) Revoke(id string, peer PeerID) (uint64, error) {
	l, err := s.revoke(id, peer)
	if err != nil {
		return 0, err
	}
	return l.Seq, s.put(id, listFile, l.Data())
}

// revoke returns the swarm's list with peer added and the next number.
func (s *Swarms) revoke(id string, peer PeerID) (*wire.RevocationList, error) {
	if _, err := publicKey(peer); err != nil {
		return nil, fmt.Errorf("revoke: %w", err)
	}
	owner, err := s.ownerKey(id)
	if err != nil {
		return nil, fmt.Errorf("revoke: %w", err)
	}
	old, err := s.list(id)
	if err != nil {
		return nil, fmt.Errorf("revoke: %w", err)
	}
	if old == nil {
		old = new(wire.RevocationList)
	}
	if slices.Contains(old.Peers, peer) {
		return nil, fmt.Errorf("revoke: %s was revoked before", peer)
	}
	if len(old.Peers) >= wire.MaxRevoked {
		return nil, fmt.Errorf("revoke: the list already has %d peers; create a new swarm", len(old.Peers))
	}
	l := &wire.RevocationList{Swarm: id, Seq: old.Seq + 1, Issued: time.Now().Unix(), Peers: append(slices.Clone(old.Peers), peer)}
	copy(l.Signature[:], owner.Sign(wire.DomainRevocation, l.SigningBytes()))
	return l, nil
}

// Revoke ends peer's membership of this host's swarm, closes its connections
// and tells all connected members, who tell theirs. It needs the owner key.
func (h *Host) Revoke(peer PeerID) error {
	if h.members == nil {
		return errors.New("revoke: this swarm is public")
	}
	if peer == h.ID() {
		return errors.New("revoke: that is this node itself")
	}
	l, err := h.store.revoke(h.info.ID, peer)
	if err != nil {
		return err
	}
	return h.takeList(l, "")
}

// takeList applies a revocation list that came from a peer ("" for ourselves),
// closes connections that it forbids, and passes it on.
func (h *Host) takeList(l *wire.RevocationList, from PeerID) error {
	if err := h.members.apply(l); err != nil {
		return err
	}
	h.log.Info("new revocation list", "seq", l.Seq, "swarm", h.info.ID, "peers", len(l.Peers))
	h.closeForbidden()
	for _, p := range h.Connected() {
		if p != from {
			h.goDo(func(ctx context.Context) {
				if err := h.pushList(ctx, p, l); err != nil && ctx.Err() == nil {
					h.log.Info("revocation list not delivered", "peer", p, "error", err)
				}
			})
		}
	}
	return nil
}

// closeForbidden closes the connections of peers that are members no longer.
func (h *Host) closeForbidden() {
	for _, p := range h.lp.Network().Peers() {
		if err := h.members.admits(p.String()); err != nil {
			h.log.Warn("connection closed", "peer", p.String(), "error", err)
			h.disconnect(p)
		}
	}
}

func (h *Host) disconnect(p peer.ID) {
	h.lp.Network().ClosePeer(p)
	h.book.forget(p.String())
}

// pushList sends a list; the receiver doesn't answer.
func (h *Host) pushList(ctx context.Context, peer PeerID, l *wire.RevocationList) error {
	s, err := h.Open(ctx, peer, trackProtocol)
	if err != nil {
		return err
	}
	defer s.Close()
	s.SetDeadline(time.Now().Add(trackTimeout))
	return wire.WriteFrame(s, l)
}

// pullList fetches a peer's list if it said that it has a newer one.
func (h *Host) pullList(ctx context.Context, peer PeerID) {
	if !h.members.behind(peer) {
		return
	}
	reply, err := h.ask(ctx, peer, &wire.ListPull{Presence: h.presence()})
	if err != nil {
		h.log.Info("no revocation list", "peer", peer, "error", err)
		return
	}
	l, ok := reply.(*wire.RevocationList)
	if !ok {
		h.log.Warn("no revocation list but another frame", "peer", peer, "type", uint8(reply.Type()))
		return
	}
	if err := h.takeList(l, peer); err != nil && !errors.Is(err, errStale) {
		h.log.Warn("revocation list refused", "peer", peer, "error", err)
	}
}
