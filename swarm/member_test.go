package swarm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

func TestForgedLists(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	m := p.join(t, RoleMember)
	victim := p.join(t, RoleMember)
	owner, err := OpenSwarms(p.dir).ownerKey(p.info.ID)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(by *Identity, seq uint64, swarm string, peers ...string) *wire.RevocationList {
		l := &wire.RevocationList{Swarm: swarm, Seq: seq, Peers: peers}
		copy(l.Signature[:], by.Sign(wire.DomainRevocation, l.SigningBytes()))
		return l
	}
	for name, l := range map[string]*wire.RevocationList{
		"a member's":    sign(m.cfg.Identity, 5, p.info.ID, victim.ID()),
		"another swarm": sign(owner, 5, privateID(m.ID()), victim.ID()),
		"wrong domain": func() *wire.RevocationList {
			l := sign(owner, 5, p.info.ID)
			copy(l.Signature[:], owner.Sign("x", l.SigningBytes()))
			return l
		}(),
		"changed after":  func() *wire.RevocationList { l := sign(owner, 5, p.info.ID); l.Peers = []string{victim.ID()}; return l }(),
		"number changed": func() *wire.RevocationList { l := sign(owner, 5, p.info.ID); l.Seq = 6; return l }(),
	} {
		if _, err := p.owner.answerTrack(&wire.RevocationLists{Lists: []wire.RevocationList{*l}}, m.ID()); err == nil {
			t.Errorf("%s list is taken", name)
		}
	}
	if _, err := p.owner.members.apply(sign(owner, 7, p.info.ID)); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{6, 7} {
		if _, err := p.owner.members.apply(sign(owner, seq, p.info.ID, victim.ID())); !errors.Is(err, errStale) {
			t.Errorf("list %d after 7: %v", seq, err)
		}
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	owner, peer := Ephemeral(), Ephemeral().ID()
	swarm := privateID(owner.ID())
	owners := newAuthority(&Info{ID: swarm, Owner: owner.ID()})
	now := time.Now()
	resign := func(f func(*wire.Certificate)) *wire.Certificate {
		c := issue(owner, peer, RoleMember, now)
		f(c)
		copy(c.Signature[:], owner.Sign(wire.DomainCertificate, c.SigningBytes()))
		return c
	}
	if err := owners.checkCertificate(issue(owner, peer, RoleMember, now), peer, now); err != nil {
		t.Fatal(err)
	}
	if err := owners.checkCertificate(issue(owner, peer, RoleMember, now.Add(5*time.Minute)), peer, now); err != nil {
		t.Errorf("clocks 5 minutes apart: %v", err)
	}
	for name, c := range map[string]*wire.Certificate{
		"another swarm's": resign(func(c *wire.Certificate) { c.Swarm = privateID(peer) }),
		"another peer's":  resign(func(c *wire.Certificate) { c.Peer = owner.ID() }),
		"from the future": resign(func(c *wire.Certificate) { c.Issued += 3600 }),
		"expired":         resign(func(c *wire.Certificate) { c.Expires = now.Unix() }),
		"signed by a peer": func() *wire.Certificate {
			o := Ephemeral()
			c := issue(o, peer, RoleMember, now)
			c.Swarm = swarm
			return c
		}(),
		"role changed": func() *wire.Certificate { c := issue(owner, peer, RoleClient, now); c.Role = RoleMember; return c }(),
	} {
		if owners.checkCertificate(c, peer, now) == nil {
			t.Errorf("a certificate %s is accepted", name)
		}
	}
}

func TestCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	m := p.join(t, RoleMember)
	m.Close()
	owner, err := OpenSwarms(p.dir).ownerKey(p.info.ID)
	if err != nil {
		t.Fatal(err)
	}
	old := issue(owner, m.ID(), RoleMember, time.Now().Add(time.Hour-CertificateLife))
	s := OpenSwarms(m.cfg.Dir)
	if err := s.put(p.info.ID, certificateFile, old.Data()); err != nil {
		t.Fatal(err)
	}
	startNode(t, p.info, node{dir: m.cfg.Dir, boot: p.owner.Addrs()})
	eventually(t, func() string {
		c, err := s.certificate(p.info.ID)
		if err != nil {
			return err.Error()
		}
		if left := time.Until(time.Unix(c.Expires, 0)); left < CertificateLife-time.Hour {
			return "the certificate still runs out in " + left.String()
		}
		return ""
	})
}

func TestExpiredMemberCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	info, err := CreateSwarm(dir, "old", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := LoadIdentity(dir)
	s := OpenSwarms(dir)
	owner, _ := s.ownerKey(info.ID)
	if err := s.put(info.ID, certificateFile, issue(owner, id.ID(), RoleMember, time.Now().Add(-CertificateLife)).Data()); err != nil {
		t.Fatal(err)
	}
	key, _ := s.path(info.ID, ownerFile)
	if err := os.Rename(key, filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(context.Background(), Config{Identity: id, Dir: dir, Swarm: info}); err == nil || !containsAll(err.Error(), "ran out", "invite") {
		t.Errorf("Start: %v", err)
	}
	path, _ := s.path(info.ID, certificateFile)
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(context.Background(), Config{Identity: id, Dir: dir, Swarm: info}); err == nil {
		t.Error("Start with a damaged certificate")
	}
}

func TestOwnerKeyStaysPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	info, err := CreateSwarm(dir, "x", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "swarms", info.ID, ownerFile)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSwarms(dir).ownerKey(info.ID); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: %v", err)
	}
}
