package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm"
)

// A private swarm on one Ethernet, which has a way out, a resolver's address behind it, and a stranger.
//
//	10.44.0.1 owner ─┐
//	10.44.0.2 volunteer ─┤ hub (10.44.0.254, the way out)
//	10.44.0.3 client ─┤
//	10.44.0.9 stranger ─┘
type ethernet struct {
	t   *testing.T
	hub *space
}

func newEthernet(t *testing.T) *ethernet {
	t.Helper()
	needSpaces(t)
	e := &ethernet{t, newSpace(t)}
	e.hub.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1\nip link add br0 type bridge\nip addr add 10.44.0.254/16 dev br0\nip link set br0 up")
	return e
}

// plug adds a machine. It has no IPv6: the kernel itself would talk there.
func (e *ethernet) plug(n int) *space {
	e.t.Helper()
	s := newSpace(e.t)
	s.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
	e.hub.run("ip link add p%d type veth peer name eth0 netns %d\nip link set p%d master br0 up", n, s.pid, n)
	s.run("ip addr add %s/16 dev eth0\nip link set eth0 up\nip route add default via 10.44.0.254", addr(n))
	return s
}

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 44, 0, byte(n)}) }

// joinEnv makes this binary one that joins a swarm, or says why it can't.
const joinEnv = "STARLING_TEST_JOIN"

func joinOnce(text string) error {
	var cfg memberConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	id, err := swarm.LoadIdentity(cfg.Dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o := outcome{Peer: id.ID()}
	if _, err := swarm.Join(ctx, id, cfg.Invite, cfg.Dir); err != nil {
		o.Error = err.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}

// strange lists the flows that one machine has to do with and whose other end isn't allowed. What others shout is on its interface, too.
func strange(list []flow, machine netip.Addr, allowed ...netip.Addr) (bad []flow) {
	for _, f := range list {
		other := f.To
		if f.From != machine {
			if other = f.From; f.To != machine {
				continue
			}
		}
		if !slices.Contains(allowed, other) {
			bad = append(bad, f)
		}
	}
	return bad
}

func packets(list []flow, kind string) (n int) {
	for _, f := range list {
		if f.Kind == kind {
			n += f.Packets
		}
	}
	return n
}

// TestPrivateSwarmIsAlone captures every packet on every interface of a private swarm's machines, while they join, fetch a model by torrent,
// announce and look up in the DHT, answer a prompt over two of them, and revoke one: no packet goes to an address that is not a member's.
func TestPrivateSwarmIsAlone(t *testing.T) {
	net := newEthernet(t)
	machines := []*space{net.plug(1), net.plug(2), net.plug(3)}
	members := []netip.Addr{addr(1), addr(2), addr(3)}
	var captures []sniffer
	for i, m := range machines {
		captures = append(captures, m.sniff(fmt.Sprint("capture ", i+1)))
	}
	model := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := (runtimetest.TinyModel{}).Write(model); err != nil {
		t.Fatal(err)
	}
	start := func(i int, invite string, client bool) (*talk, string) {
		listen := []string{fmt.Sprintf("/ip4/%s/tcp/4077", addr(i+1)), fmt.Sprintf("/ip4/%s/udp/4077/quic-v1", addr(i+1))}
		k := newTalk(machines[i], []string{"owner", "volunteer", "client"}[i], memberEnv, memberConfig{Dir: t.TempDir(), Listen: listen, Invite: invite, Client: client})
		var o outcome
		k.hear(&o)
		return k, o.Peer
	}
	owner, _ := start(0, "", false)
	id := owner.do(wish{Do: "publish", Text: model}).Text
	owner.do(wish{Do: "serve", Text: id, First: 0, Last: 2})
	volunteer, volunteerID := start(1, owner.do(wish{Do: "invite", Text: "volunteer"}).Text, false)
	volunteer.do(wish{Do: "serve", Text: id, First: 0, Last: 0}) // its bytes come by torrent
	spent := owner.do(wish{Do: "invite", Text: "client"}).Text
	client, _ := start(2, spent, true)
	for end := time.Now().Add(patience); ; {
		o := client.try(wish{Do: "run", Text: id})
		if o.Error == "" && slices.Equal(o.Peers, []string{volunteerID}) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the client's run: %+v", o)
		}
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(5 * time.Second) // for announcements and look-ups
	for i, c := range captures {
		list := c.flows()
		for _, f := range strange(list, addr(i+1), members...) {
			t.Errorf("machine %d: %d %s packets from %v to %v", i+1, f.Packets, f.Kind, f.From, f.To)
		}
		t.Logf("machine %d: %d TCP and %d UDP packets, %d ARP", i+1, packets(list, "tcp"), packets(list, "udp"), packets(list, "arp"))
		if packets(list, "tcp")+packets(list, "udp") < 100 {
			t.Errorf("machine %d has hardly anything to say: %+v", i+1, list)
		}
	}

	// A member that is revoked is out within a minute, and once it is silent nobody sends it a packet any more.
	began := time.Now()
	owner.do(wish{Do: "revoke", Text: volunteerID})
	for _, k := range []*talk{owner, client} {
		for slices.Contains(k.do(wish{Do: "connected"}).Peers, volunteerID) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s is still connected to the revoked member", k.name)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	t.Logf("the revoked member is out after %v", time.Since(began).Round(time.Millisecond))
	if o := volunteer.try(wish{Do: "run", Text: id}); o.Error == "" {
		t.Error("the revoked member gets an answer")
	}
	volunteer.end()
	for quiet, end := 0, time.Now().Add(patience); quiet < 3; quiet++ { // what was under way comes to its end
		time.Sleep(time.Second)
		for i, c := range captures {
			if f := strange(c.flows(), addr(i+1), addr(1), addr(3)); i != 1 && len(f) > 0 && time.Now().Before(end) {
				quiet = -1
			}
		}
	}
	if o := client.try(wish{Do: "run", Text: id}); o.Error == "" {
		t.Errorf("the client runs over a member that was revoked: %+v", o)
	}
	time.Sleep(15 * time.Second)
	for i, c := range captures {
		if f := strange(c.flows(), addr(i+1), addr(1), addr(3)); i != 1 && len(f) > 0 {
			t.Errorf("machine %d, after the revocation: %+v", i+1, f)
		}
	}

	// The stranger has a spent invite, which names the owner's address: it is told nothing, and nobody else hears of it.
	knock := newTalk(net.plug(9), "stranger", joinEnv, memberConfig{Dir: t.TempDir(), Invite: spent})
	var o outcome
	knock.hear(&o)
	knock.end()
	if !strings.Contains(o.Error, "unknown here, used up or expired") || strings.Contains(o.Error, "spent by") {
		t.Errorf("the stranger hears %q", o.Error)
	}
	if f := strange(captures[0].flows(), addr(1), members...); len(f) == 0 {
		t.Error("the capture doesn't see the stranger's packets")
	}
	for i, c := range captures[1:] {
		if f := strange(c.flows(), addr(i+2), members...); len(f) > 0 {
			t.Errorf("machine %d has to do with the stranger: %+v", i+2, f)
		}
	}

	// The capture would have seen it: a packet to somewhere else asks for the way out.
	machines[2].run("echo x > /dev/udp/203.0.113.9/53 || bash -c 'echo x > /dev/udp/203.0.113.9/53'")
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if len(strange(captures[2].flows(), addr(3), members...)) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the capture doesn't see a packet to the outside")
		}
	}
}
