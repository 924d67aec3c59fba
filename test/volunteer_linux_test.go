package test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/session"
	"github.com/starling-swarm/starling/swarm"
)

// volunteer is a whole node in a child process: it publishes or serves, and runs sessions for the test.
func volunteer(ctx context.Context, cfg *childConfig, info *swarm.Info) (func(context.Context, order, *report) error, func(), error) {
	n, err := node.Start(ctx, node.Config{DataDir: cfg.Dir, Swarm: info, Listen: cfg.Listen, Bootstrap: cfg.Bootstrap, Reachability: cfg.Reachability,
		Tracker: cfg.Create, Engine: runtime.Options{Threads: 1, MaxKVBytes: 512 << 20}, Silence: 30 * time.Second, // where nobody is lost, nobody may seem to be
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return nil, nil, err
	}
	c := control.InProcess(n.Control())
	if cfg.Publish != "" {
		if _, err := c.Publish(ctx, control.PublishRequest{Path: cfg.Publish}, nil); err != nil {
			n.Close()
			return nil, nil, err
		}
	}
	obey := func(ctx context.Context, o order, r *report) error {
		model := cmp.Or(o.Model, "tiny")
		switch o.Do {
		case "serve":
			_, err := c.Serve(ctx, control.ServeRequest{Model: model, Layers: o.Layers}, nil)
			return err
		case "plan":
			p, err := c.Plan(ctx, control.PlanRequest{Model: model, PromptTokens: 100, NewTokens: 10, Constraints: o.Route})
			if err == nil {
				r.Text = p.Explain
			}
			return err
		case "run":
			s, err := session.Open(ctx, c, session.Options{Model: model, Constraints: o.Route, Wait: patience})
			if err != nil {
				return err
			}
			defer s.Close()
			for i := range cmp.Or(o.Prompt, 100) {
				if err := s.Append(int32(10 + 7*i%80)); err != nil {
					return err
				}
			}
			for token, err := range s.Generate(ctx, session.Request{MaxNew: 40, Fresh: true}) {
				if err != nil {
					return err
				}
				r.Tokens = append(r.Tokens, token.ID)
			}
			for _, st := range s.Account().Stages {
				r.KVBytes += st.KVBytes
			}
			return nil
		case "invite":
			var err error
			r.Invite, err = swarm.OpenSwarms(cfg.Dir).CreateInvite(info.ID, swarm.RoleMember, time.Hour, n.Addrs())
			return err
		}
		st, err := c.Status(ctx)
		if err != nil {
			return err
		}
		r.ID, r.Addrs, r.Info, r.Reachability, r.Connected = st.Peer, st.Addrs, info, swarm.Reachability(st.Reachable), slices.Contains(st.Connected, o.Peer)
		for _, p := range st.Relayed {
			if p.Peer == o.Peer {
				r.Relay = p.Relay
			}
		}
		return nil
	}
	return obey, func() {
		c.Close()
		n.Close()
	}, nil
}

// A session of two volunteers that can't reach each other directly goes through a third. When the way is free, they find it; the
// session's bytes go there from then on, and plans have other prices. No token changes.
func TestRelayBecomesDirect(t *testing.T) {
	net := newNetwork(t, cone, cone)
	net.internet.run(`nft -f - <<END
table ip cut {
	chain through {
		type filter hook forward priority 0;
		iifname "home1" oifname "home2" drop
		iifname "home2" oifname "home1" drop
	}
}
END`)
	model := t.TempDir() + "/tiny.gguf"
	if err := (runtimetest.TinyModel{Layers: 4}).Write(model); err != nil {
		t.Fatal(err)
	}
	r := net.r.start("r", childConfig{Volunteer: true, Listen: onBoth, Reachability: swarm.ReachPublic, Create: true, Publish: model})
	start := func(s *space, name string, first, last int) *process {
		p := s.start(name, childConfig{Volunteer: true, Listen: onBoth, Bootstrap: r.report.Addrs, Invite: r.must(order{Do: "invite"}).Invite})
		p.until(r.ID, "behind a NAT with an address through the relay", func(r report) bool { return len(circuits(r.Addrs)) > 0 })
		p.must(order{Do: "serve", Layers: &control.Layers{First: first, Last: last}})
		return p
	}
	a, b := start(net.a, "a", 0, 1), start(net.b, "b", 2, 3)
	b.until(a.ID, "connected through the relay", func(s report) bool { return s.Connected && s.Relay == r.ID })
	route := control.Constraints{Shape: "pipelined", Cuts: []int{2}, Assign: []string{a.ID}, Decoder: b.ID, Chunk: 16}
	var tokens []int32
	run := func() {
		t.Helper()
		var last report
		for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			if last = b.do(order{Do: "run", Route: route}); last.Error == "" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the session fails: %s", last.Error)
			}
		}
		if tokens == nil {
			tokens = last.Tokens
		}
		if !slices.Equal(last.Tokens, tokens) || len(tokens) == 0 {
			t.Fatalf("tokens %v, before %v", last.Tokens, tokens)
		}
	}
	run()
	relayedPlan := b.must(order{Do: "plan", Route: route})
	if now := b.must(order{Do: "state", Peer: a.ID}); now.Relay != r.ID {
		t.Fatalf("a is reached through %q", now.Relay)
	}
	if !strings.Contains(relayedPlan.Text, "through a relay") {
		t.Errorf("the plan doesn't say that a link is relayed:\n%s", relayedPlan.Text)
	}

	net.internet.run("nft delete table ip cut")
	for end := time.Now().Add(patience); ; {
		run()
		if now := b.must(order{Do: "state", Peer: a.ID}); now.Connected && now.Relay == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no direct connection comes about")
		}
	}
	run()
	if now := b.must(order{Do: "plan", Route: route}); strings.Contains(now.Text, "through a relay") {
		t.Errorf("the plan still has a relay:\n%s", now.Text)
	}
	// What went over the relay before is on the direct connection now: nobody misses the relay.
	net.r.run("ip link set eth0 down")
	run()
	fmt.Fprintln(tail{t, "test"}, relayedPlan.Text)
}

// The cache of a real model's long prompt, more than 100 MB, goes from one volunteer to another through a relay, where no NAT lets them
// meet; the answer is what the relay's node computes alone.
func TestRelayedKV(t *testing.T) {
	if !*soak {
		t.Skip("it computes a prompt of 4600 tokens twice: -soak")
	}
	file, err := filepath.Abs("../../shared/models/smollm2-135m-instruct-q4_1.gguf")
	if err == nil {
		_, err = os.Stat(file)
	}
	if err != nil {
		t.Skip(err)
	}
	net := newNetwork(t, symmetric, symmetric)
	r := net.r.start("r", childConfig{Volunteer: true, Listen: onBoth, Reachability: swarm.ReachPublic, Create: true, Publish: file})
	start := func(s *space, name string, layers control.Layers) *process {
		p := s.start(name, childConfig{Volunteer: true, Listen: onBoth, Bootstrap: r.report.Addrs, Invite: r.must(order{Do: "invite"}).Invite})
		p.until(r.ID, "behind a NAT with an address through the relay", func(r report) bool { return len(circuits(r.Addrs)) > 0 })
		p.must(order{Do: "serve", Model: smol, Layers: &layers})
		return p
	}
	const last, prompt = 29, 4600 // 22 KB of KV a token of the first 29 layers
	a, b := start(net.a, "a", control.Layers{Last: last}), start(net.b, "b", control.Layers{Last: last})
	b.until(a.ID, "connected through the relay", func(s report) bool { return s.Connected && s.Relay == r.ID })
	began := time.Now()
	sent := b.must(order{Do: "run", Model: smol, Prompt: prompt, Route: control.Constraints{Shape: "across", Cuts: []int{last}, Assign: []string{a.ID}, Decoder: b.ID}})
	took := time.Since(began)
	if now := b.must(order{Do: "state", Peer: a.ID}); now.Relay != r.ID {
		t.Errorf("a is reached through %q", now.Relay)
	}
	if sent.KVBytes < bulk {
		t.Errorf("%d bytes of KV went from a to b", sent.KVBytes)
	}
	r.must(order{Do: "serve", Model: smol})
	if alone := r.must(order{Do: "run", Model: smol, Prompt: prompt, Route: control.Constraints{Shape: "local", Decoder: r.ID}}); !slices.Equal(alone.Tokens, sent.Tokens) || len(sent.Tokens) == 0 {
		t.Errorf("tokens %v, alone %v", sent.Tokens, alone.Tokens)
	}
	t.Logf("%d bytes of KV through the relay, in a session of %v", sent.KVBytes, took.Round(time.Millisecond))
}

// smol is the model of TestRelayedKV.
const smol = "Smollm2 135M 8k Lc100K Mix1 Ep2"
