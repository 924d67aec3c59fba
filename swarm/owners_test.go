package swarm

import (
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// joinBy makes a member that owner's node lets in, and starts its node.
func joinBy(t *testing.T, by *Host) *Host {
	t.Helper()
	token, err := OpenSwarms(by.cfg.Dir).CreateInvite(by.info.ID, RoleMember, time.Hour, by.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	id, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := joins(t, id, token, dir)
	if err != nil {
		t.Fatal(err)
	}
	return startNode(t, info, node{dir: dir, id: id, boot: by.Addrs()})
}

// owned waits until a node knows that it is an owner.
func owned(t *testing.T, h *Host) {
	t.Helper()
	eventually(t, func() string {
		if !OpenSwarms(h.cfg.Dir).Owns(h.info.ID) {
			return "it doesn't know that it is an owner"
		}
		return ""
	})
}

// apart waits until none of some nodes has a connection with a peer.
func apart(t *testing.T, peer PeerID, hosts ...*Host) {
	t.Helper()
	eventually(t, func() string {
		for _, h := range hosts {
			if slices.Contains(h.Connected(), peer) {
				return short(h.ID()) + " is still connected to " + short(peer)
			}
		}
		return ""
	})
}

// A delegate lets peers in and puts them out when the founder's node and key are gone, and a member that hears of it only then goes along.
func TestDelegateGoesOnAlone(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	b, away := p.join(t, RoleClient), p.join(t, RoleMember)
	away.Close() // before there was a second owner
	if err := b.SetOwner(b.ID(), false); err == nil || !strings.Contains(err.Error(), "owner") {
		t.Errorf("a member makes itself an owner: %v", err)
	}
	if err := p.owner.SetOwner(b.ID(), false); err != nil {
		t.Fatal(err)
	}
	if err := p.owner.SetOwner(b.ID(), false); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("an owner twice: %v", err)
	}
	owned(t, b)
	p.owner.Close()
	if err := os.RemoveAll(filepath.Join(p.dir, "swarms")); err != nil {
		t.Fatal(err)
	}

	c, d := joinBy(t, b), joinBy(t, b)
	serveEcho(c)
	serveEcho(d)
	mustEcho(t, d, c.ID(), "let in by a delegate")
	back := startNode(t, p.info, node{dir: away.cfg.Dir, boot: c.Addrs()})
	serveEcho(back)
	mustEcho(t, d, c.ID(), "x")
	mustEcho(t, back, c.ID(), "of the founder's time")
	if err := b.SetOwner(c.ID(), false); err == nil || !strings.Contains(err.Error(), "founder") {
		t.Errorf("a delegate makes another one: %v", err)
	}
	if err := b.Revoke(d.ID()); err != nil {
		t.Fatal(err)
	}
	if err := b.Revoke(d.ID()); err == nil || !strings.Contains(err.Error(), "was revoked before") {
		t.Errorf("revoked twice: %v", err)
	}
	apart(t, d.ID(), b, c, back)
	eventually(t, func() string {
		err := callEcho(testCtx(t), d, c.ID(), "x")
		if err == nil {
			t.Fatal("the revoked peer calls a member")
		}
		if !strings.Contains(err.Error(), "revoked") {
			return "the revoked peer isn't told why: " + err.Error()
		}
		return ""
	})
	list, all, err := b.Members()
	if err != nil || all {
		t.Errorf("a delegate knows all members: %v, %v", all, err)
	}
	for _, m := range list {
		if m.Owner != (m.Peer == b.ID() || m.Peer == p.owner.ID()) || m.Revoked != (m.Peer == d.ID()) {
			t.Errorf("the delegate's members have %+v", m)
		}
	}

	// It is an owner again after a restart, and in a folder that has its backup.
	file, err := Backup(b.cfg.Dir, passphrase, "")
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := Restore(dir, passphrase, file); err != nil {
		t.Fatal(err)
	}
	again := startNode(t, p.info, node{dir: dir})
	if err := again.Revoke(d.ID()); err == nil || !strings.Contains(err.Error(), "was revoked before") {
		t.Errorf("the restored delegate doesn't know its list: %v", err)
	}
	joinBy(t, again)
}

// When the founder ends a delegate, those whom it let in are out, and its revocations don't count any more.
func TestDelegateEnds(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	a, b, victim := p.join(t, RoleMember), p.join(t, RoleMember), p.join(t, RoleMember)
	if err := p.owner.SetOwner(b.ID(), false); err != nil {
		t.Fatal(err)
	}
	owned(t, b)
	c := joinBy(t, b)
	serveEcho(a)
	mustEcho(t, c, a.ID(), "let in by a delegate")
	if err := b.Revoke(victim.ID()); err != nil {
		t.Fatal(err)
	}
	apart(t, victim.ID(), p.owner, a)
	if err := p.owner.SetOwner(b.ID(), true); err != nil {
		t.Fatal(err)
	}
	apart(t, c.ID(), p.owner, a)
	eventually(t, func() string {
		err := callEcho(testCtx(t), c, a.ID(), "x")
		if err == nil {
			t.Fatal("who was let in by a former owner calls a member")
		}
		if !containsAll(err.Error(), "no owner any more", "new invitation") {
			return "it isn't told why: " + err.Error()
		}
		return ""
	})
	mustEcho(t, b, a.ID(), "a member as before")
	victim.Close()
	serveEcho(startNode(t, p.info, node{dir: victim.cfg.Dir, boot: p.owner.Addrs()}))
	eventually(t, func() string {
		if !slices.Contains(p.owner.Connected(), victim.ID()) {
			return "whom the former owner revoked doesn't come back"
		}
		return ""
	})
	eventually(t, func() string {
		if OpenSwarms(b.cfg.Dir).Owns(b.info.ID) {
			return "the former owner doesn't know yet"
		}
		return ""
	})
	if err := b.Revoke(a.ID()); err == nil || !strings.Contains(err.Error(), "owner key") {
		t.Errorf("a former owner revokes: %v", err)
	}
}

// A delegate's key in wrong hands doesn't shut the founder's node out, which ends that delegate.
func TestDelegateCantShutTheFounderOut(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	a, b := p.join(t, RoleMember), p.join(t, RoleMember)
	if err := p.owner.SetOwner(b.ID(), false); err != nil {
		t.Fatal(err)
	}
	owned(t, b)
	if err := b.Revoke(p.owner.ID()); err == nil || !strings.Contains(err.Error(), "founder") {
		t.Errorf("a delegate revokes the founder's node: %v", err)
	}
	if err := p.owner.SetOwner(p.owner.ID(), true); err == nil || !strings.Contains(err.Error(), "own node") {
		t.Errorf("the founder ends itself: %v", err)
	}
	o, err := b.members.owner()
	if err != nil {
		t.Fatal(err)
	}
	err = b.newList(func(*owner, *authority) (*wire.RevocationList, error) { // as another program would
		l := o.next(newAuthority(p.info), time.Now())
		l.Peers = []PeerID{p.owner.ID()}
		return o.sign(l), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		for _, h := range []*Host{a, p.owner} {
			h.members.mu.Lock()
			held := h.members.owners.lists[b.ID()]
			h.members.mu.Unlock()
			if held == nil {
				return short(h.ID()) + " doesn't have the delegate's list"
			}
		}
		return ""
	})
	serveEcho(a)
	mustEcho(t, p.owner, a.ID(), "still a member")
	if err := p.owner.SetOwner(b.ID(), true); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		a.members.mu.Lock()
		defer a.members.mu.Unlock()
		if a.members.owners.owns(b.ID()) {
			return "the member hasn't heard that the delegate is ended"
		}
		return ""
	})
}

// owners3 is a founder with two delegates, and the founder's list that says so.
type owners3 struct {
	info    *Info
	founder *owner
	node    PeerID // the founder's
	b, c    *owner
	list    *wire.RevocationList
}

func newOwners(t *testing.T) *owners3 {
	t.Helper()
	key := Ephemeral()
	o := &owners3{info: &Info{ID: privateID(key.ID()), Name: "x", Owner: key.ID()}, node: Ephemeral().ID()}
	o.founder = &owner{swarm: o.info.ID, key: key}
	a := newAuthority(o.info)
	for _, to := range []**owner{&o.b, &o.c} {
		key := Ephemeral()
		l, err := o.founder.delegate(a, o.node, key.ID(), false, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		o.take(t, a, l)
		o.list, *to = l, &owner{swarm: o.info.ID, key: key, by: a.delegation(key.ID())}
	}
	return o
}

func (o *owners3) take(t *testing.T, a *authority, l *wire.RevocationList) {
	t.Helper()
	owner, err := a.checkList(l)
	if err != nil {
		t.Fatal(err)
	}
	a.take(owner, l)
}

// In whatever order lists come, those who have all of them agree.
func TestListsAddUp(t *testing.T) {
	o := newOwners(t)
	x, y, z := Ephemeral().ID(), Ephemeral().ID(), Ephemeral().ID()
	now := time.Now()
	list := func(by *owner, seq uint64, owners []wire.Delegation, peers ...PeerID) *wire.RevocationList {
		return by.sign(&wire.RevocationList{Swarm: o.info.ID, Seq: seq, Issued: now.Unix(), Peers: peers, Owners: owners, By: by.by})
	}
	b, c := o.b.key.ID(), o.c.key.ID()
	both, justB := o.list.Owners, o.list.Owners[:1]
	for name, test := range map[string]struct {
		lists   []*wire.RevocationList
		revoked []PeerID
		owners  []PeerID
	}{
		"three":                {[]*wire.RevocationList{o.list, list(o.founder, 9, both, x), list(o.b, 1, nil, y), list(o.c, 1, nil), list(o.c, 2, nil, y, z)}, []PeerID{x, y, z}, []PeerID{b, o.node, c}},
		"of each other":        {[]*wire.RevocationList{o.list, list(o.b, 1, nil, c, x), list(o.c, 1, nil, b, y)}, []PeerID{x, y}, []PeerID{b, o.node, c}},
		"founder not heard":    {[]*wire.RevocationList{list(o.b, 1, nil, c, x), list(o.c, 1, nil, b)}, []PeerID{x}, nil},
		"one is ended":         {[]*wire.RevocationList{o.list, list(o.founder, 9, justB), list(o.b, 1, nil, x), list(o.c, 7, nil, y)}, []PeerID{x}, []PeerID{b}},
		"ended, and revoked":   {[]*wire.RevocationList{o.list, list(o.founder, 9, justB, c), list(o.c, 7, nil, x)}, []PeerID{c}, []PeerID{b}},
		"the ended is revoked": {[]*wire.RevocationList{o.list, list(o.founder, 9, justB), list(o.b, 7, nil, c)}, []PeerID{c}, []PeerID{b}},
	} {
		want := map[PeerID]bool{}
		for _, p := range test.revoked {
			want[p] = true
		}
		var digest uint64
		for try := range 20 {
			a := newAuthority(o.info)
			for _, i := range rand.Perm(len(test.lists)) {
				if owner, err := a.checkList(test.lists[i]); err == nil {
					a.take(owner, test.lists[i])
				}
			}
			var owners []PeerID
			for _, g := range a.delegates() {
				owners = append(owners, g.Owner)
			}
			if !maps.Equal(a.revoked, want) || !slices.Equal(owners, test.owners) {
				t.Fatalf("%s: revoked are %v, owners %v; want %v, %v", name, a.revoked, owners, test.revoked, test.owners)
			}
			if try > 0 && a.digest() != digest {
				t.Fatalf("%s: another order gives another digest", name)
			}
			digest = a.digest()

			// Somebody who has some of them gets the rest.
			other := newAuthority(o.info)
			lists := a.newer(nil)
			for _, l := range lists[:rand.IntN(len(lists)+1)] {
				o.take(t, other, &l)
			}
			for _, l := range a.newer(other.held()) {
				o.take(t, other, &l)
			}
			if other.digest() != digest || !maps.Equal(other.revoked, want) || len(a.newer(other.held())) > 0 {
				t.Fatalf("%s: what is lacking doesn't arrive", name)
			}
		}
	}
}

// Nobody is an owner by a forged chain.
func TestForgedDelegations(t *testing.T) {
	o := newOwners(t)
	peer, now := Ephemeral().ID(), time.Now()
	a := newAuthority(o.info)
	for _, heard := range []bool{false, true} {
		if heard {
			o.take(t, a, o.list)
		}
		if err := a.checkCertificate(o.b.issue(peer, RoleMember, now), peer, now); err != nil {
			t.Errorf("a delegate's certificate, founder's list heard %v: %v", heard, err)
		}
		stranger := Ephemeral()
		delegate := func(by *Identity, domain string, seq uint64, swarm string) *wire.Delegation {
			g := &wire.Delegation{Owner: stranger.ID(), Seq: seq}
			copy(g.Signature[:], by.Sign(domain, g.SigningBytes(swarm)))
			return g
		}
		changed, self := *o.b.by, *o.b.by
		changed.Seq += 100
		self.Owner = o.founder.key.ID()
		copy(self.Signature[:], o.founder.key.Sign(wire.DomainDelegation, self.SigningBytes(o.info.ID)))
		for name, by := range map[string]*owner{
			"its own":           {o.info.ID, stranger, delegate(stranger, wire.DomainDelegation, 1, o.info.ID)},
			"a delegate's":      {o.info.ID, stranger, delegate(o.b.key, wire.DomainDelegation, 1, o.info.ID)},
			"another swarm's":   {o.info.ID, stranger, delegate(o.founder.key, wire.DomainDelegation, 1, privateID(peer))},
			"another purpose's": {o.info.ID, stranger, delegate(o.founder.key, wire.DomainRevocation, 1, o.info.ID)},
			"somebody else's":   {o.info.ID, stranger, o.b.by},
			"a changed":         {o.info.ID, o.b.key, &changed},
			"the founder's":     {o.info.ID, o.founder.key, &self},
			"no":                {o.info.ID, o.b.key, nil},
		} {
			if a.checkCertificate(by.issue(peer, RoleMember, now), peer, now) == nil {
				t.Errorf("a certificate by %s delegation counts", name)
			}
			if _, err := a.checkList(by.sign(&wire.RevocationList{Swarm: o.info.ID, Seq: 99, By: by.by})); err == nil || errors.Is(err, errStale) {
				t.Errorf("a list by %s delegation counts", name)
			}
		}
	}
	// One that was true once, from before the list that lacks it.
	l, err := o.founder.delegate(a, o.node, o.b.key.ID(), true, now)
	if err != nil {
		t.Fatal(err)
	}
	o.take(t, a, l)
	if a.checkCertificate(o.b.issue(peer, RoleMember, now), peer, now) == nil {
		t.Error("a former owner's certificate counts")
	}
	if _, err := a.checkList(o.b.sign(o.b.next(a, now))); err == nil {
		t.Error("a former owner's list counts")
	}
	// Made an owner again its numbers go on above those before.
	l, err = o.founder.delegate(a, o.node, o.b.key.ID(), false, now)
	if err != nil {
		t.Fatal(err)
	}
	before := o.b.next(newAuthority(o.info), now).Seq
	o.take(t, a, l)
	if again := (&owner{o.info.ID, o.b.key, a.delegation(o.b.key.ID())}).next(a, now).Seq; again <= before {
		t.Errorf("numbers begin at %d again, before at %d", again, before)
	}
}

func TestOwnersAreBounded(t *testing.T) {
	o := newOwners(t)
	a := newAuthority(o.info)
	o.take(t, a, o.list)
	for len(a.delegates()) < wire.MaxOwners {
		l, err := o.founder.delegate(a, o.node, Ephemeral().ID(), false, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		o.take(t, a, l)
	}
	if _, err := o.founder.delegate(a, o.node, Ephemeral().ID(), false, time.Now()); err == nil {
		t.Error("there is no limit")
	}
	if _, err := wire.ParseRevocationList(a.lists[a.founder].Data()); err != nil {
		t.Error(err)
	}
	if _, err := o.founder.revoke(a, o.b.key.ID(), time.Now()); err != nil {
		t.Errorf("the founder revokes an owner: %v", err)
	}
	if _, err := o.c.revoke(a, o.b.key.ID(), time.Now()); err == nil || !strings.Contains(err.Error(), "founder") {
		t.Errorf("a delegate revokes another: %v", err)
	}
}

// Owners renew their own certificates, the founder's even after its end; others' are a delegate's to renew only when the founder hasn't.
func TestOwnersRenew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	info, err := CreateSwarm(dir, "old", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	id, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, now := OpenSwarms(dir), time.Now()
	key, err := s.ownerKey(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.put(info.ID, certificateFile, issue(key, id.ID(), RoleMember, now.Add(-CertificateLife)).Data()); err != nil {
		t.Fatal(err)
	}
	m, err := loadMembership(s, info, id.ID(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Unix(m.certificate().Expires, 0).Sub(now); left < CertificateLife-time.Minute {
		t.Errorf("the founder's certificate ends in %v", left)
	}
	founder, delegate := &owner{swarm: info.ID, key: key}, &owner{info.ID, Ephemeral(), &wire.Delegation{}}
	for _, c := range []struct {
		left     time.Duration
		founder  bool
		delegate bool
	}{{CertificateLife / 3, false, false}, {CertificateLife / 5, true, false}, {CertificateLife / 9, true, true}} {
		cert := issue(key, id.ID(), RoleMember, now.Add(c.left-CertificateLife))
		if founder.renews(cert, now) != c.founder || delegate.renews(cert, now) != c.delegate {
			t.Errorf("with %v left the founder renews: %v, a delegate: %v", c.left, founder.renews(cert, now), delegate.renews(cert, now))
		}
	}
}
