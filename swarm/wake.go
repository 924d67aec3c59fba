package swarm

import (
	"context"
	"time"
)

// Wake takes up contact again after this machine has slept: peers that don't answer any more are not connected any more, offers whose life
// has ended meanwhile count no longer, those of the others are pulled anew, and this node's own are pushed under a new number. missed is
// what the monotonic clock, by which offers live, doesn't know of the sleep. It returns when that is done or ctx ends.
func (h *Host) Wake(ctx context.Context, missed time.Duration) {
	h.book.age(missed, time.Now())
	h.mu.Lock()
	h.nextSeqLocked(0)
	h.mu.Unlock()
	h.kickPublisher()
	each(h.Connected(), func(p PeerID) {
		id, err := decodePeer(p)
		if err != nil {
			return
		}
		if err := h.measure(ctx, id); err != nil && ctx.Err() == nil {
			h.log.Info("connection has not outlived the sleep", "peer", p, "error", err)
			_ = h.lp.Network().ClosePeer(id) // whatever is left of it
		}
	})
	h.joinedDHT()      // its records may have gone
	_ = h.Refresh(ctx) // who isn't there is met as it comes
}
