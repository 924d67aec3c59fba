package swarm

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestClocks(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	a := startNode(t, info, node{})
	b := startNode(t, info, node{boot: a.Addrs()})
	c := startNode(t, info, node{boot: a.Addrs()})
	eventually(t, func() string {
		if len(a.Connected()) < 2 {
			return "not both are connected"
		}
		return ""
	})
	for _, h := range []*Host{a, b, c} {
		ahead := h.Clocks(testCtx(t))
		if len(ahead) == 0 || !slices.IsSorted(ahead) {
			t.Errorf("clocks of the peers of %s: %v", h.ID(), ahead)
		}
		for _, d := range ahead {
			if d.Abs() > clockTimeout {
				t.Errorf("one clock differs from itself by %v", d)
			}
		}
	}
	if got := len(a.Clocks(testCtx(t))); got != 2 {
		t.Errorf("%d clocks of two peers", got)
	}
}

// A bootstrap node may be of this swarm, of another, gone, or know that this node is no member.
func TestContacts(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	good, foreign := startNode(t, info, node{}), startNode(t, publicSwarm(t), node{})
	dead := "/ip4/127.0.0.1/tcp/1/p2p/" + Ephemeral().ID()
	h := startNode(t, info, node{boot: append(slices.Concat(good.Addrs(), foreign.Addrs()), dead)})
	eventually(t, func() string {
		for _, c := range h.Contacts() {
			switch {
			case c.Peer == good.ID() && (!c.Connected || c.Elsewhere || c.Error != ""):
				return "the good one is not met"
			case c.Peer == foreign.ID() && !c.Elsewhere:
				return "the foreign one is not told"
			case strings.HasSuffix(dead, c.Peer) && (c.Connected || c.Refused || c.Error == ""):
				return "the dead one has no error"
			}
		}
		if len(h.Contacts()) != 3 || h.DHTPeers() != 1 {
			return "not all are there"
		}
		return ""
	})
}

func TestRefusedContact(t *testing.T) {
	t.Parallel()
	a := newPrivate(t).owner
	dir := t.TempDir()
	info, err := CreateSwarm(dir, "another", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := startNode(t, info, node{dir: dir, boot: a.Addrs()})
	eventually(t, func() string {
		if c := b.Contacts(); len(c) != 1 || !c[0].Refused || c[0].Connected || c[0].Error == "" {
			return "no refusal"
		}
		return ""
	})
}

func TestMembership(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	info, err := CreateSwarm(dir, "mine", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	id, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	store := OpenSwarms(dir)
	if m := store.Membership(info, id.ID()); m.Err != nil || m.Revoked || time.Until(m.Expires) < CertificateLife/2 {
		t.Errorf("the founder's membership is %+v", m)
	}
	if m := store.Membership(info, Ephemeral().ID()); m.Err == nil {
		t.Error("a stranger is a member by the founder's certificate")
	}
	if err := store.Revoke(info.ID, id.ID()); err != nil {
		t.Fatal(err)
	}
	if m := store.Membership(info, id.ID()); m.Err == nil || !m.Revoked {
		t.Errorf("the membership of one who was revoked is %+v", m)
	}
	if m := OpenSwarms(t.TempDir()).Membership(info, id.ID()); m.Err == nil {
		t.Error("an empty folder makes a member")
	}
}
