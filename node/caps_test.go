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
	goes := func(next chan struct{}) bool {
		select {
		case <-next:
			return true
		default:
			return next == nil
		}
	}
	if !goes(a.ask("a", 1<<18, now)) || !goes(a.ask("a", 1<<19, now)) { // what a quarter of a second gives is in store
		t.Fatal("there was something in store")
	}
	third := a.ask("a", 1<<19, now)
	a.timer.Stop() // this test has the clock
	if goes(third) {
		t.Fatal("the store is empty")
	}
	a.draw("a", 1<<18, now) // what is urgent waits for nothing, and counts
	if a.serve(now.Add(3*time.Second/4 - time.Millisecond)); goes(third) {
		t.Error("it goes on before there is something")
	}
	a.timer.Stop()
	if a.serve(now.Add(3*time.Second/4 + time.Millisecond)); !goes(third) {
		t.Error("it waits for what is there")
	}
	if a.timer != nil {
		t.Error("nobody waits, and a timer runs")
	}
	if want := 1<<19 + 1<<20; noted != want {
		t.Errorf("torrents heard of %d bytes, not %d", noted, want)
	}
	if newAllowance(0, nil) != nil {
		t.Error("no cap is one")
	}
}

// A peer that sends on twenty streams gets what one with a single stream gets, and what a third, who comes later, gets from then on.
func TestFairTurns(t *testing.T) {
	const piece = 1000
	var u turns
	u.lead = 100 * piece
	got := map[string]int{}
	var queued []struct {
		peer string
		next chan struct{}
	}
	join := func(peer string) {
		queued = append(queued, struct {
			peer string
			next chan struct{}
		}{peer, u.join(peer, piece)})
	}
	serve := func(n int) {
		for range n {
			got["all"] += u.next()
			for i := range queued {
				select {
				case <-queued[i].next:
					peer := queued[i].peer
					got[peer] += piece
					queued = slices.Delete(queued, i, i+1)
					join(peer)
				default:
					continue
				}
				break
			}
		}
	}
	for range 20 {
		join("many")
	}
	join("one")
	serve(100)
	if got["many"] != 50*piece || got["one"] != 50*piece {
		t.Errorf("of 100 pieces: %v", got)
	}
	join("late")
	clear(got)
	serve(99)
	for _, p := range []string{"many", "one", "late"} {
		if got[p] < 32*piece || got[p] > 34*piece {
			t.Errorf("of 99 pieces: %v", got)
			break
		}
	}
	// What waits for no turn is counted, up to a bound.
	for range 1000 {
		u.charge("one", piece)
	}
	clear(got)
	serve(190)
	if got["one"] != 0 {
		t.Errorf("who has had 100 pieces more got %v", got)
	}
	serve(300)
	if got["one"] < 90*piece {
		t.Errorf("long after it was ahead: %v", got)
	}
	// Those who leave are out, and those who were served are forgotten.
	for _, q := range queued {
		if q.peer != "one" {
			u.leave(q.peer, q.next)
		}
	}
	if u.leave("nobody", nil); u.waiting != 1 {
		t.Errorf("%d wait", u.waiting)
	}
	u.next()
	u.join("last", piece)
	u.next()
	if u.waiting != 0 || len(u.peers) > 4 {
		t.Errorf("%d wait of %d peers", u.waiting, len(u.peers))
	}
	if u.idle(); len(u.peers) != 0 {
		t.Error("somebody is remembered")
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
	began = time.Now() // the last read's bytes are waited for by the next one
	for n := 0; n < leastCap/2; {
		some, err := s.Read(make([]byte, leastCap))
		if err != nil {
			t.Fatal(err)
		}
		n += some
	}
	if took, least := time.Since(began), time.Second/4-time.Second/8; took < least-10*time.Millisecond {
		t.Errorf("half a second's bytes came in %v", took)
	}
	if !below.read.After(deadline) {
		t.Error("the deadline of reads stands")
	}

	c.up.draw("peer", leastCap*3600, time.Now()) // an hour to wait
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
			a.draw("somebody", leastCap, time.Now()) // a second to wait
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
	} else if i := slices.IndexFunc(v.Peers, func(p control.PeerUse) bool { return p.Peer == client.ID() }); i < 0 || v.Peers[i].Streams > v.StreamsPerPeer || v.Peers[i].Received == 0 {
		t.Errorf("the status says of peers %+v", v.Peers)
	}
}
