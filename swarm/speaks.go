package swarm

import (
	"slices"

	"github.com/libp2p/go-libp2p/core/protocol"
)

// Lacks returns which of some protocols a connected peer doesn't have, by what it has told of itself; none where it has told
// nothing yet.
func (h *Host) Lacks(peer PeerID, protocols ...string) (lacks []string) {
	id, err := decodePeer(peer)
	if err != nil {
		return nil
	}
	has, err := h.lp.Peerstore().GetProtocols(id)
	if err != nil || len(has) == 0 {
		return nil
	}
	for _, p := range protocols {
		if !slices.Contains(has, protocol.ID(p)) {
			lacks = append(lacks, p)
		}
	}
	return lacks
}
