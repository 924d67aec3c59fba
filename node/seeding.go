package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// Times of seeding from spare disk. Each node waits for a random time around spareEvery before it looks, so that those who look later see what
// others have taken.
const (
	spareEvery  = 30 * time.Second
	spareStall  = time.Minute      // after which a fetch that gets no bytes is given up
	spareRetry  = 10 * time.Minute // until what failed is tried again
	spareModels = 64               // that are considered at once
)

// seeding is what a node does with its spare disk.
type seeding struct {
	mu      sync.Mutex
	used    int64                 // bytes
	failed  map[portion]time.Time // when it couldn't be fetched
	problem string                // what went wrong last; empty: nothing since the last success
}

// routineSpare fetches what the swarm lacks, one portion at a time.
func (n *Node) routineSpare() {
	every := n.cfg.spareEvery
	if every == 0 {
		every = spareEvery
	}
	for n.rest(every/2 + rand.N(every)) {
		_ = n.host.Refresh(n.ctx) // offers are hints
		_ = n.host.SearchListings(n.ctx, "")
		for n.seedSpare(n.ctx) && n.rest(every/20+rand.N(every/5)) {
		}
	}
}

// rest waits, and reports whether the node still runs.
func (n *Node) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-n.ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// seedSpare makes one move and reports whether it did. Before it does it asks for the offers of the model concerned, and moves only if
// it still would.
func (n *Node) seedSpare(ctx context.Context) bool {
	now := time.Now()
	skip := func(p portion) bool {
		n.seeding.mu.Lock()
		defer n.seeding.mu.Unlock()
		at, ok := n.seeding.failed[p]
		return ok && now.Sub(at) < spareRetry
	}
	drop, fetch := nextSpare(n.spareView(), n.cfg.SeedSpare, n.spareOrder, skip)
	if fetch != nil {
		if err := n.host.RefreshModel(ctx, fetch.model); err != nil {
			return false
		}
		if d, again := nextSpare(n.spareView(), n.cfg.SeedSpare, n.spareOrder, skip); again == nil || *again != *fetch || !slices.Equal(d, drop) {
			return again != nil || len(d) > 0
		}
	}
	for _, p := range drop {
		if err := n.dropSpare(p); err != nil {
			n.spareFailed(nil, err)
			return false
		}
	}
	if fetch != nil {
		if err := n.fetchSpare(ctx, *fetch); err != nil {
			if ctx.Err() == nil {
				n.spareFailed(fetch, err)
			}
			return false
		}
	}
	n.seeding.mu.Lock()
	n.seeding.problem = ""
	n.seeding.mu.Unlock()
	n.offer()
	return fetch != nil || len(drop) > 0
}

// spareOrder is this node's own order of portions.
func (n *Node) spareOrder(p portion) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", n.ID(), p.model, p.index))
	return binary.LittleEndian.Uint64(sum[:])
}

func (n *Node) spareFailed(p *portion, err error) {
	n.log.Warn("spare disk is not used as it could be", "error", err)
	n.seeding.mu.Lock()
	defer n.seeding.mu.Unlock()
	n.seeding.problem = err.Error()
	if p != nil {
		if n.seeding.failed == nil {
			n.seeding.failed = map[portion]time.Time{}
		}
		for old, at := range n.seeding.failed {
			if time.Since(at) > spareRetry {
				delete(n.seeding.failed, old)
			}
		}
		n.seeding.failed[*p] = time.Now()
	}
}

// spareView returns what is known of the models that spare disk has gone to, and may go to.
func (n *Node) spareView() (view []spareModel) {
	offers := slices.DeleteFunc(n.host.Offers(), func(o swarm.Offer) bool { return o.Peer == n.ID() })
	listings, names := n.host.Listings(""), n.namings()
	listed := func(id artifacts.ID) bool {
		return slices.ContainsFunc(listings, func(l swarm.Listing) bool { return artifacts.ID(l.Model) == id })
	}
	had := map[artifacts.ID]bool{}
	models := n.store.Models()
	for _, m := range models {
		c, ok := m.Card()
		if !ok || m.Published() || c.Layers > wire.MaxLayers {
			continue
		}
		if spare := n.spareOf(m, c); len(spare) > 0 || n.seeds(m.ID(), names) && listed(m.ID()) {
			v := spareModel{id: m.ID(), header: m.Manifest().PieceBytes(c.HeaderSpans), others: copies(offers, m.ID(), c.Layers)}
			for p := range c.Portions() {
				v.bytes = append(v.bytes, m.Manifest().PieceBytes(c.Portion(p)))
				v.held = append(v.held, m.Have(c.Portion(p)))
				v.spare = append(v.spare, slices.Contains(spare, p))
			}
			view = append(view, v)
		}
		had[m.ID()] = true
	}
	n.seeding.mu.Lock()
	n.seeding.used = spareUsed(view, nil, nil)
	n.seeding.mu.Unlock()
	for _, l := range listings {
		id := artifacts.ID(l.Model)
		if had[id] || !n.seeds(id, names) || len(view) >= spareModels || len(models) >= wire.MaxOwnOffers {
			continue
		}
		had[id] = true
		// Until the header is here, sizes are what the listing makes likely.
		v := spareModel{id: id, bytes: make([]int64, l.Layers+1), others: copies(offers, id, l.Layers), held: make([]bool, l.Layers+1), spare: make([]bool, l.Layers+1)}
		for p := range v.bytes {
			v.bytes[p] = l.Bytes / int64(l.Layers+1)
		}
		view = append(view, v)
	}
	return view
}

// seeds reports whether the node's owner lets spare disk go to a model: any, or those named by ID, its start, or one of their names.
func (n *Node) seeds(id artifacts.ID, names []naming) bool {
	return !n.isBlocked(id.String()) && (len(n.cfg.SeedModels) == 0 || slices.ContainsFunc(n.cfg.SeedModels, func(want string) bool {
		return slices.Contains(modelsOf(matchModels(names, want)), id)
	}))
}

// spareOf returns the portions of a model that are spare copies: none that is served, pinned or a draft's, which stay whatever the swarm has.
func (n *Node) spareOf(m *artifacts.Model, c *artifacts.Card) []int {
	spare, err := m.Spare()
	if err != nil || len(spare) == 0 {
		return nil // its bytes are no more than what gc may free
	}
	why, _, err := n.kept(m, nil)
	if err != nil {
		return nil // nobody knows what must stay
	}
	return slices.DeleteFunc(spare, func(p int) bool {
		if p < 0 || p > c.Layers {
			return true
		}
		return slices.ContainsFunc(why.Keep, func(k control.KeptLayers) bool {
			return p == c.Layers || k.Layers.First <= p && p <= k.Layers.Last
		})
	})
}

// fetchSpare fetches a portion. It is recorded before, so that what a killed process leaves of it counts as spare.
func (n *Node) fetchSpare(ctx context.Context, p portion) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(spareStall, func() { cancel(errors.New("nobody sends any bytes of it")) })
	defer stalled.Stop()
	got := func(int64, int64) { stalled.Reset(spareStall) }
	m, card, err := n.header(ctx, p.model, func(ev control.Event) error { got(ev.Done, ev.Total); return nil })
	if err != nil {
		return err
	}
	if view := n.spareView(); !slices.ContainsFunc(view, func(v spareModel) bool {
		return v.id == p.model && p.index < len(v.bytes) && spareUsed(view, nil, &p) <= n.cfg.SeedSpare
	}) {
		return nil // the listing made it look smaller: the next move knows
	}
	spare, _ := m.Spare() // what can't be read is replaced
	if !slices.Contains(spare, p.index) {
		spare = append(spare, p.index)
		slices.Sort(spare)
	}
	if err := m.SetSpare(spare); err != nil {
		return err
	}
	n.log.Info("spare disk: fetching", "model", p.model.Short(), "portion", p.index, "of", card.Portions())
	last := int64(-1)
	err = n.torrents.Fetch(ctx, m, slices.Concat(card.HeaderSpans, card.Portion(p.index)), func() []string { return n.holders(p.model) }, func(done, total int64) {
		if done != last {
			last = done
			got(done, total)
		}
	})
	if err != nil && n.ctx.Err() == nil {
		return errors.Join(err, n.dropSpare(p))
	}
	return err
}

// dropSpare gives up a spare copy. Everything else of the model stays: what is served or pinned, other portions, and pieces shared with them.
func (n *Node) dropSpare(p portion) error {
	m, ok := n.store.Get(p.model)
	if !ok {
		return nil
	}
	card, ok := m.Card()
	if !ok {
		return nil
	}
	// As in a collection: whoever loads weights has seen its bytes in the store and must find them.
	if !n.weights.TryLock() {
		return errInUse
	}
	defer n.weights.Unlock()
	_, keep, err := n.kept(m, nil)
	if err != nil {
		return err
	}
	alone := len(keep) == 0
	keep = append(keep, card.HeaderSpans...)
	for q := range card.Portions() {
		if q != p.index {
			alone = alone && !m.Have(card.Portion(q))
			keep = append(keep, card.Portion(q)...)
		}
	}
	n.log.Info("spare disk: giving up a copy", "model", p.model.Short(), "portion", p.index)
	if alone {
		err = n.torrents.Remove(m)
	} else if _, err = n.torrents.Release(m, keep); err == nil {
		err = n.unspare(m, func(q int) bool { return q == p.index })
	}
	return err
}

// unspare takes portions out of the record of spare copies.
func (n *Node) unspare(m *artifacts.Model, which func(p int) bool) error {
	spare, err := m.Spare()
	if err != nil || !slices.ContainsFunc(spare, which) {
		return err
	}
	return m.SetSpare(slices.DeleteFunc(spare, which))
}

// spareStatus says what the node does with its spare disk; nil: none is given.
func (n *Node) spareStatus() *control.Spare {
	if n.cfg.SeedSpare == 0 {
		return nil
	}
	s := &control.Spare{Limit: n.cfg.SeedSpare, Models: []control.SpareModel{}}
	for _, v := range n.spareView() {
		m, ok := n.store.Get(v.id)
		if !ok || !slices.Contains(v.spare, true) {
			continue
		}
		one := control.SpareModel{Model: v.id.String(), Name: n.name(m), Layers: []int{}, Bytes: v.used(nil, nil)}
		for p, is := range v.spare {
			switch {
			case !is || !v.held[p]:
			case p == len(v.spare)-1:
				one.Rest = true
			default:
				one.Layers = append(one.Layers, p)
			}
		}
		s.Models = append(s.Models, one)
	}
	n.seeding.mu.Lock()
	defer n.seeding.mu.Unlock()
	s.Used, s.Problem = n.seeding.used, strings.TrimSpace(n.seeding.problem)
	return s
}
