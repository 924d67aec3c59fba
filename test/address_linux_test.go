package test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// Where nodes listen that have both versions of IP, or IPv6 alone.
var (
	onSix = []string{"/ip6/::/tcp/4077", "/ip6/::/udp/4077/quic-v1"}
	onAll = append(onBoth[:2:2], onSix...)
)

// street is a network in which a machine has the addresses that it is given.
type street struct{ hub *space }

func newStreet(t *testing.T) *street {
	t.Helper()
	needSpaces(t)
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		t.Skip("this kernel has no IPv6")
	}
	s := &street{newSpace(t)}
	s.hub.run("ip link add br0 type bridge\nip link set br0 up")
	return s
}

// plug adds a machine.
func (s *street) plug(n int, addrs ...string) *space {
	m := newSpace(s.hub.t)
	s.hub.run("ip link add p%d type veth peer name eth0 netns %d\nip link set p%d master br0 up", n, m.pid, n)
	m.run("ip link set eth0 up")
	for _, a := range addrs {
		if strings.Contains(a, ":") {
			a += " nodad" // it may be used at once
		}
		m.run("ip addr add %s dev eth0", a)
	}
	return m
}

// Two nodes that have IPv6 alone run a session. So does a node that has both versions of IP with one of either kind; these don't reach each other,
// and it carries nothing between them.
func TestAddressFamilies(t *testing.T) {
	t.Parallel()
	net := newStreet(t)
	model := t.TempDir() + "/tiny.gguf"
	if err := (runtimetest.TinyModel{Layers: 6}).Write(model); err != nil {
		t.Fatal(err)
	}
	both := net.plug(1, "10.45.0.1/24", "fd45::1/64").start("both", childConfig{Volunteer: true, Listen: onAll, Create: true, CreatePublic: true, Publish: model})
	boot := func(kind string) (addrs []string) {
		for _, a := range both.report.Addrs {
			if strings.HasPrefix(a, kind) && !strings.Contains(a, "/127.") && !strings.Contains(a, "/::1/") {
				addrs = append(addrs, a)
			}
		}
		if len(addrs) == 0 {
			t.Fatalf("the node with both has no address of %s: %v", kind, both.report.Addrs)
		}
		return addrs
	}
	volunteer := func(n int, name, addr string, listen, boot []string, first, last int) *process {
		p := net.plug(n, addr).start(name, childConfig{Volunteer: true, Listen: listen, Bootstrap: boot, Public: both.Info})
		p.must(order{Do: "serve", Layers: &control.Layers{First: first, Last: last}})
		p.until(both.ID, "connected", func(r report) bool { return r.Connected })
		return p
	}
	six := volunteer(2, "six", "fd45::2/64", onSix, boot("/ip6/"), 0, 1)
	other := volunteer(3, "other six", "fd45::3/64", onSix, boot("/ip6/"), 2, 5)
	four := volunteer(4, "four", "10.45.0.4/24", onBoth, boot("/ip4/"), 0, 1)
	both.must(order{Do: "serve", Layers: &control.Layers{First: 2, Last: 5}})

	var tokens []int32
	for _, c := range []struct{ stage, decoder *process }{{six, other}, {six, both}, {four, both}} {
		route := control.Constraints{Shape: "pipelined", Cuts: []int{2}, Assign: []string{c.stage.ID}, Decoder: c.decoder.ID, Chunk: 16}
		var r report
		for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			if r = c.decoder.do(order{Do: "run", Route: route}); r.Error == "" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s with %s: %s", c.decoder.name, c.stage.name, r.Error)
			}
		}
		if tokens == nil {
			tokens = r.Tokens
		}
		if len(tokens) == 0 || !slices.Equal(r.Tokens, tokens) {
			t.Errorf("%s with %s: %v, before %v", c.decoder.name, c.stage.name, r.Tokens, tokens)
		}
		if s := c.decoder.must(order{Do: "state", Peer: c.stage.ID}); !s.Connected || s.Relay != "" {
			t.Errorf("%s reaches %s: %v, through %q", c.decoder.name, c.stage.name, s.Connected, s.Relay)
		}
	}
	for _, c := range [][2]*process{{six, four}, {four, six}, {other, four}} {
		if s := c[0].must(order{Do: "state", Peer: c[1].ID}); s.Connected {
			t.Errorf("%s is connected to %s, through %q", c[0].name, c[1].name, s.Relay)
		}
	}
}
