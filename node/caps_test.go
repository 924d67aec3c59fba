package node

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

func TestAllowance(t *testing.T) {
	var noted int
	a := newAllowance(1<<20, func(n int) { noted += n })
	now := time.Unix(1, 0)
	for i, c := range []struct {
		take int
		wait time.Duration
	}{
		{1 << 18, 0}, // what a quarter of a second gives is in store
		{1 << 19, 0},
		{1 << 19, time.Second / 2},
		{0, time.Second},
	} {
		if got := a.take(c.take, now); got != c.wait {
			t.Errorf("taking %d, number %d, waits for %v, not %v", c.take, i, got, c.wait)
		}
	}
	if got := a.take(0, now.Add(time.Second)); got != 0 {
		t.Errorf("a second later one waits for %v", got)
	}
	if want := 1<<18 + 1<<20; noted != want {
		t.Errorf("torrents heard of %d bytes, not %d", noted, want)
	}
	if newAllowance(0, nil) != nil {
		t.Error("no cap is one")
	}
}

// plainStream takes everything and has endless zeros.
type plainStream struct {
	mu          sync.Mutex
	read, write time.Time // deadlines
	sizes       []int     // of writes
}

func (s *plainStream) Read(b []byte) (int, error) { return len(b), nil }
func (s *plainStream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes = append(s.sizes, len(b))
	return len(b), nil
}
func (s *plainStream) SetReadDeadline(t time.Time) error  { s.read = t; return nil }
func (s *plainStream) SetWriteDeadline(t time.Time) error { s.write = t; return nil }
func (s *plainStream) Close() error                       { return nil }
func (s *plainStream) CloseWrite() error                  { return nil }
func (s *plainStream) Reset() error                       { return nil }
func (s *plainStream) Peer() string                       { return "peer" }
func (s *plainStream) Reserve(int) error                  { return nil }
func (s *plainStream) Release(int)                        {}

// A stream goes no faster than its cap, its deadlines are put off by what it waits, small frames pass, and its end ends waiting.
func TestCappedStream(t *testing.T) {
	c := newCaps(leastCap, leastCap, func(int, int) {})
	below := &plainStream{}
	s := c.capped(below)
	deadline := time.Now().Add(time.Hour)
	for _, err := range []error{s.SetWriteDeadline(deadline), s.SetReadDeadline(deadline)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if n, err := s.Write(make([]byte, leastCap/2)); n != leastCap/2 || err != nil {
		t.Fatal(n, err)
	}
	piece := c.up.piece()
	if took, least := time.Since(began), time.Second/4-time.Second/16; took < least-10*time.Millisecond {
		t.Errorf("half a second's bytes, of which a quarter was in store, went in %v", took)
	}
	if slices.Max(below.sizes) > piece {
		t.Errorf("pieces of %d bytes, not %d", slices.Max(below.sizes), piece)
	}
	if !below.write.After(deadline) || !below.read.Equal(deadline) {
		t.Errorf("the deadlines are %v and %v later", below.write.Sub(deadline), below.read.Sub(deadline))
	}
	began = time.Now()
	for n := 0; n < leastCap/2; {
		some, err := s.Read(make([]byte, leastCap))
		if err != nil {
			t.Fatal(err)
		}
		n += some
	}
	if took, least := time.Since(began), time.Second/4-time.Second/16; took < least-10*time.Millisecond {
		t.Errorf("half a second's bytes came in %v", took)
	}
	if !below.read.After(deadline) {
		t.Error("the deadline of reads stands")
	}

	c.up.take(leastCap*3600, time.Now()) // an hour to wait
	if n, err := s.Write(make([]byte, urgentBytes)); n != urgentBytes || err != nil {
		t.Errorf("a small frame: %d, %v", n, err)
	}
	time.AfterFunc(20*time.Millisecond, func() { s.Reset() })
	if _, err := s.Write(make([]byte, urgentBytes+1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// Sessions whose nodes have long used up their caps are slow, and give the same answers. What they send is taken from what torrents may.
func TestCappedSession(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	layers := tn.layers()
	capped := func(c *Config) { c.MaxUpload, c.MaxDownload = leastCap, leastCap }
	first, last, client := tn.start(capped), tn.start(capped), tn.start(func(c *Config) { c.Client = true })
	tn.serve(first, id, 0, layers-1)
	tn.serve(last, id, layers-1, layers)
	ctx := testContext(t)
	answer := func() []int32 {
		var tokens []int32
		_, err := tn.run(ctx, client, id, control.Constraints{Shape: "pipelined"}, func(ev control.Event) error {
			if ev.Kind == "token" {
				tokens = append(tokens, ev.Token)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	eventually(t, "two offers", func() bool { _ = client.host.Refresh(ctx); p, _ := client.planPeers(id); return len(p) == 2 })
	free := answer()
	for _, n := range []*Node{first, last} {
		for _, a := range []*allowance{n.caps.up, n.caps.down} {
			a.take(leastCap, time.Now()) // a second to wait
		}
	}
	if slow := answer(); !slices.Equal(slow, free) {
		t.Errorf("slowed down it answers %v, not %v", slow, free)
	}
	st, err := first.Control().Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if v := st.Terms; v.MaxUpload != leastCap || v.SessionSent == 0 || v.SessionReceived == 0 || v.Sent < v.SessionSent || v.Received < v.SessionReceived {
		t.Errorf("the status says %+v", v)
	}
}
