package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// healthy is a volunteer's machine on which nothing is wrong.
func healthy() *facts {
	now := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	return &facts{Data: "/srv/starling", Now: now, Free: 100e9, Write: 400e6, Read: 900e6, Memory: 16 << 30, Arch: "amd64", Variant: "avx512",
		Variants: []string{"generic", "avx2", "avx512"}, Swarm: "friends", Peer: "12D3KooWself", Node: true,
		Membership: membershipFacts{Issued: now.AddDate(0, -1, 0), Expires: now.AddDate(0, 11, 0)},
		Reach:      reach{Known: true, Public: true, HasIPs: true, NAT: "none"},
		Network: &control.Network{Connected: 3, DHT: 3, Clocks: []time.Duration{-20 * time.Millisecond, 3 * time.Millisecond, time.Second}, Listen: []string{"/ip4/192.0.2.1/tcp/4077/p2p/12D3KooWself"},
			Bootstrap: []control.Contact{{Peer: "12D3KooWa", Addrs: []string{"/ip4/192.0.2.9/tcp/4077"}, Connected: true}}},
	}
}

func TestHealthy(t *testing.T) {
	for _, f := range judge(healthy()) {
		if f.Verdict != good || f.Text == "" || f.Next != "" {
			t.Errorf("a healthy machine: %+v", f)
		}
	}
}

// Each broken set-up has one finding that names the cause and the next step.
func TestDoctorNamesTheCause(t *testing.T) {
	dead := []control.Contact{{Peer: "12D3KooWa", Addrs: []string{"/ip4/192.0.2.9/tcp/4077"}, Error: "dial tcp4: i/o timeout"}}
	for _, test := range []struct {
		name    string
		breakIt func(f *facts)
		check   string
		verdict verdict
		text    string // a part of it
		next    string // likewise
	}{
		{"clock behind", func(f *facts) {
			f.Network.Clocks = []time.Duration{14 * time.Minute, 14 * time.Minute, 14*time.Minute + 3*time.Second}
		}, "clock", failure, "14m0s behind the median of 3", "timedatectl"},
		{"clock ahead", func(f *facts) { f.Network.Clocks = []time.Duration{-2 * time.Minute} }, "clock", warning, "2m0s ahead of the one peer", "set the clock"},
		{"one odd peer", func(f *facts) { f.Network.Clocks = []time.Duration{0, 0, time.Hour} }, "clock", good, "the median of 3", ""},
		{"clock before the certificate", func(f *facts) { f.Network, f.Now = nil, f.Membership.Issued.Add(-time.Hour) }, "clock", failure, "certificate was made at 2027-02-01", "set the clock"},
		{"clock that nobody keeps", func(f *facts) { f.Network.Clocks, f.Unsynced = nil, true }, "clock", warning, "nothing keeps its clock right", "timedatectl"},
		{"folder of another user", func(f *facts) { f.DataErr = errors.New("open /srv/starling: permission denied") }, "data folder", failure, "permission denied", "--data"},
		{"disk full", func(f *facts) { f.Free = 1 << 20 }, "disk space", failure, "1.05 MB are free", "starling gc"},
		{"disk nearly full", func(f *facts) { f.Free = 1 << 30 }, "disk space", warning, "free for /srv/starling", "--data"},
		{"disk slow", func(f *facts) { f.Write = 5e6 }, "disk speed", warning, "writes 5 MB/s", "3m20s"},
		{"memory short", func(f *facts) { f.Memory = 200 << 20 }, "memory", failure, "210 MB can be had", "end other programs"},
		{"memory short for a model", func(f *facts) { f.ModelName, f.ModelBytes = "Big", 40e9 }, "memory", warning, "what is held of Big is 40 GB", "--layers"},
		{"no AVX2", func(f *facts) { f.Variant, f.Variants = "generic", []string{"generic"} }, "processor", warning, "lacks AVX2", "virtual machine"},
		{"kernels forced", func(f *facts) { f.Variant, f.Forced = "generic", true }, "processor", warning, "STARLING_KERNELS says so; avx512", "unset STARLING_KERNELS"},
		{"wrong numbers", func(f *facts) { f.Numerics = errors.New("digest differs") }, "numerics", failure, "digest differs", "must not serve"},
		{"no swarm", func(f *facts) { f.SwarmErr = errors.New("data folder knows no swarm") }, "swarm", failure, "knows no swarm", "swarm create"},
		{"revoked", func(f *facts) { f.Membership.Revoked, f.Membership.Err = true, errors.New("revoked") }, "swarm", failure, "12D3KooWself) was revoked", "ask the owner"},
		{"refused", func(f *facts) {
			f.Network = &control.Network{Bootstrap: []control.Contact{{Peer: "a", Refused: true, Error: "doesn't admit this node"}}}
		}, "swarm", failure, "don't let this node in", "still a member"},
		{"certificate ran out", func(f *facts) { f.Membership.Err = errors.New("the certificate ran out") }, "swarm", failure, "ran out", "clock first"},
		{"certificate runs out", func(f *facts) { f.Membership.Expires = f.Now.AddDate(0, 0, 3) }, "swarm", warning, "until 2027-03-04", "renews"},
		{"wrong swarm", func(f *facts) {
			f.Network = &control.Network{Connected: 1, Bootstrap: []control.Contact{{Peer: "a", Addrs: []string{"/ip4/192.0.2.9/tcp/4077"}, Connected: true, Elsewhere: true}}}
		}, "peers", failure, "wrong swarm: the node at /ip4/192.0.2.9", "starling swarm join ID ADDRESS"},
		{"offline", func(f *facts) { f.Network = &control.Network{Bootstrap: dead} }, "peers", failure, "i/o timeout", "online"},
		{"first node", func(f *facts) { f.Network = &control.Network{} }, "peers", warning, "no address of another node", "--bootstrap"},
		{"one of two dead", func(f *facts) { f.Network.Bootstrap = append(f.Network.Bootstrap, dead...) }, "peers", warning, "of 2 addresses to meet the swarm through 1 fail", "fresh addresses"},
		{"no DHT peers", func(f *facts) { f.Network.DHT = 0 }, "DHT", failure, "no DHT peers", "'peers'"},
		{"port taken", func(f *facts) { f.PortErr = errors.New("listen address /ip4/0.0.0.0/tcp/4077: address already in use") }, "port", failure, "in use", "--listen"},
		{"usual port taken", func(f *facts) { f.Port = 4077 }, "port", warning, "port 4077 is used", "ss -tulpn"},
		{"port blocked", func(f *facts) { f.Reach.Public = false }, "reachability", warning, "a firewall", "open the port for TCP and UDP"},
		{"behind a router", func(f *facts) { f.Reach = reach{Known: true, NAT: "cone"} }, "reachability", failure, "NAT: cone", "forward a port"},
		{"relay only", func(f *facts) { f.Reach = reach{Known: true, Relayed: true, NAT: "symmetric"} }, "reachability", warning, "only by relay", "IPv6"},
		{"no node", func(f *facts) { f.Network, f.NodeErr = nil, errors.New("model store is in use") }, "peers", unknown, "model store is in use", ""},
	} {
		f := healthy()
		test.breakIt(f)
		found := false
		for _, r := range judge(f) {
			if r.Check == test.check {
				found = true
				if r.Verdict != test.verdict || !strings.Contains(r.Text, test.text) || !strings.Contains(r.Next, test.next) || (test.next == "") != (r.Next == "") {
					t.Errorf("%s: %+v", test.name, r)
				}
			}
		}
		if !found {
			t.Errorf("%s: no finding of %q", test.name, test.check)
		}
	}
}
