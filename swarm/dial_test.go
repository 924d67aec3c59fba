package swarm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
)

func TestRankDials(t *testing.T) {
	t.Parallel()
	var addrs []ma.Multiaddr
	for _, s := range []string{
		"/ip4/192.168.1.2/udp/1/quic-v1", "/ip4/8.8.8.8/tcp/1", "/ip4/192.168.1.2/tcp/1",
		"/ip4/8.8.8.8/udp/1/quic-v1", "/ip4/127.0.0.1/tcp/1", "/dns4/example.org/tcp/1",
	} {
		addrs = append(addrs, ma.StringCast(s))
	}
	got := map[string]time.Duration{}
	for _, r := range rankDials(slices.Clone(addrs)) {
		got[r.Addr.String()] = r.Delay
	}
	if len(got) != len(addrs) {
		t.Fatalf("%d of %d addresses are ranked: %v", len(got), len(addrs), got)
	}
	if got["/ip4/192.168.1.2/tcp/1"] != 0 || got["/ip4/127.0.0.1/tcp/1"] != localStep || got["/ip4/192.168.1.2/udp/1/quic-v1"] != localQUIC {
		t.Errorf("local order: %v", got)
	}
	if got["/ip4/8.8.8.8/udp/1/quic-v1"] != 0 || got["/ip4/8.8.8.8/tcp/1"] == 0 {
		t.Errorf("order on the internet: %v", got)
	}
	if r := rankDials(addrs[:1]); len(r) != 1 || r[0].Delay != 0 {
		t.Errorf("QUIC alone: %v", r)
	}
	if r := rankDials(nil); len(r) != 0 {
		t.Errorf("nothing: %v", r)
	}
}

// On loopback a connection runs over TCP where both are offered, unless its handshake takes longer than QUIC waits for it: not each time.
func TestLocalConnectionsUseTCP(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	a := startNode(t, info, node{})
	serveEcho(a)
	eventually(t, func() string {
		b := startNode(t, info, node{boot: a.Addrs()})
		defer b.Close()
		if err := callEcho(testCtx(t), b, a.ID(), "x"); err != nil {
			return err.Error()
		}
		for _, c := range b.lp.Network().ConnsToPeer(a.lp.ID()) {
			if !strings.Contains(c.RemoteMultiaddr().String(), "/tcp/") {
				return fmt.Sprintf("connected over %s", c.RemoteMultiaddr())
			}
			if s := c.ConnState(); s.Security != "/tls/1.0.0" || s.StreamMultiplexer != "/yamux/1.0.0" {
				t.Errorf("connection is %+v", s)
			}
		}
		return ""
	})
}

// Foreign addresses lead to a peer or to one relay, and can't crash a node.
func TestForeignAddrs(t *testing.T) {
	t.Parallel()
	via := "/ip4/1.2.3.4/tcp/1/p2p/" + Ephemeral().ID() + "/p2p-circuit"
	good := []string{"/ip4/1.2.3.4/tcp/1", "/ip4/1.2.3.4", via}
	got := parseAddrs(append(good, "", "garbage", "/p2p-circuit", "/ip4/1.2.3.4/tcp/1/p2p-circuit", via+"/ip4/1.2.3.4/tcp/1",
		via+"/p2p/"+Ephemeral().ID()+"/p2p-circuit", "/p2p/"+Ephemeral().ID()+"/p2p-circuit"))
	if s := addrStrings(got); !slices.Equal(s, good) {
		t.Errorf("kept %v", s)
	}
}

// When the bootstrap node restarts, everyone finds it again, and it them.
func TestBootstrapRestarts(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	id := Ephemeral()
	boot := startNode(t, info, node{id: id, listen: []string{"/ip4/" + ownLoopback() + "/tcp/0"}})
	addrs := boot.Addrs()
	a := startNode(t, info, node{boot: addrs})
	a.SetOffers([]Offer{testOffer(1, 0, 5)})
	wantOffers(t, boot, layersOffered{{a.ID(), 1}: {0, 5}})
	boot.Close()
	again := startNode(t, info, node{id: id, listen: []string{strings.Split(addrs[0], "/p2p/")[0]}})
	wantOffers(t, again, layersOffered{{a.ID(), 1}: {0, 5}})
}

// A node without a living bootstrap node finds its swarm from an earlier run.
func TestRememberedPeers(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	a := startNode(t, info, node{boot: boot.Addrs()})
	dir := t.TempDir()
	b := startNode(t, info, node{dir: dir, boot: boot.Addrs()})
	met := func(h *Host, p PeerID) {
		t.Helper()
		eventually(t, func() string {
			if !slices.Contains(h.Connected(), p) || len(h.lp.Peerstore().Addrs(mustPeer(t, p))) == 0 {
				return "not connected"
			}
			return ""
		})
	}
	met(b, a.ID())
	b.Close()
	boot.Close()
	back := startNode(t, info, node{dir: dir})
	met(back, a.ID())

	// A damaged file costs the memory, not the start.
	back.Close()
	if err := os.WriteFile(back.peersFile(), []byte("\xff\x00 garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	startNode(t, info, node{dir: dir})
}

// A node that has lost everybody, and has no bootstrap node, goes on trying those that it remembers.
func TestLostPeersAreTriedAgain(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	id := Ephemeral()
	a := startNode(t, info, node{id: id, listen: []string{"/ip4/" + ownLoopback() + "/tcp/0"}})
	listen := strings.Split(a.Addrs()[0], "/p2p/")[:1]
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/swarms", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/swarms/"+info.ID+".peers", []byte(a.Addrs()[0]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startNode(t, info, node{dir: dir})
	for range 2 {
		eventually(t, func() string {
			if !slices.Contains(b.Connected(), id.ID()) {
				return "not connected"
			}
			return ""
		})
		a.Close()
		eventually(t, func() string {
			if len(b.Connected()) > 0 {
				return "still connected"
			}
			return ""
		})
		a = startNode(t, info, node{id: id, listen: listen}) // it knows of nobody
	}
	eventually(t, func() string {
		if !slices.Contains(b.Connected(), id.ID()) {
			return "not connected"
		}
		return ""
	})
}

// A private swarm's node that nobody told of others talks to nobody: no mDNS,
// no addresses but its own. What it serves beside Starling's protocols is for
// members: where they can be dialled, and what it takes to punch holes.
func TestNoOutsideContact(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	time.Sleep(300 * time.Millisecond)
	if p.owner.mdns != nil {
		t.Error("mDNS is on")
	}
	for _, proto := range p.owner.lp.Mux().Protocols() {
		known := []string{"/ipfs/ping/1.0.0", "/libp2p/autonat/1.0.0", "/libp2p/circuit/relay/0.2.0/stop", "/libp2p/dcutr"}
		if s := string(proto); !strings.HasPrefix(s, "/starling/") && !strings.HasPrefix(s, "/ipfs/id/") && !slices.Contains(known, s) {
			t.Errorf("protocol %s is served", s)
		}
	}
	if peers := p.owner.lp.Peerstore().PeersWithAddrs(); len(peers) > 1 {
		t.Errorf("addresses of %v are known", peers)
	}
}
