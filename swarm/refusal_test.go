package swarm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/transport"

	"github.com/starling-swarm/starling/swarm/wire"
)

// lines keeps what a node logs.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if containsAll(line, parts...) {
			return true
		}
	}
	return false
}

// knock shows a message to a node over each of its addresses, as id, and returns what it says to that.
func knock(t *testing.T, to *Host, id *Identity, m wire.Message) (answers []string) {
	t.Helper()
	for _, addr := range to.Addrs() {
		infos, err := parseBootstrap([]string{addr})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			said := make(chan string, 1)
			h, err := newLibp2p(id, nil, func(ctx context.Context, conn transport.CapableConn, dialled bool) error {
				reply, err := exchange(ctx, conn, m, wire.MaxJoin)
				var refused *wire.JoinRefused
				if errors.As(err, &refused) {
					said <- refused.Text
				} else {
					said <- fmt.Sprintf("%T, %v", reply, err)
				}
				return errRedeemed
			})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			_ = h.Connect(testCtx(t), infos[0]) // its admission ends it
			select {
			case s := <-said:
				answers = append(answers, s)
				return ""
			default:
				return "no word from " + addr
			}
		})
	}
	return answers
}

// Whoever is no member is cut off with one and the same sentence, from which it learns nothing; the member's log says why. A peer that
// proves that it was a member is told.
func TestRefusalsSayWhyToMembersOnly(t *testing.T) {
	t.Parallel()
	log := &lines{}
	p := newPrivateWith(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	key, err := OpenSwarms(p.dir).ownerKey(p.info.ID)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	someone, revoked, spender := Ephemeral(), Ephemeral(), Ephemeral()
	theirs := Ephemeral()
	if err := p.owner.Revoke(revoked.ID()); err != nil {
		t.Fatal(err)
	}
	hello := func(c *wire.Certificate) wire.Message { return &wire.Hello{Certificate: *c} }
	forged := issue(theirs, someone.ID(), RoleMember, now)
	forged.Swarm = p.info.ID
	redeem := func(ttl time.Duration) *wire.Redeem {
		i, err := wire.ParseInvite(p.invite(t, RoleMember, ttl))
		if err != nil {
			t.Fatal(err)
		}
		return &wire.Redeem{Swarm: i.Swarm, Secret: i.Secret}
	}
	spent, expired := redeem(time.Hour), redeem(time.Second)
	knock(t, p.owner, spender, spent)
	time.Sleep(1100 * time.Millisecond) // until the invite has run out
	for name, c := range map[string]struct {
		by   *Identity
		say  wire.Message
		told string // what it hears
		log  string // what the member's log says
	}{
		"certificate of another swarm": {someone, hello(issue(theirs, someone.ID(), RoleMember, now)), errStranger.Error(), "is for swarm"},
		"forged certificate":           {someone, hello(forged), errStranger.Error(), "signature"},
		"certificate of another peer":  {someone, hello(issue(key, p.owner.ID(), RoleMember, now)), errStranger.Error(), "shows the certificate of"},
		"expired certificate":          {someone, hello(issue(key, someone.ID(), RoleMember, now.Add(-CertificateLife))), "ran out at", "ran out at"},
		"revoked member":               {revoked, hello(issue(key, revoked.ID(), RoleMember, now)), "was revoked", "was revoked"},
		"revoked peer, new invite":     {revoked, redeem(time.Hour), "was revoked", "was revoked"},
		"spent invite":                 {someone, spent, errInvite.Error(), "it was spent by " + spender.ID()},
		"expired invite":               {someone, expired, errInvite.Error(), "it ran out at"},
		"unknown secret":               {someone, &wire.Redeem{Swarm: p.info.ID}, errInvite.Error(), "no invite made here"},
		"invite of another swarm":      {someone, &wire.Redeem{Swarm: privateID(theirs.ID())}, errInvite.Error(), "another swarm"},
	} {
		for _, said := range knock(t, p.owner, c.by, c.say) {
			if !strings.Contains(said, c.told) {
				t.Errorf("%s: it hears %q, want %q", name, said, c.told)
			}
			if strings.HasPrefix(c.told, "this ") && (said != c.told || strings.Contains(said, p.info.ID) || strings.Contains(said, p.info.Name)) {
				t.Errorf("%s: the stranger hears %q", name, said)
			}
		}
		p.owner.members.turnedAway.mu.Lock()
		p.owner.members.turnedAway.told = 0 // this test has more to tell than a minute's
		p.owner.members.turnedAway.mu.Unlock()
		eventually(t, func() string {
			if !log.has("connection refused", c.by.ID(), c.log, "addr=/ip4/127.0.0.1/") {
				return fmt.Sprintf("%s: the member's log doesn't say %q", name, c.log)
			}
			return ""
		})
	}
}

func TestRefusalLogIsBounded(t *testing.T) {
	var l refusalLog
	now := time.Unix(1_700_000_000, 0)
	told := 0
	for range 1000 {
		if _, tell := l.note(now); tell {
			told++
		}
	}
	if told != refusalsPerMinute {
		t.Errorf("%d refusals are told in a minute", told)
	}
	if untold, tell := l.note(now.Add(time.Minute)); !tell || untold != 1000-refusalsPerMinute {
		t.Errorf("a minute later: %v, after %d", tell, untold)
	}
}

// A role says whose offers count and who is believed to be a tracker.
func TestRoles(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	serveEcho(p.owner)
	for _, c := range []struct {
		role           Role
		serves, tracks bool
	}{{RoleMember, true, true}, {RoleVolunteer, true, false}, {RoleTracker, false, true}, {RoleClient, false, false}} {
		if parsed, err := ParseRole(c.role.String()); err != nil || parsed != c.role {
			t.Errorf("%v is parsed as %v, %v", c.role, parsed, err)
		}
		h := p.joinWith(t, c.role, func(c *Config) { c.Tracker = true })
		mustEcho(t, h, p.owner.ID(), "x") // all may use the swarm
		if (h.Serves() == nil) != c.serves {
			t.Errorf("%v: it serves: %v", c.role, h.Serves())
		}
		o := testOffer(1, 0, 1)
		h.SetOffers([]Offer{o})
		if !slices.ContainsFunc(h.Offers(), func(o Offer) bool { return o.Peer == h.ID() }) {
			t.Errorf("%v: its own offer doesn't count for itself", c.role)
		}
		if sent, _, _ := h.offered(); (len(sent) == 1) != c.serves {
			t.Errorf("%v: %d offers are sent", c.role, len(sent))
		}
		o.Peer, o.Seq, o.TTL = h.ID(), 1<<62, time.Minute
		w, err := o.toWire(p.info.ID, h.cfg.Identity)
		if err != nil {
			t.Fatal(err)
		}
		says := h.presence()
		says.Tracker = true
		_, err = p.owner.answerTrack(&wire.OffersPush{Presence: says, Seq: 1 << 62, Offers: []wire.Offer{w}}, h.ID())
		if (err == nil) != c.serves {
			t.Errorf("%v: its offer is taken: %v", c.role, err)
		}
		eventually(t, func() string {
			p.owner.mu.Lock()
			defer p.owner.mu.Unlock()
			if p.owner.trackers[h.ID()] != c.tracks {
				return fmt.Sprintf("%v: believed to be a tracker: %v", c.role, !c.tracks)
			}
			return ""
		})
	}
	if _, err := ParseRole("boss"); err == nil {
		t.Error("there is a role boss")
	}
	members, all, err := p.owner.Members()
	if err != nil || !all || len(members) != 5 {
		t.Fatalf("the owner knows %v (all: %v), %v", members, all, err)
	}
	stored, all, err := OpenSwarms(p.dir).Members(p.info.ID)
	if err != nil || !all || fmt.Sprint(stored) != fmt.Sprint(members) {
		t.Errorf("on disk are %v (all: %v), %v", stored, all, err)
	}
}

// A peer that was revoked isn't dialled, wherever its address comes from, and isn't shown a certificate.
func TestRevokedIsNotDialled(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	m := p.join(t, RoleMember)
	serveEcho(m)
	mustEcho(t, p.owner, m.ID(), "x")
	if err := p.owner.Revoke(m.ID()); err != nil {
		t.Fatal(err)
	}
	if err := callEcho(testCtx(t), p.owner, m.ID(), "x"); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("calling the revoked peer: %v", err)
	}
	infos, err := parseBootstrap(m.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.owner.lp.Connect(testCtx(t), infos[0]); err == nil || !strings.Contains(err.Error(), "gater") {
		t.Errorf("libp2p dials it: %v", err)
	}
	members, _, err := p.owner.Members()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range members {
		if k.Revoked != (k.Peer == m.ID()) {
			t.Errorf("listed as %+v", k)
		}
	}
}
