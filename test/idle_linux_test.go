package test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm"
)

var (
	soak   = flag.Bool("soak", false, "measure an idle node, and cut networks for a minute (make soak)")
	window = flag.Duration("window", 10*time.Minute, "with -soak: how long to measure an idle node; what is regular comes round in ten minutes")
)

// settling is how long nodes that started together look for each other.
const settling = 4 * time.Minute

// crowdEnv makes this binary many nodes.
const crowdEnv = "STARLING_TEST_CROWD"

type crowdConfig struct {
	Nodes     int
	Net       string // the first three numbers of their addresses
	Info      *swarm.Info
	Bootstrap []string // of the first
}

// crowd runs nodes with an offer each. The first is the others' bootstrap node and tracker. A line is the ID of a model that the last of them looks for
// in the DHT, and its answer who has it; "" asks how many nodes have met at least half of the others, "offers" whose offers each knows.
func crowd(text string) error {
	var cfg crowdConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	var all []*swarm.Host
	boot := cfg.Bootstrap
	for i := range cfg.Nodes {
		listen := []string{fmt.Sprintf("/ip4/%s.%d/tcp/4077", cfg.Net, i+1), fmt.Sprintf("/ip4/%s.%d/udp/4077/quic-v1", cfg.Net, i+1)}
		h, err := swarm.Start(context.Background(), swarm.Config{Identity: swarm.Ephemeral(), Swarm: cfg.Info, Listen: listen, Bootstrap: boot, Tracker: i == 0,
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer h.Close()
		if i == 0 {
			boot = h.Addrs()
		}
		h.SetOffers([]swarm.Offer{{Model: [32]byte{1}, ModelName: "a model of some name", First: i, Last: i + 1, Context: 4096}})
		all = append(all, h)
	}
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	if err := out.Encode(outcome{Peers: boot}); err != nil {
		return err
	}
	for {
		var ask string
		if err := in.Decode(&ask); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		o := outcome{}
		if ask == "offers" {
			for _, h := range all {
				var peers []string
				for _, f := range h.Offers() {
					peers = append(peers, f.Peer)
				}
				slices.Sort(peers)
				o.Peers = append(o.Peers, strings.Join(peers, " "))
			}
		} else if ask == "" {
			n := 0
			for _, h := range all {
				if len(h.Connected()) >= cfg.Nodes/2 {
					n++
				}
			}
			o.Text = strconv.Itoa(n)
		} else {
			var key [32]byte
			if _, err := hex.Decode(key[:], []byte(ask)); err != nil {
				return err
			}
			peers, err := all[cfg.Nodes-1].Lookup(context.Background(), key, 5)
			if o.Peers = peers; err != nil {
				o.Error = err.Error()
			}
		}
		if err := out.Encode(o); err != nil {
			return err
		}
	}
}

// crowded is a node beside a crowd of n others, each side on a machine of its own.
func crowded(t *testing.T, n int) (net *ethernet, others, one *talk, machine *space) {
	t.Helper()
	net = newEthernet(t)
	info, err := swarm.CreateSwarm(t.TempDir(), "town", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	others = net.crowd(1, crowdConfig{n, "", info, nil})
	var boot outcome
	others.hear(&boot)
	machine = net.plug(2)
	listen := []string{fmt.Sprintf("/ip4/%s/tcp/4077", addr(2)), fmt.Sprintf("/ip4/%s/udp/4077/quic-v1", addr(2))}
	one = newTalk(machine, "node", memberEnv, memberConfig{Dir: t.TempDir(), Listen: listen, Public: info, Bootstrap: boot.Peers})
	var o outcome
	one.hear(&o)
	return net, others, one, machine
}

// crowd plugs in a machine with many nodes.
func (e *ethernet) crowd(n int, cfg crowdConfig) *talk {
	e.t.Helper()
	s := e.plug(n)
	cfg.Net = fmt.Sprintf("10.44.%d", n)
	s.run("for i in $(seq %d); do ip addr add %s.$i/16 dev eth0; done", cfg.Nodes, cfg.Net)
	return newTalk(s, fmt.Sprint("crowd ", n), crowdEnv, cfg)
}

// publish has a node publish a model of its own and serve it.
func publish(t *testing.T, k *talk, seed uint64) (id string) {
	t.Helper()
	model := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := (runtimetest.TinyModel{Seed: seed}).Write(model); err != nil {
		t.Fatal(err)
	}
	id = k.do(wish{Do: "publish", Text: model}).Text
	k.do(wish{Do: "serve", Text: id, First: 0, Last: 2})
	return id
}

// wireBytes returns what has gone through a machine's only device, in and out.
func wireBytes(t *testing.T, s *space) (n int64) {
	t.Helper()
	for _, way := range []string{"rx", "tx"} {
		out, err := s.command("cat", "/proc/net/dev").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[0] == "eth0:" {
				v, err := strconv.ParseInt(f[map[string]int{"rx": 1, "tx": 9}[way]], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				n += v
			}
		}
	}
	return n
}

// TestIdleHour has a node that serves a small model do nothing in a swarm of fifty. An hour of that is less than 5 MB on the wire, reckoned from a
// window of ten minutes, in which everybody pushes and announces, and, for what comes round in an hour, refreshing the DHT's table, from all that the node
// took before: until it had met 32 others, and for the minutes in which all fifty look for more. Its memory is less than 150 MB.
func TestIdleHour(t *testing.T) {
	if !*soak {
		t.Skip("it takes many minutes: -soak")
	}
	_, others, one, machine := crowded(t, 49)
	publish(t, one, 1)
	for began := time.Now(); ; time.Sleep(time.Second) { // at least a minute
		others.say("")
		var o outcome
		others.hear(&o)
		if n := len(one.do(wish{Do: "connected"}).Peers); time.Since(began) > time.Minute && n >= 32 {
			t.Logf("after %v connected to %d peers; %s of the others to half of theirs", time.Since(began).Round(time.Second), n, o.Text)
			break
		} else if time.Since(began) > patience {
			t.Fatalf("after %v connected to %d peers, %s of the others to half of theirs: that is no swarm of fifty", patience, n, o.Text)
		}
	}
	time.Sleep(settling)
	first, began := wireBytes(t, machine), time.Now()
	time.Sleep(*window)
	quiet := float64(wireBytes(t, machine)-first) / time.Since(began).Hours()
	perHour := quiet + float64(first)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", one.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.2f MB an hour on the wire, both ways and with all headers: %.2f MB of regular traffic, and the %.2f MB until then; %.1f MB of memory",
		perHour/1e6, quiet/1e6, float64(first)/1e6, float64(kib)*1024/1e6)
	if perHour >= 5e6 {
		t.Error("that is 5 MB an hour or more")
	}
	if kib*1024 >= 150e6 {
		t.Error("that is 150 MB of memory or more")
	}
}

// TestOutage takes a node's network away until it has nobody left, and gives it back: without a restart, and within one announce period (ten minutes), it is in
// the DHT again, with what it has published meanwhile. With -soak its cable is pulled for ten minutes; else connections are cut off.
func TestOutage(t *testing.T) {
	t.Parallel()
	net, others, one, machine := crowded(t, 8)
	first := publish(t, one, 1)
	found := func(id string) bool {
		others.say(id)
		var o outcome
		others.hear(&o)
		return slices.Contains(o.Peers, one.do(wish{Do: "connected"}).Peer)
	}
	for end := time.Now().Add(patience); !found(first); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the node isn't in the DHT to begin with")
		}
	}
	down, up := func() { net.hub.run("ip link set p2 down") }, func() { net.hub.run("ip link set p2 up") }
	if !*soak { // QUIC doesn't notice that nobody answers for half a minute, so there is none
		down = func() {
			machine.run(`nft -f - <<END
table inet outage {
	chain in { type filter hook input priority 0; meta l4proto tcp reject with tcp reset; drop; }
	chain out { type filter hook output priority 0; meta l4proto tcp reject with tcp reset; drop; }
}
END`)
		}
		up = func() { machine.run("nft delete table inet outage") }
	}
	down()
	began := time.Now()
	second := publish(t, one, 2) // whoever is told of it is found to be gone
	for len(one.do(wish{Do: "connected"}).Peers) > 0 {
		if time.Since(began) > 5*time.Minute {
			t.Fatal("five minutes without a network, and the node thinks that it is connected")
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("nobody left after %v", time.Since(began).Round(time.Second))
	if *soak {
		time.Sleep(time.Until(began.Add(10 * time.Minute)))
	}
	if found(second) {
		t.Fatal("found without a network")
	}
	up()
	for began = time.Now(); !found(second); time.Sleep(200 * time.Millisecond) {
		if time.Since(began) > 10*time.Minute {
			t.Fatal("not in the DHT again within one announce period")
		}
	}
	t.Logf("in the DHT again after %v", time.Since(began).Round(100*time.Millisecond))
}

// TestPartition cuts a swarm in two halves and puts it together again. Each half's nodes agree on who is left in at most one life of an offer, and all agree
// on all, each once, in as long a time again.
func TestPartition(t *testing.T) {
	if !*soak {
		t.Skip("it takes minutes: -soak")
	}
	const half, bound = 4, swarm.DefaultOfferTTL + 15*time.Second // some of it for being asked
	net := newEthernet(t)
	info, err := swarm.CreateSwarm(t.TempDir(), "town", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	var boot outcome
	var sides []*talk
	for i := 1; i <= 2; i++ {
		k := net.crowd(i, crowdConfig{half, "", info, boot.Peers})
		k.hear(&boot)
		sides = append(sides, k)
	}
	agree := func(what string, n int) {
		t.Helper()
		began := time.Now()
		for {
			same, views := true, map[string]int{}
			for _, k := range sides {
				k.say("offers")
				var o outcome
				k.hear(&o)
				for _, v := range o.Peers {
					views[v]++
					known := strings.Fields(v)
					same = same && len(known) == n && len(slices.Compact(known)) == n && v == o.Peers[0]
				}
			}
			if same && len(views) == 2*half/n {
				t.Logf("%s: all agree after %v", what, time.Since(began).Round(100*time.Millisecond))
				return
			}
			if time.Since(began) > bound {
				t.Fatalf("%s: after %v there are %d views, of nodes each: %v", what, bound, len(views), views)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	agree("together", 2*half)
	net.hub.run("ip link set p2 down")
	agree("apart", half)
	net.hub.run("ip link set p2 up")
	agree("together again", 2*half)
}
