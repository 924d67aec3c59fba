package node

import (
	"slices"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// pingInterval is how often peers of active sessions hear from each other.
const pingInterval = 500 * time.Millisecond

// deliver takes a frame that a peer sent on a stage or KV stream to the session
// that it belongs to. What belongs to none is refused.
func (n *Node) deliver(from string, m wire.Message) {
	switch m := m.(type) {
	case *wire.Ping:
		n.onPing(from, m)
		return
	case *wire.Pong:
		n.links.meter.pong(from, m.Nonce, time.Now())
		for _, d := range n.decoderList() {
			d.ponged(from, m.Sessions)
		}
		return
	case *wire.Refusal:
		if m.Session == (wire.SessionID{}) && m.Code == wire.CodeBadFrame { // of bytes, not of a session's frame
			n.garbled(from, m)
			return
		}
	case *wire.StageOpen:
		opened, r := n.openStage(from, m)
		if r != nil {
			n.refuse(from, m.Head, r)
			return
		}
		if opened != nil {
			n.links.send(from, opened)
		}
		return
	}
	h, ok := headOf(m)
	if !ok {
		n.refuse(from, h, wire.Refuse(wire.CodeBadFrame, "frame type %d has no place on this stream", m.Type()))
		return
	}
	if b := n.bequest(h.Session); b != nil && b.deliver(from, m) {
		return
	}
	s, d := n.stage(h.Session), n.decoder(h.Session)
	switch {
	case s != nil && (d == nil || s.m.head.Epoch == h.Epoch):
		s.deliver(from, m)
		return
	case d != nil: // also beside a stage of the decoder before
		d.deliver(from, m)
		return
	}
	if wantsAnswer(m) {
		n.refuse(from, h, n.noSession(h.Session))
	}
}

// noSession answers a frame of a session that isn't here, or no longer: a neighbour may be told before the decoder is why the stage has left.
func (n *Node) noSession(id wire.SessionID) *wire.Refusal {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if r := n.refusalLocked(); r != nil {
		return wire.Refuse(wire.CodeUnknownSession, "no session %v here; %v", id, r)
	}
	return wire.Refuse(wire.CodeUnknownSession, "no session %v here", id)
}

// wantsAnswer reports whether the sender of a frame for an unknown session
// should be told. Refusals are never answered, and acknowledgements may cross
// with the end of a session.
func wantsAnswer(m wire.Message) bool {
	switch m.(type) {
	case *wire.Refusal, *wire.SeamCredit, *wire.KVAck, *wire.Progress, *wire.StageClosed, *wire.StageClose:
		return false
	}
	return true
}

// garbled takes a peer's word that bytes from here were no frame. What was on its
// way to it is lost, and with it what stages were to do for sessions of this node.
// A stage of somebody else's session says nothing: the peer tells the decoder.
func (n *Node) garbled(peer string, r *wire.Refusal) {
	n.links.renew(peer)
	for _, d := range n.decoderList() {
		d.peerGone(peer, r)
	}
	for _, s := range n.stageMap() {
		if s.decoder == peer {
			s.close()
		}
	}
}

// refuse sends a refusal of a frame, or an error of a session, to a peer.
func (n *Node) refuse(to string, h wire.Head, r *wire.Refusal) {
	c := *r
	c.Head = h
	if c.Peer == "" {
		c.Peer = n.ID()
	}
	n.countRefusal(c.Code)
	n.log.Debug("refused", "peer", to, "session", h.Session.String(), "error", r.Error())
	n.links.send(to, &c)
}

// onPing answers a decoder with the sessions of its that this node holds, and
// frees those that it no longer lists.
func (n *Node) onPing(from string, m *wire.Ping) {
	var held []wire.SessionID
	for id, s := range n.stageMap() {
		if s.decoder == from {
			s.onPing(slices.Contains(m.Sessions, id), n.holdUp)
			held = append(held, id)
		}
	}
	n.links.send(from, &wire.Pong{Nonce: m.Nonce, Sessions: held})
}

// farewells is how many pings a stage gets after the last session with it: where
// the word that closes it was lost, it learns that it is no longer needed.
const farewells = 3

// routinePing keeps sessions alive and notices silence: it wakes for pings, and
// when somebody who says nothing until then counts as lost. A tick that comes
// late because this machine was busy or asleep blames nobody; after a sleep the
// node takes up contact again.
func (n *Node) routinePing() {
	w := newWatch()
	defer w.Stop()
	left := map[string]int{} // peer → pings still to be sent
	for nonce := uint64(1); ; {
		select {
		case <-n.ctx.Done():
			return
		case <-w.C:
		}
		late, missed, pings, due := w.tick()
		if late > lateTick {
			n.excuse(due.now, late)
		}
		if late > wakeAfter {
			n.wake(late, missed)
		}
		if pings {
			n.ping(nonce, left)
			nonce++
		}
		for _, d := range n.decoderList() {
			d.checkLife(&due, n.cfg.Silence, n.wordAt, n.holdUp)
		}
		for _, s := range n.stageMap() {
			s.checkLease(due.now, n.heardAt(s.decoder))
		}
		n.forgetUnheard(due.now)
		w.sleep(due)
	}
}

// ping sends a ping to the stages of all sessions, and those that are still due to who has been one: left says how many, by peer.
func (n *Node) ping(nonce uint64, left map[string]int) {
	pings := map[string][]wire.SessionID{}
	for _, d := range n.decoderList() {
		for _, p := range d.stagePeers() {
			pings[p] = append(pings[p], d.m.head.Session)
		}
	}
	for p := range pings {
		left[p] = farewells + 1
	}
	for _, p := range n.parted() { // a session may be over before the first ping
		left[p] = farewells + 1
	}
	for p := range left {
		if left[p]--; left[p] < 0 || pings[p] == nil && !n.heardLately(p) {
			delete(left, p)
			continue
		}
		n.links.meter.ping(p, nonce, time.Now())
		n.links.send(p, &wire.Ping{Nonce: nonce, Sessions: pings[p]})
	}
}

// peerGone tells every session that a peer is unreachable.
func (n *Node) peerGone(peer string, err error) {
	n.log.Debug("peer gone", "peer", peer, "error", err)
	for _, d := range n.decoderList() {
		d.peerGone(peer, err)
	}
	for _, s := range n.stageMap() {
		s.peerGone(peer, err)
	}
	for _, b := range n.bequestList() {
		b.peerGone(peer)
	}
}

// partner reports whether a peer has a part in a session of this node's, as decoder or as stage.
func (n *Node) partner(peer string) bool {
	for _, d := range n.decoderList() {
		if slices.Contains(d.stagePeers(), peer) {
			return true
		}
	}
	for _, s := range n.stageMap() {
		if s.decoder == peer || slices.ContainsFunc(s.m.plan.Stages, func(p wire.PlanStage) bool { return p.Peer == peer }) {
			return true
		}
	}
	return false
}

// part notes the stages of a session that has ended.
func (n *Node) part(stages []wire.PlanStage) {
	n.live.Lock()
	defer n.live.Unlock()
	for _, s := range stages {
		n.live.parted = append(n.live.parted, s.Peer)
	}
}

// parted returns the stages of sessions that have ended since it was called before.
func (n *Node) parted() (peers []string) {
	n.live.Lock()
	defer n.live.Unlock()
	peers, n.live.parted = n.live.parted, nil
	return peers
}

// headOf returns the head of a session frame.
func headOf(m wire.Message) (wire.Head, bool) {
	switch m := m.(type) {
	case *wire.StageOpen:
		return m.Head, true
	case *wire.StageOpened:
		return m.Head, true
	case *wire.Chunk:
		return m.Head, true
	case *wire.Rewind:
		return m.Head, true
	case *wire.Handover:
		return m.Head, true
	case *wire.Inherit:
		return m.Head, true
	case *wire.Seam:
		return m.Head, true
	case *wire.SeamCredit:
		return m.Head, true
	case *wire.Progress:
		return m.Head, true
	case *wire.StageClose:
		return m.Head, true
	case *wire.StageClosed:
		return m.Head, true
	case *wire.KVSlice:
		return m.Head, true
	case *wire.Rows:
		return m.Head, true
	case *wire.KVAck:
		return m.Head, true
	case *wire.Refusal:
		return m.Head, true
	}
	return wire.Head{}, false
}
