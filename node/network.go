package node

import (
	"context"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
)

// Network says what the node has found out about its place in the swarm.
func (e engine) Network(ctx context.Context) (*control.Network, error) {
	h := e.n.host
	w := &control.Network{Connected: len(h.Connected()), DHT: h.DHTPeers(), Bootstrap: e.n.contacts(), Clocks: h.Clocks(ctx), Listen: h.Addrs(),
		Reachable: string(h.Reachability()), NAT: h.NAT()}
	w.Relayed = slices.ContainsFunc(w.Listen, func(a string) bool { return strings.Contains(a, "/p2p-circuit") })
	return w, nil
}

// contacts says how the node stands with those that it was told to meet the swarm through.
func (n *Node) contacts() []control.Contact {
	list := []control.Contact{}
	for _, c := range n.host.Contacts() {
		list = append(list, control.Contact(c))
	}
	return list
}

// FreeDisk returns the bytes that this user may still write in dir, -1 if that is not known.
func FreeDisk(dir string) int64 {
	n, ok := artifacts.FreeBytes(dir)
	if !ok {
		return -1
	}
	return n
}
