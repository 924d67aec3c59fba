package swarm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Offers returns what this node knows now, its own included: unexpired, one
// per peer and model, and only of peers that it has live contact with.
func (h *Host) Offers() []Offer {
	own, _, err := h.signedOffers()
	if err != nil {
		h.log.Warn("offer left out", "error", err)
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

// Refresh pulls offers now, from trackers and, in a small swarm, from everyone
// connected, and makes contact with the signers of those that are new here. It
// returns an error only if nobody answered.
func (h *Host) Refresh(ctx context.Context) error { return h.refresh(ctx, [32]byte{}) }

// RefreshModel is Refresh for the offers of one model.
func (h *Host) RefreshModel(ctx context.Context, model [32]byte) error { return h.refresh(ctx, model) }

// SampleModel is RefreshModel for those who want a picture and not everybody: in a large swarm it asks one tracker.
func (h *Host) SampleModel(ctx context.Context, model [32]byte) error {
	targets := h.targets()
	if len(h.Connected()) > h.cfg.smallSwarm && len(targets) > 1 {
		targets = []PeerID{targets[rand.IntN(len(targets))]}
	}
	return h.askFor(ctx, targets, model)
}

func (h *Host) refresh(ctx context.Context, model [32]byte) error {
	h.awaitContact(ctx)
	return h.askFor(ctx, h.targets(), model)
}

// askFor pulls offers from peers, and makes contact with the signers.
func (h *Host) askFor(ctx context.Context, peers []PeerID, model [32]byte) error {
	if err := h.askAll(peers, func(p PeerID) error { return h.pullFrom(ctx, p, model) }); err != nil {
		return err
	}
	h.meetSigners(ctx)
	return nil
}

// FindModel looks in the DHT for peers that hold bytes of a model, and pulls the offers that they know of it.
func (h *Host) FindModel(ctx context.Context, model [32]byte) error {
	peers, err := h.Lookup(ctx, model, lookedUpHolders)
	if err == nil {
		err = h.askAll(peers, func(p PeerID) error { return h.pullFrom(ctx, p, model) })
	}
	if err == nil {
		h.meetSigners(ctx)
	}
	return err
}

// askAll calls ask for every peer, and returns an error if none answered. Once one has, it waits for others that answer quickly: what those who hang
// may yet say counts from when they do.
func (h *Host) askAll(peers []PeerID, ask func(PeerID) error) error {
	if len(peers) == 0 {
		return fmt.Errorf("no other node of swarm %s has been reached yet", h.info.ID)
	}
	answers := make(chan error, len(peers))
	h.goDo(func(context.Context) {
		each(peers, func(p PeerID) {
			err := ask(p)
			if err != nil {
				err = fmt.Errorf("%s: %w", p, err)
			}
			answers <- err
		})
	})
	var errs []error
	var late <-chan time.Time
	for range peers {
		select {
		case err := <-answers:
			if err != nil {
				errs = append(errs, err)
			} else if late == nil {
				t := time.NewTimer(answerWait)
				defer t.Stop()
				late = t.C
			}
		case <-late:
			return nil
		case <-h.ctx.Done():
			return h.ctx.Err()
		}
	}
	if len(errs) < len(peers) {
		return nil
	}
	return errors.Join(errs...)
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
					h.log.Info("offers don't count, their signer isn't reached", "peer", p, "error", err)
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
