package swarm

import (
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// Contact is how this node stands with a peer that it has been told to meet the swarm through.
type Contact struct {
	Peer      PeerID
	Addrs     []string // as they were given, without the peer
	Connected bool
	Elsewhere bool   // connected, but it doesn't serve this swarm's DHT: it is in another one
	Refused   bool   // it answered, and doesn't let this node in
	Error     string // of the latest attempt to connect; "" when it succeeded, or before the first one's end
}

// contact is what is noted of a bootstrap peer.
type contact struct {
	info peer.AddrInfo
	err  error
}

// noteContact keeps what became of an attempt to connect to a bootstrap peer.
func (h *Host) noteContact(b peer.AddrInfo, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bootstrap[b.ID.String()] = contact{b, err}
}

// Contacts returns the bootstrap peers of whom something is known, by ID.
func (h *Host) Contacts() []Contact {
	h.mu.Lock()
	noted := make([]contact, 0, len(h.bootstrap))
	for _, c := range h.bootstrap {
		noted = append(noted, c)
	}
	h.mu.Unlock()
	var list []Contact
	for _, b := range noted {
		c := Contact{Peer: b.info.ID.String(), Addrs: addrStrings(b.info.Addrs), Connected: h.lp.Network().Connectedness(b.info.ID) == network.Connected}
		switch {
		case c.Connected:
			c.Elsewhere = h.elsewhere(b.info.ID)
		case b.err != nil:
			c.Error = b.err.Error()
			c.Refused = h.members.refusal(c.Peer) != nil
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Contact) int { return slices.Compare([]byte(a.Peer), []byte(b.Peer)) })
	return list
}

// elsewhere says whether a connected peer has told which protocols it has, and this swarm's DHT is not among them.
func (h *Host) elsewhere(p peer.ID) bool {
	all, err := h.lp.Peerstore().GetProtocols(p)
	if err != nil || len(all) == 0 {
		return false // it has not told yet
	}
	return !slices.Contains(all, protocol.ID("/starling/"+h.info.ID+"/kad/1.0.0"))
}

// DHTPeers returns how many peers this node's table of the swarm's DHT has.
func (h *Host) DHTPeers() int { return h.dht.RoutingTable().Size() }

// Membership is what a data folder holds that makes its node a member of a private swarm.
type Membership struct {
	Issued, Expires time.Time
	Revoked         bool  // by the newest revocation lists that the folder has
	Err             error // why it makes no member now; nil if it does
}

// Membership reads and checks what the data folder holds of peer's membership in a private swarm.
func (s *Swarms) Membership(info *Info, peer PeerID) (m Membership) {
	if info.Public {
		return Membership{Err: fmt.Errorf("swarm %s is public: it has no members", info.ID)}
	}
	cert, err := s.certificate(info.ID)
	if err != nil {
		return Membership{Err: err}
	}
	m.Issued, m.Expires = time.Unix(cert.Issued, 0), time.Unix(cert.Expires, 0)
	a, err := s.authority(info)
	if err != nil {
		m.Err = err
		return m
	}
	m.Revoked = a.revoked[peer]
	if m.Revoked {
		m.Err = a.bars(cert, peer)
	} else {
		m.Err = a.checkCertificate(cert, peer, time.Now())
	}
	return m
}
