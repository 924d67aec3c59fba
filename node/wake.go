package node

import (
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

const (
	// lateTick is how late a tick may be on a machine that has time. One that is later tells that this process didn't run, and perhaps hasn't
	// read what others sent: it moves forward what they are waited for.
	lateTick = 50 * time.Millisecond

	// wakeAfter is how late a tick must be for this machine, or this process, to have slept: everybody else has given it up by then.
	wakeAfter = 5 * time.Second
)

// ticks are those of a routine that looks for silence, by two clocks: where a machine sleeps, its monotonic clock stands, and the wall clock
// goes on. That one may also be set; then a node wakes that hasn't slept, which costs it some pings.
type ticks struct {
	mono time.Duration // since anything
	wall time.Time
	wait time.Duration // until the next one
}

// next takes a tick, and returns how late it is and how much of that the monotonic clock doesn't know.
func (t *ticks) next(mono time.Duration, wall time.Time) (late, missed time.Duration) {
	passed, shown := mono-t.mono, wall.Round(0).Sub(t.wall.Round(0))
	t.mono, t.wall = mono, wall
	missed = max(shown-passed, 0)
	return passed + missed - t.wait, missed
}

// watch wakes a routine that pings others and looks for their silence: when pings are due, and when a deadline passes before.
type watch struct {
	*time.Timer
	began time.Time
	last  ticks
	pings time.Time // when they are due
}

func newWatch() *watch {
	now := time.Now()
	return &watch{Timer: time.NewTimer(pingInterval), began: now, last: ticks{0, now, pingInterval}, pings: now.Add(pingInterval)}
}

// tick takes a tick of the timer. It returns what ticks.next does, whether pings are due, and the time for deadlines to be looked at.
func (w *watch) tick() (late, missed time.Duration, pings bool, due deadlines) {
	now := time.Now()
	late, missed = w.last.next(now.Sub(w.began), now)
	if pings = !now.Before(w.pings); pings {
		if w.pings = w.pings.Add(pingInterval); w.pings.Before(now) {
			w.pings = now.Add(pingInterval)
		}
	}
	return late, missed, pings, deadlines{now: now, next: w.pings}
}

// sleep sets the timer after deadlines have been looked at.
func (w *watch) sleep(due deadlines) {
	w.last.wait = due.next.Sub(due.now)
	w.Reset(time.Until(due.next))
}

// deadlines are looked at when a tick comes, and say when the next one must.
type deadlines struct {
	now  time.Time
	next time.Time // the earliest one that hasn't passed, or pings
}

// passed reports whether a deadline has passed.
func (d *deadlines) passed(at time.Time) bool {
	if !d.now.Before(at) {
		return true
	}
	if at.Before(d.next) {
		d.next = at
	}
	return false
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
