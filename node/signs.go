package node

import (
	"sync"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// aheadBytes is how much of other sessions may be on its way from a peer before
// what it has for one: a connection queues up to 4 MiB (go-yamux: 64 frames of
// 64 KiB), the system as much (Linux: tcp_wmem), and other sessions' seams of
// again as much as both may go before it.
const aheadBytes = 16 << 20

// fragment is some bytes of a frame that a peer sends.
type fragment struct {
	words bool           // on its stage stream, on which its pongs follow
	large bool           // the frame has more than bulkBytes
	rows  wire.SessionID // whose seams or rows it brings; zeros: nobody's, or it isn't known yet
}

// signs are a peer's latest signs of life that all sessions share.
type signs struct {
	heard time.Time // bytes
	word  time.Time // … on its stage stream
	large time.Time // … of large frames
}

// rowSigns are when bytes of one session's seams and rows last came, by peer.
type rowSigns struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (r *rowSigns) note(peer string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = map[string]time.Time{}
	}
	r.at[peer] = now
}

// since returns when bytes last came from a peer, or t if that is later.
func (r *rowSigns) since(peer string, t time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return newer(t, r.at[peer])
}

func (r *rowSigns) excuse(now time.Time, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, t := range r.at {
		r.at[p] = later(t, d, now)
	}
}

// hear notes that bytes have come from a peer. Seams and rows are a sign for the session that they belong to: that a peer
// is busy with others says nothing of it.
func (n *Node) hear(peer string, f fragment) {
	now := time.Now()
	n.live.Lock()
	s := n.live.peers[peer]
	if s == nil {
		s = &signs{}
		n.live.peers[peer] = s
	}
	s.heard = now
	if f.words {
		s.word = now
	}
	if f.large {
		s.large = now
	}
	n.live.Unlock()
	if f.rows == (wire.SessionID{}) {
		return
	}
	if d := n.decoder(f.rows); d != nil {
		d.rows.note(peer, now)
	}
	if st := n.stage(f.rows); st != nil {
		st.rows.note(peer, now)
	}
}

// signsOf returns a peer's signs of life.
func (n *Node) signsOf(peer string) signs {
	n.live.Lock()
	defer n.live.Unlock()
	if s := n.live.peers[peer]; s != nil {
		return *s
	}
	return signs{}
}

// heardAt returns when bytes last came from a peer, wordAt when they did on its stage stream.
func (n *Node) heardAt(peer string) time.Time { return n.signsOf(peer).heard }
func (n *Node) wordAt(peer string) time.Time  { return n.signsOf(peer).word }

// holdUp returns from when on a session may wait for a peer that gave its last sign for it at time since. Large frames of other
// sessions may go before the next one, no longer than aheadBytes of them take; for as long as they come where nobody has measured that.
func (n *Node) holdUp(peer string, since time.Time) time.Time {
	large := n.signsOf(peer).large
	if !large.After(since) {
		return since
	}
	if rate := n.links.meter.rate(peer); rate > 0 {
		if last := since.Add(time.Duration(aheadBytes / rate * float64(time.Second))); last.Before(large) {
			return last
		}
	}
	return large
}

// heardLately reports whether a peer has spoken within a lease.
func (n *Node) heardLately(peer string) bool { return time.Since(n.heardAt(peer)) < leaseTimeout }

// excuse moves everybody's last sign of life forward by d, but not beyond now.
func (n *Node) excuse(now time.Time, d time.Duration) {
	n.log.Debug("late", "by", d)
	for _, s := range n.stageMap() {
		s.excuse(now, d)
	}
	for _, s := range n.decoderList() {
		s.excuse(now, d)
	}
	n.live.Lock()
	defer n.live.Unlock()
	for _, s := range n.live.peers {
		s.heard, s.word, s.large = later(s.heard, d, now), later(s.word, d, now), later(s.large, d, now)
	}
}

// later moves t forward by d, but not beyond now.
func later(t time.Time, d time.Duration, now time.Time) time.Time {
	if t = t.Add(d); t.After(now) {
		return now
	}
	return t
}

// newer returns the later one of two times.
func newer(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// forgetUnheard drops peers that have been silent for longer than anybody waits.
func (n *Node) forgetUnheard(now time.Time) {
	n.live.Lock()
	defer n.live.Unlock()
	for p, s := range n.live.peers {
		if now.Sub(s.heard) > max(leaseTimeout, n.cfg.Silence) {
			delete(n.live.peers, p)
		}
	}
}
