package node

import (
	"errors"
	"fmt"
	"slices"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/swarm/wire"
)

// The trust classes: who may have a part in a session. This node itself always may.
const (
	trustAny     = "any"     // everybody in the swarm
	trustMembers = "members" // members of a private swarm, by certificate
	trustListed  = "listed"  // those that the user lists (swarm.Swarms.Trust)
)

// excluded returns the peers of an offer that a request must not use, each with the reason.
func (n *Node) excluded(k control.Constraints, peers []route.Peer) (map[string]string, error) {
	var listed []string
	switch k.Trust {
	case "", trustAny, trustMembers:
	case trustListed:
		var err error
		if listed, err = n.swarms.Trusted(); err != nil {
			return nil, err
		}
	default:
		return nil, bad(fmt.Errorf("trust %q: use %s, %s or %s", k.Trust, trustMembers, trustListed, trustAny))
	}
	out := map[string]string{}
	for _, p := range peers {
		if p.ID == n.ID() {
			continue
		}
		switch {
		case k.Trust == trustListed && !slices.Contains(listed, p.ID):
			out[p.ID] = "you don't list it as trusted ('starling swarm trust' does), and --trust listed was asked for"
		case k.Trust == trustMembers:
			if err := n.host.Member(p.ID); err != nil {
				out[p.ID] = fmt.Sprintf("%v, and --trust members was asked for", err)
			}
		}
		if len(k.Only) > 0 && !slices.Contains(k.Only, p.ID) {
			out[p.ID] = "its client trusts those only that were on the first route"
		}
	}
	for p, why := range k.Excluded {
		out[p] = why
	}
	return out, nil
}

// heeds reports why this node can't keep to the trust class that a grant names.
func (n *Node) heeds(g *wire.Grant) *wire.Refusal {
	switch g.Trust {
	case "", trustAny, trustListed:
		return nil
	case trustMembers:
		if n.cfg.Swarm.Public {
			return wire.Refuse(wire.CodeBadGrant, "the grant is for members of a private swarm, this one is public")
		}
		return nil
	}
	return wire.Refuse(wire.CodeBadGrant, "the grant names a trust class that this node doesn't know")
}

// within returns whom the decoder of a session may plan with: nil for everybody. What the client lists is for the client to know, so
// of that class nobody comes in after it.
func within(g *wire.Grant, r *wire.Route) (only []string) {
	if g.Trust != trustListed {
		return nil
	}
	only = []string{g.Decoder}
	for _, s := range r.Stages {
		only = append(only, s.Peer)
	}
	return only
}

// sights says what each peer of a plan sees of the prompt.
func (n *Node) sights(p route.Plan) (list []control.Sight) {
	for _, s := range p.Sees() {
		list = append(list, control.Sight{Peer: s.Peer, Self: s.Peer == n.ID(), What: s.What})
	}
	return list
}

// hint says that a narrow trust class may be why there is no route.
func (n *Node) hint(k control.Constraints, err error) error {
	switch {
	case !errors.Is(err, route.ErrNoRoute):
	case k.Trust == trustMembers && n.cfg.Swarm.Public:
		return fmt.Errorf("swarm %s is public, so nobody is a member: use --trust listed or any (%w)", n.cfg.Swarm.Name, err)
	case k.Trust == trustListed || k.Trust == trustMembers:
		return fmt.Errorf("%w (--trust %s was asked for; --trust any would let others in)", err, k.Trust)
	}
	return err
}
