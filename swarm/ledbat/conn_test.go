package ledbat

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// pair returns the two ends of a TCP connection.
func pair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err == nil {
		b, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func never() bool  { return false }
func always() bool { return true }

// copies writes data to one end in pieces of any size and reads it from the other, until that is closed. It closes done when all has come.
func copies(t *testing.T, from, to net.Conn, data []byte) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		for rest := data; len(rest) > 0; {
			n := min(1+rand.IntN(200_000), len(rest))
			if _, err := from.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
	}()
	go func() {
		defer close(done)
		got, buf := make([]byte, 0, len(data)), make([]byte, 100_000)
		for len(got) < len(data) {
			n, err := to.Read(buf[:1+rand.IntN(len(buf))])
			if err != nil {
				t.Error(err)
				return
			}
			got = append(got, buf[:n]...)
		}
		if !bytes.Equal(got, data) {
			t.Error("other bytes came")
		}
		go to.Read(buf) // what its Write needs
	}()
	return done
}

// Bytes come as they were written, both ways at once, whoever is busy, and while that changes.
func TestConn(t *testing.T) {
	var flips atomic.Int64
	for name, busy := range map[string][2]func() bool{
		"idle": {never, never}, "sender busy": {always, never}, "receiver busy": {never, always}, "both busy": {always, always},
		"now and then": {func() bool { return flips.Add(1)/40%2 == 0 }, func() bool { return flips.Load()/64%2 == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			x, y := New(a, busy[0]), New(b, busy[1])
			data := make([]byte, 24<<20)
			for i := range data {
				data[i] = byte(rand.Uint32())
			}
			there, back := copies(t, x, y, data), copies(t, y, x, data[7:5<<20])
			<-there
			<-back
			x.Close()
			if _, err := x.Write(data); err == nil {
				t.Error("wrote to a closed connection")
			}
		})
	}
}

// While somebody is busy, little is under way that nobody reads; else there is more, but no more than mostWindow.
func TestConnBounds(t *testing.T) {
	for _, c := range []struct {
		busy        bool
		least, most int64
	}{{true, leastFrame, firstWindow}, {false, mostWindow - maxFrame, mostWindow}} {
		a, b := net.Pipe()
		x := New(a, func() bool { return c.busy })
		go io.Copy(io.Discard, b) // as a stream that takes what comes, and acknowledges nothing
		done := make(chan error, 1)
		go func() { _, err := x.Write(make([]byte, 2*mostWindow)); done <- err }()
		end := time.Now().Add(10 * time.Second)
		for {
			x.mu.Lock()
			under := x.sent
			x.mu.Unlock()
			if under > c.most {
				t.Fatalf("busy %t: %d bytes are under way", c.busy, under)
			}
			if under >= c.least || time.Now().After(end) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := x.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a Write that waits past its deadline ended with %v", err)
		}
		x.SetDeadline(time.Time{})
		go func() { _, err := x.Write(make([]byte, 2*mostWindow)); done <- err }()
		x.Close()
		b.Close()
		if err := <-done; err == nil {
			t.Error("a Write was complete on a closed connection")
		}
	}
}

// Whoever becomes busy while much is under way that was sent before doesn't wait for an acknowledgement that nobody owes.
func TestConnTurns(t *testing.T) {
	a, b := pair(t)
	var busy atomic.Bool
	x, y := New(a, busy.Load), New(b, never)
	first, second := make([]byte, ackEvery-1), make([]byte, 1<<20)
	done := make(chan error, 1)
	go func() { _, err := io.ReadFull(y, make([]byte, len(first)+len(second))); done <- err }()
	go io.Copy(io.Discard, x)
	for _, part := range [][]byte{first, second} {
		if _, err := x.Write(part); err != nil {
			t.Fatal(err)
		}
		busy.Store(true)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// fromBytes is a connection that gives bytes and takes any.
type fromBytes struct {
	net.Conn
	io.Reader
}

func (f fromBytes) Read(b []byte) (int, error)  { return f.Reader.Read(b) }
func (f fromBytes) Write(b []byte) (int, error) { return len(b), nil }

// FuzzRead reads what a peer may send. It gives the data of its frames or an error, and no acknowledgement is taken for what was not sent.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "\x00\x03\x00\x00\x00abc", "\x01\x01\x00\x00\x00a\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00bc", "\x00\x00\x00\x00\x00", "\x01\x01\x00\x01\x00a",
		"\x02\x05\x00\x00\x00", "\x02\x06\x00\x00\x00", "\x03\xff\xff\xff\xff", "\x04\x01\x00\x00\x00a", "\x00\x03\x00", "\x00\x03\x00\x00\x00ab",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := New(fromBytes{Reader: bytes.NewReader(data)}, always)
		if _, err := c.Write([]byte("12345")); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		want, whole := []byte(nil), true
		sent := 5
		for rest := data; ; {
			if len(rest) < headBytes {
				whole = len(rest) == 0
				break
			}
			kind, n := rest[0], int(rest[1])|int(rest[2])<<8|int(rest[3])<<16|int(rest[4])<<24
			rest = rest[headBytes:]
			if kind > kindBusy || kind <= kindAsk && (n == 0 || n > maxFrame) || kind >= kindTaken && n > sent {
				whole = false
				break
			}
			if kind >= kindTaken {
				sent -= n
				continue
			}
			want = append(want, rest[:min(n, len(rest))]...)
			if n > len(rest) {
				whole = false
				break
			}
			rest = rest[n:]
		}
		if !bytes.Equal(got, want) || (err == nil) != whole {
			t.Errorf("read %q, %v; the frames have %q, whole: %t", got, err, want, whole)
		}
	})
}
