package swarm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/starling-swarm/starling/swarm/wire"
)

// SetOffers replaces this node's offers: it signs and publishes them, twice in
// the life of an offer and now if there is news in them; that measurements have
// got older is none. Peer, Seq, empty Addrs and TTL are filled in. An offer that
// makes no sense is left out and logged.
func (h *Host) SetOffers(offers []Offer) {
	if h.cfg.Client && len(offers) > 0 {
		h.log.Error("offers of a client are dropped", "offers", len(offers))
		return
	}
	if len(offers) > wire.MaxOwnOffers {
		h.log.Error("more offers than fit, the rest is dropped", "offers", len(offers), "limit", wire.MaxOwnOffers)
		offers = offers[:wire.MaxOwnOffers]
	}
	h.mu.Lock()
	h.latest = slices.Clone(offers)
	news := !slices.EqualFunc(h.latest, h.own, sameOffer)
	if news {
		h.own = h.latest
		h.nextSeqLocked(0)
	}
	h.mu.Unlock()
	if news {
		h.kickPublisher()
	}
}

// sameOffer reports whether two offers differ in the age of their links' measurements at most.
func sameOffer(a, b Offer) bool {
	ageless := func(o Offer) Offer {
		o.Links = slices.Clone(o.Links)
		for i := range o.Links {
			o.Links[i].Age = 0
		}
		return o
	}
	return reflect.DeepEqual(ageless(a), ageless(b))
}

// nextSeqLocked numbers the next push: above all before, in this run and, as
// clocks go, in earlier ones.
func (h *Host) nextSeqLocked(floor uint64) {
	h.seq = max(h.seq+1, floor, uint64(time.Now().UnixNano()))
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

// offered returns what others may know of this node's own offers: all, unless the role that its certificate gives it is not to serve.
func (h *Host) offered() ([]wire.Offer, uint64, error) {
	signed, seq, err := h.signedOffers()
	if h.Serves() != nil {
		signed = nil
	}
	return signed, seq, err
}

// Serves reports why nobody but this node itself takes notice of its offers and listings; nil if others do.
func (h *Host) Serves() error { return h.members.mayServe(h.ID()) }

func (h *Host) kickPublisher() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// publishLoop pushes this node's offers and listings: all of them to everyone concerned at
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
			h.own = h.latest
			h.nextSeqLocked(0)
			h.renewListingsLocked()
			h.mu.Unlock()
		case <-h.kick:
			if !sleep(ctx, publishGap) {
				return
			}
		}
		h.publish()
	}
}

// publish pushes to those of the targets that haven't seen the current number, to each by itself: one that hangs must not hold up the others' news.
func (h *Host) publish() {
	for _, p := range h.targets() {
		h.mu.Lock()
		now := h.numbersLocked()
		due := !h.pushing[p] && (numbers{h.sent[p], h.listings.sent[p]}) != now
		if due {
			h.pushing[p] = true
		}
		h.mu.Unlock()
		if due {
			h.goDo(func(ctx context.Context) { h.pushAll(ctx, p, now) })
		}
	}
}

// numbers are those of a node's offers and of its listings.
type numbers struct{ offers, listings uint64 }

func (h *Host) numbersLocked() numbers { return numbers{h.seq, h.listings.seq} }

// pushAll pushes to one peer, and once more if there has been news meanwhile.
func (h *Host) pushAll(ctx context.Context, p PeerID, began numbers) {
	if err := errors.Join(h.pushTo(ctx, p), h.pushListings(ctx, p)); err != nil && ctx.Err() == nil {
		h.log.Info("offers or listings not delivered, trying on", "peer", p, "error", err)
		time.AfterFunc(publishRetry, h.kickPublisher)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pushing, p)
	if h.numbersLocked() != began {
		h.kickPublisher()
	}
}

// targets returns whom to push to and pull from: everyone connected in a small
// swarm, else trackers, else those who stand in for them, else some of the
// connected.
func (h *Host) targets() []PeerID {
	connected := h.Connected()
	if len(connected) <= h.cfg.smallSwarm {
		return connected
	}
	trackers := h.knownTrackers()
	if len(trackers) == 0 {
		trackers = h.liveStandIns()
	}
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

// liveStandIns returns those of the peers that stand in for trackers that are connected.
func (h *Host) liveStandIns() (live []PeerID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.standIns {
		if _, ok := h.contacts[p]; ok {
			live = append(live, p)
		}
	}
	return live
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
	is = is && h.members.mayTrack(p)
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
	offers, seq, err := h.offered()
	if err != nil {
		h.log.Warn("offer left out", "error", err)
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
		h.log.Error("identity conflict", "error", conflict)
	}
	return nil
}

// withdraw says goodbye to those who hold this node's offers.
func (h *Host) withdraw() {
	h.mu.Lock()
	h.own, h.latest = nil, nil
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
