package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// quietAfter is the silence of a stage for which nobody else is blamed before it has spoken, or counts as lost: it may have told of a chunk
// whose seam never left it.
const quietAfter = 2 * pingInterval

// loss is a stage that is given up, and why.
type loss struct{ peer, why string }

// checkLife gives up on stages that are overdue, and on a silent client.
func (s *decoderSession) checkLife(due *deadlines, silence time.Duration, word func(peer string) time.Time, holdUp func(peer string, since time.Time) time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.overdueLocked(due, silence, word, holdUp) {
		s.do(s.m.gone(l.peer, l.why))
	}
	if !s.ended && due.passed(s.clientAt.Add(silence)) {
		s.log.Info("client silent", "for", due.now.Sub(s.clientAt).Round(100*time.Millisecond))
		_ = s.conn.SetReadDeadline(due.now) // listen ends the session
	}
}

// overdueLocked returns the stages that haven't been heard for silence, or, if there is none, the one that holds the session up. word says when bytes last
// came on a peer's stage stream, holdUp what others' bytes may add to a wait for it.
func (s *decoderSession) overdueLocked(due *deadlines, silence time.Duration, word func(peer string) time.Time, holdUp func(peer string, since time.Time) time.Time) (lost []loss) {
	quiet := false // a stage that the one waited for may wait for
	sign := func(p string, since time.Time) time.Time { return holdUp(p, s.rows.since(p, since)) }
	for _, p := range s.stagePeersLocked() {
		limit, why := silence, ""
		last := sign(p, word(p))
		if last.Before(s.opened) { // not heard since the plan was made: it may have to end a step, or be dialled first
			last, limit = s.opened, max(silence, paceFactor*s.route.times.expected(p, s.m.chunkSize()))
			if why = slow(limit, silence); !slices.Contains(s.n.host.Connected(), p) {
				limit, why = max(openTimeout, silence), ""
			}
		} else if p != s.route.peer && due.now.Sub(last) > quietAfter {
			quiet = true
		}
		if due.passed(last.Add(limit)) {
			lost = append(lost, loss{p, fmt.Sprintf("silent for %v", due.now.Sub(last).Round(100*time.Millisecond)) + why})
		}
	}
	p := s.route.peer
	if len(lost) > 0 || p == "" || s.ended || !due.passed(s.route.deadline(silence, sign)) || quiet {
		return lost
	}
	why := fmt.Sprintf("it got nothing done for %v", due.now.Sub(s.route.moved).Round(100*time.Millisecond))
	return []loss{{p, why + slow(s.route.limit(p, s.route.positions), silence)}}
}

// slow says why a stage was waited for longer than silence; "" if it wasn't.
func slow(limit, silence time.Duration) string {
	if limit <= silence {
		return ""
	}
	return fmt.Sprintf(", %d times what its chunk should take", paceFactor)
}

// excuse moves what is waited for forward by d, for which this machine was busy or asleep.
func (s *decoderSession) excuse(now time.Time, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clientAt, s.opened = later(s.clientAt, d, now), later(s.opened, d, now)
	s.rows.excuse(now, d)
	s.route.moved, s.route.told = later(s.route.moved, d, now), later(s.route.told, d, now)
}

// ponged notes a stage's list of the sessions that it holds: one that has lost
// this session (it restarted) is as good as gone.
func (s *decoderSession) ponged(from string, sessions []wire.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.m.stageOf(from)
	if s.ended || i < 0 || !s.m.opened[i] || s.m.released {
		return
	}
	if s.absent[from]++; slices.Contains(sessions, s.m.head.Session) {
		s.absent[from] = 0
	}
	if s.absent[from] >= 2 {
		s.do(s.m.gone(from, "it no longer knows the session"))
	}
}
