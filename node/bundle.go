package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm/wire"
)

// serveBundle answers requests for the bundles of models in the store until
// the stream ends.
func (n *Node) serveBundle(s stream) {
	defer s.Close()
	for {
		m, err := wire.Read(&patientReader{s: s, budget: s})
		if err != nil {
			giveUp(s, err)
			return
		}
		q, ok := m.(*wire.BundleRequest)
		if !ok {
			s.Reset()
			return
		}
		var reply wire.Message = wire.Refuse(wire.CodeUnknownModel, "model %s is not here", artifacts.ID(q.Model).Short())
		if m, ok := n.store.Get(artifacts.ID(q.Model)); ok && !n.isBlocked(m.ID().String()) {
			reply = &wire.Bundle{Data: m.Bundle().Marshal()}
		}
		if writeFrame(s, reply) != nil {
			return
		}
	}
}

// fetchBundle asks the peers that offer a model for its bundle, one after the
// other, until one's answer agrees with the ID.
func (n *Node) fetchBundle(ctx context.Context, id artifacts.ID) (*artifacts.Bundle, error) {
	if len(n.holders(id)) == 0 {
		_ = n.host.Refresh(ctx) // offers are hints
	}
	if len(n.holders(id)) == 0 {
		_ = n.host.FindModel(ctx, id) // as above
	}
	peers := n.holders(id)
	if len(peers) == 0 {
		return nil, &control.Error{Kind: control.UnknownModel, Text: fmt.Sprintf("nobody in the swarm offers model %s", id.Short())}
	}
	var errs []error
	for _, p := range peers {
		b, err := n.askBundle(ctx, p, id)
		if err == nil {
			return b, nil
		}
		errs = append(errs, fmt.Errorf("peer %s: %w", p, err))
	}
	return nil, fmt.Errorf("can't get the manifest of model %s: %w", id.Short(), errors.Join(errs...))
}

func (n *Node) askBundle(ctx context.Context, peer string, id artifacts.ID) (*artifacts.Bundle, error) {
	dialling, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s, err := n.open(dialling, peer, protoBundle)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Reset() })()
	if err := writeFrame(s, &wire.BundleRequest{Model: id}); err != nil {
		return nil, err
	}
	m, err := wire.Read(&patientReader{s: s})
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *wire.Bundle:
		return artifacts.ParseBundle(m.Data, id, wire.MaxBundle)
	case *wire.Refusal:
		return nil, m
	}
	return nil, fmt.Errorf("unexpected answer of type %d", m.Type())
}
