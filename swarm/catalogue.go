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

// Limits of a catalogue.
const (
	maxPublishers = 4096
	maxListings   = 16384 // of all publishers together; about 10 MB
)

// errLifetime is wrapped when a listing has expired, or claims to live longer than any may.
var errLifetime = errors.New("its life is over, or longer than listings live")

// catalogue is what a node knows of everyone's listings. They outlive their publishers' connections: anyone may pass them on, and
// their end is a time that the publisher has signed. Time is an argument; signatures are checked before anything gets here.
//
// Invariants per publisher: no listing has a number below floor; floor never sinks while a listing below it could live; one listing
// per model.
type catalogue struct {
	mu         sync.Mutex
	publishers map[PeerID]*publisher
	count      int // listings of all publishers
}

type publisher struct {
	floor    uint64
	replays  time.Time // until when a listing below floor could live
	listings map[[32]byte]listed
}

type listed struct {
	wire.Listing
	words []string // by which it is found
}

func newCatalogue() *catalogue { return &catalogue{publishers: map[PeerID]*publisher{}} }

// lives reports whether a listing is to be believed at a time.
func lives(l *wire.Listing, now time.Time) bool {
	left := time.Unix(l.Expires, 0).Sub(now)
	return left > 0 && left <= wire.MaxListingLife+wire.ClockSkew
}

// push replaces everything held of peer by list, which it sent itself, all numbered seq.
func (c *catalogue) push(peer PeerID, seq uint64, list []wire.Listing, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.publisherLocked(peer, now)
	if err != nil {
		return err
	}
	if seq < p.floor {
		return fmt.Errorf("listings %d of %s: %w (%d)", seq, peer, errReplay, p.floor)
	}
	p.floor, p.replays = seq, now.Add(wire.MaxListingLife+wire.ClockSkew)
	c.count -= len(p.listings)
	clear(p.listings)
	for i := range list {
		if err := c.addLocked(p, &list[i], now); err != nil {
			return err
		}
	}
	return nil
}

// hear takes a listing that someone passed on.
func (c *catalogue) hear(l *wire.Listing, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.publisherLocked(l.Peer, now)
	if err != nil {
		return err
	}
	if old, ok := p.listings[l.Model]; l.Seq < p.floor || ok && l.Seq < old.Seq {
		return fmt.Errorf("listing %d of %s: %w", l.Seq, l.Peer, errReplay)
	}
	return c.addLocked(p, l, now)
}

func (c *catalogue) addLocked(p *publisher, l *wire.Listing, now time.Time) error {
	if !lives(l, now) {
		return fmt.Errorf("listing of model %x by %s: %w", l.Model[:6], l.Peer, errLifetime)
	}
	_, known := p.listings[l.Model]
	switch {
	case known:
	case len(p.listings) >= wire.MaxOwnListings:
		return fmt.Errorf("listings of %s: more than %d", l.Peer, wire.MaxOwnListings)
	case c.count >= maxListings:
		return fmt.Errorf("listings of %s: this node already knows %d", l.Peer, c.count)
	default:
		c.count++
	}
	p.listings[l.Model] = listed{*l, Words(l.Name + " " + l.Family + " " + l.Quant + " " + l.Licence)}
	return nil
}

// floor returns the lowest number that peer can still use.
func (c *catalogue) floor(peer PeerID) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.publishers[peer]; p != nil {
		return p.floor
	}
	return 0
}

// publisherLocked returns peer's entry, and makes one if there is room.
func (c *catalogue) publisherLocked(peer PeerID, now time.Time) (*publisher, error) {
	p := c.publishers[peer]
	if p == nil {
		if len(c.publishers) >= maxPublishers {
			c.expireLocked(now)
		}
		if len(c.publishers) >= maxPublishers {
			return nil, fmt.Errorf("listings of %s: this node already knows %d publishers", peer, len(c.publishers))
		}
		p = &publisher{listings: map[[32]byte]listed{}}
		c.publishers[peer] = p
	}
	return p, nil
}

func (c *catalogue) expireLocked(now time.Time) {
	for peer, p := range c.publishers {
		for model, l := range p.listings {
			if !lives(&l.Listing, now) {
				delete(p.listings, model)
				c.count--
			}
		}
		if len(p.listings) == 0 && now.After(p.replays) {
			delete(c.publishers, peer)
		}
	}
}

// find returns the live listings of a model, or, where that is zero, those in which each word of the query begins a word; by
// publisher, then model.
func (c *catalogue) find(model [32]byte, query string, now time.Time) []wire.Listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked(now)
	words := Words(query)
	var found []wire.Listing
	for _, p := range c.publishers {
		for _, l := range p.listings {
			if wanted(&l.Listing, l.words, model, words) {
				found = append(found, l.Listing)
			}
		}
	}
	slices.SortFunc(found, func(x, y wire.Listing) int {
		if c := strings.Compare(x.Peer, y.Peer); c != 0 {
			return c
		}
		return bytes.Compare(x.Model[:], y.Model[:])
	})
	return found
}

// wanted reports whether a listing with these words is one that is looked for.
func wanted(l *wire.Listing, words []string, model [32]byte, query []string) bool {
	if model != ([32]byte{}) {
		return l.Model == model
	}
	return matches(words, query)
}
