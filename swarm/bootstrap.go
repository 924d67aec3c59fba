package swarm

import (
	"context"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
)

// Pauses between attempts to reach a bootstrap node.
const (
	firstRetry   = 500 * time.Millisecond
	lastRetry    = 15 * time.Second
	checkConn    = 2 * time.Second
	attemptLimit = 10 * time.Second
)

// keepConnected dials one bootstrap node until it answers, and again when the
// connection is lost, for ever. Bootstrap nodes are tried beside each other, so
// a dead one costs the others nothing.
func (h *Host) keepConnected(ctx context.Context, b peer.AddrInfo) {
	h.lp.Peerstore().AddAddrs(b.ID, b.Addrs, peerstore.PermanentAddrTTL)
	h.lp.ConnManager().Protect(b.ID, "starling-bootstrap")
	retry, told := firstRetry, false
	for {
		err := h.dialOnce(ctx, b)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if !told {
				h.logf("bootstrap: %v; trying on", err)
				told = true
			}
			if !sleep(ctx, retry) {
				return
			}
			retry = min(2*retry, lastRetry)
			continue
		}
		h.logf("connected to bootstrap node %s", b.ID)
		retry, told = firstRetry, false
		h.joinedDHT()
		for h.lp.Network().Connectedness(b.ID) == network.Connected {
			if !sleep(ctx, checkConn) {
				return
			}
		}
		h.logf("bootstrap node %s is gone; trying on", b.ID)
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
