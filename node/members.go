package node

import (
	"context"
	"slices"

	"github.com/starling-swarm/starling/node/control"
)

// Members implements control.Engine.
func (e engine) Members(context.Context) (*control.MembersReply, error) {
	list, all, err := e.n.host.Members()
	if err != nil {
		return nil, err
	}
	connected := e.n.host.Connected()
	r := &control.MembersReply{All: all}
	for _, m := range list {
		v := control.Member{Peer: m.Peer, Issued: m.Issued, Expires: m.Expires, Revoked: m.Revoked, Owner: m.Owner, Self: m.Peer == e.n.ID(), Connected: slices.Contains(connected, m.Peer)}
		if m.Role.Known() {
			v.Role = m.Role.String()
		}
		r.Members = append(r.Members, v)
	}
	return r, nil
}

// Revoke implements control.Engine.
func (e engine) Revoke(_ context.Context, q control.RevokeRequest) error {
	return e.n.host.Revoke(q.Peer)
}

// SetOwner implements control.Engine.
func (e engine) SetOwner(_ context.Context, q control.OwnerRequest) error {
	return e.n.host.SetOwner(q.Peer, q.Remove)
}
