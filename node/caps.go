package node

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// caps keep what a node sends and fetches to its owner's bytes per second. Sessions go first: each byte of theirs waits for nobody but other
// sessions, and is taken from what torrents may use, who get the rest.
type caps struct{ up, down *allowance }

// newCaps makes caps of so many bytes per second; 0 is none. torrents hears of the bytes that sessions have sent or received.
func newCaps(up, down int64, torrents func(sent, received int)) *caps {
	return &caps{up: newAllowance(up, func(n int) { torrents(n, 0) }), down: newAllowance(down, func(n int) { torrents(0, n) })}
}

// leastCap is the lowest cap on bytes per second. With less, several peers that send at once would each get too little to know that it is still heard.
const leastCap = 128 << 10

// allowance is one direction's store of bytes. It fills at its rate, and may be drawn below empty: who comes next waits. Where several
// peers wait, each gets the same, however many streams it has.
type allowance struct {
	rate float64 // bytes per second
	note func(n int)

	mu    sync.Mutex
	level float64 // bytes in store, as of at
	at    time.Time
	turns turns
	timer *time.Timer // calls serve; nil: nobody waits
}

func newAllowance(rate int64, note func(int)) *allowance {
	if rate == 0 {
		return nil
	}
	return &allowance{rate: float64(rate), note: note, turns: turns{lead: float64(rate)}}
}

// piece is how many bytes go at once: so few that a peer hears of this node many times a second, however low the cap.
func (a *allowance) piece() int { return int(min(a.rate/16, writeStep)) }

func (a *allowance) fillLocked(now time.Time) {
	a.level = min(a.rate/4, a.level+max(now.Sub(a.at), 0).Seconds()*a.rate)
	a.at = now
}

// draw takes n bytes for a peer that waits for nothing.
func (a *allowance) draw(peer string, n int, now time.Time) {
	if n == 0 {
		return
	}
	a.note(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fillLocked(now)
	if a.turns.waiting == 0 && a.level >= 0 {
		a.turns.idle()
	}
	a.turns.charge(peer, n)
	a.level -= float64(n)
}

// ask takes n bytes for a peer, or lets it wait: until next is closed, which takes them, or for what calls leave.
func (a *allowance) ask(peer string, n int, now time.Time) (next chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fillLocked(now)
	if a.turns.waiting == 0 && a.level >= 0 {
		a.turns.idle()
		a.turns.charge(peer, n)
		a.takeLocked(n)
		return nil
	}
	next = a.turns.join(peer, n)
	if a.timer == nil {
		a.timer = time.AfterFunc(a.dueLocked(), func() { a.serve(time.Now()) })
	}
	return next
}

// leave ends waiting.
func (a *allowance) leave(peer string, next chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turns.leave(peer, next)
}

// serve lets those go on for whom there is something in store.
func (a *allowance) serve(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fillLocked(now)
	for a.turns.waiting > 0 && a.level >= 0 {
		a.takeLocked(a.turns.next())
	}
	a.timer = nil
	if a.turns.waiting > 0 {
		a.timer = time.AfterFunc(a.dueLocked(), func() { a.serve(time.Now()) })
	}
}

func (a *allowance) takeLocked(n int) {
	if n > 0 {
		a.note(n)
	}
	a.level -= float64(n)
}

// dueLocked is how long the store is empty.
func (a *allowance) dueLocked() time.Duration {
	return time.Duration(max(-a.level, 0)/a.rate*float64(time.Second)) + 1
}

// urgentBytes is what a write has at most that waits for no cap, but counts: tokens, pings, acknowledgements.
const urgentBytes = 4 << 10

// capped returns a stream that keeps to the caps.
func (c *caps) capped(s stream) stream {
	if c.up == nil && c.down == nil {
		return s
	}
	return &cappedStream{stream: s, caps: c, ended: make(chan struct{})}
}

// cappedStream is a stream that is slowed down. What it waits for a cap doesn't count towards its deadlines: it would seem to be dead.
type cappedStream struct {
	stream
	caps  *caps
	once  sync.Once
	ended chan struct{} // closed by Close and Reset
	owed  atomic.Int64  // bytes of the latest Read, which the next one waits for: before it nobody knows how many will come

	mu          sync.Mutex
	read, write time.Time // deadlines
}

// Read implements io.Reader.
func (s *cappedStream) Read(b []byte) (int, error) {
	a := s.caps.down
	if a == nil {
		return s.stream.Read(b)
	}
	if n := int(s.owed.Swap(0)); n > 0 {
		if err := s.wait(a, n, &s.read, s.stream.SetReadDeadline); err != nil {
			return 0, err
		}
	}
	n, err := s.stream.Read(b[:min(len(b), a.piece())])
	s.owed.Store(int64(n))
	return n, err
}

// Write implements io.Writer.
func (s *cappedStream) Write(b []byte) (n int, err error) {
	a := s.caps.up
	if a == nil {
		return s.stream.Write(b)
	}
	if len(b) <= urgentBytes {
		a.draw(s.Peer(), len(b), time.Now())
		return s.stream.Write(b)
	}
	for len(b) > 0 {
		k := min(len(b), a.piece())
		if err := s.wait(a, k, &s.write, s.stream.SetWriteDeadline); err != nil {
			return n, err
		}
		some, err := s.stream.Write(b[:k])
		n, b = n+some, b[some:]
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// wait waits until n bytes may go, and puts off a deadline by that.
func (s *cappedStream) wait(a *allowance, n int, deadline *time.Time, set func(time.Time) error) error {
	s.mu.Lock()
	was := *deadline
	s.mu.Unlock()
	began := time.Now()
	next := a.ask(s.Peer(), n, began)
	if next == nil {
		return nil
	}
	select {
	case <-next:
	case <-s.ended:
		a.leave(s.Peer(), next)
		return net.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if was.IsZero() || !deadline.Equal(was) {
		return nil
	}
	*deadline = was.Add(time.Since(began))
	return set(*deadline)
}

// SetReadDeadline implements net.Conn.
func (s *cappedStream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = t
	return s.stream.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (s *cappedStream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write = t
	return s.stream.SetWriteDeadline(t)
}

// Close implements io.Closer.
func (s *cappedStream) Close() error {
	s.once.Do(s.end)
	return s.stream.Close()
}

// Reset ends the stream at once.
func (s *cappedStream) Reset() error {
	s.once.Do(s.end)
	return s.stream.Reset()
}

func (s *cappedStream) end() {
	close(s.ended)
	if n := s.owed.Swap(0); n > 0 {
		s.caps.down.draw(s.Peer(), int(n), time.Now())
	}
}
