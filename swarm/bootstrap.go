package swarm

import (
	"context"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// Pauses between attempts to reach a bootstrap node.
const (
	firstRetry   = 500 * time.Millisecond
	lastRetry    = 4 * time.Second // from the beginning of one to that of the next: a node that comes up late is met within 5 s
	checkConn    = 2 * time.Second
	attemptLimit = 10 * time.Second
	meetLimit    = 5 * time.Second // that a call made too early waits
)

// keepConnected dials one bootstrap node until it answers, and again when the
// connection is lost, for ever. Bootstrap nodes are tried beside each other, so
// a dead one costs the others nothing.
func (h *Host) keepConnected(ctx context.Context, b peer.AddrInfo) {
	h.lp.ConnManager().Protect(b.ID, "starling-bootstrap")
	retry, told := firstRetry, false
	for first := true; ; first = false {
		began := time.Now()
		err := h.dialOnce(ctx, b)
		h.noteContact(b, err)
		if first {
			h.tried()
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if !told {
				h.log.Info("bootstrap node not reached, trying on", "peer", b.ID.String(), "error", err)
				told = true
			}
			if !sleep(ctx, max(retry-time.Since(began), firstRetry)) { // what swallows packets has taken longer already
				return
			}
			retry = min(2*retry, lastRetry)
			continue
		}
		h.log.Info("connected to bootstrap node", "peer", b.ID.String())
		retry, told = firstRetry, false
		h.joinedDHT()
		for h.lp.Network().Connectedness(b.ID) == network.Connected {
			if !sleep(ctx, checkConn) {
				return
			}
		}
		h.log.Info("bootstrap node is gone, trying on", "peer", b.ID.String())
		told = true
	}
}

func (h *Host) dialOnce(ctx context.Context, b peer.AddrInfo) error {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	h.clearBackoff(b.ID)
	// Addresses given by hand outlive what the peerstore forgets.
	return dialError(b.ID, h.lp.Connect(ctx, b))
}

// tried notes that a bootstrap node's first attempt is over.
func (h *Host) tried() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.untried--; h.untried == 0 && !h.cfg.LAN {
		h.meetLocked()
	}
}

func (h *Host) meetLocked() {
	if !h.hasMet {
		h.hasMet = true
		close(h.met)
	}
}

// awaitContact waits, right after Start, until the first connection stands or
// there is no hope of one soon.
func (h *Host) awaitContact(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, meetLimit)
	defer cancel()
	select {
	case <-h.met:
	case <-ctx.Done():
	case <-h.ctx.Done():
	}
}
