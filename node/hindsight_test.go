package node

import (
	"context"
	"testing"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
)

func TestHindsight(t *testing.T) {
	const flops, read = 1e10, 1e9
	id, now := artifacts.ID{1}, time.Unix(1e9, 0)
	chunks := func(slower float64, at time.Time) deed { // 10 of 100 rows
		return deed{model: id, flops: 1e11, bytes: 1e7, passes: 10, took: time.Duration(slower * 10.02e9), at: at}
	}
	tokens := func(slower float64, at time.Time) deed { // 10, of a GB each
		return deed{model: id, flops: 1e9, bytes: 1e10, passes: 10, took: time.Duration(slower * 10.11e9), at: at}
	}
	var h hindsight
	check := func(what string, arithmetic, reading float64) {
		t.Helper()
		a, r := h.slowness("a", id, flops, read, now)
		if a < arithmetic*0.99 || a > arithmetic*1.01 || r < reading*0.99 || r > reading*1.01 {
			t.Errorf("%s: %.3g and %.3g times slower, want %g and %g", what, a, r, arithmetic, reading)
		}
	}
	check("nothing known", 1, 1)
	h.add("a", chunks(10, now))
	check("a slow session alone", 1, 1)
	h.add("a", chunks(10, now))
	check("two", 10, 10)
	if a, _ := h.slowness("a", id, flops*10, read*10, now); a < 90 {
		t.Errorf("who then says ten times more is %.3g times slower than that", a)
	}
	if a, _ := h.slowness("a", artifacts.ID{2}, flops, read, now); a < 9.9 {
		t.Errorf("with another model: %.3g", a)
	}
	if a, _ := h.slowness("b", id, flops, read, now); a != 1 {
		t.Errorf("another peer is %.3g times slower", a)
	}
	for range 2 {
		h.add("a", tokens(3, now))
	}
	check("decoded at a third of what it says", 10, 3)
	for range lateDeeds {
		h.add("a", chunks(0.1, now.Add(time.Hour)))
	}
	check("faster than it says", 1, 1)
	for range lateDeeds {
		h.add("a", chunks(20, now))
	}
	check("slower again", 20, 20)
	now = now.Add(deedsFor + time.Minute)
	check("a day later", 1, 1)

	h.add("c", deed{model: id, flops: 1, bytes: 1, passes: 1, took: leastDeed / 2, at: now})
	h.add("c", deed{model: id, took: time.Hour, at: now})
	if len(h.peers["c"]) > 0 {
		t.Errorf("sessions that say nothing are remembered: %+v", h.peers["c"])
	}
	for i := range 2 * knownPeople {
		h.add(string(rune(0x1000+i)), chunks(1, now))
	}
	if len(h.peers) > knownPeople {
		t.Errorf("%d peers are remembered", len(h.peers))
	}
}

// A peer that says that it is ten times as fast as it is gets the first sessions, and not the fourth.
func TestOverstatedSpeed(t *testing.T) {
	tn := newTestNet(t)
	config, err := runtime.Inspect(tn.model)
	if err != nil {
		t.Fatal(err)
	}
	// What a node offers whose layers take delay for a row.
	offering := func(delay time.Duration, times float64) func(*Config) {
		return func(c *Config) {
			c.speed = runtime.Speed{PrefillFlops: times * config.LayerFlops[0] / delay.Seconds(), DecodeBytesPerSec: times * float64(config.LayerBytes[0]) / delay.Seconds()}
		}
	}
	honest := tn.startSlow(time.Millisecond, offering(time.Millisecond, 1))
	id := tn.publish(honest)
	liar := tn.startSlow(2*time.Millisecond, offering(2*time.Millisecond, 10))
	tn.serve(honest, id, 0, tn.layers())
	tn.serve(liar, id, 0, tn.layers())
	client := tn.start(func(c *Config) { c.Client = true })
	for i := range 4 {
		eventually(t, "two idle offers", func() bool {
			_ = client.host.Refresh(context.Background())
			p, _ := client.planPeers(id)
			return len(p) == 2 && p[0].Load == 0 && p[1].Load == 0
		})
		plan, err := (engine{client}).Plan(testContext(t), control.PlanRequest{Model: id.String(), PromptTokens: 100, NewTokens: 1, Constraints: control.Constraints{Shape: "local"}})
		if err != nil {
			t.Fatal(err)
		}
		switch decoder := plan.Plan.Decoder; {
		case i == 0 && decoder != liar.ID():
			t.Fatalf("the peer that says most isn't asked first: %s", plan.Explain)
		case i > 2 && decoder == liar.ID():
			t.Errorf("after %d sessions what a peer overstates still counts:\n%s", i, plan.Explain)
		}
		if _, err := client.run(testContext(t), control.RunRequest{Model: id.String(), Tokens: turnTokens(i, 100), PromptOnly: true, Fresh: true,
			Constraints: control.Constraints{Shape: "local"}}, quiet); err != nil {
			t.Fatal(err)
		}
	}
}
