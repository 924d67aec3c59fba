package swarm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

const (
	renewListings   = 8 * time.Hour // of the 24 that they live
	maxListedWords  = 8             // of a name, that are announced in the DHT
	lookedUpWords   = 3             // of a query, where nobody asked knows anything
	lookedUpHolders = 8             // publishers asked for each
)

// ownListings is what this node publishes; all guarded by Host.mu.
type ownListings struct {
	list   []Listing
	signed []wire.Listing
	seq    uint64            // of all of signed; 0: nothing was ever listed
	made   time.Time         // when they were signed, by the wall clock
	sent   map[PeerID]uint64 // number that the peer has acknowledged
}

// SetListings replaces this node's listings: they are signed and published now, made anew every eight hours, and live on for up to a
// day when the node has gone. Publisher, Seq and Expires are filled in. One that makes no sense is left out and logged.
func (h *Host) SetListings(list []Listing) {
	if h.cfg.Client && len(list) > 0 {
		h.log.Error("listings of a client are dropped", "listings", len(list))
		return
	}
	if len(list) > wire.MaxOwnListings {
		h.log.Error("more listings than fit, the rest is dropped", "listings", len(list), "limit", wire.MaxOwnListings)
		list = list[:wire.MaxOwnListings]
	}
	h.mu.Lock()
	same := slices.Equal(h.listings.list, list)
	if !same {
		h.listings.list = slices.Clone(list)
		h.signListingsLocked(0)
	}
	h.mu.Unlock()
	if !same {
		h.kickPublisher()
		h.joinedDHT()
	}
}

// signListingsLocked makes the listings anew, under a number above all before.
func (h *Host) signListingsLocked(floor uint64) {
	l := &h.listings
	now := time.Now()
	l.seq, l.made = max(l.seq+1, floor, uint64(now.UnixNano())), now.Round(0)
	l.signed = nil
	for _, one := range l.list {
		one.Publisher, one.Seq, one.Expires = h.ID(), l.seq, now.Add(wire.MaxListingLife)
		w, err := one.toWire(h.info.ID, h.cfg.Identity)
		if err != nil {
			h.log.Warn("listing left out", "error", err)
			continue
		}
		l.signed = append(l.signed, w)
	}
}

// renewListingsLocked makes the listings anew when it is time, also after the clock was set back.
func (h *Host) renewListingsLocked() {
	if age := time.Now().Round(0).Sub(h.listings.made); h.listings.seq > 0 && (age > renewListings || age < 0) {
		h.signListingsLocked(0)
	}
}

// ownSigned returns this node's listings and their number.
func (h *Host) ownSigned() ([]wire.Listing, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listings.signed, h.listings.seq
}

// pushListings sends this node's listings to one peer that lacks them.
func (h *Host) pushListings(ctx context.Context, p PeerID) error {
	h.mu.Lock()
	list, seq, current := h.listings.signed, h.listings.seq, h.listings.sent[p] == h.listings.seq
	h.mu.Unlock()
	if current {
		return nil
	}
	reply, err := h.ask(ctx, p, &wire.ListingsPush{Presence: h.presence(), Seq: seq, Listings: list})
	if err != nil {
		return err
	}
	r, ok := reply.(*wire.ListingsReply)
	if !ok {
		return fmt.Errorf("it answered with a frame of type %d", reply.Type())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listings.sent[p] = seq
	if r.Floor > seq && seq == h.listings.seq { // our clock was ahead in an earlier run
		h.signListingsLocked(r.Floor)
		h.kickPublisher()
	}
	return nil
}

// takeListings takes a push of a connected peer.
func (h *Host) takeListings(m *wire.ListingsPush, from PeerID, now time.Time) (wire.Message, error) {
	for i := range m.Listings {
		l := &m.Listings[i]
		if l.Peer != from || l.Seq != m.Seq {
			return nil, fmt.Errorf("it pushes listing %d of %s as its own number %d", l.Seq, l.Peer, m.Seq)
		}
		if err := verifyListing(l, h.info.ID); err != nil {
			return nil, err
		}
	}
	if len(m.Listings) > 0 {
		if err := h.members.mayServe(from); err != nil {
			return nil, err
		}
	}
	if err := h.catalogue.push(from, m.Seq, m.Listings, now); err != nil && !errors.Is(err, errReplay) {
		return nil, err
	}
	return &wire.ListingsReply{Presence: h.presence(), Floor: h.catalogue.floor(from)}, nil
}

// listingsFor collects what a pull asks for, this node's own first.
func (h *Host) listingsFor(m *wire.ListingsPull, from PeerID, now time.Time) *wire.ListingsReply {
	r := &wire.ListingsReply{Presence: h.presence()}
	limit := int(min(m.Max, wire.MaxListingsReply))
	for _, l := range h.findListings(m.Model, m.Query, now) {
		switch {
		case l.Peer == from:
		case len(r.Listings) == limit:
			r.Truncated = true
			return r
		default:
			r.Listings = append(r.Listings, l)
		}
	}
	return r
}

// findListings returns the listings known here, this node's own first.
func (h *Host) findListings(model [32]byte, query string, now time.Time) (found []wire.Listing) {
	words := Words(query)
	own, _ := h.ownSigned()
	for i := range own {
		if wanted(&own[i], Words(own[i].Name+" "+own[i].Family+" "+own[i].Quant+" "+own[i].Licence), model, words) {
			found = append(found, own[i])
		}
	}
	for _, l := range h.catalogue.find(model, query, now) {
		if h.members.mayServe(l.Peer) == nil {
			found = append(found, l)
		}
	}
	return found
}

// Listings returns the listings that this node knows now, its own included, in which each word of the query begins a word of name,
// family, quant or licence; all for an empty query.
func (h *Host) Listings(query string) (list []Listing) {
	found := h.findListings([32]byte{}, query, time.Now())
	for i := range found {
		list = append(list, listingFromWire(&found[i]))
	}
	return list
}

// SearchListings asks for listings now: trackers, in a small swarm everyone connected, and where these know none those that the DHT
// has for the query's words. What it finds is in Listings. It returns an error only if nobody answered.
func (h *Host) SearchListings(ctx context.Context, query string) error {
	if len(query) > wire.MaxQuery {
		return fmt.Errorf("a search for %d bytes, at most %d are looked for", len(query), wire.MaxQuery)
	}
	h.awaitContact(ctx)
	if err := h.askAll(h.targets(), func(p PeerID) error { return h.pullListings(ctx, p, query) }); err != nil {
		return err
	}
	words := Words(query)
	for _, w := range words[:min(len(words), lookedUpWords)] {
		if len(h.Listings(query)) > 0 || ctx.Err() != nil {
			break
		}
		peers, err := h.Lookup(ctx, wordKey(w), lookedUpHolders)
		if err == nil {
			_ = h.askAll(peers, func(p PeerID) error { return h.pullListings(ctx, p, query) }) // who has gone has no listings
		}
	}
	return nil
}

// pullListings fetches what p knows.
func (h *Host) pullListings(ctx context.Context, p PeerID, query string) error {
	reply, err := h.ask(ctx, p, &wire.ListingsPull{Presence: h.presence(), Query: query, Max: wire.MaxListingsReply})
	if err != nil {
		return err
	}
	r, ok := reply.(*wire.ListingsReply)
	if !ok {
		return fmt.Errorf("it answered with a frame of type %d", reply.Type())
	}
	if r.Swarm != h.info.ID {
		return fmt.Errorf("it is in swarm %s", r.Swarm)
	}
	now := time.Now()
	for i := range r.Listings {
		l := &r.Listings[i]
		if l.Peer == h.ID() {
			continue
		}
		if err := verifyListing(l, h.info.ID); err != nil {
			return fmt.Errorf("it passes on a bad listing: %w", err)
		}
		if err := h.catalogue.hear(l, now); err != nil && !errors.Is(err, errReplay) && !errors.Is(err, errLifetime) {
			return err
		}
	}
	return nil
}
