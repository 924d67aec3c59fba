package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
)

// errInUse is what a collection says while bytes of the store are about to be used.
var errInUse = errors.New("a model is being loaded, or grows: try again when that is done")

// collect says what of the store nothing needs, and frees it if asked to: of all models or of one. Published files are never touched.
func (n *Node) collect(ctx context.Context, q control.CollectRequest) (*control.CollectReply, error) {
	if q.Keep != nil && q.Model == "" {
		return nil, errors.New("layers to keep without a model: say of which")
	}
	models := n.store.Models()
	if q.Model != "" {
		m, err := n.local(ctx, q.Model)
		if err != nil {
			return nil, err
		}
		if m.Published() {
			return nil, fmt.Errorf("model %s is the published file %s: delete it yourself when nobody needs it", n.name(m), m.Path())
		}
		models = []*artifacts.Model{m}
	}
	if q.Free {
		// What is served is loaded from the store's files; whoever opens one has seen its bytes there and must find them.
		if !n.weights.TryLock() {
			return nil, errInUse
		}
		defer n.weights.Unlock()
	}
	r := &control.CollectReply{Models: []control.Collected{}}
	for _, m := range models {
		if m.Published() {
			continue
		}
		c, spans, err := n.kept(m, q.Keep)
		if err != nil {
			return nil, err
		}
		c.Free = m.Releasable(spans)
		if c.Remove = len(spans) == 0; c.Remove {
			c.Free = m.AllocatedBytes()
		}
		if c.Free == 0 {
			continue
		}
		if q.Free {
			if c.Remove {
				err = n.torrents.Remove(m)
			} else {
				c.Free, err = n.torrents.Release(m, spans)
			}
			if err != nil {
				c.Free, c.Problem = 0, err.Error() // others may still be freed
			}
		}
		r.Bytes += c.Free
		r.Models = append(r.Models, c)
	}
	if q.Free {
		n.offer()
	}
	return r, nil
}

// kept returns what must stay of a model, and why: what is served or was served last, what is pinned, and what was asked for. No spans
// are nothing.
func (n *Node) kept(m *artifacts.Model, asked *control.Layers) (c control.Collected, spans []artifacts.Span, err error) {
	c = control.Collected{ID: m.ID().String(), Name: n.name(m), Allocated: m.AllocatedBytes()}
	pins, err := m.Pins()
	if err != nil {
		return c, nil, err
	}
	card, ok := m.Card()
	if !ok { // without a header nobody knows where layers are
		if pins != (artifacts.Pins{}) || asked != nil {
			spans = m.Manifest().All()
		}
		return c, spans, nil
	}
	keep := func(r artifacts.LayerRange, why string) {
		c.Keep = append(c.Keep, control.KeptLayers{Layers: control.Layers{First: r.First, Last: r.Last - 1}, Why: why})
		spans = append(spans, card.Spans(r)...)
	}
	if s := n.served(m.ID()); s != nil {
		keep(artifacts.LayerRange(s.exec.Layers()), "served")
	} else if pins.Served != nil {
		keep(*pins.Served, "served last")
	}
	for _, s := range n.servedList() {
		if s.draft != nil && s.draft.id == m.ID() {
			keep(artifacts.LayerRange{Last: card.Layers}, "guesses for "+n.name(s.model))
		}
	}
	if pins.Pinned != nil {
		keep(*pins.Pinned, "pinned")
	}
	if asked != nil {
		r := artifacts.LayerRange{First: asked.First, Last: asked.Last + 1}
		if err := card.CheckRange(r); err != nil {
			return c, nil, err
		}
		keep(r, "asked for")
	}
	return c, spans, nil
}

// local returns the model of the store that want names.
func (n *Node) local(ctx context.Context, want string) (*artifacts.Model, error) {
	id, err := n.resolve(ctx, want)
	if err != nil {
		return nil, err
	}
	m, ok := n.store.Get(id)
	if !ok {
		return nil, fmt.Errorf("nothing of model %s is on this disk: pull it first", want)
	}
	return m, nil
}

// pin has layers of a model stay on this disk; without any, nothing but what is served now has to.
func (n *Node) pin(ctx context.Context, q control.PinRequest) (*artifacts.Model, error) {
	m, err := n.local(ctx, q.Model)
	if err != nil {
		return nil, err
	}
	if q.Unpin {
		return m, m.SetPins(artifacts.Pins{})
	}
	card, ok := m.Card()
	if !ok {
		return nil, fmt.Errorf("the header of model %s isn't here yet: pull some of its layers first", n.name(m))
	}
	r := artifacts.LayerRange{Last: card.Layers}
	if q.Layers != nil {
		r = artifacts.LayerRange{First: q.Layers.First, Last: q.Layers.Last + 1}
	}
	if err := card.CheckRange(r); err != nil {
		return nil, err
	}
	pins, _ := m.Pins() // what can't be read is replaced
	pins.Pinned = &r
	return m, m.SetPins(pins)
}

// noteServed records what the node serves of a model, so that it stays while the node is down, too.
func (n *Node) noteServed(s *served) {
	pins, err := s.model.Pins()
	if err == nil {
		r := artifacts.LayerRange(s.asked)
		pins.Served = &r
		err = s.model.SetPins(pins)
	}
	if err != nil {
		n.log.Warn("what is served is not recorded: 'starling gc' may free it while no node runs", "model", s.id.Short(), "error", err)
	}
}
