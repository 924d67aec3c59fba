package swarm

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

func testOffer(model byte, first, last int) Offer {
	return Offer{Model: [32]byte{model}, ModelName: "smoke", First: first, Last: last, Embed: first == 0, Profile: [32]byte{9},
		PrefillFlops: 1e9, DecodeBytesPerSec: 2e9, UpBytesPerSec: 1e6, DownBytesPerSec: 3e6, KVFreeBytes: 1 << 30, Context: 2048, Load: 0.25, Trust: "any"}
}

// layersOffered is whose offers of which model are known, each with the layers.
type layersOffered map[peerModel][2]int

type peerModel struct {
	peer  PeerID
	model byte
}

func known(h *Host) layersOffered {
	got := layersOffered{}
	for _, o := range h.Offers() {
		got[peerModel{o.Peer, o.Model[0]}] = [2]int{o.First, o.Last}
	}
	return got
}

// wantOffers waits until h knows exactly the offers in want.
func wantOffers(t *testing.T, h *Host, want layersOffered) {
	t.Helper()
	eventually(t, func() string {
		if got := known(h); !reflect.DeepEqual(got, want) {
			return fmt.Sprintf("%s knows the offers %v, made were %v", short(h.ID()), got, want)
		}
		return ""
	})
}

func TestOffersArePushed(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	tracker := startNode(t, info, node{change: func(c *Config) { c.Tracker = true }})
	a := startNode(t, info, node{boot: tracker.Addrs()})
	b := startNode(t, info, node{boot: tracker.Addrs()})
	a.SetOffers([]Offer{testOffer(1, 0, 5)})
	b.SetOffers([]Offer{testOffer(1, 5, 10)})
	both := layersOffered{{a.ID(), 1}: {0, 5}, {b.ID(), 1}: {5, 10}}
	wantOffers(t, tracker, both)

	// A client that knows the tracker alone gets both, after contact with both.
	c := startNode(t, info, node{boot: tracker.Addrs(), change: func(c *Config) { c.Client, c.Listen = true, nil }})
	refreshed(t, c)
	wantOffers(t, c, both)
	for _, p := range []PeerID{a.ID(), b.ID()} {
		if !slices.Contains(c.Connected(), p) {
			t.Errorf("an offer of %s counts without contact", p)
		}
	}
	for _, o := range c.Offers() {
		if o.Peer != a.ID() {
			continue
		}
		want := testOffer(1, 0, 5)
		want.Peer, want.Seq, want.TTL, want.Addrs = o.Peer, o.Seq, DefaultOfferTTL, o.Addrs
		if !reflect.DeepEqual(o, want) || o.Seq == 0 || len(o.Addrs) == 0 {
			t.Errorf("offer arrived as %+v", o)
		}
	}

	// A change is pushed at once; Close withdraws.
	a.SetOffers([]Offer{testOffer(1, 0, 3)})
	wantOffers(t, tracker, layersOffered{{a.ID(), 1}: {0, 3}, {b.ID(), 1}: {5, 10}})
	b.Close()
	wantOffers(t, tracker, layersOffered{{a.ID(), 1}: {0, 3}})
	eventually(t, func() string {
		if err := c.RefreshModel(testCtx(t), [32]byte{1}); err != nil {
			return err.Error()
		}
		if got := known(c); !reflect.DeepEqual(got, layersOffered{{a.ID(), 1}: {0, 3}}) {
			return fmt.Sprintf("the client knows %v", got)
		}
		return ""
	})
}

// In a large swarm only trackers are told, and asking them is enough.
func TestLargeSwarmUsesTrackers(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	large := func(c *Config) { c.smallSwarm = 1 }
	tracker := startNode(t, info, node{change: func(c *Config) { large(c); c.Tracker = true }})
	var nodes []*Host
	for range 3 {
		nodes = append(nodes, startNode(t, info, node{boot: tracker.Addrs(), change: large}))
	}
	eventually(t, func() string {
		for _, h := range nodes {
			if len(h.Connected()) < 3 || len(h.knownTrackers()) == 0 {
				return "not everyone has met"
			}
		}
		return ""
	})
	// A round of pushes that began before everyone had met may go to everyone, and takes the offers that there are
	// when it gets on. The tracker is pushed to once in a round: what it has of model 2 is of a later round than model 1.
	want := layersOffered{}
	for model := byte(1); model <= 3; model++ {
		clear(want)
		for i, h := range nodes {
			h.SetOffers([]Offer{testOffer(model, i, i+1)})
			want[peerModel{h.ID(), model}] = [2]int{i, i + 1}
		}
		wantOffers(t, tracker, want)
	}
	for _, h := range nodes {
		for o := range known(h) {
			if o.peer != h.ID() && o.model == 3 {
				t.Errorf("%s was told by %s directly", short(h.ID()), short(o.peer))
			}
		}
		refreshed(t, h)
		for o, layers := range want {
			if got := known(h)[o]; got != layers {
				t.Errorf("%s knows %v of the offer of %s, want %v", short(h.ID()), got, short(o.peer), layers)
			}
		}
	}
}

// In a large swarm without trackers the peers that are the nearest to the trackers' key stand in, the same for everybody: all offers meet there.
func TestStandIns(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	large := func(c *Config) { c.smallSwarm = 1 }
	boot := startNode(t, info, node{change: large})
	nodes := []*Host{boot}
	for range 9 {
		nodes = append(nodes, startNode(t, info, node{boot: boot.Addrs(), change: large}))
	}
	distance := func(p PeerID) []byte {
		key, id := sha256.Sum256(recordKey(trackerKey).Hash()), sha256.Sum256([]byte(mustPeer(t, p)))
		d := make([]byte, len(key))
		subtle.XORBytes(d, key[:], id[:])
		return d
	}
	want := layersOffered{}
	for i, h := range nodes {
		var others []PeerID
		for _, o := range nodes {
			if o != h {
				others = append(others, o.ID())
			}
		}
		slices.SortFunc(others, func(a, b PeerID) int { return bytes.Compare(distance(a), distance(b)) })
		eventually(t, func() string {
			if got := h.targets(); !slices.Equal(got, others[:maxTrackers]) {
				h.meetStandIns(testCtx(t)) // not all were there yet at the last time
				return fmt.Sprintf("%s tells %v, the nearest to the key are %v", short(h.ID()), got, others[:maxTrackers])
			}
			return ""
		})
		h.SetOffers([]Offer{testOffer(1, i, i+1)})
		want[peerModel{h.ID(), 1}] = [2]int{i, i + 1}
	}
	for _, h := range nodes {
		eventually(t, func() string {
			if err := h.Refresh(testCtx(t)); err != nil {
				return err.Error()
			}
			if got := known(h); !reflect.DeepEqual(got, want) {
				return fmt.Sprintf("%s knows %v, want %v", short(h.ID()), got, want)
			}
			return ""
		})
	}
}

func TestOffersWithoutTracker(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	a := startNode(t, info, node{boot: boot.Addrs()})
	b := startNode(t, info, node{boot: boot.Addrs()})
	a.SetOffers([]Offer{testOffer(1, 0, 5)})
	b.SetOffers([]Offer{testOffer(1, 5, 10)})
	both := layersOffered{{a.ID(), 1}: {0, 5}, {b.ID(), 1}: {5, 10}}
	for _, h := range []*Host{boot, a, b} {
		wantOffers(t, h, both)
	}
}

// An offer of a peer that died without a word counts no more.
func TestOfferOfTheDead(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	a := startNode(t, info, node{boot: boot.Addrs()})
	a.SetOffers([]Offer{testOffer(1, 0, 5)})
	wantOffers(t, boot, layersOffered{{a.ID(), 1}: {0, 5}})
	a.lp.Close() // no goodbye
	wantOffers(t, boot, layersOffered{})
	c := startNode(t, info, node{boot: boot.Addrs(), change: func(c *Config) { c.Client = true }})
	refreshed(t, c)
	if got := c.Offers(); len(got) != 0 {
		t.Errorf("the dead peer's offer counts: %+v", got)
	}
}

func TestBadOffersAreRefused(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	h := startNode(t, info, node{})
	peer := Ephemeral()
	sign := func(by *Identity, swarm string, change func(*Offer)) wire.Offer {
		o := testOffer(1, 0, 5)
		o.Peer, o.Seq, o.TTL = peer.ID(), 100, time.Minute
		change(&o)
		w, err := o.toWire(swarm, by)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	same := func(*Offer) {}
	presence := wire.Presence{Swarm: info.ID, Instance: 1}
	push := func(p wire.Presence, o wire.Offer) error {
		_, err := h.answerTrack(&wire.OffersPush{Presence: p, Seq: 100, Offers: []wire.Offer{o}}, peer.ID())
		return err
	}
	if err := push(presence, sign(peer, info.ID, same)); err != nil {
		t.Fatal(err)
	}
	changed := sign(peer, info.ID, same)
	changed.Load = 0
	for name, o := range map[string]wire.Offer{
		"signed by another":  sign(Ephemeral(), info.ID, same),
		"for another swarm":  sign(peer, "pub-other", same),
		"changed":            changed,
		"someone else's":     sign(peer, info.ID, func(o *Offer) { o.Peer = Ephemeral().ID() }),
		"with other numbers": sign(peer, info.ID, func(o *Offer) { o.Seq = 99 }),
	} {
		if push(presence, o) == nil {
			t.Errorf("an offer %s is taken", name)
		}
	}
	if push(wire.Presence{Swarm: "pub-other"}, sign(peer, info.ID, same)) == nil {
		t.Error("a peer of another swarm is heard")
	}
	if _, err := h.answerTrack(&wire.Ping{}, peer.ID()); err == nil {
		t.Error("a foreign frame is answered")
	}
	if _, err := h.answerTrack(&wire.ListPull{Presence: presence}, peer.ID()); err == nil {
		t.Error("a public swarm has a revocation list")
	}
	if _, err := h.answerTrack(&wire.RevocationLists{}, peer.ID()); err == nil {
		t.Error("a public swarm takes a revocation list")
	}
	for _, bad := range []func(*Offer){
		func(o *Offer) { o.First, o.Last = 5, 4 },
		func(o *Offer) { o.First = -1 },
		func(o *Offer) { o.Load = -1 },
		func(o *Offer) { o.KVFreeBytes = -1 },
		func(o *Offer) { o.ModelName = strings.Repeat("x", 1000) },
		func(o *Offer) { o.Addrs = make([]string, 100) },
	} {
		o := testOffer(1, 0, 1)
		bad(&o)
		if _, err := o.toWire(info.ID, peer); err == nil {
			t.Errorf("offer %+v is signed", o)
		}
	}
}

// A client-role member of a private swarm uses it, but its offers don't count.
func TestClientRole(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	serveEcho(p.owner)
	c := p.join(t, RoleClient)
	mustEcho(t, c, p.owner.ID(), "x")
	w, err := func() (wire.Offer, error) {
		o := testOffer(1, 0, 1)
		o.Peer, o.Seq, o.TTL = c.ID(), 1, time.Minute
		return o.toWire(p.info.ID, c.cfg.Identity)
	}()
	if err != nil {
		t.Fatal(err)
	}
	push := &wire.OffersPush{Presence: c.presence(), Seq: 1, Offers: []wire.Offer{w}}
	if _, err := p.owner.answerTrack(push, c.ID()); err == nil || !strings.Contains(err.Error(), "use the swarm") {
		t.Errorf("offer of a client: %v", err)
	}
}

func TestReplyIsBounded(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	h := startNode(t, info, node{})
	now := time.Now()
	for i := range 300 {
		o := wire.Offer{Swarm: info.ID, Peer: strings.Repeat("p", 100) + string(rune('A'+i)), Seq: 1, TTL: 60, ModelName: strings.Repeat("n", wire.MaxModelName),
			Addrs: slices.Repeat([]string{strings.Repeat("a", wire.MaxAddr)}, wire.MaxAddrs)}
		if err := h.book.hear(o, time.Minute, "T", now); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []uint32{0, 1, 200, 1 << 31, 1<<32 - 1} {
		r := h.offersFor(&wire.OffersPull{Max: limit}, "x", now)
		want := min(int(limit), wire.MaxOffersReply)
		if len(r.Offers) != want || !r.Truncated {
			t.Errorf("asked for %d, got %d, truncated %v", limit, len(r.Offers), r.Truncated)
		}
		if frame := wire.Append(nil, r); len(frame) > wire.MaxControl {
			t.Errorf("the reply has %d bytes", len(frame))
		}
	}
	told := map[string]bool{}
	for range 60 { // each leaves a third out: that nobody tells of one is as likely as 300 in 3^60
		for _, o := range h.offersFor(&wire.OffersPull{Max: 200}, "x", now).Offers {
			told[o.Offer.Peer] = true
		}
	}
	if len(told) != 300 {
		t.Errorf("whoever asks again and again hears of %d peers of 300", len(told))
	}
	if r := h.offersFor(&wire.OffersPull{Max: 200, Model: [32]byte{7}}, "x", now); len(r.Offers) != 0 || r.Truncated {
		t.Errorf("offers of a model nobody has: %d", len(r.Offers))
	}
}

func TestTwoNodesWithOneKey(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	id := Ephemeral()
	fast := func(c *Config) { c.publishEvery = 100 * time.Millisecond }
	a := startNode(t, info, node{id: id, boot: boot.Addrs(), change: fast})
	eventually(t, func() string {
		if len(boot.Connected()) == 0 {
			return "not connected"
		}
		return ""
	})
	if err := a.IdentityConflict(); err != nil {
		t.Errorf("one node alone: %v", err)
	}
	b := startNode(t, info, node{id: id, boot: boot.Addrs(), change: fast})
	for _, h := range []*Host{a, b} {
		eventually(t, func() string {
			if h.IdentityConflict() == nil {
				return "the second node isn't noticed"
			}
			return ""
		})
	}
}

// A node whose clock went back between two runs is believed again.
func TestClockWentBack(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	id := Ephemeral()
	future := uint64(time.Now().Add(24 * time.Hour).UnixNano())
	if _, err := boot.book.push(id.ID(), 1, future, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	a := startNode(t, info, node{id: id, boot: boot.Addrs()})
	a.SetOffers([]Offer{testOffer(1, 0, 5)})
	wantOffers(t, boot, layersOffered{{a.ID(), 1}: {0, 5}})
}
