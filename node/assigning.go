package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/route/assign"
	"github.com/starling-swarm/starling/runtime"
)

// Which layers a node serves whose owner leaves that to it, and has no room for all. Package assign decides, this does.

const (
	assignEvery  = 5 * time.Minute // between looks: claims take seconds, but each look pulls up to 200 offers from a tracker
	assignMemory = 3               // quarters of the memory that is available which weights may take; the rest is for KV and activations
)

// errKept is why a move isn't made after all.
var errKept = errors.New("nobody else serves the layers that this node would leave")

// assigned returns the layers to serve of a model, all if there is room for them, and for how many bytes of weights there is.
func (n *Node) assigned(ctx context.Context, id artifacts.ID, emit func(control.Event) error) (layers *control.Layers, budget int64, err error) {
	m, c, err := n.header(ctx, id, emit)
	if err != nil {
		return nil, 0, err
	}
	budget = n.weightRoom(m, c)
	if artifacts.SpanBytes(c.Spans(artifacts.LayerRange{Last: c.Layers})) <= budget {
		return &control.Layers{First: 0, Last: c.Layers - 1}, budget, nil
	}
	_ = n.host.RefreshModel(ctx, id) // who is alone knows of nobody
	model, v := n.volunteer(m, c, budget)
	r := assign.Choose(&model, v, n.assignedPeers(id))
	if r.Len() == 0 {
		return nil, budget, fmt.Errorf("there is room for %d MB of weights, and no layer of this model fits into that: free memory or disk, raise --max-disk, or say which layers with --layers", budget/1e6)
	}
	n.log.Info("layers chosen", "model", id.Short(), "layers", r.String(), "of", c.Layers, "room_mb", budget/1e6)
	return &control.Layers{First: r.First, Last: r.Last - 1}, budget, nil
}

// weightRoom returns for how many bytes of a model's weights there is room, in memory and on the disk.
func (n *Node) weightRoom(m *artifacts.Model, c *artifacts.Card) int64 {
	if n.cfg.weightRoom > 0 {
		return n.cfg.weightRoom
	}
	room := max(n.memoryFor(m.ID())/4*assignMemory-n.cfg.Engine.MaxKVBytes, 0)
	if n.cfg.MaxDisk > 0 && !m.Published() {
		disk, whole := n.cfg.MaxDisk-n.store.FetchedBytes()+m.AllocatedBytes(), int64(0)
		for _, size := range c.PartSizes {
			whole += size
		}
		if whole > disk {
			// The header comes with any layer, and bytes in whole pieces: those of layers, embedding and head are three runs, with two ends each.
			disk -= m.Manifest().PieceBytes(c.HeaderSpans) + 6*artifacts.PieceLength(slices.Max(c.PartSizes))
		}
		room = min(room, max(disk, 0))
	}
	return room
}

// volunteer is this node in package assign's terms, and the model.
func (n *Node) volunteer(m *artifacts.Model, c *artifacts.Card, budget int64) (route.Model, assign.Volunteer) {
	v := assign.Volunteer{ID: n.ID(), Budget: budget, Order: func(r route.Range) uint64 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", n.ID(), m.ID(), r.First, r.Last))
		return binary.LittleEndian.Uint64(sum[:])
	}}
	for l := range c.Layers {
		v.OnDisk = append(v.OnDisk, m.Have(c.Portion(l)))
	}
	if s := n.served(m.ID()); s != nil {
		v.Serves, v.PrefillFlops = route.Range(s.asked), s.speed.PrefillFlops
	}
	const prompt = 512 // tokens; longer ones make attention cost more, in all layers alike
	return planModel(c, prompt, prompt, runtime.KVF16, runtime.SeamF32), v
}

// assignedPeers returns who else serves layers of a model, and who claims some.
func (n *Node) assignedPeers(id artifacts.ID) (peers []assign.Peer) {
	offers := n.host.Offers()
	profile := planProfile(id, offers)
	for _, o := range offers {
		if artifacts.ID(o.Model) != id || o.Peer == n.ID() {
			continue
		}
		if o.First < o.Last && n.apart(o, profile) == "" {
			peers = append(peers, assign.Peer{ID: o.Peer, Holds: route.Range{First: o.First, Last: o.Last}, PrefillFlops: o.PrefillFlops})
		}
		if o.ClaimFirst < o.ClaimLast {
			peers = append(peers, assign.Peer{ID: o.Peer, Holds: route.Range{First: o.ClaimFirst, Last: o.ClaimLast}, Joining: true, PrefillFlops: o.PrefillFlops})
		}
	}
	return peers
}

// claim tells others which layers of a model this node is about to serve; the returned function takes it back.
func (n *Node) claim(id artifacts.ID, r runtime.Range) (done func()) {
	n.models.Lock()
	n.models.claims[id] = r
	n.models.Unlock()
	n.offer()
	return func() {
		n.models.Lock()
		delete(n.models.claims, id)
		n.models.Unlock()
	}
}

// claimed returns the layers of a model that this node is about to serve.
func (n *Node) claimed(id artifacts.ID) runtime.Range {
	n.models.Lock()
	defer n.models.Unlock()
	return n.models.claims[id]
}

// routineAssign moves to other layers where they are needed more.
func (n *Node) routineAssign() {
	every := n.cfg.assignEvery
	if every == 0 {
		every = assignEvery
	}
	for n.rest(every/2 + rand.N(every)) {
		for _, s := range n.servedList() {
			if !s.auto || n.standing() != accepting {
				continue
			}
			_ = n.host.SampleModel(n.ctx, s.id) // offers are hints
			if err := n.reassign(n.ctx, s, rand.Float64()); err != nil && n.ctx.Err() == nil {
				n.log.Warn("not moved to layers that are needed more", "model", s.id.Short(), "error", err)
			}
		}
	}
}

// reassign looks whether other layers need this node more, and moves if the time has come. What it leaves it serves until it has the others.
func (n *Node) reassign(ctx context.Context, s *served, lot float64) error {
	model, v := n.volunteer(s.model, s.card, s.budget)
	to, ok := s.watch.Look(&model, v, n.assignedPeers(s.id), lot)
	if !ok {
		return nil
	}
	n.log.Info("moving to layers that are needed more", "model", s.id.Short(), "from", v.Serves.String(), "to", to.String())
	draft := ""
	if s.draft != nil && to.Last == s.card.Layers {
		draft = s.draft.id.String()
	}
	_, err := n.settleOn(ctx, loading{id: s.id, layers: &control.Layers{First: to.First, Last: to.Last - 1}, noDecode: s.noDecode, draft: draft, auto: true, budget: s.budget,
		still: func() error { // others may have left meanwhile
			for end := time.Now().Add(n.cfg.Drain); n.load() > 0 && time.Now().Before(end) && n.rest(settle); { // sessions would go on elsewhere
			}
			_ = n.host.RefreshModel(ctx, s.id)
			if !assign.MayLeave(&model, v, to, n.assignedPeers(s.id)) {
				return errKept
			}
			return nil
		}}, func(control.Event) error { return nil })
	return err
}
