package swarm

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Stream is a byte stream to or from a peer, inside one of its connections. It
// is a net.Conn whose addresses are peer IDs. One goroutine may read while
// another writes. Whoever has a Stream must Close or Reset it.
type Stream struct {
	s       network.Stream
	release sync.Once
	lift    func() // ends the connection's protection from being trimmed
	traffic *traffic
}

var (
	_ net.Conn  = (*Stream)(nil)
	_ io.Closer = (*Stream)(nil)

	_ wire.Budget = (*Stream)(nil)
)

// streamTag protects connections that carry streams from the connection
// manager.
const streamTag = "starling-stream"

func (h *Host) newStream(s network.Stream) *Stream {
	p, tag := s.Conn().RemotePeer(), streamTag+s.ID()
	h.lp.ConnManager().Protect(p, tag)
	return &Stream{s: s, lift: func() { h.lp.ConnManager().Unprotect(p, tag) }, traffic: h.trafficOf(p)}
}

// Read implements io.Reader. After the peer's CloseWrite it returns io.EOF.
func (s *Stream) Read(b []byte) (int, error) {
	n, err := s.s.Read(b)
	s.traffic.received.Add(int64(n))
	return n, err
}

// Write implements io.Writer.
func (s *Stream) Write(b []byte) (int, error) {
	n, err := s.s.Write(b)
	s.traffic.sent.Add(int64(n))
	return n, err
}

// Reserve implements wire.Budget: what a peer's unfinished frames may take is
// bounded, together with the windows of its streams.
func (s *Stream) Reserve(bytes int) error {
	if err := s.s.Scope().ReserveMemory(bytes, framePriority); err != nil {
		return fmt.Errorf("%s has too much here that isn't finished: %w", s.Peer(), err)
	}
	return nil
}

// Release implements wire.Budget.
func (s *Stream) Release(bytes int) { s.s.Scope().ReleaseMemory(bytes) }

// CloseWrite ends what the peer can read; reading goes on.
func (s *Stream) CloseWrite() error { return s.s.CloseWrite() }

// Close ends both directions; what was written is still delivered.
func (s *Stream) Close() error {
	s.release.Do(s.lift)
	return s.s.Close()
}

// Reset ends both directions at once, with an error on the other side.
func (s *Stream) Reset() error {
	s.release.Do(s.lift)
	return s.s.Reset()
}

// SetDeadline implements net.Conn.
func (s *Stream) SetDeadline(t time.Time) error { return s.s.SetDeadline(t) }

// SetReadDeadline implements net.Conn.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.s.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.s.SetWriteDeadline(t) }

// Peer returns the peer on the other end. Its key was proven in the handshake.
func (s *Stream) Peer() PeerID { return s.s.Conn().RemotePeer().String() }

// Protocol returns the protocol that the stream was opened for.
func (s *Stream) Protocol() string { return string(s.s.Protocol()) }

// LocalAddr implements net.Conn.
func (s *Stream) LocalAddr() net.Addr { return peerAddr(s.s.Conn().LocalPeer().String()) }

// RemoteAddr implements net.Conn; its String is the peer ID.
func (s *Stream) RemoteAddr() net.Addr { return peerAddr(s.Peer()) }

// peerAddr is a peer ID as a net.Addr.
type peerAddr PeerID

func (peerAddr) Network() string  { return "starling" }
func (a peerAddr) String() string { return string(a) }

// Handle calls f on a goroutine of its own for every stream that a peer opens
// for protocol. In a private swarm only members' streams get there. f owns the
// stream.
func (h *Host) Handle(protocolID string, f func(*Stream)) {
	h.lp.SetStreamHandler(protocol.ID(protocolID), func(s network.Stream) {
		p := s.Conn().RemotePeer().String()
		err := h.members.admits(p)
		if err == nil {
			err = h.blockedPeer(p)
		}
		if err != nil {
			h.log.Warn("stream refused", "peer", p, "error", err)
			s.Reset()
			h.disconnect(s.Conn().RemotePeer())
			return
		}
		f(h.newStream(s))
	})
}

// listenBacklog is how many accepted streams may wait for Accept.
const listenBacklog = 64

// listener hands incoming streams to Accept.
type listener struct {
	h        *Host
	protocol protocol.ID
	streams  chan *Stream
	once     sync.Once
	done     chan struct{} // closed by Close
}

// Listener returns a net.Listener for the streams that peers open for protocol;
// the connections it accepts are *Stream. Closing it removes the protocol.
func (h *Host) Listener(protocolID string) net.Listener {
	l := &listener{h: h, protocol: protocol.ID(protocolID),
		streams: make(chan *Stream, listenBacklog), done: make(chan struct{})}
	h.Handle(protocolID, func(s *Stream) {
		select {
		case <-l.done:
			s.Reset()
		case l.streams <- s:
		default:
			s.Reset()
		}
	})
	return l
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case s := <-l.streams:
		return s, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-l.h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.h.lp.RemoveStreamHandler(l.protocol)
		close(l.done)
		for {
			select {
			case s := <-l.streams:
				s.Reset()
			default:
				return
			}
		}
	})
	return nil
}

// Addr implements net.Listener; its String is this node's peer ID.
func (l *listener) Addr() net.Addr { return peerAddr(l.h.ID()) }

// decodePeer parses a peer ID for an error message that names it.
func decodePeer(p PeerID) (peer.ID, error) {
	id, err := peer.Decode(p)
	if err != nil {
		return "", &net.AddrError{Err: "is not a peer ID", Addr: p}
	}
	return id, nil
}
