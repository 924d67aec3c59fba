package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// standing says what new work a node takes.
type standing int

const (
	accepting standing = iota
	paused             // none of others, until Resume
	leaving            // none at all: the node is about to close
)

// String returns the standing as status shows it.
func (s standing) String() string { return [...]string{"accepting", "paused", "leaving"}[s] }

const (
	handOver = 2 * time.Second        // for sessions to end once they are handed over
	linger   = 100 * time.Millisecond // for last words to leave this machine's buffers
)

// Pause makes the node take no new work of others: its offers to compute are
// withdrawn at once, and what comes nevertheless is refused. Sessions that run
// may end within limit; what is left then is handed over: decoders go on without
// this stage, clients with another decoder, which is given this one's cache, with the same bytes. Pause returns
// when none is left, with how many were handed over, or when ctx ends; the node
// stays paused until Resume. Bytes go on being seeded, and this node's own runs
// go on, but where it decodes them itself.
func (n *Node) Pause(ctx context.Context, limit time.Duration) (handedOver int, err error) {
	if err := n.stand(paused); err != nil {
		return 0, err
	}
	return n.drain(ctx, limit)
}

// Resume ends a pause. The node's terms still hold.
func (n *Node) Resume() error {
	if err := n.stand(accepting); err != nil {
		return err
	}
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if n.sessions.away != "" {
		return fmt.Errorf("resumed, but by its terms the node works for nobody now: %s; start it without them to change that", n.sessions.away)
	}
	return nil
}

// Leave is Pause for good, and for this node's own runs, too. Close comes next;
// it ends what Leave had no time for.
func (n *Node) Leave(ctx context.Context, limit time.Duration) (handedOver int, err error) {
	if err := n.stand(leaving); err != nil {
		return 0, err
	}
	if handedOver, err = n.drain(ctx, limit); err == nil {
		n.links.flush(ctx, handOver)
	}
	return handedOver, err
}

// stand changes the node's standing and tells the swarm.
func (n *Node) stand(s standing) error {
	if n.cfg.Client && s != leaving {
		return errors.New("no daemon runs on this data folder: there is nothing to pause")
	}
	n.sessions.Lock()
	now := n.sessions.standing
	if now != leaving {
		n.sessions.standing = s
	}
	n.sessions.Unlock()
	if now == leaving && s != leaving {
		return errors.New("the node is leaving: start it again to serve")
	}
	if now != s {
		n.log.Info("standing", "was", now.String(), "is", s.String())
		n.offer()
	}
	return nil
}

// standing returns the node's standing; by its terms it may be as if paused.
func (n *Node) standing() standing {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if n.sessions.standing == accepting && n.sessions.away != "" {
		return paused
	}
	return n.sessions.standing
}

// refusalLocked returns why no new work is taken, nil if it is.
func (n *Node) refusalLocked() *wire.Refusal {
	switch {
	case n.sessions.closed:
		return wire.Refuse(wire.CodeLeaving, "the node is closing")
	case n.sessions.standing == leaving:
		return wire.Refuse(wire.CodeLeaving, "the node is about to close")
	case n.sessions.standing == paused:
		return wire.Refuse(wire.CodeLeaving, "the node is paused")
	case n.sessions.away != "":
		return wire.Refuse(wire.CodeLeaving, "by its owner's terms the node works for nobody now: %s", n.sessions.away)
	}
	return nil
}

// drain waits until no session is left, and hands over those that are after limit.
func (n *Node) drain(ctx context.Context, limit time.Duration) (handedOver int, err error) {
	over := time.NewTimer(limit)
	defer over.Stop()
	select {
	case <-n.idle():
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-n.ctx.Done():
		return 0, errors.New("the node is closing")
	case <-over.C:
	}
	r := wire.Refuse(wire.CodeLeaving, "the node takes no part in sessions any longer")
	for _, s := range n.stageMap() {
		if s.leave(r) {
			handedOver++
		}
	}
	for _, d := range n.decoderList() {
		if d.leave(r) {
			handedOver++
		}
	}
	n.log.Info("sessions handed over", "sessions", handedOver)
	soon, late := time.After(handOver), time.After(max(handOver, n.cfg.Silence))
	tick := time.NewTicker(handOver / 20)
	defer tick.Stop()
	for patient := true; patient || n.handsOn(); { // clients of this node may go on with another decoder
		select {
		case <-n.idle():
			return handedOver, nil
		case <-tick.C:
		case <-soon:
			patient = false
			n.giveUpStages(r)
		case <-late:
			for _, d := range n.decoderList() {
				d.giveUp(r)
			}
		case <-ctx.Done():
			n.giveUpStages(r)
			return handedOver, nil
		}
	}
	return handedOver, nil
}

// handsOn reports whether a session of this node as a decoder is yet to be handed over, or what it has left. Each takes little time, unless somebody is taking it.
func (n *Node) handsOn() bool {
	if len(n.bequestList()) > 0 {
		return true
	}
	return slices.ContainsFunc(n.decoderList(), func(d *decoderSession) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.m.leaving != nil && !d.m.ended
	})
}

func (n *Node) giveUpStages(r *wire.Refusal) {
	for _, s := range n.stageMap() {
		s.giveUp(r)
	}
}

// idle returns a channel that is closed as soon as the node has no session that
// its standing forbids.
func (n *Node) idle() <-chan struct{} {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if n.sessions.idle == nil {
		n.sessions.idle = make(chan struct{})
	}
	idle := n.sessions.idle
	n.tellIdleLocked()
	return idle
}

// tellIdleLocked is called whenever a session has gone.
func (n *Node) tellIdleLocked() {
	busy := len(n.sessions.stages) + len(n.sessions.decoders) + len(n.sessions.bequests)
	if n.sessions.standing == leaving {
		busy += len(n.sessions.clients)
	}
	if busy == 0 && n.sessions.idle != nil {
		close(n.sessions.idle)
		n.sessions.idle = nil
	}
}

// leave ends the stage as soon as the decoder has all that it has computed, and
// tells the decoder that it must go on without it. It returns false if the stage
// has ended already.
func (s *stageSession) leave(r *wire.Refusal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.do(s.m.leave(r))
	return true
}

// giveUp ends a stage that couldn't leave in time.
func (s *stageSession) giveUp(r *wire.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && s.m.leaving != nil {
		s.n.refuse(s.decoder, s.m.head, r)
		s.closeLocked()
	}
}

// leave ends the session as soon as its step is done, so that its client goes on with another decoder. It
// returns false if the session is over but for its last words: they are said,
// without the accounts that still lack.
func (s *decoderSession) leave(r *wire.Refusal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m.ended {
		s.do(s.m.giveUpAccounts())
		return false
	}
	s.do(s.m.depart(r))
	return true
}

// giveUp ends a session whose step couldn't end in time.
func (s *decoderSession) giveUp(r *wire.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m.leaving != nil && !s.m.ended {
		s.abortLocked(r)
	}
}

// flush waits until what was queued has been written, but not for longer than limit.
func (l *links) flush(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	wait := func(d time.Duration) bool {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(d):
			return true
		}
	}
	for l.pending() > 0 && wait(10*time.Millisecond) {
	}
	wait(linger)
}
