package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/route/assign"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// served is a model that this node has loaded and offers.
type served struct {
	id       artifacts.ID
	model    *artifacts.Model
	card     *artifacts.Card
	exec     runtime.Executor
	batcher  *batcher    // computes on exec for all sessions
	draft    *draftModel // guesses for its sessions; nil: none
	room     *room       // has their KV
	prefixes *prefixes   // what ended sessions left
	noDecode bool
	asked    runtime.Range // layers that the node was told to serve, or has chosen; it may have grown since
	auto     bool          // it has chosen them, and may choose others
	budget   int64         // bytes of weights that there was room for then
	watch    assign.Watch  // routineAssign's
	growth   growth
	speed    runtime.Speed
	kvLimit  int64 // bytes that sessions may reserve
}

// root returns the hash that the handshake compares: over the piece hashes of
// the bytes of layers.
func (s *served) root(layers runtime.Range) [32]byte {
	return s.model.Manifest().RangeRoot(s.card.Spans(artifacts.LayerRange(layers)))
}

// decodes reports whether the node can be a decoder of the model.
func (s *served) decodes() bool {
	return !s.noDecode && s.exec.Layers().Last == s.card.Layers
}

func (n *Node) served(id artifacts.ID) *served {
	n.models.Lock()
	defer n.models.Unlock()
	return n.models.served[id]
}

// isLoading reports whether this node fetches or loads a model to serve it.
func (n *Node) isLoading(id artifacts.ID) bool {
	n.models.Lock()
	defer n.models.Unlock()
	return n.models.loading[id]
}

func (n *Node) servedList() (list []*served) {
	n.models.Lock()
	defer n.models.Unlock()
	for _, s := range n.models.served {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *served) int { return strings.Compare(a.id.String(), b.id.String()) })
	return list
}

// servedFor returns the loaded model if it has all of layers.
func (n *Node) servedFor(id [32]byte, layers runtime.Range) (*served, *wire.Refusal) {
	s := n.served(artifacts.ID(id))
	if s == nil || n.isBlocked(s.id.String()) {
		return nil, wire.Refuse(wire.CodeUnknownModel, "this node doesn't serve model %s", artifacts.ID(id).Short())
	}
	if !s.exec.Layers().Covers(layers) || layers.Len() <= 0 {
		return nil, wire.Refuse(wire.CodeUnknownModel, "this node serves %v, not %v", s.exec.Layers(), layers)
	}
	return s, nil
}

// holders returns the peers that offer bytes of a model, this node excluded.
func (n *Node) holders(id artifacts.ID) (peers []string) {
	for _, o := range n.host.Offers() {
		if artifacts.ID(o.Model) == id && o.Peer != n.ID() && !slices.Contains(peers, o.Peer) {
			peers = append(peers, o.Peer)
		}
	}
	return peers
}

// header makes sure that the model's manifest and header are here, fetching
// them from the swarm if need be, and returns the model and its card.
func (n *Node) header(ctx context.Context, id artifacts.ID, emit func(control.Event) error) (*artifacts.Model, *artifacts.Card, error) {
	m, ok := n.store.Get(id)
	if !ok {
		b, err := n.fetchBundle(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		if m, err = n.store.AddBundle(b); err != nil {
			return nil, nil, err
		}
	}
	if c, ok := m.Card(); ok {
		return m, c, nil
	}
	c, err := n.torrents.FetchHeader(ctx, m, func() []string { return n.holders(id) }, func(done, total int64) {
		_ = emit(control.Event{Kind: "progress", Phase: "header", Done: done, Total: total}) // the end of ctx stops the work
	})
	return m, c, err
}

// pull makes sure that layers of the model are on this disk.
func (n *Node) pull(ctx context.Context, id artifacts.ID, layers *control.Layers, emit func(control.Event) error) (*artifacts.Model, *artifacts.Card, runtime.Range, error) {
	m, c, err := n.header(ctx, id, emit)
	if err != nil {
		return nil, nil, runtime.Range{}, err
	}
	r := runtime.Range{First: 0, Last: c.Layers}
	if layers != nil {
		r = runtime.Range{First: layers.First, Last: layers.Last + 1}
	}
	if err := c.CheckRange(artifacts.LayerRange(r)); err != nil {
		return nil, nil, r, err
	}
	spans := c.Spans(artifacts.LayerRange(r))
	if err := n.unspare(m, func(p int) bool { return p >= r.First && p < r.Last || p == c.Layers }); err != nil {
		n.log.Warn("what was pulled still counts as a spare copy", "model", id.Short(), "error", err)
	}
	if m.Have(spans) {
		return m, c, r, nil
	}
	n.offer() // the header is here: who fetches at the same time exchanges pieces with this node
	err = n.torrents.Fetch(ctx, m, spans, func() []string { return n.holders(id) }, func(done, total int64) {
		_ = emit(control.Event{Kind: "progress", Phase: "pull", Done: done, Total: total}) // as above
	})
	if err == nil {
		n.offer() // what is held can be seeded
	}
	return m, c, r, err
}

// loading is what is to be served.
type loading struct {
	id       artifacts.ID
	layers   *control.Layers // nil: all, or what there is room for and others lack most
	noDecode bool
	draft    string       // names a model that guesses for this one; empty: none
	auto     bool         // the node has chosen the layers
	budget   int64        // out of so many bytes of room
	still    func() error // says, when everything is here, why it isn't to be served after all; nil: it is
}

// serve fetches, loads, measures and offers layers of a model; draft names one that guesses for it, or is empty.
func (n *Node) serve(ctx context.Context, id artifacts.ID, layers *control.Layers, noDecode bool, draft string, emit func(control.Event) error) (*served, error) {
	if n.cfg.Client {
		return nil, errors.New("no daemon runs on this data folder: serve needs one, start it with 'starling serve --model'")
	}
	return n.settleOn(ctx, loading{id: id, layers: layers, noDecode: noDecode, draft: draft}, emit)
}

// settleOn does what serve does, and gives up what the node serves of the model so far when it has the rest.
func (n *Node) settleOn(ctx context.Context, q loading, emit func(control.Event) error) (*served, error) {
	id := q.id
	n.models.Lock()
	busy := n.models.loading[id]
	n.models.loading[id] = true
	n.models.Unlock()
	if busy {
		return nil, fmt.Errorf("model %s is being loaded already", id.Short())
	}
	defer n.opened(id)
	defer func() {
		n.models.Lock()
		delete(n.models.loading, id)
		n.models.Unlock()
	}()
	n.weights.RLock()
	defer n.weights.RUnlock()
	if q.layers == nil {
		var err error
		if q.layers, q.budget, err = n.assigned(ctx, id, emit); err != nil {
			return nil, err
		}
		q.auto = true
	}
	defer n.claim(id, runtime.Range{First: q.layers.First, Last: q.layers.Last + 1})()
	m, c, r, err := n.pull(ctx, id, q.layers, emit)
	if err != nil {
		return nil, err
	}
	if err := emit(control.Event{Kind: "progress", Phase: "load", Total: artifacts.SpanBytes(c.Spans(artifacts.LayerRange(r)))}); err != nil {
		return nil, err
	}
	exec, err := n.openModel(id, m.Path(), r)
	if err != nil {
		return nil, err
	}
	s := &served{id: id, model: m, card: c, exec: exec, noDecode: q.noDecode, asked: r, auto: q.auto, budget: q.budget, kvLimit: exec.FreeKVBytes(), speed: n.cfg.speed}
	if m, ok := exec.(*runtime.Model); ok { // other backends are planned with the planner's defaults
		if s.speed, err = runtime.Measure(ctx, m); err != nil {
			exec.Close()
			return nil, err
		}
	}
	if q.draft != "" {
		if !s.decodes() {
			err = fmt.Errorf("draft model: this node serves %v of %d and decodes nothing that could be guessed: serve the last layers for decoding, or leave out --draft", r, c.Layers)
		} else {
			s.draft, err = n.openDraft(ctx, q.draft, exec, emit)
		}
		if err != nil {
			exec.Close()
			return nil, err
		}
	}
	if q.still != nil {
		if err := q.still(); err != nil {
			exec.Close()
			s.draft.close()
			return nil, err
		}
	}
	s.batcher, s.prefixes = newBatcher(exec), &prefixes{exec: exec, model: id, limit: s.kvLimit, flops: s.speed.PrefillFlops, disk: n.spill,
		count: func(place string, rows int) {
			n.reuse.hits.Add(1)
			n.reuse.positions.Add(int64(rows))
			n.metrics.Reused(id.Short(), place, rows)
		}}
	s.room = &room{limit: s.kvLimit, left: func(need int64) time.Duration { return freeAfter(n.endings(s, time.Now()), need) }}
	n.models.Lock()
	old := n.models.served[id]
	n.models.served[id] = s
	delete(n.models.claims, id)
	n.models.Unlock()
	if old != nil {
		old.growth.end()
		old.prefixes.clear()
		old.batcher.close()
		old.draft.close()
	}
	n.noteServed(s)
	n.offer()
	return s, nil
}

// publish hashes a file or split set and makes it a model of the store; licence, if not empty, is said instead of the header's.
func (n *Node) publish(ctx context.Context, path, licence string, emit func(control.Event) error) (*artifacts.Model, error) {
	set, err := gguf.OpenSet(path)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, p := range set.Parts {
		paths = append(paths, p.Path)
	}
	m, err := n.store.Publish(ctx, paths, func(done, total int64) {
		_ = emit(control.Event{Kind: "progress", Phase: "hash", Done: done, Total: total}) // as above
	})
	if err != nil {
		return nil, err
	}
	if licence != "" {
		if err := m.SetLicence(licence); err != nil {
			return nil, err
		}
	}
	if err := n.torrents.Seed(m); err != nil {
		return nil, err
	}
	n.offer()
	return m, nil
}

// settle is how soon others learn that sessions have come or gone: so late that many at once are one news.
const settle = 100 * time.Millisecond

// routineOffer refreshes the offers' figures (free KV, load), also when sessions come or go, and logs each new
// problem once.
func (n *Node) routineOffer() {
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()
	told := map[string]bool{}
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		case <-n.turnover:
			select {
			case <-n.ctx.Done():
				return
			case <-time.After(settle):
			}
			n.offer()
			continue
		}
		for _, s := range n.servedList() {
			s.prefixes.expire(time.Now())
		}
		n.offer()
		for _, p := range n.problems() {
			if !told[p] {
				told[p] = true
				n.log.Error(p)
			}
		}
	}
}

// offer tells the swarm what this node holds and serves. Models that are only
// seeded, now or at all, are offered with NoDecode and no layers to compute, so
// that others find their bytes.
func (n *Node) offer() {
	if n.cfg.Client || n.ctx.Err() != nil {
		return
	}
	load, links := n.load(), n.links.meter.measured(time.Now())
	serving := n.servedList()
	if n.standing() != accepting {
		serving = nil
	}
	serving = slices.DeleteFunc(serving, func(s *served) bool { return n.isBlocked(s.id.String()) })
	var offers []swarm.Offer
	for _, s := range serving {
		r := s.asked
		if n.cfg.Grow == GrowAny {
			r = s.exec.Layers()
		}
		o := swarm.Offer{Model: s.id, ModelName: clip(n.name(s.model), wire.MaxModelName), Held: portionsOf(s.model), First: r.First, Last: r.Last,
			Embed: r.First == 0, Head: r.Last == s.card.Layers, NoDecode: !s.decodes(),
			PrefillFlops: s.speed.PrefillFlops, DecodeBytesPerSec: s.speed.DecodeBytesPerSec, KVFreeBytes: s.prefixes.freeBytes(s.kvLimit),
			Context: s.exec.Config().Context, Load: load, Links: links}
		if s.draft != nil {
			o.Draft = s.draft.id
		}
		if c := n.claimed(s.id); c.Len() > 0 {
			o.ClaimFirst, o.ClaimLast = c.First, c.Last
		}
		offerProfiles(&o, s.exec)
		offers = append(offers, o)
	}
	for _, m := range n.store.Models() {
		computes := slices.ContainsFunc(serving, func(s *served) bool { return s.id == m.ID() })
		if !computes && m.HeldBytes() > 0 && !n.isBlocked(m.ID().String()) {
			o := swarm.Offer{Model: m.ID(), ModelName: clip(n.name(m), wire.MaxModelName), Held: portionsOf(m), NoDecode: true}
			if c := n.claimed(m.ID()); c.Len() > 0 && n.standing() == accepting {
				o.ClaimFirst, o.ClaimLast = c.First, c.Last
			}
			offers = append(offers, o)
		}
	}
	n.host.SetOffers(offers)
	n.list()
}

// portionsOf returns which portions of a model are here, as offers tell it.
func portionsOf(m *artifacts.Model) []byte {
	if h := m.HeldPortions(); len(h) <= wire.MaxHeld {
		return h
	}
	return nil
}

// load is how many sessions share this node.
func (n *Node) load() float64 { return float64(len(n.decoderList()) + len(n.stageMap())) }

// planModel returns what the planner needs to know of a model whose KV rows and seams are of these types, for prompts of that length,
// whose rows attend to half of it on average, or to a layer's window, and so many tokens with their answers.
func planModel(c *artifacts.Card, prompt, tokens int, kv runtime.KVType, seam runtime.SeamType) route.Model {
	positions, flops, sent := make([]int64, c.Layers), make([]float64, c.Layers), make([]int64, c.Layers)
	for l, n := range c.KVBytesPerToken { // of halves; blocks of 8 bits that heads fill
		sent[l] = int64(kv.Bytes(int(n / 2)))
	}
	for l := range flops {
		seen := float64(prompt) / 2
		if w := float64(c.KVWindow[l]); w > 0 && w < float64(prompt) {
			seen = w - w*w/(2*float64(prompt)) // of the first w rows w/2
		}
		flops[l] = c.LayerFlops[l] + attnShare*c.AttnFlops[l]*seen
	}
	for l, n := range c.KVWindow {
		if n > 0 {
			positions[l] = int64(runtime.LayerCache{Window: int(n)}.Positions(c.Context))
		}
	}
	kept := snapshots(c, tokens)
	return route.Model{Layers: c.Layers, LayerWeightBytes: c.LayerBytes, HeadBytes: c.HeadBytes, EmbedBytes: c.EmbedBytes,
		LayerFlops: flops, HeadFlops: c.HeadFlops, KVBytesPerToken: c.KVBytesPerToken, KVSentBytes: sent, KVPositions: positions, TailBytes: c.TailBytes, TailEvery: kept.Every, HeldTails: kept.Tails(), SeamBytes: int64(seam.Bytes(c.Width)),
		Cuts: c.Cuts, Context: c.Context}
}

// snapshots returns at which positions a session of so many tokens keeps what a model's layers have beside rows.
func snapshots(c *artifacts.Card, tokens int) runtime.Snapshots {
	rows, tails := int64(0), int64(0)
	for l, n := range c.KVBytesPerToken {
		if tails += c.TailBytes[l]; c.KVWindow[l] == 0 {
			rows += n
		}
	}
	return runtime.SnapshotsOf(rows, tails, tokens)
}
