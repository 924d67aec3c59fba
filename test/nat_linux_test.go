package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/swarm"
)

// Addresses look public, since nobody punches holes towards private ones.
//
//	a 10.1.0.2 — NAT 5.9.1.2 — \
//	                            internet 5.9.x.1 — 5.9.3.2 r
//	b 10.2.0.2 — NAT 5.9.2.2 — /
type network struct {
	a, b, r  *space
	internet *space
}

// What a NAT makes of a port, in nft's words. The first keeps it where it can,
// for every destination the same; the second draws another one for each.
const (
	cone      = "masquerade"
	symmetric = "masquerade fully-random"
)

// newNetwork builds it. Both routers let in only what answers something that went out.
func newNetwork(t *testing.T, natA, natB string) *network {
	t.Helper()
	needSpaces(t)
	internet := newSpace(t)
	internet.run("echo 1 > /proc/sys/net/ipv4/ip_forward")
	home := func(n int, nat string) *space {
		router, host := newSpace(t), newSpace(t)
		join(internet, fmt.Sprintf("home%d", n), fmt.Sprintf("5.9.%d.1/24", n), router, "wan", fmt.Sprintf("5.9.%d.2/24", n))
		join(router, "lan", fmt.Sprintf("10.%d.0.1/24", n), host, "eth0", fmt.Sprintf("10.%d.0.2/24", n))
		host.run("ip route add default via 10.%d.0.1", n)
		router.run(`ip route add default via 5.9.%d.1
echo 1 > /proc/sys/net/ipv4/ip_forward
nft -f - <<END
table ip home {
	chain out {
		type nat hook postrouting priority 100;
		oifname "wan" %s
	}
	chain through {
		type filter hook forward priority 0; policy drop;
		iifname "lan" accept
		ct state established,related accept
	}
	chain in {
		type filter hook input priority 0; policy drop;
		ct state established,related accept
	}
}
END`, n, nat)
		return host
	}
	n := &network{a: home(1, natA), b: home(2, natB), r: newSpace(t), internet: internet}
	join(internet, "public", "5.9.3.1/24", n.r, "eth0", "5.9.3.2/24")
	n.r.run("ip route add default via 5.9.3.1")
	return n
}

// process is a node in a namespace.
type process struct {
	*talk
	report
}

// start runs a node until the test ends.
func (s *space) start(name string, cfg childConfig) *process {
	s.t.Helper()
	cfg.Dir = s.t.TempDir()
	p := &process{talk: newTalk(s, name, childEnv, cfg)}
	p.hear(&p.report)
	return p
}

// do has a node do something and returns what came of it.
func (p *process) do(o order) (r report) {
	p.t.Helper()
	p.say(o)
	p.hear(&r)
	return r
}

// must is do for what has to succeed.
func (p *process) must(o order) report {
	p.t.Helper()
	r := p.do(o)
	if r.Error != "" {
		p.t.Fatalf("%s: %s: %s", p.name, o.Do, r.Error)
	}
	return r
}

// until asks for a node's state until ok.
func (p *process) until(peer swarm.PeerID, what string, ok func(report) bool) report {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		r := p.must(order{Do: "state", Peer: peer})
		if ok(r) {
			return r
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s: after %v not %s: %+v", p.name, patience, what, r)
		}
	}
}

// Where nodes listen.
var (
	onTCP  = []string{"/ip4/0.0.0.0/tcp/4077"}
	onQUIC = []string{"/ip4/0.0.0.0/udp/4077/quic-v1"}
	onBoth = append(onTCP[:1:1], onQUIC...)
)

// meeting is two nodes behind NATs that have met by what the third told them.
type meeting struct{ a, b, r *process }

// meet starts the nodes: r, which owns the swarm, then a, and b when a can be reached.
func (n *network) meet(t *testing.T, public bool, listen []string, told swarm.Reachability, relay swarm.RelayMode) *meeting {
	t.Helper()
	m := &meeting{}
	m.r = n.r.start("r", childConfig{Listen: listen, Reachability: swarm.ReachPublic, Relay: relay, Create: true, CreatePublic: public})
	volunteer := func(s *space, name string) *process {
		cfg := childConfig{Listen: listen, Bootstrap: m.r.report.Addrs, Reachability: told, Offers: true}
		if public {
			cfg.Public = m.r.Info
		} else {
			cfg.Invite = m.r.must(order{Do: "invite"}).Invite
		}
		p := s.start(name, cfg)
		r := p.until(m.r.ID, "behind a NAT with an address through the relay", func(r report) bool {
			return r.Reachability == swarm.ReachPrivate && len(circuits(r.Addrs)) > 0
		})
		t.Logf("%s knows after %v that it is behind a NAT: %v", name, r.Took.Round(time.Millisecond), circuits(r.Addrs))
		if limit := 20 * time.Second; told == "" && r.Took > limit {
			t.Errorf("%s knew after %v that it is behind a NAT, which should take less than %v", name, r.Took, limit)
		}
		return p
	}
	m.a = volunteer(n.a, "a")
	m.b = volunteer(n.b, "b")
	return m
}

// circuits returns those addresses that lead through a relay.
func circuits(addrs []string) (through []string) {
	for _, a := range addrs {
		if strings.Contains(a, "/p2p-circuit") {
			through = append(through, a)
		}
	}
	return through
}

// bulk is the cache of a long session, in bytes.
const bulk = 100e6

// Where the NATs allow it, two volunteers are connected directly at once, by
// TCP or by QUIC, and what they send goes that way.
func TestPunching(t *testing.T) {
	for _, c := range []struct {
		name   string
		listen []string
		public bool
		told   swarm.Reachability
	}{
		{"TCP", onTCP, false, swarm.ReachPrivate},
		{"QUIC", onQUIC, false, swarm.ReachPrivate},
		{"found out", onBoth, false, ""},
		{"public swarm", onBoth, true, swarm.ReachPrivate},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var m *meeting
			for tries := 1; ; tries++ { // a busy machine may hold up the packets that must cross
				m = newNetwork(t, cone, cone).meet(t, c.public, c.listen, c.told, "")
				m.b.must(order{Do: "meet", Peer: m.a.ID, Wait: patience - 10*time.Second})
				time.Sleep(50 * time.Millisecond) // it looks every 5 ms
				met := m.b.must(order{Do: "state", Peer: m.a.ID})
				if met.Relay != "" {
					t.Fatalf("a is still reached through %s", met.Relay)
				}
				t.Logf("direct %v after the first connection, round trip %v", met.Sudden.Round(time.Millisecond), met.RTT)
				if met.Sudden <= 3*time.Second {
					break
				}
				if tries == 3 {
					t.Fatalf("the direct connection came %v after the first one", met.Sudden)
				}
			}
			sent := m.b.must(order{Do: "send", Peer: m.a.ID, Bytes: bulk})
			t.Logf("100 MB in %v", sent.Took.Round(time.Millisecond))
		})
	}
}

// Where they don't, whatever two members of a private swarm send each other
// goes through a third.
func TestRelayed(t *testing.T) {
	for _, c := range []struct{ name, natA, natB string }{
		{"symmetric", symmetric, symmetric},
		{"one symmetric", symmetric, cone},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newNetwork(t, c.natA, c.natB).meet(t, false, onBoth, swarm.ReachPrivate, "")
			m.b.must(order{Do: "meet", Peer: m.a.ID})
			for _, way := range []struct{ from, to *process }{{m.b, m.a}, {m.a, m.b}} {
				sent := way.from.must(order{Do: "send", Peer: way.to.ID, Bytes: bulk})
				t.Logf("100 MB from %s to %s in %v through %q, round trip %v", way.from.name, way.to.name, sent.Took.Round(time.Millisecond), sent.Relay, sent.RTT)
				if sent.Relay != m.r.ID {
					t.Errorf("they went through %q, not through r", sent.Relay)
				}
			}
		})
	}
}

// In a public swarm a relay is for finding a direct way; who wants to carry
// strangers' sessions says so.
func TestStrangersRelay(t *testing.T) {
	for _, c := range []struct {
		relay  swarm.RelayMode
		passes bool
	}{{swarm.RelayAuto, false}, {swarm.RelayAll, true}} {
		t.Run(string(c.relay), func(t *testing.T) {
			t.Parallel()
			m := newNetwork(t, symmetric, symmetric).meet(t, true, onBoth, swarm.ReachPrivate, c.relay)
			if c.passes {
				m.b.must(order{Do: "meet", Peer: m.a.ID})
			}
			sent := m.b.do(order{Do: "send", Peer: m.a.ID, Bytes: bulk})
			switch {
			case c.passes && sent.Error != "":
				t.Error(sent.Error)
			case !c.passes && !strings.Contains(sent.Error, "--relay all"):
				t.Errorf("100 MB through a stranger's relay: %q", sent.Error)
			}
		})
	}
}
