package swarm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Revoke ends peer's membership of the private swarm id. It needs an owner's
// key. A running node spreads the news with Host.Revoke; this is for when none
// runs.
func (s *Swarms) Revoke(id string, peer PeerID) error {
	err := s.newList(id, func(o *owner, a *authority) (*wire.RevocationList, error) { return o.revoke(a, peer, time.Now()) })
	if err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	return nil
}

// newList stores the list that this data folder's owner says next.
func (s *Swarms) newList(id string, next func(*owner, *authority) (*wire.RevocationList, error)) error {
	info, err := s.Load(id)
	if err != nil {
		return err
	}
	a, err := s.loadAuthority(info.ID)
	if err != nil {
		return err
	}
	o, err := s.owner(a)
	if err != nil {
		return err
	}
	l, err := next(o, a)
	if err != nil {
		return err
	}
	return s.put(info.ID, listName(info, o.key.ID()), l.Data())
}

// Revoke ends peer's membership of this host's swarm, closes its connections
// and tells all connected members, who tell theirs. It needs an owner's key.
func (h *Host) Revoke(peer PeerID) error {
	if peer == h.ID() {
		return errors.New("revoke: that is this node itself")
	}
	err := h.newList(func(o *owner, a *authority) (*wire.RevocationList, error) { return o.revoke(a, peer, time.Now()) })
	if err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	return nil
}

// newList applies and spreads the list that this host's owner says next.
func (h *Host) newList(next func(*owner, *authority) (*wire.RevocationList, error)) error {
	if h.members == nil {
		return errors.New("this swarm is public")
	}
	l, err := h.members.nextList(next)
	if err != nil {
		return err
	}
	return h.takeList(l, "")
}

// takeList applies a revocation list that came from a peer ("" for ourselves),
// closes connections that it forbids, and passes it on.
func (h *Host) takeList(l *wire.RevocationList, from PeerID) error {
	owner, err := h.members.apply(l)
	if err != nil {
		return err
	}
	h.log.Info("new revocation list", "owner", owner, "seq", l.Seq, "swarm", h.info.ID, "peers", len(l.Peers), "owners", len(l.Owners))
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

// takeLists takes all lists that are news; the founder's come first. It returns what is wrong with the others.
func (h *Host) takeLists(lists []wire.RevocationList, from PeerID) error {
	if h.members == nil {
		return errors.New("a public swarm has no revocation lists")
	}
	var errs []error
	for i := range lists {
		if err := h.takeList(&lists[i], from); err != nil && !errors.Is(err, errStale) {
			errs = append(errs, err)
		}
	}
	return oneLine(errors.Join(errs...))
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
	return wire.WriteFrame(s, &wire.RevocationLists{Lists: []wire.RevocationList{*l}})
}

// pullLists fetches a peer's newer lists if it said that it has others.
func (h *Host) pullLists(ctx context.Context, peer PeerID) {
	held, ok := h.members.differ(peer)
	if !ok {
		return
	}
	reply, err := h.ask(ctx, peer, &wire.ListPull{Presence: h.presence(), Held: held})
	if err != nil {
		h.members.ask(peer)
		h.log.Info("no revocation lists", "peer", peer, "error", err)
		return
	}
	r, ok := reply.(*wire.RevocationLists)
	if !ok {
		h.log.Warn("no revocation lists but another frame", "peer", peer, "type", uint8(reply.Type()))
		return
	}
	if err := h.takeLists(r.Lists, peer); err != nil {
		h.log.Warn("revocation list refused", "peer", peer, "error", err)
	}
}
