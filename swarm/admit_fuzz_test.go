package swarm

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-swarm/starling/swarm/wire"
)

// speech is a connection on which a peer has said something, and hears what it is told.
type speech struct {
	transport.CapableConn // nothing else is used before a peer is admitted
	peer                  peer.ID
	said                  *bytes.Reader
	heard                 bytes.Buffer
}

func (s *speech) RemotePeer() peer.ID                        { return s.peer }
func (s *speech) RemoteMultiaddr() ma.Multiaddr              { return ma.StringCast("/ip4/192.0.2.1/tcp/1") }
func (s *speech) AcceptStream() (network.MuxedStream, error) { return (*speechStream)(s), nil }
func (s *speech) Close() error                               { return nil }

// speechStream is the connection's only stream.
type speechStream speech

func (s *speechStream) Read(b []byte) (int, error)                   { return s.said.Read(b) }
func (s *speechStream) Write(b []byte) (int, error)                  { return s.heard.Write(b) }
func (s *speechStream) Close() error                                 { return nil }
func (s *speechStream) CloseWrite() error                            { return nil }
func (s *speechStream) CloseRead() error                             { return nil }
func (s *speechStream) Reset() error                                 { return nil }
func (s *speechStream) ResetWithError(network.StreamErrorCode) error { return nil }
func (s *speechStream) SetDeadline(time.Time) error                  { return nil }
func (s *speechStream) SetReadDeadline(time.Time) error              { return nil }
func (s *speechStream) SetWriteDeadline(time.Time) error             { return nil }

// FuzzStranger lets a stranger say anything where a certificate is asked for: it isn't admitted, no more than 4 KiB of what it says are read,
// and it hears nothing but the beginning of a negotiation and a refusal that doesn't name the swarm.
func FuzzStranger(f *testing.F) {
	dir := f.TempDir()
	info, err := CreateSwarm(dir, "friends", false, nil)
	if err != nil {
		f.Fatal(err)
	}
	store := OpenSwarms(dir)
	self, err := LoadIdentity(dir)
	if err != nil {
		f.Fatal(err)
	}
	m, err := loadMembership(store, info, self.ID(), slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	key, err := store.ownerKey(info.ID)
	if err != nil {
		f.Fatal(err)
	}
	stranger, member := Ephemeral(), Ephemeral()
	negotiated := func(m wire.Message) []byte {
		var b []byte
		for _, line := range []string{"/multistream/1.0.0\n", joinProtocol + "\n"} {
			b = append(append(b, byte(len(line))), line...)
		}
		return wire.Append(b, m)
	}
	now := time.Now()
	mine := issue(key, member.ID(), RoleMember, now)
	genuine := negotiated(&wire.Hello{Certificate: *mine})
	hear := func(id *Identity, said []byte) (*speech, error) {
		s := &speech{peer: id.id, said: bytes.NewReader(said)}
		return s, m.receive(context.Background(), s)
	}
	if s, err := hear(member, genuine); err != nil || !bytes.Contains(s.heard.Bytes(), []byte(info.ID)) {
		f.Fatalf("a member hears %q, %v", s.heard.Bytes(), err)
	}
	for _, b := range [][]byte{
		genuine, // it is another's
		negotiated(&wire.Hello{Certificate: *issue(stranger, stranger.ID(), RoleMember, now)}),
		negotiated(&wire.Hello{Certificate: *(&owner{info.ID, stranger, &wire.Delegation{Owner: stranger.ID(), Seq: 1}}).issue(stranger.ID(), RoleMember, now)}),
		negotiated(&wire.Redeem{Swarm: info.ID}), negotiated(&wire.Redeem{Swarm: "prv-x"}), negotiated(&wire.ListPull{}), negotiated(&wire.Ping{}),
		negotiated(&wire.JoinRefused{Text: "you"}), genuine[:len(genuine)/2], nil, []byte("GET / HTTP/1.1\r\n\r\n"),
		append(negotiated(&wire.Ping{})[:38:38], 255, 255, 255, 255, byte(wire.TypeHello)), bytes.Repeat([]byte{0}, 5000), bytes.Repeat([]byte{255}, 5000),
		[]byte("\x13/multistream/1.0.0\n\x03ls\n"), []byte("\x13/multistream/1.0.0\n\x10/ipfs/id/1.0.0\n"),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		s, err := hear(stranger, said)
		if err == nil {
			t.Fatal("a stranger is admitted")
		}
		if m.members[stranger.ID()] != nil {
			t.Fatal("a stranger is remembered as a member")
		}
		if read := len(said) - s.said.Len(); read > 2*wire.MaxJoin {
			t.Fatalf("%d bytes are read", read)
		}
		heard := s.heard.Bytes()
		if bytes.Contains(heard, []byte(info.ID)) || bytes.Contains(heard, []byte(info.Owner)) || bytes.Contains(heard, []byte(self.ID())) || bytes.Contains(heard, []byte(info.Name)) {
			t.Fatalf("a stranger hears %q", heard)
		}
		if len(heard) > 1024 {
			t.Fatalf("a stranger hears %d bytes", len(heard))
		}
	})
}
