package swarm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/multiformats/go-multistream"

	"github.com/starling-swarm/starling/swarm/wire"
)

// private is a private swarm with its owner's node running.
type private struct {
	info  *Info
	dir   string
	owner *Host
}

func newPrivate(t *testing.T) *private { return newPrivateWith(t, nil) }

func newPrivateWith(t *testing.T, change func(*Config)) *private {
	t.Helper()
	dir := t.TempDir()
	info, err := CreateSwarm(dir, "friends", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &private{info: info, dir: dir}
	p.owner = startNode(t, info, node{dir: dir, change: change})
	return p
}

func (p *private) invite(t *testing.T, role Role, ttl time.Duration) string {
	t.Helper()
	token, err := OpenSwarms(p.dir).CreateInvite(p.info.ID, role, ttl, p.owner.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// listSeq returns the number of the founder's list that a node holds, 0 without one.
func listSeq(h *Host) uint64 {
	h.members.mu.Lock()
	defer h.members.mu.Unlock()
	if l := h.members.owners.lists[h.info.Owner]; l != nil {
		return l.Seq
	}
	return 0
}

// issue signs a certificate with a founder's key.
func issue(founder *Identity, peer PeerID, role Role, now time.Time) *wire.Certificate {
	return (&owner{swarm: privateID(founder.ID()), key: founder}).issue(peer, role, now)
}

// join makes a member and starts its node.
func (p *private) join(t *testing.T, role Role) *Host {
	t.Helper()
	return p.joinWith(t, role, nil)
}

func (p *private) joinWith(t *testing.T, role Role, change func(*Config)) *Host {
	t.Helper()
	dir := t.TempDir()
	id, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := joins(t, id, p.invite(t, role, time.Hour), dir)
	if err != nil {
		t.Fatal(err)
	}
	return startNode(t, info, node{dir: dir, id: id, change: change})
}

// joins is Join, and again where the issuer's word didn't come in time. A refusal is final.
func joins(t *testing.T, id *Identity, token, dir string) (*Info, error) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		info, err := Join(testCtx(t), id, token, dir)
		var refused *wire.JoinRefused
		if err == nil || errors.As(err, &refused) || time.Now().After(end) {
			return info, err
		}
	}
}

func TestPrivateSwarm(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	serveEcho(p.owner)
	a := p.join(t, RoleMember)
	serveEcho(a)
	b := p.join(t, RoleMember)
	for _, to := range []*Host{p.owner, a} {
		mustEcho(t, b, to.ID(), "members only")
	}
	stored, err := OpenSwarms(p.dir).List()
	if err != nil || len(stored) != 1 || stored[0].ID != p.info.ID {
		t.Errorf("the store lists %v, %v", stored, err)
	}
}

// allProtocols is every protocol that a host serves, and a few that it doesn't.
func allProtocols(h *Host) []protocol.ID {
	ps := h.lp.Mux().Protocols()
	return append(ps, "/ipfs/ping/1.0.0", "/ipfs/id/1.0.0", "/ipfs/id/push/1.0.0", "/libp2p/circuit/relay/0.2.0/hop", "/libp2p/autonat/1.0.0", "/libp2p/dcutr", "/starling/nothing/1")
}

// A stranger who opens any protocol, over TCP or QUIC, is cut off, whatever it
// opens and however many streams, and learns no member's certificate.
func TestStrangerGetsNothing(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	serveEcho(p.owner)
	p.owner.Listener("/starling/torrent/1")
	protocols := allProtocols(p.owner)
	if len(protocols) < 10 || !slices.Contains(protocols, trackProtocol) || !slices.Contains(protocols, protocol.ID("/starling/"+p.info.ID+"/kad/1.0.0")) {
		t.Fatalf("the host's protocols are %v", protocols)
	}
	for _, addr := range p.owner.Addrs() {
		for _, proto := range protocols {
			tried := make(chan error, 1)
			h, err := newLibp2p(Ephemeral(), nil, func(ctx context.Context, conn transport.CapableConn, dialled bool) error {
				s, err := conn.OpenStream(ctx)
				if err != nil {
					tried <- nil
					return err
				}
				s.SetDeadline(time.Now().Add(patience))
				err = multistream.SelectProtoOrFail(proto, s)
				if err == nil {
					tried <- errors.New("it was accepted")
					return err
				}
				// Nor does a second stream get anywhere.
				if s, err := conn.OpenStream(ctx); err == nil {
					s.SetDeadline(time.Now().Add(patience))
					if multistream.SelectProtoOrFail(proto, s) == nil {
						tried <- errors.New("it was accepted on the second stream")
						return err
					}
				}
				if !closes(conn) {
					tried <- errors.New("the connection stays open")
					return err
				}
				tried <- nil
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			infos, err := parseBootstrap([]string{addr})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, func() string {
				err := h.Connect(testCtx(t), infos[0])
				if err == nil {
					t.Errorf("%s, %s: a stranger is connected", addr, proto)
				}
				select {
				case err := <-tried:
					if err != nil {
						t.Errorf("%s, %s: %v", addr, proto, err)
					}
					return ""
				default: // the handshake before it took too long
					return fmt.Sprintf("no connection to %s: %v", addr, err)
				}
			})
			h.Close()
		}
	}
	if got := p.owner.Connected(); len(got) != 0 {
		t.Errorf("connected to %v", got)
	}
}

// closes waits for the other side to end a connection, and reports whether it does.
func closes(conn transport.CapableConn) bool {
	for end := time.Now().Add(patience); !conn.IsClosed() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	return conn.IsClosed()
}

// A stranger that is an ordinary libp2p host, with no admission of its own,
// gets no connection that lasts, and no stream.
func TestOrdinaryHostIsCutOff(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	h, err := newLibp2p(Ephemeral(), tcpOnly, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, addr := range p.owner.Addrs() {
		infos, err := parseBootstrap([]string{addr})
		if err != nil {
			t.Fatal(err)
		}
		ctx := testCtx(t)
		// The handshake is done before the other side says no, so Connect itself may succeed.
		if err := h.Connect(ctx, infos[0]); err == nil {
			if _, err := h.NewStream(network.WithNoDial(ctx, "test"), infos[0].ID, "/ipfs/ping/1.0.0"); err == nil {
				t.Errorf("%s: a stranger opened a ping stream", addr)
			}
		}
		eventually(t, func() string {
			if h.Network().Connectedness(infos[0].ID) == network.Connected {
				return "the stranger is still connected"
			}
			return ""
		})
		h.Network().ClosePeer(infos[0].ID)
	}
	// And members don't let a stranger in that they dial themselves.
	err = p.owner.lp.Connect(testCtx(t), peer.AddrInfo{ID: h.ID(), Addrs: h.Addrs()})
	if err == nil {
		t.Error("a member connected to a stranger")
	}
}

// silences are what strangers say who never say who they are; nil: they open no stream.
var silences = map[string]func(s network.MuxedStream){
	"silent":         nil,
	"nothing":        func(s network.MuxedStream) {},
	"half a hello":   func(s network.MuxedStream) { lazySelect(s).Write([]byte{80, 0, 0}) },
	"4 GB hello":     func(s network.MuxedStream) { lazySelect(s).Write([]byte{255, 255, 255, 255, byte(wire.TypeHello)}) },
	"1 MB of zeros":  func(s network.MuxedStream) { lazySelect(s).Write(make([]byte, 1<<20)) },
	"endless header": func(s network.MuxedStream) { io.Copy(s, zeros{}) },
}

// pester has all strangers talk to every address of p's owner at once, and calls meet with each of their connections.
// It returns when every stranger is connected; wait returns when meet has, for all of them.
func (p *private) pester(t *testing.T, meet func(name string, conn transport.CapableConn)) (wait func()) {
	t.Helper()
	var here, gone sync.WaitGroup
	for name, say := range silences {
		for _, addr := range p.owner.Addrs() {
			infos, err := parseBootstrap([]string{addr})
			if err != nil {
				t.Fatal(err)
			}
			met := make(chan struct{})
			h, err := newLibp2p(Ephemeral(), nil, func(ctx context.Context, conn transport.CapableConn, dialled bool) error {
				if say != nil {
					s, err := conn.OpenStream(ctx)
					if err != nil {
						return err
					}
					go say(s)
				}
				defer gone.Done()
				close(met)
				meet(name+", "+addr, conn)
				return errors.New("done")
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { h.Close() })
			gone.Add(1)
			here.Go(func() {
				for {
					dialled := make(chan struct{})
					go func() {
						defer close(dialled)
						_ = h.Connect(testCtx(t), infos[0]) // it fails when meet returns, or where the handshake before it takes too long
					}()
					select {
					case <-met:
					case <-dialled:
					}
					select {
					case <-met:
						return
					default:
					}
				}
			})
		}
	}
	here.Wait()
	return gone.Wait
}

// A stranger who says nothing, or goes on for ever, is cut off in time.
func TestSilentStranger(t *testing.T) {
	t.Parallel()
	p := newPrivateWith(t, func(c *Config) { c.admitTimeout = admitTimeout })
	p.pester(t, func(name string, conn transport.CapableConn) {
		if !closes(conn) {
			t.Errorf("%s: still open", name)
		}
	})()
}

// Strangers don't keep members out meanwhile.
func TestJoinBesideStrangers(t *testing.T) {
	t.Parallel()
	p := newPrivate(t) // they stay for as long as members have patience
	joined := make(chan struct{})
	wait := p.pester(t, func(string, transport.CapableConn) { <-joined })
	p.join(t, RoleMember)
	close(joined)
	wait()
	p.join(t, RoleMember)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func lazySelect(s network.MuxedStream) multistream.LazyConn {
	return multistream.NewMSSelect(s, joinProtocol)
}

func TestInviteIsForOnePeer(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	token := p.invite(t, RoleMember, time.Hour)
	type result struct {
		dir string
		id  *Identity
		err error
	}
	results := make(chan result)
	for range 4 {
		go func() {
			dir := t.TempDir()
			id, err := LoadIdentity(dir)
			if err == nil {
				_, err = joins(t, id, token, dir)
			}
			results <- result{dir, id, err}
		}()
	}
	var joined []result
	for range 4 {
		if r := <-results; r.err == nil {
			joined = append(joined, r)
		} else if !strings.Contains(r.err.Error(), "ask for a new one") {
			t.Errorf("the error doesn't say what to do: %v", r.err)
		}
	}
	if len(joined) != 1 {
		t.Fatalf("%d peers joined with one invite", len(joined))
	}
	// The answer may have got lost: the same peer may ask again.
	if _, err := joins(t, joined[0].id, token, joined[0].dir); err != nil {
		t.Errorf("joining again: %v", err)
	}
}

// TestRedeemAtOnce is a newcomer that dials over several transports at the same time: every answer must be yes.
func TestRedeemAtOnce(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	m, err := loadMembership(OpenSwarms(p.dir), p.info, p.owner.ID(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	newcomer, err := LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		token, err := wire.ParseInvite(p.invite(t, RoleMember, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				<-start
				if _, _, err := m.redeem(&wire.Redeem{Swarm: token.Swarm, Secret: token.Secret}, newcomer.ID()); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
	}
}

func TestInviteRefused(t *testing.T) {
	t.Parallel()
	p, other := newPrivate(t), newPrivate(t)
	good, err := wire.ParseInvite(p.invite(t, RoleMember, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*wire.Invite)) string {
		i := *good
		f(&i)
		return i.String()
	}
	short := p.invite(t, RoleMember, time.Second)
	forged := good.Secret
	forged[0] ^= 1
	member := p.join(t, RoleMember)
	for name, c := range map[string]struct{ token, want string }{
		"not an invite": {"hello", "doesn't start"},
		"typing error":  {good.String()[:40] + flip(good.String()[40]) + good.String()[41:], "copy it again"},
		"cut":           {good.String()[:60], "copy it again"},
		"forged secret": {change(func(i *wire.Invite) { i.Secret = forged }), "unknown here"},
		"another swarm": {change(func(i *wire.Invite) { i.Swarm = other.info.ID }), "unknown here"},
		"other's node":  {change(func(i *wire.Invite) { i.Addrs = other.owner.Addrs() }), "unknown here"},
		"a mere member": {change(func(i *wire.Invite) { i.Addrs = member.Addrs() }), "ask the node that made"},
		"nobody there":  {change(func(i *wire.Invite) { i.Addrs = []string{"/ip4/127.0.0.1/tcp/1/p2p/" + p.owner.ID()} }), "can't be reached"},
		"someone else": {change(func(i *wire.Invite) {
			i.Addrs = []string{strings.Replace(p.owner.Addrs()[0], p.owner.ID(), member.ID(), 1)}
		}), "can't be reached"},
		"no address":     {change(func(i *wire.Invite) { i.Addrs = nil }), "no address"},
		"bad swarm ID":   {change(func(i *wire.Invite) { i.Swarm = "../../etc" }), "starts with neither"},
		"expired at us":  {change(func(i *wire.Invite) { i.Expires = 1 }), "ran out"},
		"expired issuer": {"", "unknown here"},
	} {
		if name == "expired issuer" { // our clock is behind the issuer's
			i, _ := wire.ParseInvite(short)
			i.Expires += 3600
			c.token = i.String()
			time.Sleep(1100 * time.Millisecond)
		}
		dir := t.TempDir()
		id, err := LoadIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string { // no word in time is another error
			switch _, err := Join(testCtx(t), id, c.token, dir); {
			case err == nil:
				t.Errorf("%s: joined", name)
			case !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n"):
				return fmt.Sprintf("%s: error %q lacks %q or has several lines", name, err, c.want)
			}
			return ""
		})
		if l, _ := OpenSwarms(dir).List(); len(l) != 0 {
			t.Errorf("%s: a swarm was stored", name)
		}
	}
	// None of that used the invite up.
	dir := t.TempDir()
	id, _ := LoadIdentity(dir)
	if _, err := joins(t, id, good.String(), dir); err != nil {
		t.Error(err)
	}
}

// flip returns another letter.
func flip(c byte) string {
	if c == 'a' {
		return "b"
	}
	return "a"
}

func TestOnlyTheOwnerInvitesAndRevokes(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	m := p.join(t, RoleMember)
	s := OpenSwarms(m.cfg.Dir)
	if _, err := s.CreateInvite(p.info.ID, RoleMember, time.Hour, m.Addrs()); err == nil || !strings.Contains(err.Error(), "owner key") {
		t.Errorf("a member's invite: %v", err)
	}
	if err := s.Revoke(p.info.ID, p.owner.ID()); err == nil || !strings.Contains(err.Error(), "owner key") {
		t.Errorf("a member revokes: %v", err)
	}
	if err := m.Revoke(p.owner.ID()); err == nil {
		t.Error("a member's host revokes")
	}
	for _, c := range []struct {
		role  Role
		ttl   time.Duration
		addrs []string
	}{{RoleMember, 0, p.owner.Addrs()}, {9, time.Hour, p.owner.Addrs()}, {RoleMember, time.Hour, nil}, {RoleMember, time.Hour, []string{"/ip4/127.0.0.1/tcp/1"}}} {
		if _, err := OpenSwarms(p.dir).CreateInvite(p.info.ID, c.role, c.ttl, c.addrs); err == nil {
			t.Errorf("invite with %v: no error", c)
		}
	}
}

func TestRevocation(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	good, bad := p.join(t, RoleMember), p.join(t, RoleMember)
	serveEcho(good)
	serveEcho(bad)
	// The one to be revoked has connections to both, and a stream that is in use.
	ctx := testCtx(t)
	mustEcho(t, bad, good.ID(), "x")
	s, err := bad.Open(ctx, good.ID(), echoProtocol)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	if err := p.owner.Revoke(bad.ID()); err != nil {
		t.Fatal(err)
	}
	if err := p.owner.Revoke(bad.ID()); err == nil {
		t.Error("revoked twice")
	}
	eventually(t, func() string {
		for _, h := range []*Host{p.owner, good} {
			if slices.Contains(h.Connected(), bad.ID()) {
				return short(h.ID()) + " is still connected to the revoked peer"
			}
		}
		return ""
	})
	s.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, s); err == nil {
		t.Error("the revoked peer's stream ended as if all was well")
	}
	eventually(t, func() string { // a call over the connection that was cut off is reset without a word; the next one dials
		err := callEcho(ctx, bad, good.ID(), "x")
		if err == nil {
			t.Fatal("the revoked peer calls a member")
		}
		if !strings.Contains(err.Error(), "revoked") {
			return "the revoked peer isn't told why: " + err.Error()
		}
		return ""
	})
	if err := callEcho(ctx, good, bad.ID(), "x"); err == nil {
		t.Error("the revoked peer is called")
	}
	// It can't come back with another invite either, nor after a restart.
	if _, err := joins(t, bad.cfg.Identity, p.invite(t, RoleMember, time.Hour), t.TempDir()); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("the revoked peer joins again: %v", err)
	}
	good.Close()
	again := startNode(t, p.info, node{dir: good.cfg.Dir, boot: p.owner.Addrs()})
	if listSeq(again) != 1 {
		t.Errorf("after a restart the member has list %d", listSeq(again))
	}
	// A newcomer gets the list with its certificate, so it refuses at once.
	n := p.join(t, RoleMember)
	if listSeq(n) != 1 {
		t.Errorf("the newcomer has list %d", listSeq(n))
	}
}

// A member that was away gets the list from whomever it meets first.
func TestRevocationReachesTheAbsent(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	absent, bad, relay := p.join(t, RoleMember), p.join(t, RoleMember), p.join(t, RoleMember)
	absent.Close()
	bad.Close()
	eventually(t, func() string {
		if !slices.Contains(p.owner.Connected(), relay.ID()) {
			return "not connected"
		}
		return ""
	})
	if err := p.owner.Revoke(bad.ID()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if listSeq(relay) != 1 {
			return "the relay has no list"
		}
		return ""
	})
	p.owner.Close()
	info := *p.info
	back := startNode(t, &info, node{dir: absent.cfg.Dir, boot: relay.Addrs()})
	eventually(t, func() string {
		if listSeq(back) != 1 {
			return "the list isn't passed on"
		}
		return ""
	})
}
