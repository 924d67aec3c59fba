package node

import (
	"net"
	"sync"
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

// allowance is one direction's store of bytes. It fills at its rate, and may be drawn below empty: who comes next waits.
type allowance struct {
	rate float64 // bytes per second
	note func(n int)

	mu    sync.Mutex
	level float64 // bytes in store, as of at
	at    time.Time
}

func newAllowance(rate int64, note func(int)) *allowance {
	if rate == 0 {
		return nil
	}
	return &allowance{rate: float64(rate), note: note}
}

// piece is how many bytes go at once: so few that a peer hears of this node many times a second, however low the cap.
func (a *allowance) piece() int { return int(min(a.rate/16, writeStep)) }

// take draws n bytes, and returns how long to wait until the store is no longer empty.
func (a *allowance) take(n int, now time.Time) time.Duration {
	if n > 0 {
		a.note(n)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.level = min(a.rate/4, a.level+max(now.Sub(a.at), 0).Seconds()*a.rate)
	a.at = now
	debt := max(-a.level, 0)
	a.level -= float64(n)
	return time.Duration(debt / a.rate * float64(time.Second))
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

	mu          sync.Mutex
	read, write time.Time // deadlines
}

// Read implements io.Reader.
func (s *cappedStream) Read(b []byte) (int, error) {
	a := s.caps.down
	if a == nil {
		return s.stream.Read(b)
	}
	if err := s.wait(a.take(0, time.Now()), &s.read, s.stream.SetReadDeadline); err != nil {
		return 0, err
	}
	n, err := s.stream.Read(b[:min(len(b), a.piece())])
	a.take(n, time.Now())
	return n, err
}

// Write implements io.Writer.
func (s *cappedStream) Write(b []byte) (n int, err error) {
	a := s.caps.up
	if a == nil {
		return s.stream.Write(b)
	}
	urgent := len(b) <= urgentBytes
	for len(b) > 0 {
		k := min(len(b), a.piece())
		if wait := a.take(k, time.Now()); !urgent {
			if err := s.wait(wait, &s.write, s.stream.SetWriteDeadline); err != nil {
				return n, err
			}
		}
		some, err := s.stream.Write(b[:k])
		n, b = n+some, b[some:]
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// wait waits, and puts off a deadline by that.
func (s *cappedStream) wait(d time.Duration, deadline *time.Time, set func(time.Time) error) error {
	if d <= 0 {
		return nil
	}
	s.mu.Lock()
	was := *deadline
	s.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ended:
		return net.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if was.IsZero() || !deadline.Equal(was) {
		return nil
	}
	*deadline = was.Add(d)
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
	s.once.Do(func() { close(s.ended) })
	return s.stream.Close()
}

// Reset ends the stream at once.
func (s *cappedStream) Reset() error {
	s.once.Do(func() { close(s.ended) })
	return s.stream.Reset()
}
