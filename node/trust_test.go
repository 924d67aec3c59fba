package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm/wire"
)

// A trust class keeps the peers that it doesn't let in off every route, and the plan says why and who sees what.
func TestTrust(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	layers := tn.layers()
	first, second, whole, client := tn.start(nil), tn.start(nil), tn.start(nil), tn.start(func(c *Config) { c.Client = true })
	tn.serve(first, id, 0, 1)
	tn.serve(second, id, 0, 1)
	tn.serve(whole, id, 0, layers)
	ctx := testContext(t)
	eventually(t, "three offers", func() bool { _ = client.host.Refresh(ctx); p, _ := client.planPeers(id); return len(p) == 3 })
	want, err := tn.run(ctx, client, id, control.Constraints{}, nil)
	if err != nil {
		t.Fatal(err)
	}

	listed := control.Constraints{Trust: "listed", Shape: "across", Cuts: []int{1}}
	if _, err := tn.run(ctx, client, id, listed, nil); err == nil || !strings.Contains(err.Error(), "--trust listed was asked for") {
		t.Errorf("nobody is listed: %v", err)
	}
	if err := client.swarms.Trust([]string{second.ID(), whole.ID()}, false); err != nil {
		t.Fatal(err)
	}
	var plan *control.PlanReply
	got, err := tn.run(ctx, client, id, listed, func(ev control.Event) error {
		if ev.Kind == "plan" {
			plan = ev.Plan
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sameAnswer(t, got, want)
	if len(got.Stages) != 1 || got.Stages[0].Peer != second.ID() {
		t.Errorf("the stages are %+v, listed is %s", got.Stages, second.ID())
	}
	if !strings.Contains(plan.Explain, first.ID()+"  not usable: excluded: you don't list it as trusted") {
		t.Errorf("the plan doesn't say why one is left out:\n%s", plan.Explain)
	}
	sees := []control.Sight{{Peer: second.ID(), What: "token IDs, hidden states and KV of layer 0 (1)"}, {Peer: whole.ID(), What: "the text, hidden states and everyone's KV"}}
	if !slices.Equal(plan.Sees, sees) {
		t.Errorf("the plan says that %+v is seen, want %+v", plan.Sees, sees)
	}
	if _, err := tn.run(ctx, client, id, control.Constraints{Trust: "listed", Decoder: first.ID()}, nil); err == nil || !strings.Contains(err.Error(), "you don't list it") {
		t.Errorf("the user asks for a peer that isn't listed: %v", err)
	}

	// In a public swarm nobody is a member, and a node says so to those who think otherwise.
	if _, err := tn.run(ctx, client, id, control.Constraints{Trust: "members"}, nil); err == nil || !strings.Contains(err.Error(), "test is public, so nobody is a member: use --trust listed or any") {
		t.Errorf("members of a public swarm: %v", err)
	}
	if _, err := tn.run(ctx, client, id, control.Constraints{Trust: "friends"}, nil); err == nil || !strings.Contains(err.Error(), "use members, listed or any") {
		t.Errorf("an unknown class: %v", err)
	}
	for trust, ok := range map[string]bool{"": true, "any": true, "listed": true, "members": false, "friends": false} {
		if r := whole.heeds(&wire.Grant{Trust: trust}); (r == nil) != ok {
			t.Errorf("a grant for %q: %v", trust, r)
		}
	}
	tn.mustBeIdle()
}

// A decoder whose client trusts listed peers only replaces a lost one by nobody else.
func TestRerouteKeepsToTheListed(t *testing.T) {
	g := &wire.Grant{Decoder: "D", Trust: "listed"}
	r := &wire.Route{Stages: []wire.PlanStage{{Peer: "A"}, {Peer: "B"}}}
	if only := within(g, r); !slices.Equal(only, []string{"D", "A", "B"}) {
		t.Errorf("it may plan with %v", only)
	}
	g.Trust = "members"
	if only := within(g, r); only != nil {
		t.Errorf("among members it may plan with %v", only)
	}
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	first, second, last := tn.start(nil), tn.start(nil), tn.start(nil)
	tn.serve(first, id, 0, 1)
	tn.serve(second, id, 0, 1)
	tn.serve(last, id, 1, tn.layers())
	ctx := testContext(t)
	eventually(t, "three offers", func() bool { _ = last.host.Refresh(ctx); p, _ := last.planPeers(id); return len(p) == 3 })
	profile := last.served(id).exec.Profile()
	for _, c := range []struct {
		only []string
		ok   bool
	}{{nil, true}, {[]string{last.ID(), first.ID(), second.ID()}, true}, {[]string{last.ID(), first.ID()}, false}} {
		route, err := last.reroute(ctx, id, profile, 10, 5, c.only, []string{first.ID()}, nil, 0)
		if (err == nil) != c.ok {
			t.Errorf("with %v: %v, %v", c.only, route, err)
		}
	}
}
