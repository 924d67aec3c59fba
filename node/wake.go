package node

import (
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// wakeAfter is how late a tick must be for this machine, or this process, to have slept: everybody else has given it up by then.
const wakeAfter = 5 * time.Second

// ticks are those of routinePing, by two clocks: where a machine sleeps, its monotonic clock stands, and the wall clock goes on. That one
// may also be set; then a node wakes that hasn't slept, which costs it some pings.
type ticks struct {
	mono time.Duration // since anything
	wall time.Time
}

// next takes a tick, and returns how late it is and how much of that the monotonic clock doesn't know.
func (t *ticks) next(mono time.Duration, wall time.Time) (late, missed time.Duration) {
	passed, shown := mono-t.mono, wall.Round(0).Sub(t.wall.Round(0))
	t.mono, t.wall = mono, wall
	missed = max(shown-passed, 0)
	return passed + missed - pingInterval, missed
}

// wake is called when this node has slept. Sessions that others have given up by now end, but runs of its own, which go on over other
// peers; and it appears to the swarm again.
func (n *Node) wake(slept, missed time.Duration) {
	n.log.Info("woken", "slept", slept.Round(time.Millisecond))
	if slept > leaseTimeout {
		for _, s := range n.stageMap() {
			s.close()
		}
		for _, d := range n.decoderList() {
			if d.client != n.ID() {
				d.abort(wire.Refuse(wire.CodePeerLost, "the decoder has slept for %v", slept.Round(time.Second)))
			}
		}
	}
	n.spawn(func() {
		n.host.Wake(n.ctx, missed)
		n.offer() // figures may have changed
	})
}
