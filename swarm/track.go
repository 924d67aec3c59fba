package swarm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// /starling/track/6 carries offers and listings: one request and one answer per stream.
// Every node answers, so a small swarm needs no tracker; a tracker is a node
// that says it is one, and so gets everyone's offers in a large one.
const (
	trackProtocol = "/starling/track/6"
	trackTimeout  = 5 * time.Second
	publishEvery  = DefaultOfferTTL / 2
	publishRetry  = 10 * time.Second
	publishGap    = 100 * time.Millisecond // collects events that come together
	maxTrackers   = 3                      // that a node pushes to or pulls from
	smallSwarm    = 32                     // connections: up to here everyone tells everyone
	maxProbes     = 16                     // peers asked or contacted at once
	answerWait    = time.Second            // that others have to answer once one has
	probeTimeout  = 5 * time.Second        // for contact with a signer
	probeWait     = 2 * time.Second        // that Refresh gives signers to answer
	replyBytes    = wire.MaxControl - 1024 // offers in one reply stay below
	withdrawLimit = time.Second            // for saying goodbye
)

func (h *Host) presence() wire.Presence {
	return wire.Presence{Swarm: h.info.ID, Instance: h.instance, Lists: h.members.digest(), Tracker: h.cfg.Tracker}
}

// ask sends one request and reads one answer.
func (h *Host) ask(ctx context.Context, p PeerID, m wire.Message) (wire.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, trackTimeout)
	defer cancel()
	s, err := h.Open(ctx, p, trackProtocol)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	if err := wire.WriteFrame(s, m); err != nil {
		return nil, err
	}
	reply, err := wire.Read(s)
	if err != nil {
		return nil, err
	}
	switch r := reply.(type) {
	case *wire.OffersReply:
		h.noteTracker(p, r.Tracker)
		h.hearLists(p, r.Lists)
	case *wire.ListingsReply:
		h.noteTracker(p, r.Tracker)
		h.hearLists(p, r.Lists)
	}
	return reply, nil
}

// hearLists notes which revocation lists p has, and fetches them if they are others.
func (h *Host) hearLists(p PeerID, digest uint64) {
	if h.members.heard(p, digest) {
		h.goDo(func(ctx context.Context) { h.pullLists(ctx, p) })
	}
}

// serveTrack answers one request.
func (h *Host) serveTrack(s *Stream) {
	defer s.Close()
	s.SetDeadline(time.Now().Add(trackTimeout))
	m, err := wire.Read(s)
	if err != nil {
		s.Reset()
		return
	}
	reply, err := h.answerTrack(m, s.Peer())
	if err != nil {
		h.log.Warn("request refused", "protocol", trackProtocol, "peer", s.Peer(), "error", err)
		s.Reset()
		return
	}
	if reply != nil {
		wire.WriteFrame(s, reply)
	}
}

// answerTrack handles one request of a connected peer.
func (h *Host) answerTrack(m wire.Message, from PeerID) (wire.Message, error) {
	now := time.Now()
	switch m := m.(type) {
	case *wire.OffersPush:
		if err := h.hearPresence(&m.Presence, from); err != nil {
			return nil, err
		}
		for i := range m.Offers {
			o := &m.Offers[i]
			if o.Peer != from || o.Seq != m.Seq {
				return nil, fmt.Errorf("it pushes offer %d of %s as its own number %d", o.Seq, o.Peer, m.Seq)
			}
			if err := verifyOffer(o, h.info.ID); err != nil {
				return nil, err
			}
		}
		if len(m.Offers) > 0 {
			if err := h.members.mayServe(from); err != nil {
				return nil, err
			}
		}
		conflict, err := h.book.push(from, m.Instance, m.Seq, m.Offers, now)
		if err != nil && !errors.Is(err, errReplay) {
			return nil, err
		}
		return &wire.OffersReply{Presence: h.presence(), Floor: h.book.floor(from), Conflict: conflict}, nil

	case *wire.OffersPull:
		if err := h.hearPresence(&m.Presence, from); err != nil {
			return nil, err
		}
		return h.offersFor(m, from, now), nil

	case *wire.ListingsPush:
		if err := h.hearPresence(&m.Presence, from); err != nil {
			return nil, err
		}
		return h.takeListings(m, from, now)

	case *wire.ListingsPull:
		if err := h.hearPresence(&m.Presence, from); err != nil {
			return nil, err
		}
		return h.listingsFor(m, from, now), nil

	case *wire.ListPull:
		if err := h.hearPresence(&m.Presence, from); err != nil {
			return nil, err
		}
		if h.members == nil {
			return nil, errors.New("it asks for revocation lists, a public swarm has none")
		}
		return &wire.RevocationLists{Lists: h.members.newer(m.Held)}, nil

	case *wire.RevocationLists:
		return nil, h.takeLists(m.Lists, from)
	}
	return nil, fmt.Errorf("frame of type %d doesn't belong here", m.Type())
}

func (h *Host) hearPresence(p *wire.Presence, from PeerID) error {
	if p.Swarm != h.info.ID {
		return fmt.Errorf("it is in swarm %s, this is %s", p.Swarm, h.info.ID)
	}
	h.noteTracker(from, p.Tracker)
	h.hearLists(from, p.Lists)
	return nil
}

// offersFor collects what a pull asks for, this node's own offers first, then others' in no order.
func (h *Host) offersFor(m *wire.OffersPull, from PeerID, now time.Time) *wire.OffersReply {
	r := &wire.OffersReply{Presence: h.presence()}
	limit, size := min(int(min(m.Max, wire.MaxOffersReply)), wire.MaxOffersReply), 0
	add := func(o wire.Offer, left uint32) {
		if m.Model != ([32]byte{}) && m.Model != o.Model || o.Peer == from {
			return
		}
		n := len(o.SigningBytes()) + 128
		if len(r.Offers) >= limit || size+n > replyBytes {
			r.Truncated = true
			return
		}
		size += n
		r.Offers = append(r.Offers, wire.HeldOffer{Remaining: left, Offer: o})
	}
	own, _, _ := h.offered()
	for _, o := range own {
		add(o, o.TTL)
	}
	// Where there are more than fit, everybody gets others, and not all the same few hundred peers.
	all := h.book.all(now)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, held := range all {
		if h.members.mayServe(held.Offer.Peer) == nil {
			add(held.Offer, held.Remaining)
		}
	}
	return r
}
