package ledbat

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Frames are a header, u8 kind and u32 value (little endian), and for data as many bytes as the value says.
const (
	kindData  = iota // the value is the number of bytes, maxFrame at most
	kindAsk          // the same; the sender waits for the acknowledgement
	kindTaken        // the value is how many bytes of data have been read since the last one
	kindBusy         // the same, of one who is busy
)

const (
	headBytes = 5
	maxFrame  = 64 << 10
	ackEvery  = 256 << 10 // bytes read, at the latest
)

// Conn is a net.Conn over another one whose other end is a Conn, too. Its Read must be called for its Write to get on.
type Conn struct {
	net.Conn
	busy func() bool

	head [headBytes]byte // being read
	got  int             // bytes of head
	left int             // bytes of data behind it
	ask  bool            // … whose acknowledgement is waited for

	writing sync.Mutex // held through a Write, so that two don't mix
	frame   sync.Mutex // held while a frame is written
	buf     []byte     // under frame

	mu       sync.Mutex
	turn     *sync.Cond  // of Writes that wait
	sent     int64       // bytes of data
	acked    int64       // of them
	window   *window     // nil: nobody is busy
	log      []departure // ascending: frames sent since somebody is
	peerBusy bool
	closed   bool
	deadline time.Time // of Writes
	expiry   *time.Timer
	taken    int // bytes read and not acknowledged
	due      bool
	acking   bool // routineAck runs
	told     bool // that this end is busy
}

// departure is when the last byte before a position was sent.
type departure struct {
	end int64
	at  time.Time
}

// New returns a Conn over conn. busy, which must be quick, says whether this end has something that bulk data must not delay; each
// end tells the other.
func New(conn net.Conn, busy func() bool) *Conn {
	c := &Conn{Conn: conn, busy: busy}
	c.turn = sync.NewCond(&c.mu)
	return c
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for c.left == 0 {
		if err := c.readHead(); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	c.note(n)
	if err == io.EOF && c.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readHead reads a header, and does what it says. A deadline may pass in its middle.
func (c *Conn) readHead() error {
	for c.got < headBytes {
		n, err := c.Conn.Read(c.head[c.got:])
		if c.got += n; err == io.EOF && c.got > 0 {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	c.got = 0
	kind, value := c.head[0], binary.LittleEndian.Uint32(c.head[1:])
	switch {
	case kind <= kindAsk && value > 0 && value <= maxFrame:
		c.left, c.ask = int(value), kind == kindAsk
		return nil
	case kind == kindTaken || kind == kindBusy:
		return c.onTaken(int64(value), kind == kindBusy)
	}
	return fmt.Errorf("ledbat: frame of kind %d and value %d", kind, value)
}

// note notes that n bytes have been read, and acknowledges them if that is due.
func (c *Conn) note(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken += n
	c.due = c.due || c.taken >= ackEvery || c.left == 0 && (c.ask || c.busy() != c.told)
	if c.due && !c.acking {
		c.acking = true
		go c.routineAck() // not here: two readers that wait for each other would wait for ever
	}
}

// routineAck writes acknowledgements for as long as some are due.
func (c *Conn) routineAck() {
	for {
		c.mu.Lock()
		n, kind := c.taken, byte(kindTaken)
		if c.acking = c.due && !c.closed; !c.acking {
			c.mu.Unlock()
			return
		}
		c.taken, c.due, c.told = 0, false, c.busy()
		if c.told {
			kind = kindBusy
		}
		c.mu.Unlock()
		if c.write(kind, uint32(n), nil) != nil {
			return // Write finds the same
		}
	}
}

// onTaken takes the other end's acknowledgement.
func (c *Conn) onTaken(n int64, busy bool) error {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > c.sent-c.acked {
		return fmt.Errorf("ledbat: %d bytes acknowledged, %d are under way", n, c.sent-c.acked)
	}
	c.acked += n
	c.peerBusy = busy
	i := 0
	for i < len(c.log) && c.log[i].end <= c.acked {
		i++
	}
	if i > 0 && c.window != nil {
		c.window.acknowledged(c.acked, c.sent, now.Sub(c.log[i-1].at), now)
	}
	c.log = c.log[i:]
	c.turn.Broadcast()
	return nil
}

// Write implements net.Conn. It returns when the last bytes are under way.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for len(b) > 0 {
		some, kind, err := c.await(len(b))
		if err == nil {
			err = c.write(kind, uint32(some), b[:some])
		}
		if err != nil {
			return n, err
		}
		n, b = n+some, b[some:]
	}
	return n, nil
}

// await waits until a frame of n bytes or fewer may be sent, and counts it as under way.
func (c *Conn) await(n int) (some int, kind byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		now := time.Now()
		some = c.chooseLocked(n, now)
		under := c.sent - c.acked
		switch {
		case c.closed:
			return 0, 0, net.ErrClosed
		case !c.deadline.IsZero() && !now.Before(c.deadline):
			return 0, 0, os.ErrDeadlineExceeded
		case c.window == nil && under+int64(some) <= mostWindow:
			c.sent += int64(some)
			return some, kindData, nil
		case c.window != nil && (len(c.log) == 0 || c.window.fits(int64(some), under)): // one frame always asks for an acknowledgement
			c.sent += int64(some)
			c.log = append(c.log, departure{c.sent, now})
			return some, kindAsk, nil
		}
		c.turn.Wait()
	}
}

// chooseLocked returns the size of the next frame, and has a window while somebody is busy.
func (c *Conn) chooseLocked(n int, now time.Time) int {
	if !c.peerBusy && !c.busy() {
		c.window, c.log = nil, nil
		return min(n, maxFrame)
	}
	if c.window == nil {
		c.window = newWindow(now)
	}
	return min(n, c.window.frame())
}

// write writes a frame.
func (c *Conn) write(kind byte, value uint32, data []byte) error {
	c.frame.Lock()
	defer c.frame.Unlock()
	c.buf = append(binary.LittleEndian.AppendUint32(append(c.buf[:0], kind), value), data...)
	_, err := c.Conn.Write(c.buf)
	return err
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.turn.Broadcast()
	c.expireLocked(time.Time{})
	c.mu.Unlock()
	return c.Conn.Close()
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.Conn.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.expireLocked(t)
	c.mu.Unlock()
	return c.Conn.SetWriteDeadline(t)
}

// expireLocked makes Writes that wait give up at t, never if it is zero.
func (c *Conn) expireLocked(t time.Time) {
	c.deadline = t
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiry = nil
	}
	if !t.IsZero() {
		c.expiry = time.AfterFunc(time.Until(t), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.turn.Broadcast()
		})
	}
}

// Listener makes Conns of the connections that another one accepts.
type Listener struct {
	net.Listener
	Busy func() bool // as for New
}

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return New(conn, l.Busy), nil
}
