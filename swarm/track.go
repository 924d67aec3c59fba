package swarm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/starling-swarm/starling/swarm/wire"
)

// /starling/track/1 carries offers: one request and one answer per stream.
// Every node answers, so a small swarm needs no tracker; a tracker is a node
// that says it is one, and so gets everyone's offers in a large one.
const (
	trackProtocol = "/starling/track/1"
	trackTimeout  = 5 * time.Second
	publishEvery  = 30 * time.Second
	publishGap    = 100 * time.Millisecond // collects events that come together
	maxTrackers   = 3                      // that a node pushes to or pulls from
	smallSwarm    = 32                     // up to here everyone tells everyone
	maxProbes     = 16                     // peers asked or contacted at once
	probeTimeout  = 5 * time.Second        // for contact with a signer
	probeWait     = 2 * time.Second        // that Refresh gives signers to answer
	replyBytes    = wire.MaxControl - 1024 // offers in one reply stay below
	withdrawLimit = time.Second            // for saying goodbye
)

// SetOffers replaces this node's offers: it signs and publishes them now and
// every 30 seconds. Peer, Seq, empty Addrs and TTL are filled in. An offer
// that makes no sense is left out and logged.
func (h *Host) SetOffers(offers []Offer) {
	if h.cfg.Client && len(offers) > 0 {
		h.logf("a client makes no offers: %d dropped", len(offers))
		return
	}
	if len(offers) > wire.MaxOwnOffers {
		h.logf("%d offers are more than %d: the rest is dropped", len(offers), wire.MaxOwnOffers)
		offers = offers[:wire.MaxOwnOffers]
	}
	h.mu.Lock()
	h.own = slices.Clone(offers)
	h.nextSeqLocked(0)
	h.mu.Unlock()
	h.kickPublisher()
}

// nextSeqLocked numbers the next push: above all before, in this run and, as
// clocks go, in earlier ones.
func (h *Host) nextSeqLocked(floor uint64) {
	h.seq = max(h.seq+1, floor, uint64(time.Now().UnixNano()))
}

// Offers returns what this node knows now, its own included: unexpired, one
// per peer and model, and only of peers that it has live contact with.
func (h *Host) Offers() []Offer {
	own, _, err := h.signedOffers()
	if err != nil {
		h.logf("%v", err)
	}
	var all []Offer
	for i := range own {
		all = append(all, fromWire(&own[i]))
	}
	held := h.book.all(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range held {
		o := &held[i].Offer
		if _, live := h.contacts[o.Peer]; live && h.members.mayServe(o.Peer) == nil {
			all = append(all, fromWire(o))
		}
	}
	return all
}

// signedOffers returns this node's own offers under the current number.
func (h *Host) signedOffers() ([]wire.Offer, uint64, error) {
	h.mu.Lock()
	own, seq := slices.Clone(h.own), h.seq
	h.mu.Unlock()
	addrs := addrStrings(h.lp.Addrs())
	addrs = addrs[:min(len(addrs), wire.MaxAddrs)]
	var signed []wire.Offer
	var errs []error
	for _, o := range own {
		o.Peer, o.Seq = h.ID(), seq
		if o.TTL <= 0 {
			o.TTL = DefaultOfferTTL
		}
		if o.Addrs == nil {
			o.Addrs = addrs
		}
		w, err := o.toWire(h.info.ID, h.cfg.Identity)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		signed = append(signed, w)
	}
	return signed, seq, errors.Join(errs...)
}

func (h *Host) presence() wire.Presence {
	return wire.Presence{Swarm: h.info.ID, Instance: h.instance, ListSeq: h.members.listSeq(), Tracker: h.cfg.Tracker}
}

func (h *Host) kickPublisher() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// publishLoop pushes this node's offers: all of them to everyone concerned at
// each tick, and after SetOffers or a new connection to those who lack them.
func (h *Host) publishLoop(ctx context.Context) {
	if h.cfg.Client {
		return
	}
	tick := time.NewTicker(h.cfg.publishEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.mu.Lock()
			h.nextSeqLocked(0)
			h.mu.Unlock()
		case <-h.kick:
			if !sleep(ctx, publishGap) {
				return
			}
		}
		h.publish(ctx)
	}
}

// publish pushes to those of the targets that haven't seen the current number.
func (h *Host) publish(ctx context.Context) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxProbes)
	for _, p := range h.targets() {
		h.mu.Lock()
		current := h.sent[p] == h.seq
		h.mu.Unlock()
		if current {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := h.pushTo(ctx, p); err != nil && ctx.Err() == nil {
				h.logf("offers not delivered to %s: %v", p, err)
			}
		})
	}
	wg.Wait()
}

// targets returns whom to push to and pull from: everyone connected in a small
// swarm, else trackers, else some of the connected.
func (h *Host) targets() []PeerID {
	connected := h.Connected()
	if len(connected) <= h.cfg.smallSwarm {
		return connected
	}
	trackers := h.knownTrackers()
	if len(trackers) > 0 {
		return trackers
	}
	return h.nearest(connected, 2*maxTrackers)
}

// knownTrackers returns up to maxTrackers trackers, spread over the swarm by
// hash, connected ones only.
func (h *Host) knownTrackers() []PeerID {
	var live []PeerID
	h.mu.Lock()
	for p := range h.trackers {
		if _, ok := h.contacts[p]; ok {
			live = append(live, p)
		}
	}
	h.mu.Unlock()
	return h.nearest(live, maxTrackers)
}

// nearest returns the n peers whose hash with this node's ID is lowest: each
// node picks others, and the same ones each time.
func (h *Host) nearest(peers []PeerID, n int) []PeerID {
	rank := func(p PeerID) [32]byte { return sha256.Sum256([]byte(p + h.ID())) }
	slices.SortFunc(peers, func(a, b PeerID) int {
		x, y := rank(a), rank(b)
		return slices.Compare(x[:], y[:])
	})
	return peers[:min(n, len(peers))]
}

func (h *Host) noteTracker(p PeerID, is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if is {
		h.trackers[p] = true
	} else {
		delete(h.trackers, p)
	}
}

// pushTo sends this node's offers to one peer and learns from the answer.
func (h *Host) pushTo(ctx context.Context, p PeerID) error {
	offers, seq, err := h.signedOffers()
	if err != nil {
		h.logf("%v", err)
	}
	reply, err := h.ask(ctx, p, &wire.OffersPush{Presence: h.presence(), Seq: seq, Offers: offers})
	if err != nil {
		return err
	}
	r, ok := reply.(*wire.OffersReply)
	if !ok {
		return fmt.Errorf("it answered with a frame of type %d", reply.Type())
	}
	h.mu.Lock()
	h.sent[p] = seq
	if r.Floor > seq {
		// Our clock was ahead in an earlier run, or someone else uses our key.
		h.nextSeqLocked(r.Floor)
		h.kickPublisher()
	}
	var conflict error
	if r.Conflict && h.conflict == nil {
		conflict = fmt.Errorf("another running node uses this node's key (%s); give each node its own data folder", h.lp.ID())
		h.conflict = conflict
	}
	h.mu.Unlock()
	if conflict != nil {
		h.logf("%v", conflict)
	}
	return nil
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
	if r, ok := reply.(*wire.OffersReply); ok {
		h.noteTracker(p, r.Tracker)
		h.hearList(p, r.ListSeq)
	}
	return reply, nil
}

// hearList notes which revocation list p has, and fetches it if newer.
func (h *Host) hearList(p PeerID, seq uint64) {
	h.members.heard(p, seq)
	if h.members.behind(p) {
		h.goDo(func(ctx context.Context) { h.pullList(ctx, p) })
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
		h.logf("%s refused from %s: %v", trackProtocol, s.Peer(), err)
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

	case *wire.ListPull:
		if err := h.hearPresence(&m.Presence, from); err != nil {
			return nil, err
		}
		l := h.members.revocations()
		if l == nil {
			return nil, errors.New("it asks for a revocation list, there is none")
		}
		return l, nil

	case *wire.RevocationList:
		if err := h.takeList(m, from); err != nil && !errors.Is(err, errStale) {
			return nil, err
		}
		return nil, nil
	}
	return nil, fmt.Errorf("frame of type %d doesn't belong here", m.Type())
}

func (h *Host) hearPresence(p *wire.Presence, from PeerID) error {
	if p.Swarm != h.info.ID {
		return fmt.Errorf("it is in swarm %s, this is %s", p.Swarm, h.info.ID)
	}
	h.noteTracker(from, p.Tracker)
	h.hearList(from, p.ListSeq)
	return nil
}

// offersFor collects what a pull asks for, this node's own offers first.
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
	own, _, _ := h.signedOffers()
	for _, o := range own {
		add(o, o.TTL)
	}
	for _, held := range h.book.all(now) {
		if h.members.mayServe(held.Offer.Peer) == nil {
			add(held.Offer, held.Remaining)
		}
	}
	return r
}

// Refresh pulls offers now, from trackers and, in a small swarm, from everyone
// connected, and makes contact with the signers of those that are new here. It
// returns an error only if nobody answered.
func (h *Host) Refresh(ctx context.Context) error { return h.refresh(ctx, [32]byte{}) }

// RefreshModel is Refresh for the offers of one model.
func (h *Host) RefreshModel(ctx context.Context, model [32]byte) error { return h.refresh(ctx, model) }

func (h *Host) refresh(ctx context.Context, model [32]byte) error {
	h.awaitContact(ctx)
	peers := h.targets()
	if len(peers) == 0 {
		return fmt.Errorf("no other node of swarm %s has been reached yet", h.info.ID)
	}
	var mu sync.Mutex
	var errs []error
	answered := false
	each(peers, func(p PeerID) {
		err := h.pullFrom(ctx, p, model)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("offers of %s: %w", p, err))
		}
		answered = answered || err == nil
	})
	if !answered {
		return errors.Join(errs...)
	}
	h.meetSigners(ctx)
	return nil
}

// meetSigners makes contact with the signers of offers that aren't connected.
// It waits for those that answer quickly; the others' offers count from when
// they do.
func (h *Host) meetSigners(ctx context.Context) {
	done := make(chan struct{})
	h.goDo(func(ctx context.Context) {
		defer close(done)
		each(h.unmet(), func(p PeerID) {
			defer h.probed(p)
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			if id, err := decodePeer(p); err == nil {
				if err := h.dialKnown(ctx, id); err != nil && h.ctx.Err() == nil {
					h.logf("offers of %s don't count: %v", p, err)
				}
			}
		})
	})
	select {
	case <-done:
	case <-time.After(probeWait):
	case <-ctx.Done():
	case <-h.ctx.Done():
	}
}

// each runs f for every peer, up to maxProbes at once, and waits.
func each(peers []PeerID, f func(PeerID)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxProbes)
	for _, p := range peers {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(p)
		})
	}
	wg.Wait()
}

// unmet returns the signers of live offers that aren't connected and that
// nobody is contacting. Each must be ended with probed.
func (h *Host) unmet() []PeerID {
	var peers []PeerID
	held := h.book.all(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range held {
		p := held[i].Offer.Peer
		if _, live := h.contacts[p]; !live && p != h.lp.ID().String() && !h.probing[p] {
			h.probing[p] = true
			peers = append(peers, p)
		}
	}
	return peers
}

func (h *Host) probed(p PeerID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.probing, p)
}

// pullFrom fetches p's view. Offers that p passed on before and doesn't hold
// any more are dropped.
func (h *Host) pullFrom(ctx context.Context, p PeerID, model [32]byte) error {
	reply, err := h.ask(ctx, p, &wire.OffersPull{Presence: h.presence(), Model: model, Max: wire.MaxOffersReply})
	if err != nil {
		return err
	}
	r, ok := reply.(*wire.OffersReply)
	if !ok {
		return fmt.Errorf("it answered with a frame of type %d", reply.Type())
	}
	if r.Swarm != h.info.ID {
		return fmt.Errorf("it is in swarm %s", r.Swarm)
	}
	now := time.Now()
	type key struct {
		peer  PeerID
		model [32]byte
	}
	still := map[key]bool{}
	for i := range r.Offers {
		o := &r.Offers[i].Offer
		still[key{o.Peer, o.Model}] = true
		if o.Peer == h.ID() {
			continue
		}
		if err := verifyOffer(o, h.info.ID); err != nil {
			return fmt.Errorf("it passes on a bad offer: %w", err)
		}
		if err := h.book.hear(*o, time.Duration(r.Offers[i].Remaining)*time.Second, p, now); err != nil && !errors.Is(err, errReplay) {
			return err
		}
	}
	if !r.Truncated {
		h.book.retain(p, func(o *wire.Offer) bool {
			return model != [32]byte{} && o.Model != model || still[key{o.Peer, o.Model}]
		})
	}
	return nil
}

// withdraw says goodbye to those who hold this node's offers.
func (h *Host) withdraw() {
	h.mu.Lock()
	h.own = nil
	h.nextSeqLocked(0)
	var holders []PeerID
	for p := range h.sent {
		holders = append(holders, p)
	}
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, withdrawLimit)
	defer cancel()
	each(holders, func(p PeerID) {
		if id, err := decodePeer(p); err == nil && h.lp.Network().Connectedness(id) == network.Connected {
			h.pushTo(ctx, p)
		}
	})
}
