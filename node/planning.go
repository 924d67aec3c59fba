package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// plan asks the planner for a route over the offers that this node knows.
func (n *Node) plan(ctx context.Context, id artifacts.ID, c *artifacts.Card, prompt, newTokens int, k control.Constraints) (route.Plan, error) {
	w, err := readNumerics(k)
	if err != nil {
		return route.Plan{}, err
	}
	req, err := n.planRequest(ctx, c, prompt, newTokens, k)
	if err != nil {
		return route.Plan{}, err
	}
	if len(n.holders(id)) == 0 {
		_ = n.host.Refresh(ctx) // offers are hints: planning goes on with what is known
	}
	make := func() (route.Plan, error) {
		peers, links := n.planPeers(id)
		var err error
		if req.Exclude, err = n.excluded(k, peers); err != nil {
			return route.Plan{}, err
		}
		p, err := w.plan(c, n.offersOf(id), peers, links, req)
		n.tellApart(id, &p, err)
		return p, err
	}
	p, err := make()
	if err != nil {
		_ = n.host.Refresh(ctx) // perhaps what is missing has just appeared
		p, err = make()
	}
	if errors.Is(err, route.ErrNoRoute) && n.isLoading(id) {
		return p, &control.Error{Kind: control.Loading, Text: fmt.Sprintf("this node is still loading model %s: ask again in a while (%v)", id.Short(), err)}
	}
	return p, n.hint(k, err)
}

// planWithoutKV plans as if some peers had room. Offers tell what was free a while ago; where that is not enough, the peers
// themselves say whether it still is so, and when there will be room.
func (n *Node) planWithoutKV(ctx context.Context, id artifacts.ID, c *artifacts.Card, prompt, newTokens int, k control.Constraints, some func(peer string) bool) (route.Plan, error) {
	w, req, peers, links, err := n.problem(ctx, id, c, prompt, newTokens, k)
	if err != nil {
		return route.Plan{}, err
	}
	for i, p := range peers {
		if some(p.ID) {
			peers[i].KVFreeBytes = 1 << 62
		}
	}
	return w.plan(c, n.offersOf(id), peers, links, req)
}

// problem is what a plan is made of, by the offers that are known: how everybody is to round, the request, and the peers and links that there are.
func (n *Node) problem(ctx context.Context, id artifacts.ID, c *artifacts.Card, prompt, newTokens int, k control.Constraints) (w wanted, req route.Request, peers []route.Peer, links []route.Link, err error) {
	w, err = readNumerics(k)
	if err == nil {
		req, err = n.planRequest(ctx, c, prompt, newTokens, k)
	}
	if err == nil {
		peers, links = n.planPeers(id)
		req.Exclude, err = n.excluded(k, peers)
	}
	return w, req, peers, links, err
}

// offersOf returns the offers to compute a model.
func (n *Node) offersOf(id artifacts.ID) (offers []swarm.Offer) {
	for _, o := range n.host.Offers() {
		if artifacts.ID(o.Model) == id && computes(o) {
			offers = append(offers, o)
		}
	}
	return offers
}

// planRequest turns what a user asks for into what the planner does. Where layers keep something beside rows, a pipelined plan leaves it with the
// stages: the decoder would have it at snapshots only, and a conversation's next turn would begin at the last one instead of where this one ends.
func (n *Node) planRequest(ctx context.Context, c *artifacts.Card, prompt, newTokens int, k control.Constraints) (route.Request, error) {
	shape, err := route.ParseShape(k.Shape)
	if err != nil {
		return route.Request{}, err
	}
	req := route.Request{PromptTokens: prompt, NewTokens: newTokens, Chunk: k.Chunk, Shape: shape, Cuts: k.Cuts,
		Assign: k.Assign, Decoder: k.Decoder, PreferSelf: true, Reasons: true,
		LeaveKV: slices.ContainsFunc(c.TailBytes, func(n int64) bool { return n > 0 })}
	if k.Draft != "" {
		id, err := n.resolve(ctx, k.Draft)
		if err != nil {
			return req, fmt.Errorf("draft model: %w", err)
		}
		req.Draft = draftName(id, n.knownModels())
	}
	switch k.Decode {
	case "", "any":
	case "here":
		if k.Decoder != "" && k.Decoder != n.ID() {
			return req, fmt.Errorf("decoding here contradicts the decoder %s", k.Decoder)
		}
		req.Decoder = n.ID()
	default:
		return req, fmt.Errorf("decode %q: use here or any", k.Decode)
	}
	return req, nil
}

// draftName is what plans call a draft model: its name, and by its ID one of several of that name.
func draftName(id artifacts.ID, names map[artifacts.ID]string) string {
	if name := names[id]; name != "" {
		return fmt.Sprintf("%s (%s)", name, id.Short())
	}
	return id.Short()
}

// planProfile returns the numerics profile to plan with: this build's own if
// anybody offers it, else the one that most offers have. Profiles are never
// mixed in one plan.
func planProfile(id artifacts.ID, offers []swarm.Offer) [32]byte {
	own := runtime.NewProfile(runtime.KVF16).ID()
	count := map[[32]byte]int{}
	best := own
	for _, o := range offers {
		if artifacts.ID(o.Model) != id || !computes(o) {
			continue
		}
		count[o.Profile]++
		if c, b := count[o.Profile], count[best]; c > b || c == b && bytes.Compare(o.Profile[:], best[:]) < 0 {
			best = o.Profile
		}
	}
	if count[own] > 0 {
		return own
	}
	return best
}

// computes reports whether an offer is more than one of bytes: it has layers,
// or at least the head.
func computes(o swarm.Offer) bool { return o.First < o.Last || o.Head }

// planPeers turns the offers of a model that share one numerics profile into
// the planner's peers and links.
func (n *Node) planPeers(id artifacts.ID) (peers []route.Peer, links []route.Link) {
	offers := n.host.Offers()
	profile := planProfile(id, offers)
	near, names, now := map[string]bool{}, n.knownModels(), time.Now()
	for _, o := range offers {
		if artifacts.ID(o.Model) != id || !computes(o) || n.apart(o, profile) != "" {
			continue
		}
		if o.Peer == n.ID() { // the offer may be some sessions old, and less than what this node does for itself
			o.Load, o.Links = n.load(), n.links.meter.measured(time.Now())
			if s := n.served(id); s != nil {
				r := s.exec.Layers()
				o.First, o.Last, o.Embed, o.Head = r.First, r.Last, r.First == 0, r.Last == s.card.Layers
			}
		}
		near[o.Peer] = sameNetwork(o)
		for _, l := range o.Links {
			links = append(links, planLink(l, o.Peer))
		}
		flops, read := n.speeds(o)
		draft := ""
		if o.Draft != ([32]byte{}) {
			draft = draftName(artifacts.ID(o.Draft), names)
		}
		peers = append(peers, route.Peer{ID: o.Peer, Draft: draft, Holds: route.Range{First: o.First, Last: o.Last}, Head: o.Head, Embed: o.Embed,
			NoDecode: o.NoDecode, PrefillFlops: flops, DecodeBytesPerSec: read, KVFreeBytes: o.KVFreeBytes,
			Context: o.Context, Up: o.UpBytesPerSec, Down: o.DownBytesPerSec, Load: o.Load, Self: o.Peer == n.ID(), Trust: o.Trust,
			FailuresPerHour: n.losses.perHour(o.Peer, now)})
	}
	for i := range peers {
		p := &peers[i]
		least := 0.0
		if near[p.ID] {
			least = lanBytesPerSec
		}
		if p.Up == 0 {
			p.Up = fastest(links, least, func(l route.Link) bool { return l.From == p.ID })
		}
		if p.Down == 0 {
			p.Down = fastest(links, least, func(l route.Link) bool { return l.To == p.ID })
		}
	}
	for i, a := range peers {
		for _, b := range peers[i+1:] {
			l := route.Link{From: a.ID, To: b.ID}
			switch {
			case slices.ContainsFunc(links, func(m route.Link) bool {
				return m.RTT > 0 && (m.From == a.ID && m.To == b.ID || m.From == b.ID && m.To == a.ID)
			}):
			case a.Self:
				l.RTT = n.host.RTT(b.ID).Seconds()
			case b.Self:
				l.RTT = n.host.RTT(a.ID).Seconds()
			case near[a.ID] && near[b.ID]:
				l.RTT = lanRTT
			}
			if l.RTT > 0 {
				links = append(links, l)
			}
		}
	}
	for _, p := range peers {
		if !p.Self && n.host.Relay(p.ID) != "" {
			links = relayedLinks(links, n.ID(), p.ID)
		}
	}
	return peers, links
}

// relayedBytesPerSec is what a link through a relay is taken to carry until it is measured, in bytes/s: half of what a home line sends,
// since the relay takes in and sends out each byte, for others too.
const relayedBytesPerSec = route.DefaultUp / 2

// relayedLinks prices the two links between a and b, which go through a relay.
func relayedLinks(links []route.Link, a, b string) []route.Link {
	for _, way := range [][2]string{{a, b}, {b, a}} {
		i := slices.IndexFunc(links, func(l route.Link) bool { return l.From == way[0] && l.To == way[1] })
		if i < 0 {
			i, links = len(links), append(links, route.Link{From: way[0], To: way[1]})
		}
		l := &links[i]
		l.Basis = "through a relay, " + cmp.Or(l.Basis, "throughput not measured")
		l.BytesPerSec = cmp.Or(l.BytesPerSec, relayedBytesPerSec)
	}
	return links
}

// planLink turns what a peer has measured into the planner's terms. A throughput
// that rests on little, is old, or is impossible isn't reckoned with: it may be
// a stranger's lie about another's line.
func planLink(l swarm.Link, to string) route.Link {
	p := route.Link{From: l.From, To: to, RTT: l.RTT.Seconds()}
	if l.Samples >= sureSamples && l.Age <= measuredFor && l.BytesPerSec >= 1 && l.BytesPerSec <= 1e12 {
		p.BytesPerSec = l.BytesPerSec
		p.Basis = fmt.Sprintf("measured %d times, last %v ago", l.Samples, l.Age.Round(time.Second))
	}
	return p
}

// fastest returns the largest throughput of links that are some peer's, and at
// least that much: its own line carries that, whatever it may be. 0: nothing is
// known.
func fastest(links []route.Link, least float64, own func(route.Link) bool) float64 {
	for _, l := range links {
		if own(l) {
			least = max(least, l.BytesPerSec)
		}
	}
	return least
}

// Where links aren't measured, peers that are only reachable on loopback or
// private addresses are taken to share a 1 Gbit/s network.
const (
	lanBytesPerSec = 1e9 / 8
	lanRTT         = 0.0005 // seconds
)

// sameNetwork reports whether every address of an offer is a loopback or
// private one.
func sameNetwork(o swarm.Offer) bool {
	for _, a := range o.Addrs {
		parts := strings.Split(a, "/")
		if len(parts) < 3 {
			return false
		}
		ip, err := netip.ParseAddr(parts[2])
		if err != nil || !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast() {
			return false
		}
	}
	return len(o.Addrs) > 0
}

// wireRoute turns a plan into what travels.
func wireRoute(p route.Plan) wire.Route {
	r := wire.Route{DecoderFirst: uint32(p.DecoderLayers.First), Chunk: uint32(max(p.Chunk, 1)), LastChunk: uint32(max(p.LastChunk, 1)),
		DecodeLocal: p.Shape != route.Pipelined, PushKV: p.KVToDecoder}
	for _, s := range p.Stages {
		r.Stages = append(r.Stages, wire.PlanStage{Peer: s.Peer, First: uint32(s.Layers.First), Last: uint32(s.Layers.Last)})
	}
	return r
}

// rerouteNews is how long a session that has lost a peer waits for the latest offers. Those who know them mostly tell at once, unasked.
const rerouteNews = 500 * time.Millisecond

// reroute plans again for a session of a profile whose decoder is this node,
// without the peers that were lost and, unless only is nil, with those of only. former is the session's route where this node holds the rows of the
// first held tokens: then it is repaired.
func (n *Node) reroute(ctx context.Context, id artifacts.ID, profile runtime.Profile, prompt, newTokens int, only, lost []string, former *wire.Route, held int) (wire.Route, error) {
	s := n.served(id)
	if s == nil {
		return wire.Route{}, fmt.Errorf("model %s is no longer served here", id.Short())
	}
	short, cancel := context.WithTimeout(ctx, rerouteNews) // who was lost may be one of those asked
	_ = n.host.Refresh(short)                              // offers are hints: planning goes on with what is known
	cancel()
	excluded := map[string]string{}
	for _, p := range lost {
		excluded[p] = "lost in this session"
	}
	k := control.Constraints{Decoder: n.ID(), Only: only, Excluded: excluded, KV: profile.KV.String(), Seam: profile.SeamText()}
	p, err := route.Plan{}, error(nil)
	if former != nil {
		p, err = n.repair(ctx, id, s.card, prompt, newTokens, k, lost, former, held)
	}
	if former == nil || err != nil {
		p, err = n.plan(ctx, id, s.card, prompt, newTokens, k)
	}
	if err != nil {
		return wire.Route{}, err
	}
	r := wireRoute(p)
	for i := range r.Stages {
		st := &r.Stages[i]
		st.RangeRoot = s.root(runtime.Range{First: int(st.First), Last: int(st.Last)})
	}
	return r, nil
}

// repairMargin is how much longer than any other route the one with the fewest changes may take.
const repairMargin = 0.25

// repair plans what is left of a session with the rows that its decoder, this node, and the stages of its route hold: with somebody else where a peer
// was lost, unless nobody has that part or a route that differs more takes much less, its rows' way to who is new included.
func (n *Node) repair(ctx context.Context, id artifacts.ID, c *artifacts.Card, prompt, newTokens int, k control.Constraints, lost []string, former *wire.Route, held int) (route.Plan, error) {
	plan := func(k control.Constraints) (route.Plan, error) {
		w, req, peers, links, err := n.problem(ctx, id, c, prompt, newTokens, k)
		if err != nil {
			return route.Plan{}, err
		}
		req.HeldTokens, req.Chunk = held, int(former.Chunk)
		m := planModel(c, prompt, prompt+newTokens, w.kv, w.seam)
		for _, st := range former.Stages {
			req.Former = append(req.Former, route.Stage{Peer: st.Peer, Layers: route.Range{First: int(st.First), Last: int(st.Last)}})
		}
		for i := range peers {
			p := &peers[i]
			if p.ID == n.ID() {
				p.KVFreeBytes = 1 << 62
			}
			for _, st := range req.Former { // the session's room is its own
				for l := st.Layers.First; l < st.Layers.Last && st.Peer == p.ID; l++ {
					p.KVFreeBytes += m.KVBytesPerToken[l] * int64(prompt+newTokens)
					if len(m.TailBytes) > 0 {
						p.KVFreeBytes += m.TailBytes[l] * int64(m.HeldTails)
					}
				}
			}
		}
		return w.plan(c, n.offersOf(id), peers, links, req)
	}
	p, err := plan(replacing(k, former.Stages, lost))
	free, other := plan(k)
	if other == nil && (err != nil || free.Predicted.TotalSeconds*(1+repairMargin) < p.Predicted.TotalSeconds) {
		p, err = free, nil
	}
	// What is left of the prompt may be a token: chunks stay what they were, for whoever has to begin further back.
	p.Chunk, p.LastChunk = max(p.Chunk, int(former.Chunk)), max(p.LastChunk, int(former.LastChunk))
	return p, err
}

// replacing asks for a plan that differs from stages only where peers were lost.
func replacing(k control.Constraints, stages []wire.PlanStage, lost []string) control.Constraints {
	for _, st := range stages {
		peer := st.Peer
		if slices.Contains(lost, peer) {
			peer = ""
		}
		k.Cuts, k.Assign = append(k.Cuts, int(st.Last)), append(k.Assign, peer)
	}
	return k
}
