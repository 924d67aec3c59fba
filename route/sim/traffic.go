package sim

import (
	"slices"
	"strings"

	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/swarm/wire"
)

const (
	toldTrackers = 3   // that a peer pushes to and pulls from
	pulled       = 200 // offers in an answer
	streamBytes  = 80  // both ways, for agreeing on a stream's protocol
)

// sizes are the lengths of frames, in bytes.
type sizes struct {
	offer float64 // a pushed one without links
	link  float64 // each link
	push  float64 // around offers
	reply float64 // around offers that are held
	held  float64 // around each
	pull  float64
}

// measureSizes encodes frames like those of a swarm whose peers have a public address by TCP and by QUIC, and a relayed one of each.
func measureSizes(m *route.Model) (z sizes) {
	id := "12D3KooW" + strings.Repeat("x", 44)
	presence := wire.Presence{Swarm: "pub-" + strings.Repeat("x", 52)}
	o := wire.Offer{Swarm: presence.Swarm, Peer: id, ModelName: "Some Model 70B Instruct Q4_K_M", Trust: "any", Held: make([]byte, m.Layers/8+1),
		Addrs: []string{"/ip4/203.0.113.200/tcp/40770", "/ip4/203.0.113.200/udp/40770/quic-v1", "/ip4/198.51.100.200/tcp/4077/p2p/" + id + "/p2p-circuit", "/ip4/198.51.100.200/udp/4077/quic-v1/p2p/" + id + "/p2p-circuit"}}
	linked := o
	linked.Links = []wire.OfferLink{{From: id}}
	size := func(m wire.Message) float64 { return float64(len(wire.Append(nil, m))) }
	z.push = size(&wire.OffersPush{Presence: presence})
	z.offer = size(&wire.OffersPush{Presence: presence, Offers: []wire.Offer{o}}) - z.push
	z.link = size(&wire.OffersPush{Presence: presence, Offers: []wire.Offer{linked}}) - z.push - z.offer
	z.reply = size(&wire.OffersReply{Presence: presence})
	z.held = size(&wire.OffersReply{Presence: presence, Offers: []wire.HeldOffer{{Offer: o}}}) - z.reply - z.offer
	z.pull = size(&wire.OffersPull{Presence: presence})
	return z
}

func (z *sizes) of(p *peer) float64 { return z.offer + z.link*float64(len(p.links)) }

// changed pushes p's offer soon, once for all that changes meanwhile.
func (w *world) changed(p *peer) {
	if p.pushing {
		return
	}
	p.pushing = true
	life := p.life
	w.after(offerSettle, func() {
		if p.pushing = false; p.alive && p.life == life {
			w.push(p)
		}
	})
}

// push tells p's trackers what it is now.
func (w *world) push(p *peer) {
	p.said = p.Peer
	if _, known := w.at[p]; !known {
		w.at[p] = len(w.offers)
		w.offers = append(w.offers, p)
		w.byID[p.id] = p
	}
	out, in := w.sizes.push+w.sizes.of(p)+streamBytes, w.sizes.reply+streamBytes
	for _, t := range p.trackers {
		p.sent += out
		p.received += in
		w.trackers[t].received += out
		w.trackers[t].sent += in
	}
}

// forget takes p's offer from the trackers.
func (w *world) forget(p *peer) {
	i, known := w.at[p]
	if !known || p.alive {
		return
	}
	last := len(w.offers) - 1
	w.offers[i] = w.offers[last]
	w.at[w.offers[i]] = i
	w.offers = slices.Delete(w.offers, last, last+1)
	delete(w.at, p)
	delete(w.byID, p.id)
}

// pull is what p hears of one tracker when it looks which layers to hold, or a client, where p is nil, of several; and counts it.
func (w *world) pull(p *peer) []*peer {
	trackers := toldTrackers
	if p != nil { // looks
		trackers = 1
	}
	view := w.view(trackers, pulled)
	n := 0.0
	for _, o := range view {
		n += w.sizes.of(o) + w.sizes.held
	}
	// What several trackers tell comes from each of them.
	if each := len(w.offers); len(view) > 0 {
		asked := float64(min(trackers, w.s.Trackers))
		n *= asked * float64(min(each, pulled)) / float64(len(view))
		out, in := asked*(w.sizes.pull+streamBytes), n+asked*(w.sizes.reply+streamBytes)
		first := w.rng.IntN(w.s.Trackers)
		for i := range int(asked) {
			t := &w.trackers[(first+i)%w.s.Trackers]
			t.received += out / asked
			t.sent += in / asked
		}
		if p != nil {
			p.sent += out
			p.received += in
		} else if w.counting {
			w.r.clientBytes += in + out
		}
	}
	return view
}
