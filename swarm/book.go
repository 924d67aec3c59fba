package swarm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Limits of an offer book.
const (
	maxBookPeers = 4096
	forgetAfter  = time.Hour // how long numbers of peers without offers are remembered
)

// errReplay is wrapped when an offer is older than one seen before.
var errReplay = errors.New("older than an offer seen before")

// offerBook is what a node knows of everyone's offers. Time is an argument;
// signatures are checked before anything gets here.
//
// Invariants per peer: no offer has a number below floor; floor never sinks;
// one offer per model.
type offerBook struct {
	mu    sync.Mutex
	peers map[PeerID]*peerOffers
}

type peerOffers struct {
	floor    uint64 // numbers below are withdrawn or expired
	touched  time.Time
	offers   map[[32]byte]*heldOffer
	instance uint64 // of the node behind the latest push
	replaced uint64 // the instance before that
}

type heldOffer struct {
	offer   wire.Offer
	expires time.Time
	via     PeerID // who passed it on; the signer itself if pushed
}

func newOfferBook() *offerBook { return &offerBook{peers: map[PeerID]*peerOffers{}} }

// life returns how long an offer counts from now: what it says, at most what a
// holder says is left, at most wire.MaxOfferTTL.
func life(o *wire.Offer, left time.Duration) time.Duration {
	return min(time.Duration(o.TTL)*time.Second, left, wire.MaxOfferTTL)
}

// push replaces everything held of peer by offers, which it sent itself, all
// numbered seq. It reports whether another node with peer's key is running:
// instance is drawn anew at each start, and a replaced one must not come back.
func (b *offerBook) push(peer PeerID, instance, seq uint64, offers []wire.Offer, now time.Time) (conflict bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := b.peerLocked(peer, now)
	if err != nil {
		return false, err
	}
	if instance != p.instance {
		conflict = instance == p.replaced && p.replaced != 0
		p.replaced, p.instance = p.instance, instance
	}
	if seq < p.floor {
		return conflict, fmt.Errorf("push %d of %s: %w (%d)", seq, peer, errReplay, p.floor)
	}
	p.floor = seq
	clear(p.offers)
	for _, o := range offers {
		p.offers[o.Model] = &heldOffer{o, now.Add(life(&o, wire.MaxOfferTTL)), peer}
	}
	if len(offers) == 0 {
		p.floor = seq + 1
	}
	return conflict, nil
}

// floor returns the lowest number that peer can still use.
func (b *offerBook) floor(peer PeerID) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.peers[peer]; p != nil {
		return p.floor
	}
	return 0
}

// hear takes an offer that via passed on with left of its life.
func (b *offerBook) hear(o wire.Offer, left time.Duration, via PeerID, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := b.peerLocked(o.Peer, now)
	if err != nil {
		return err
	}
	if o.Seq < p.floor {
		return fmt.Errorf("offer %d of %s: %w (%d)", o.Seq, o.Peer, errReplay, p.floor)
	}
	expires := now.Add(life(&o, left))
	if old := p.offers[o.Model]; old != nil {
		if o.Seq < old.offer.Seq {
			return fmt.Errorf("offer %d of %s: %w (%d)", o.Seq, o.Peer, errReplay, old.offer.Seq)
		}
		if o.Seq == old.offer.Seq {
			return nil // hearing it again doesn't lengthen its life
		}
	}
	p.offers[o.Model] = &heldOffer{o, expires, via}
	return nil
}

// retain drops offers that via passed on earlier and that keep rejects: via
// doesn't hold them any more.
func (b *offerBook) retain(via PeerID, keep func(*wire.Offer) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for peer, p := range b.peers {
		for model, h := range p.offers {
			if h.via == via && peer != via && !keep(&h.offer) {
				delete(p.offers, model)
			}
		}
	}
}

// peerLocked returns peer's entry with expired offers removed, and makes one
// if there is room.
func (b *offerBook) peerLocked(peer PeerID, now time.Time) (*peerOffers, error) {
	p := b.peers[peer]
	if p == nil {
		if len(b.peers) >= maxBookPeers {
			b.expireLocked(now)
		}
		if len(b.peers) >= maxBookPeers {
			return nil, fmt.Errorf("offers of %s: this node already knows %d peers", peer, len(b.peers))
		}
		p = &peerOffers{offers: map[[32]byte]*heldOffer{}}
		b.peers[peer] = p
	}
	p.touched = now
	p.expire(now)
	return p, nil
}

func (p *peerOffers) expire(now time.Time) {
	for model, h := range p.offers {
		if !h.expires.After(now) {
			p.floor = max(p.floor, h.offer.Seq+1)
			delete(p.offers, model)
		}
	}
	// Raising the floor must not leave offers below it.
	for model, h := range p.offers {
		if h.offer.Seq < p.floor {
			delete(p.offers, model)
		}
	}
}

func (b *offerBook) expireLocked(now time.Time) {
	for peer, p := range b.peers {
		p.expire(now)
		if len(p.offers) == 0 && now.Sub(p.touched) > forgetAfter {
			delete(b.peers, peer)
		}
	}
}

// age shortens the lives of all offers by d. Those that end so may be heard
// again: their makers may be there still, and have nothing new to say.
func (b *offerBook) age(d time.Duration, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.peers {
		for model, h := range p.offers {
			if h.expires = h.expires.Add(-d); !h.expires.After(now) {
				delete(p.offers, model)
			}
		}
	}
}

// all returns the live offers, by peer, then model.
func (b *offerBook) all(now time.Time) []wire.HeldOffer {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expireLocked(now)
	var all []wire.HeldOffer
	for _, p := range b.peers {
		for _, h := range p.offers {
			all = append(all, wire.HeldOffer{Remaining: uint32(h.expires.Sub(now) / time.Second), Offer: h.offer})
		}
	}
	slices.SortFunc(all, func(x, y wire.HeldOffer) int {
		if c := strings.Compare(x.Offer.Peer, y.Offer.Peer); c != 0 {
			return c
		}
		return bytes.Compare(x.Offer.Model[:], y.Offer.Model[:])
	})
	return all
}

// has says whether there are live offers of peer.
func (b *offerBook) has(peer PeerID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[peer]
	if p == nil {
		return false
	}
	p.expire(now)
	return len(p.offers) > 0
}

// addrs returns the addresses in peer's offers.
func (b *offerBook) addrs(peer PeerID, now time.Time) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[peer]
	if p == nil {
		return nil
	}
	p.expire(now)
	var addrs []string
	for _, h := range p.offers {
		addrs = append(addrs, h.offer.Addrs...)
	}
	return addrs
}

// forget drops peer's offers; its numbers are remembered.
func (b *offerBook) forget(peer PeerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.peers[peer]; p != nil {
		clear(p.offers)
	}
}
