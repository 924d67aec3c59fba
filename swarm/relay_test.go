package swarm

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"
)

// behind starts a node that can't be dialled, and waits until relay has a place for it.
func behind(t *testing.T, info *Info, relay *Host, n node) *Host {
	t.Helper()
	change := n.change
	n.listen, n.boot = []string{}, relay.Addrs()
	n.change = func(c *Config) {
		c.Reachability = ReachPrivate
		if change != nil {
			change(c)
		}
	}
	h := startNode(t, info, n)
	tag := "relay-reservation" // as the relay marks who has a place
	eventually(t, func() string {
		if info := relay.lp.ConnManager().GetTagInfo(mustPeer(t, h.ID())); info == nil || info.Tags[tag] == 0 {
			return "no place with the relay"
		}
		return ""
	})
	return h
}

// knows tells h to dial peer through relay. On loopback peers find no such
// addresses by themselves: relays tell of public ones only.
func knows(t *testing.T, h, relay, peer *Host) {
	t.Helper()
	for _, s := range relay.Addrs() {
		a, err := ma.NewMultiaddr(s + "/p2p-circuit")
		if err != nil {
			t.Fatal(err)
		}
		h.lp.Peerstore().AddAddr(mustPeer(t, peer.ID()), a, peerstore.PermanentAddrTTL)
	}
}

func asRelay(mode RelayMode) func(*Config) {
	return func(c *Config) { c.Reachability, c.Relay = ReachPublic, mode }
}

// carry sends n bytes to an echo and reads them back.
func carry(t *testing.T, h *Host, peer PeerID, n int64) error {
	t.Helper()
	s, err := h.Open(testCtx(t), peer, echoProtocol)
	if err != nil {
		return err
	}
	defer s.Close()
	s.SetDeadline(time.Now().Add(patience))
	go func() {
		io.CopyN(s, zeros{}, n)
		s.CloseWrite()
	}()
	got, err := io.Copy(io.Discard, s)
	if err == nil && got != n {
		t.Errorf("of %d bytes %d came back", n, got)
	}
	return err
}

// Members of a private swarm that can't be dialled are reached through one that
// can, which lets through whatever they send. What stands between is a member's
// certificate, on that way as on any other.
func TestRelayedMembers(t *testing.T) {
	t.Parallel()
	p := newPrivateWith(t, asRelay(""))
	member := func() *Host {
		dir := t.TempDir()
		id, err := LoadIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		info, err := joins(t, id, p.invite(t, RoleMember, time.Hour), dir)
		if err != nil {
			t.Fatal(err)
		}
		return behind(t, info, p.owner, node{dir: dir, id: id})
	}
	a, b := member(), member()
	serveEcho(a)
	knows(t, b, p.owner, a)
	eventually(t, func() string {
		if err := carry(t, b, a.ID(), 4<<20); err != nil {
			return err.Error()
		}
		return ""
	})
	if via := b.Relay(a.ID()); via != p.owner.ID() {
		t.Errorf("a is reached through %q", via)
	}
	if via := a.Relay(b.ID()); via != p.owner.ID() {
		t.Errorf("a sees b through %q", via)
	}
	if err := b.members.admits(a.ID()); err != nil {
		t.Errorf("relayed without a certificate: %v", err)
	}
	if via := b.Relay(p.owner.ID()); via != "" {
		t.Errorf("the relay itself is reached through %q", via)
	}

	// Revoked, it has neither a place nor a way.
	if err := p.owner.Revoke(a.ID()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if b.Relay(a.ID()) != "" {
			return "the revoked is still reached"
		}
		return ""
	})
	if rights := (relayRights{p.owner.members}); rights.AllowReserve(mustPeer(t, a.ID()), nil) || rights.AllowConnect(mustPeer(t, b.ID()), nil, mustPeer(t, a.ID())) {
		t.Error("the relay still serves the revoked")
	}
	if err := carry(t, b, a.ID(), 1); err == nil {
		t.Error("a stream to the revoked opens")
	}
}

// A stranger's relay carries what it takes to find a direct way, and says no to
// more; told so, it carries all.
func TestRelayedStrangers(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	for _, mode := range []RelayMode{RelayAuto, RelayAll} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			relay := startNode(t, info, node{change: asRelay(mode)})
			a, b := behind(t, info, relay, node{}), behind(t, info, relay, node{})
			serveEcho(a)
			knows(t, b, relay, a)
			if mode == RelayAll {
				eventually(t, func() string {
					if err := carry(t, b, a.ID(), 4<<20); err != nil {
						return err.Error()
					}
					return ""
				})
				return
			}
			eventually(t, func() string {
				err := carry(t, b, a.ID(), 1)
				if err == nil || !strings.Contains(err.Error(), "--relay all") {
					return "no word about the relay's limits"
				}
				return ""
			})
			for _, h := range b.Connected() {
				if h == a.ID() {
					t.Error("a relay with limits counts as a connection")
				}
			}
		})
	}
}

// A node that is told to relays nothing.
func TestRelayOff(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	off := startNode(t, info, node{change: asRelay(RelayOff)})
	on := startNode(t, info, node{boot: off.Addrs(), change: asRelay(RelayAuto)})
	const hop = "/libp2p/circuit/relay/0.2.0/hop"
	serves := func(h *Host) bool {
		for _, p := range h.lp.Mux().Protocols() {
			if p == hop {
				return true
			}
		}
		return false
	}
	eventually(t, func() string {
		if !serves(on) {
			return "a public node relays nothing"
		}
		return ""
	})
	if serves(off) {
		t.Error("a node relays that mustn't")
	}
	eventually(t, func() string {
		if on.Reachability() != ReachPublic {
			return "it doesn't know what it was told"
		}
		return ""
	})
}

func TestRelayedOnly(t *testing.T) {
	t.Parallel()
	via := "/ip4/1.2.3.4/tcp/1/p2p/" + Ephemeral().ID() + "/p2p-circuit"
	for _, c := range []struct {
		addrs []string
		want  bool
	}{
		{nil, false},
		{[]string{"/ip4/10.0.0.1/tcp/1"}, false},
		{[]string{"/ip4/10.0.0.1/tcp/1", via}, true},
		{[]string{"garbage", via}, true},
		{[]string{"/ip4/1.2.3.4/tcp/1", via}, false},
	} {
		if got := (&Offer{Addrs: c.addrs}).RelayedOnly(); got != c.want {
			t.Errorf("%v: %v", c.addrs, got)
		}
	}
}

// Nodes that have IPv6 only, and one that has both, are one swarm.
func TestIPv6(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	} else {
		l.Close()
	}
	six := []string{"/ip6/::1/tcp/0", "/ip6/::1/udp/0/quic-v1"}
	boot := startNode(t, info, node{listen: append(six[:2:2], both...)})
	only := func(version string, h *Host) (addrs []string) {
		for _, a := range h.Addrs() {
			if strings.HasPrefix(a, "/"+version+"/") {
				addrs = append(addrs, a)
			}
		}
		return addrs
	}
	a := startNode(t, info, node{listen: six, boot: only("ip6", boot)})
	b := startNode(t, info, node{listen: six[1:], boot: only("ip6", boot)})
	c := startNode(t, info, node{listen: both, boot: only("ip4", boot)})
	for _, h := range []*Host{boot, a, b, c} {
		serveEcho(h)
		h.SetOffers([]Offer{testOffer(1, 0, 5)})
	}
	mustEcho(t, a, boot.ID(), "six")
	mustEcho(t, c, boot.ID(), "four")
	// a and b meet by what boot has told, without an address from hand.
	mustEcho(t, a, b.ID(), "six to six")
	mustEcho(t, b, a.ID(), "and back")
}
