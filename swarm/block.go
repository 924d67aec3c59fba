package swarm

import "fmt"

// Block has this node deal with the given peers no longer, and with all others again: their connections close and come to
// nothing, nobody dials them, their offers don't count. Peers are not told.
func (h *Host) Block(peers []PeerID) {
	blocked := map[PeerID]bool{}
	for _, p := range peers {
		blocked[p] = true
	}
	h.mu.Lock()
	h.blocked = blocked
	h.mu.Unlock()
	for p := range blocked {
		if id, err := decodePeer(p); err == nil {
			h.disconnect(id)
		}
	}
}

// blockedPeer returns why this node doesn't deal with peer; nil if it does.
func (h *Host) blockedPeer(peer PeerID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.blocked[peer] {
		return fmt.Errorf("%s is blocked on this node", peer)
	}
	return nil
}
