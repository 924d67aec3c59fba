package swarm

import (
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// dialGate keeps a node from sending so much as a packet to peers that were revoked, whoever names them: DHT records, remembered
// addresses and bootstrap nodes outlive a membership. Incoming connections are for admission, which says why.
type dialGate struct{ m *membership }

var _ connmgr.ConnectionGater = dialGate{}

// InterceptPeerDial implements connmgr.ConnectionGater.
func (g dialGate) InterceptPeerDial(p peer.ID) bool { return g.m.bars(p.String()) == nil }

// InterceptAddrDial implements connmgr.ConnectionGater.
func (dialGate) InterceptAddrDial(peer.ID, ma.Multiaddr) bool { return true }

// InterceptAccept implements connmgr.ConnectionGater.
func (dialGate) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured implements connmgr.ConnectionGater.
func (dialGate) InterceptSecured(network.Direction, peer.ID, network.ConnMultiaddrs) bool {
	return true
}

// InterceptUpgraded implements connmgr.ConnectionGater.
func (dialGate) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }
