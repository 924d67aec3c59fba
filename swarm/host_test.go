package swarm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestStreams(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string][]string{"tcp": tcpOnly, "quic": quicOnly} {
		t.Run(name, func(t *testing.T) {
			info := publicSwarm(t)
			a := startNode(t, info, node{listen: listen})
			b := startNode(t, info, node{listen: listen, boot: a.Addrs()})
			serveEcho(a)
			ctx := testCtx(t)
			mustEcho(t, b, a.ID(), strings.Repeat("hello", 100_000))
			if _, err := b.Open(ctx, a.ID(), "/starling/nothing/1"); !errors.Is(err, ErrNoProtocol) {
				t.Errorf("opening an unknown protocol: %v", err)
			}
			if _, err := b.Open(ctx, b.ID(), echoProtocol); err == nil {
				t.Error("a node opened a stream to itself")
			}
			if _, err := b.Open(ctx, "nobody", echoProtocol); err == nil {
				t.Error("a stream to a peer ID that is none")
			}
			stranger := Ephemeral().ID()
			if _, err := b.Open(ctx, stranger, echoProtocol); err == nil || !containsAll(err.Error(), stranger, "no address") {
				t.Errorf("opening a stream to an unknown peer: %v", err)
			}
			eventually(t, func() string {
				if b.RTT(a.ID()) <= 0 {
					return "no round-trip time"
				}
				return ""
			})
		})
	}
}

func TestListenerIsANetListener(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	a := startNode(t, info, node{})
	b := startNode(t, info, node{boot: a.Addrs()})
	l := a.Listener("/starling/test-listen/1")
	if l.Addr().String() != a.ID() || l.Addr().Network() != "starling" {
		t.Errorf("listener's address is %s/%s", l.Addr().Network(), l.Addr())
	}
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(patience))
		text, _ := io.ReadAll(c)
		got <- c.RemoteAddr().String() + " " + string(text)
	}()
	s, err := b.Open(testCtx(t), a.ID(), "/starling/test-listen/1")
	if err != nil {
		t.Fatal(err)
	}
	var c net.Conn = s
	io.WriteString(c, "ping")
	c.Close()
	if want, have := b.ID()+" ping", <-got; have != want {
		t.Errorf("accepted %q, want %q", have, want)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	eventually(t, func() string {
		s, err := b.Open(testCtx(t), a.ID(), "/starling/test-listen/1")
		if err != nil {
			return ""
		}
		defer s.Close()
		s.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := s.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
			return ""
		}
		return "the protocol outlives its listener"
	})
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	a := startNode(t, info, node{})
	b := startNode(t, info, node{boot: a.Addrs()})
	a.Handle("/starling/test-silent/1", func(s *Stream) { defer s.Reset(); io.Copy(io.Discard, s) })
	s, err := b.Open(testCtx(t), a.ID(), "/starling/test-silent/1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	s.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err = s.Read(make([]byte, 1))
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("Read past its deadline: %v", err)
	}
}

// A bootstrap node is all that three others know; they find each other.
func TestDiscoveryThroughOneBootstrap(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{change: func(c *Config) { c.Tracker = true }})
	var all []*Host
	for range 3 {
		all = append(all, startNode(t, info, node{boot: boot.Addrs()}))
	}
	key := [32]byte{1}
	all[2].Announce(key)
	serveEcho(all[1])
	eventually(t, func() string {
		found, err := all[0].Lookup(context.Background(), key, 5)
		if err != nil {
			return err.Error()
		}
		if !slices.Equal(found, []PeerID{all[2].ID()}) {
			return "announcement not found"
		}
		for _, h := range all {
			if len(h.Connected()) < 3 {
				return "not everyone has met"
			}
		}
		return ""
	})
	mustEcho(t, all[0], all[1].ID(), "x")
	eventually(t, func() string {
		if got := all[0].knownTrackers(); !slices.Equal(got, []PeerID{boot.ID()}) {
			return "the tracker isn't known as one"
		}
		return ""
	})
}

// Eight nodes start together, then half of them, the bootstrap node among
// them, disappear: the rest is one swarm still.
func TestHalfTheSwarmDisappears(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	all := []*Host{boot}
	for range 7 {
		all = append(all, startNode(t, info, node{boot: boot.Addrs()}))
	}
	eventually(t, func() string {
		for _, h := range all {
			if len(h.Connected()) < len(all)-1 {
				return "not everyone has met"
			}
		}
		return ""
	})
	key := [32]byte{2}
	for i, h := range all[:4] {
		if i%2 == 0 {
			h.Close()
		} else {
			h.lp.Close() // without a word
		}
	}
	left := all[4:]
	left[0].Announce(key)
	serveEcho(left[0])
	for _, h := range left[1:] {
		eventually(t, func() string {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			found, err := h.Lookup(ctx, key, 3)
			if err != nil {
				return err.Error()
			}
			if !slices.Contains(found, left[0].ID()) {
				return "the announcement isn't found"
			}
			return ""
		})
		mustEcho(t, h, left[0].ID(), "x")
	}
}

func TestDeadBootstrap(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	// Hold an address for a node that comes up late, and take one that never will.
	ip := ownLoopback()
	late, err := net.Listen("tcp4", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	lateID := Ephemeral()
	lateListen := fmt.Sprintf("/ip4/%s/tcp/%d", ip, late.Addr().(*net.TCPAddr).Port)
	dead := []string{
		"/ip4/127.0.0.1/tcp/1/p2p/" + Ephemeral().ID(),
		"/ip6/::1/tcp/1/p2p/" + Ephemeral().ID(),
		lateListen + "/p2p/" + lateID.ID(),
	}
	began := time.Now()
	h := startNode(t, info, node{boot: dead})
	if took := time.Since(began); took >= attemptLimit { // nobody answers yet on the late one's address
		t.Errorf("Start took %v", took)
	}
	tried := make(chan struct{})
	go func() {
		defer close(tried)
		for range 2 { // attempts that fail
			c, err := late.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		}
	}()
	<-tried
	if err := h.Refresh(testCtx(t)); err == nil {
		t.Error("Refresh without anyone to ask succeeds")
	}
	late.Close()
	startNode(t, info, node{id: lateID, listen: []string{lateListen}})
	eventually(t, func() string {
		if !slices.Contains(h.Connected(), lateID.ID()) {
			return "the late bootstrap node isn't found"
		}
		return ""
	})
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	pub := publicSwarm(t)
	id := Ephemeral()
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no identity":       {Config{Swarm: pub}, "identity"},
		"no swarm":          {Config{Identity: id}, "no swarm"},
		"client tracker":    {Config{Identity: id, Swarm: pub, Client: true, Tracker: true}, "tracker"},
		"bootstrap no peer": {Config{Identity: id, Swarm: pub, Bootstrap: []string{"/ip4/127.0.0.1/tcp/1"}}, "/p2p/"},
		"bootstrap garbage": {Config{Identity: id, Swarm: pub, Bootstrap: []string{"127.0.0.1:4141"}}, "127.0.0.1:4141"},
		"bad listen":        {Config{Identity: id, Swarm: pub, Listen: []string{"localhost"}}, "localhost"},
		"bad swarm ID":      {Config{Identity: id, Swarm: &Info{ID: "../x", Name: "x", Public: true}}, "../x"},
		"private, no dir":   {Config{Identity: id, Swarm: &Info{ID: privateID(id.ID()), Owner: id.ID(), Name: "x"}}, "data folder"},
		"private, stranger": {Config{Identity: id, Dir: t.TempDir(), Swarm: &Info{ID: privateID(id.ID()), Owner: id.ID(), Name: "x"}}, "join with an invite"},
		"private, not hers": {Config{Identity: id, Dir: t.TempDir(), Swarm: &Info{ID: privateID("x"), Owner: id.ID(), Name: "x"}}, "owner"},
	} {
		h, err := Start(context.Background(), c.cfg)
		if err == nil {
			h.Close()
			t.Errorf("%s: Start succeeds", name)
		} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %q lacks %q or has several lines", name, err, c.want)
		}
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Start(context.Background(), Config{Identity: Ephemeral(), Swarm: publicSwarm(t),
		Listen: []string{"/ip4/127.0.0.1/tcp/" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}})
	if err == nil || !containsAll(err.Error(), "in use") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error for a port in use: %v", err)
	}
}

func TestOnDisconnect(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	a := startNode(t, info, node{})
	gone := make(chan PeerID, 4)
	a.OnDisconnect(func(p PeerID) { gone <- p })
	b := startNode(t, info, node{boot: a.Addrs()})
	eventually(t, func() string {
		if len(a.Connected()) == 0 {
			return "no connection"
		}
		return ""
	})
	b.Close()
	select {
	case p := <-gone:
		if p != b.ID() {
			t.Errorf("%s is said to be gone, not %s", p, b.ID())
		}
	case <-time.After(patience):
		t.Error("nobody was said to be gone")
	}
	if err := b.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestClientListensNowhere(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	a := startNode(t, info, node{})
	serveEcho(a)
	c := startNode(t, info, node{boot: a.Addrs(), change: func(c *Config) { c.Client, c.Listen = true, nil }})
	if len(c.Addrs()) != 0 {
		t.Errorf("a client listens on %v", c.Addrs())
	}
	mustEcho(t, c, a.ID(), "x")
	c.SetOffers([]Offer{{Model: [32]byte{1}, Last: 1}})
	refreshed(t, c)
	if len(a.Offers())+len(c.Offers()) != 0 {
		t.Error("a client made an offer")
	}
}
