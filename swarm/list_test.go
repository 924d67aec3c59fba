package swarm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

func testListing(model byte, name string) Listing {
	return Listing{Model: [32]byte{model}, Name: name, Family: "llama", Quant: "Q4_1", Licence: "apache-2.0", Bytes: 98362432, Layers: 30}
}

// wantListings waits until h knows exactly want as "publisher name" for a query.
func wantListings(t *testing.T, h *Host, query string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want)) // it may be the caller's slice
	eventually(t, func() string {
		var got []string
		for _, l := range h.Listings(query) {
			got = append(got, l.Publisher+" "+l.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("listings known for %q are %q, want %q", query, got, want)
		}
		return ""
	})
}

// searched asks for listings, and again where nobody has answered in time.
func searched(t *testing.T, h *Host, query string) {
	t.Helper()
	eventually(t, func() string {
		if err := h.SearchListings(testCtx(t), query); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestListingsOutliveTheirPublisher(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	a := startNode(t, info, node{boot: boot.Addrs()})
	b := startNode(t, info, node{boot: boot.Addrs()})
	a.SetListings([]Listing{testListing(1, "SmolLM2-135M-Instruct"), testListing(2, "Other")})
	b.SetListings([]Listing{testListing(3, "SmolLM2 135M")}) // two publishers may use one name
	smol := []string{a.ID() + " SmolLM2-135M-Instruct", b.ID() + " SmolLM2 135M"}
	for _, h := range []*Host{boot, a, b} {
		wantListings(t, h, "smollm2 135", smol...)
		wantListings(t, h, "INSTRUCT q4_1 apache", smol[0])
		wantListings(t, h, "", append([]string{a.ID() + " Other"}, smol...)...)
		wantListings(t, h, "mollm2")
	}
	got := boot.Listings("instruct")[0]
	want := testListing(1, "SmolLM2-135M-Instruct")
	want.Publisher, want.Seq, want.Expires = a.ID(), got.Seq, got.Expires
	if left := time.Until(got.Expires); got != want || left <= 23*time.Hour || left > 24*time.Hour {
		t.Errorf("listing arrived as %+v", got)
	}

	a.SetListings([]Listing{testListing(1, "SmolLM2-135M-Instruct")})
	wantListings(t, boot, "", smol...)
	a.Close()
	c := startNode(t, info, node{boot: boot.Addrs(), change: func(c *Config) { c.Client = true }})
	searched(t, c, "smollm2")
	wantListings(t, c, "smollm2", smol...)
	if err := c.SearchListings(testCtx(t), strings.Repeat("x", wire.MaxQuery+1)); err == nil {
		t.Error("a query beyond the limit is sent")
	}
	c.SetListings([]Listing{testListing(9, "client's")})
	wantListings(t, c, "client")
}

// In a large swarm trackers are told and asked; the DHT leads to publishers by each word of a name and to holders by model ID.
func TestListingsInLargeSwarm(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	large := func(c *Config) { c.smallSwarm = 1 }
	tracker := startNode(t, info, node{change: func(c *Config) { large(c); c.Tracker = true }})
	a, b := startNode(t, info, node{boot: tracker.Addrs(), change: large}), startNode(t, info, node{boot: tracker.Addrs(), change: large})
	eventually(t, func() string {
		if len(a.Connected()) < 2 || len(b.Connected()) < 2 || len(a.knownTrackers()) == 0 {
			return "not everyone has met"
		}
		return ""
	})
	for _, model := range []byte{2, 3, 1} { // rounds of pushes that may go to everyone are over then, as in TestLargeSwarmUsesTrackers
		a.SetOffers([]Offer{testOffer(model, 0, 5)})
		wantOffers(t, tracker, layersOffered{{a.ID(), model}: {0, 5}})
	}
	a.SetListings([]Listing{testListing(1, "SmolLM2-135M")})
	wantListings(t, tracker, "", a.ID()+" SmolLM2-135M")
	if got := b.Listings(""); len(got) > 0 {
		t.Errorf("a node that is no tracker was told of %+v", got)
	}
	searched(t, b, "135m")
	wantListings(t, b, "", a.ID()+" SmolLM2-135M")
	for _, key := range [][32]byte{wordKey("smollm2"), wordKey("135m"), {1}} {
		eventually(t, func() string {
			if peers, err := b.Lookup(testCtx(t), key, 10); err != nil || !slices.Contains(peers, a.ID()) {
				return fmt.Sprintf("the DHT has %v for %x, %v", peers, key[:4], err)
			}
			return ""
		})
	}
	eventually(t, func() string {
		if err := b.FindModel(testCtx(t), [32]byte{1}); err != nil {
			return err.Error()
		}
		if got := known(b); !maps.Equal(got, layersOffered{{a.ID(), 1}: {0, 5}}) {
			return fmt.Sprintf("the offers known are %v", got)
		}
		return ""
	})
}

func signedListing(t *testing.T, by *Identity, swarm string, change func(*Listing)) wire.Listing {
	t.Helper()
	l := testListing(1, "model")
	l.Publisher, l.Seq, l.Expires = by.ID(), 100, time.Now().Add(time.Hour)
	if change != nil {
		change(&l)
	}
	w, err := l.toWire(swarm, by)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestBadListingsAreRefused(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	h := startNode(t, info, node{})
	peer := Ephemeral()
	push := func(l wire.Listing) error {
		_, err := h.answerTrack(&wire.ListingsPush{Presence: wire.Presence{Swarm: info.ID}, Seq: 100, Listings: []wire.Listing{l}}, peer.ID())
		return err
	}
	if err := push(signedListing(t, peer, info.ID, nil)); err != nil {
		t.Fatal(err)
	}
	changed := signedListing(t, peer, info.ID, nil)
	changed.Licence = "public domain"
	for name, l := range map[string]wire.Listing{
		"signed by another":    signedListing(t, Ephemeral(), info.ID, func(l *Listing) { l.Publisher = peer.ID() }),
		"for another swarm":    signedListing(t, peer, "pub-other", nil),
		"changed":              changed,
		"someone else's":       signedListing(t, peer, info.ID, func(l *Listing) { l.Publisher = Ephemeral().ID() }),
		"with another number":  signedListing(t, peer, info.ID, func(l *Listing) { l.Seq = 99 }),
		"that has expired":     signedListing(t, peer, info.ID, func(l *Listing) { l.Expires = time.Now().Add(-time.Second) }),
		"that lives for years": signedListing(t, peer, info.ID, func(l *Listing) { l.Expires = time.Now().Add(wire.MaxListingLife + 2*wire.ClockSkew) }),
	} {
		if push(l) == nil {
			t.Errorf("a listing %s is taken", name)
		}
	}
	for _, bad := range []func(*Listing){
		func(l *Listing) { l.Layers = 0 },
		func(l *Listing) { l.Layers = wire.MaxLayers + 1 },
		func(l *Listing) { l.Name = "" },
		func(l *Listing) { l.Bytes = 0 },
	} {
		l := testListing(1, "x")
		bad(&l)
		if _, err := l.toWire(info.ID, peer); err == nil {
			t.Errorf("listing %+v is signed", l)
		}
	}
}

// A client-role member of a private swarm uses it, but its listings don't count.
func TestListingOfClientRole(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	serveEcho(p.owner)
	c := p.join(t, RoleClient)
	mustEcho(t, c, p.owner.ID(), "x") // it has shown its certificate
	l := signedListing(t, c.cfg.Identity, p.info.ID, nil)
	if _, err := p.owner.answerTrack(&wire.ListingsPush{Presence: c.presence(), Seq: 100, Listings: []wire.Listing{l}}, c.ID()); err == nil {
		t.Error("a client's listing is taken")
	}
}

// A publisher whose clock went back between two runs is believed again.
func TestListingsAfterClockWentBack(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	id := Ephemeral()
	if err := boot.catalogue.push(id.ID(), uint64(time.Now().Add(time.Hour).UnixNano()), nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	a := startNode(t, info, node{id: id, boot: boot.Addrs()})
	a.SetListings([]Listing{testListing(1, "model")})
	wantListings(t, boot, "", a.ID()+" model")
}

func TestCatalogue(t *testing.T) {
	now := time.Unix(1e9, 0)
	listing := func(peer string, seq uint64, model byte, life time.Duration) wire.Listing {
		return wire.Listing{Peer: peer, Seq: seq, Model: [32]byte{model}, Name: "m", Expires: now.Add(life).Unix()}
	}
	c := newCatalogue()
	hear := func(l wire.Listing) error { return c.hear(&l, now) }
	names := func(at time.Time) (s string) {
		for _, l := range c.find([32]byte{}, "", at) {
			s += fmt.Sprintf("%s%d.%d ", l.Peer, l.Model[0], l.Seq)
		}
		return s
	}
	for _, step := range []struct {
		name string
		err  error
		want string
		do   func() error
	}{
		{"heard", nil, "a1.5 ", func() error { return hear(listing("a", 5, 1, time.Hour)) }},
		{"heard again", nil, "a1.5 ", func() error { return hear(listing("a", 5, 1, time.Hour)) }},
		{"an older one", errReplay, "a1.5 ", func() error { return hear(listing("a", 4, 1, time.Hour)) }},
		{"a newer one", nil, "a1.7 ", func() error { return hear(listing("a", 7, 1, 2*time.Hour)) }},
		{"one that has expired", errLifetime, "a1.7 ", func() error { return hear(listing("a", 9, 1, 0)) }},
		{"one that lives too long", errLifetime, "a1.7 ", func() error { return hear(listing("a", 9, 1, 25*time.Hour)) }},
		{"a push", nil, "a2.8 ", func() error { return c.push("a", 8, []wire.Listing{listing("a", 8, 2, 3*time.Hour)}, now) }},
		{"what the push withdrew", errReplay, "a2.8 ", func() error { return hear(listing("a", 7, 1, 2*time.Hour)) }},
		{"an older push", errReplay, "a2.8 ", func() error { return c.push("a", 7, nil, now) }},
		{"another publisher", nil, "a2.8 b2.1 ", func() error { return hear(listing("b", 1, 2, time.Hour)) }},
	} {
		if err := step.do(); !errors.Is(err, step.err) {
			t.Errorf("%s: %v, want %v", step.name, err, step.err)
		}
		if got := names(now); got != step.want {
			t.Errorf("%s: %q is known, want %q", step.name, got, step.want)
		}
	}
	if got := names(now.Add(2 * time.Hour)); got != "a2.8 " {
		t.Errorf("after 2 h %q is known", got)
	}
	if got := names(now.Add(3 * time.Hour)); got != "" || c.count != 0 {
		t.Errorf("after 3 h %q is known, counted as %d", got, c.count)
	}
	if err := c.hear(&wire.Listing{Peer: "a", Seq: 7, Model: [32]byte{1}, Expires: now.Add(20 * time.Hour).Unix()}, now.Add(3*time.Hour)); !errors.Is(err, errReplay) {
		t.Errorf("what was withdrawn and could live: %v", err)
	}
	c.find([32]byte{}, "", now.Add(25*time.Hour))
	if len(c.publishers) != 0 {
		t.Errorf("%d publishers are remembered when nothing of them can live", len(c.publishers))
	}

	c = newCatalogue()
	for i := range wire.MaxOwnListings {
		l := listing("a", 1, byte(i), time.Hour)
		if err := hear(l); err != nil {
			t.Fatal(err)
		}
	}
	if hear(listing("a", 1, 255, time.Hour)) == nil {
		t.Error("one publisher has more listings than it may")
	}
	for i := range maxPublishers {
		if err := hear(listing(fmt.Sprint("p", i), 1, 1, time.Hour)); (err == nil) != (i < maxPublishers-1) {
			t.Fatalf("publisher %d: %v", i, err)
		}
	}
}
