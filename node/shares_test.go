package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm/wire"
)

func TestShares(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	k := taken{shares: Shares{Sessions: 2, Tokens: 600}}
	if r := k.take("a", 2, 1, now); r == nil || r.Code != wire.CodeBusy || r.RetryAfter <= 0 {
		t.Errorf("a third session: %v", r)
	}
	if r := k.take("a", 0, 400, now); r != nil {
		t.Errorf("the first session: %v", r)
	}
	r := k.take("a", 1, 400, now)
	if r == nil || r.Code != wire.CodeBusy || r.RetryAfter < 20*time.Second || r.RetryAfter > 21*time.Second {
		t.Fatalf("more than a minute's tokens: %v, again in %v", r, r.RetryAfter)
	}
	if r := k.take("b", 0, 600, now); r != nil {
		t.Errorf("another client pays for the first: %v", r)
	}
	if r := k.take("a", 1, 400, now.Add(r.RetryAfter)); r != nil {
		t.Errorf("when it was told to ask again: %v", r)
	}
	// A request for more than a minute's share is admitted with a full store, and paid for afterwards.
	if r := k.take("c", 0, 3000, now); r != nil {
		t.Errorf("a long prompt: %v", r)
	}
	if r := k.take("c", 0, 1, now.Add(3*time.Minute)); r == nil {
		t.Error("a long prompt costs nothing")
	}
	if r := k.take("c", 0, 600, now.Add(5*time.Minute+time.Second)); r != nil {
		t.Errorf("after the debt is paid: %v", r)
	}
	// What is remembered is bounded, and those who owe are remembered first.
	for i := range 3 * maxPurses {
		if r := k.take(fmt.Sprint("x", i), 0, 0, now.Add(6*time.Minute)); r != nil {
			t.Fatal(r)
		}
	}
	if len(k.clients) > maxPurses {
		t.Errorf("%d clients are remembered", len(k.clients))
	}
	none := taken{}
	if r := none.take("a", 1e6, 1e9, now); r != nil || len(none.clients) != 0 {
		t.Errorf("without bounds: %v", r)
	}
}

// A client that has had its share is told busy, with when to come back, and goes on later; another one is served meanwhile.
func TestSharesOfSessions(t *testing.T) {
	tn := newTestNet(t)
	n := tn.start(func(c *Config) { c.Shares = Shares{Tokens: 100} })
	id := tn.publish(n)
	tn.serve(n, id, 0, tn.layers())
	one, other := tn.start(func(c *Config) { c.Client = true }), tn.start(func(c *Config) { c.Client = true })
	ctx := testContext(t)
	if _, err := tn.run(ctx, one, id, control.Constraints{}, nil); err != nil {
		t.Fatal(err)
	}
	_, err := tn.run(ctx, one, id, control.Constraints{}, nil)
	if err == nil || !strings.Contains(err.Error(), "has had its 100 tokens of this minute") {
		t.Errorf("a second run: %v", err)
	}
	if _, err := tn.run(ctx, other, id, control.Constraints{}, nil); err != nil {
		t.Errorf("another client's run: %v", err)
	}
	if _, err := tn.run(ctx, n, id, control.Constraints{}, nil); err != nil {
		t.Errorf("the node's own run: %v", err)
	}
}

// What is blocked is out at once, stays out after a restart, and comes back.
func TestBlock(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	dir := t.TempDir()
	n := tn.start(func(c *Config) { c.DataDir = dir })
	tn.serve(n, id, 0, tn.layers())
	member := tn.start(nil)
	ctx := testContext(t)
	offered := func() bool {
		_ = member.host.Refresh(ctx)
		p, _ := member.planPeers(id)
		return len(p) == 1
	}
	block := func(what string, undo bool) *control.Blocked {
		t.Helper()
		b, err := n.Control().Block(ctx, control.BlockRequest{What: what, Unblock: undo})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	eventually(t, "the offer", offered)

	if b := block(member.ID(), false); len(b.Peers) != 1 || len(b.Models) != 0 {
		t.Errorf("blocked are %+v", b)
	}
	eventually(t, "the end of the connection and of the offer", func() bool { return !offered() && !slices.Contains(n.host.Connected(), member.ID()) })
	n.sessions.Lock()
	r := n.shareRefusalLocked(member.ID(), 1)
	n.sessions.Unlock()
	if r == nil {
		t.Error("a session of a blocked client, by another decoder, is let in")
	}
	if _, err := n.host.Open(ctx, member.ID(), protoBundle); err == nil {
		t.Error("a blocked peer is dialled")
	}
	block(member.ID(), true)
	eventually(t, "the offer again", offered)

	if b := block(id.Short(), false); len(b.Models) != 1 || b.Models[0] != id.String() {
		t.Errorf("blocked are %+v", b)
	}
	eventually(t, "the end of the offer", func() bool { return !offered() })
	if _, err := tn.run(ctx, n, id, control.Constraints{}, nil); err == nil || !strings.Contains(err.Error(), "starling block --undo") {
		t.Errorf("a run of a blocked model: %v", err)
	}
	if _, r := n.servedFor(id, n.served(id).exec.Layers()); r == nil {
		t.Error("a blocked model is served")
	}
	for _, bad := range []string{n.ID(), "no such model"} {
		if _, err := n.Control().Block(ctx, control.BlockRequest{What: bad}); err == nil {
			t.Errorf("%q is blocked", bad)
		}
	}
	n.Close()
	n = tn.start(func(c *Config) { c.DataDir = dir })
	if !n.isBlocked(id.String()) {
		t.Error("a restart forgets what is blocked")
	}
	block(id.String(), true)
	if _, err := n.serve(ctx, id, nil, false, "", quiet); err != nil {
		t.Errorf("serving it again: %v", err)
	}
	eventually(t, "the offer after all", offered)
}

func FuzzParseBlocked(f *testing.F) {
	for _, s := range []string{`{}`, `{"peers":["12D3KooWPeGxvCUwRd7p8hBy9XiuPaV1M4aFUtrHmEXdUM6pTeAs"],"models":null}`, `{"models":["` + strings.Repeat("ab", 32) + `"]}`, `{"peers":["x"]}`, `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := parseBlocked(text)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %v", err)
		}
	})
}
