package swarm

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

var soak = flag.Bool("soak", false, "kill half of forty nodes, too (make soak)")

// What a test here waits for happens within patience, which is less than the life of an offer: so no ghost lives longer than that.
const _ = uint(DefaultOfferTTL - patience)

// A node that was killed and comes back under its key, with other layers, is there once, and isn't taken for two.
func TestRestartUnderOneKey(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	b := startNode(t, info, node{boot: boot.Addrs()})
	id := Ephemeral()
	a := startNode(t, info, node{id: id, boot: boot.Addrs()})
	a.SetOffers([]Offer{testOffer(1, 0, 5), testOffer(2, 0, 9)})
	b.SetOffers([]Offer{testOffer(1, 5, 10)})
	for _, h := range []*Host{boot, b} {
		wantOffers(t, h, layersOffered{{a.ID(), 1}: {0, 5}, {a.ID(), 2}: {0, 9}, {b.ID(), 1}: {5, 10}})
	}
	a.lp.Close() // without a word
	again := startNode(t, info, node{id: id, boot: boot.Addrs()})
	again.SetOffers([]Offer{testOffer(1, 0, 3)})
	for _, h := range []*Host{boot, b, again} {
		wantOffers(t, h, layersOffered{{a.ID(), 1}: {0, 3}, {b.ID(), 1}: {5, 10}})
		if err := h.IdentityConflict(); err != nil {
			t.Errorf("%s: %v", short(h.ID()), err)
		}
	}
}

// Nobody can declare another dead: not by a push in its name, not by passing its offers on no longer.
func TestForgedDeathNotice(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	a := startNode(t, info, node{boot: boot.Addrs()})
	forger := startNode(t, info, node{boot: boot.Addrs()})
	a.SetOffers([]Offer{testOffer(1, 0, 5)})
	alive := layersOffered{{a.ID(), 1}: {0, 5}}
	for _, h := range []*Host{boot, forger} {
		wantOffers(t, h, alive)
	}
	presence := wire.Presence{Swarm: info.ID, Instance: 1}
	o := testOffer(1, 0, 0)
	o.Peer, o.Seq, o.TTL = a.ID(), 1<<63, time.Second
	forged, err := o.toWire(info.ID, forger.cfg.Identity)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*wire.OffersPush{
		"an empty push with a high number": {Presence: presence, Seq: 1 << 63},
		"an offer in its name":             {Presence: presence, Seq: 1 << 63, Offers: []wire.Offer{forged}},
	} {
		_, _ = boot.answerTrack(m, forger.ID()) // the connection says who pushes
		if got := known(boot); fmt.Sprint(got) != fmt.Sprint(alive) {
			t.Errorf("%s: %v", name, got)
		}
	}
	forger.book.forget(a.ID()) // from now on it says that there is nobody
	for range 3 {
		refreshed(t, boot)
	}
	wantOffers(t, boot, alive)
	// Who heard of the offer from the forger alone asks the others, too.
	c := startNode(t, info, node{boot: append(boot.Addrs(), forger.Addrs()...), change: func(c *Config) { c.Client = true }})
	refreshed(t, c)
	wantOffers(t, c, alive)
}

// Offers of before don't come back: not beside newer ones, not after a withdrawal, and not of the dead where nobody remembers their numbers.
func TestReplayedOffers(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	id := Ephemeral()
	a := startNode(t, info, node{id: id, boot: boot.Addrs()})
	a.SetOffers([]Offer{testOffer(1, 0, 9)})
	wantOffers(t, boot, layersOffered{{a.ID(), 1}: {0, 9}})
	old, _, err := a.signedOffers()
	if err != nil {
		t.Fatal(err)
	}
	replay := func(h *Host) {
		_ = h.book.hear(old[0], DefaultOfferTTL, boot.ID(), time.Now()) // as pullFrom does with what others pass on
	}
	a.SetOffers([]Offer{testOffer(1, 0, 3)})
	wantOffers(t, boot, layersOffered{{a.ID(), 1}: {0, 3}})
	replay(boot)
	wantOffers(t, boot, layersOffered{{a.ID(), 1}: {0, 3}})
	a.Close()
	wantOffers(t, boot, layersOffered{})
	replay(boot)
	wantOffers(t, boot, layersOffered{})
	fresh := startNode(t, info, node{boot: boot.Addrs()})
	replay(fresh)
	if got := known(fresh); len(got) != 0 {
		t.Errorf("a dead peer's old offer counts: %v", got)
	}
	again := startNode(t, info, node{id: id, boot: boot.Addrs()})
	again.SetOffers([]Offer{testOffer(1, 0, 2)})
	wantOffers(t, fresh, layersOffered{{a.ID(), 1}: {0, 2}})
	replay(fresh)
	wantOffers(t, fresh, layersOffered{{a.ID(), 1}: {0, 2}})
}

// A newcomer can use an invite that is open where it was made, though its own clock be ahead by ten minutes and the issuer's behind; who issued it decides.
func TestInviteAndSkewedClock(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	for ahead, ok := range map[time.Duration]bool{19 * time.Minute: true, 21 * time.Minute: false} {
		i, err := wire.ParseInvite(p.invite(t, RoleMember, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		i.Expires = time.Now().Add(-ahead).Unix() // as it looks by that clock
		dir := t.TempDir()
		id, err := LoadIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			_, err = joins(t, id, i.String(), dir)
		} else {
			_, err = Join(testCtx(t), id, i.String(), dir)
		}
		if (err == nil) != ok {
			t.Errorf("a clock %v ahead: %v", ahead, err)
		}
	}
}

// No time that somebody claims outlives what it may, and certificates of the next century are right in it.
func TestTheYear2100(t *testing.T) {
	t.Parallel()
	now := time.Now()
	then := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	owner, peer := Ephemeral(), Ephemeral().ID()
	owners := newAuthority(&Info{ID: privateID(owner.ID()), Owner: owner.ID()})
	c := issue(owner, peer, RoleMember, then)
	for when, ok := range map[time.Time]bool{now: false, then.Add(-wire.ClockSkew): true, then: true, then.Add(CertificateLife - time.Second): true, then.Add(CertificateLife): false} {
		if err := owners.checkCertificate(c, peer, when); (err == nil) != ok {
			t.Errorf("a certificate of 2100, at %v: %v", when, err)
		}
	}
	b := newOfferBook()
	o := bookOffer("A", 1, 1, time.Minute)
	o.TTL = uint32(then.Sub(now) / time.Second)
	if _, err := b.push("A", 1, 1, []wire.Offer{o}, now); err != nil {
		t.Fatal(err)
	}
	if err := b.hear(bookOffer("B", 1, 1, then.Sub(now)), then.Sub(now), "T", now); err != nil {
		t.Fatal(err)
	}
	if got := listing(b, now.Add(wire.MaxOfferTTL-time.Second)); got != "A 1 1 1s; B 1 1 1s; " {
		t.Errorf("a second before the longest life ends the book has %q", got)
	}
	if got := listing(b, now.Add(wire.MaxOfferTTL)); got != "" {
		t.Errorf("offers that claim to live until 2100: %s", got)
	}
	if lives(&wire.Listing{Expires: then.Unix()}, now) {
		t.Error("a listing that claims to live until 2100 is believed")
	}
}

// startTogether starts n nodes, all but the first, their bootstrap node, at the same instant, each with an offer.
func startTogether(t *testing.T, info *Info, n int) []*Host {
	t.Helper()
	first := startNode(t, info, node{listen: tcpOnly})
	all := make([]*Host, n)
	all[0] = first
	errs := make([]error, n)
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := 1; i < n; i++ {
		wg.Go(func() {
			<-begin
			all[i], errs[i] = Start(context.Background(), Config{Identity: Ephemeral(), Swarm: info, Listen: tcpOnly, Bootstrap: first.Addrs()})
		})
	}
	close(begin)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { all[i].Close() })
		all[i].SetOffers([]Offer{testOffer(1, i, i+1)})
	}
	return all
}

// mustAgree waits until every one of hosts knows exactly the offers of all of them.
func mustAgree(t *testing.T, hosts []*Host) {
	t.Helper()
	want := layersOffered{}
	for _, h := range hosts {
		own, _, err := h.signedOffers()
		if err != nil {
			t.Fatal(err)
		}
		want[peerModel{h.ID(), 1}] = [2]int{int(own[0].First), int(own[0].Last)}
	}
	for _, h := range hosts {
		eventually(t, func() string {
			if len(h.Connected()) > h.cfg.smallSwarm { // in a large swarm one asks
				if err := h.Refresh(testCtx(t)); err != nil {
					return err.Error()
				}
			}
			if got := known(h); fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Sprintf("%s knows %d offers %v, there are %d", short(h.ID()), len(got), got, len(want))
			}
			return ""
		})
	}
}

// Twenty nodes that start at the same instant find each other, and each counts the others once.
func TestTwentyAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("twenty nodes take longer than -short allows")
	}
	began := time.Now()
	mustAgree(t, startTogether(t, publicSwarm(t), 20))
	t.Logf("all know all after %v", time.Since(began).Round(10*time.Millisecond))
}

// Half of the nodes are killed without a word, the bootstrap node among them: the others agree on who is left, and nobody counts on a ghost.
func TestHalfIsKilled(t *testing.T) {
	n := 12
	switch {
	case *soak:
		n = 40
	case testing.Short():
		t.Skip("twelve nodes take longer than -short allows")
	}
	all := startTogether(t, publicSwarm(t), n)
	mustAgree(t, all)
	began := time.Now()
	for _, h := range all[:n/2] {
		h.lp.Close()
	}
	mustAgree(t, all[n/2:])
	t.Logf("%d of %d nodes agree %v after the others were killed", n-n/2, n, time.Since(began).Round(10*time.Millisecond))
}

// What isn't news waits for the next regular push: an idle node says nothing in between.
func TestOnlyNewsIsPushedAtOnce(t *testing.T) {
	t.Parallel()
	h := startNode(t, publicSwarm(t), node{change: func(c *Config) { c.publishEvery = time.Hour }})
	seq := func() uint64 {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.seq
	}
	o := testOffer(1, 0, 5)
	o.Links = []Link{{From: h.ID(), RTT: time.Millisecond, BytesPerSec: 1e6, Samples: 3, Age: time.Second}}
	h.SetOffers([]Offer{o})
	first := seq()
	older := o
	older.Links = []Link{o.Links[0]}
	older.Links[0].Age = time.Minute
	h.SetOffers([]Offer{older})
	if seq() != first {
		t.Error("a measurement that has got older is news")
	}
	if got := h.Offers(); got[0].Links[0].Age != time.Second {
		t.Errorf("number %d says two things: %+v", first, got)
	}
	busy := older
	busy.Load++
	h.SetOffers([]Offer{busy})
	if seq() == first {
		t.Error("a session more is no news")
	}
	h.SetOffers(nil)
	if len(h.Offers()) != 0 {
		t.Error("offers that were taken back are there")
	}
}
