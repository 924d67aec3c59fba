package artifacts

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// peerPort is the port of every synthetic address.
const peerPort = 6881

// maxPeers bounds a peerBook; when it is full, new peers are refused.
const maxPeers = 1 << 16

// peerBook gives every peer an address that looks like IPv6. The library keeps bans and duplicate
// checks by IP address, and panics in banPeerIP for a peer that has none, so a peer ID alone won't
// do: one wrong piece would end the process. The address is fd00::/8 (ULA, never routed to
// strangers) and 15 bytes of the ID's SHA-256.
type peerBook struct {
	mu    sync.Mutex
	peers map[netip.Addr]string
}

func newPeerBook() *peerBook { return &peerBook{peers: make(map[netip.Addr]string)} }

// addrOf returns the address of a peer and remembers whose it is.
func (b *peerBook) addrOf(peer string) (*net.TCPAddr, error) {
	sum := sha256.Sum256([]byte(peer))
	ip := [16]byte{0: 0xfd}
	copy(ip[1:], sum[:])
	addr := netip.AddrFrom16(ip)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.peers[addr]; !known && len(b.peers) >= maxPeers {
		return nil, fmt.Errorf("torrents: more than %d peers", maxPeers)
	}
	b.peers[addr] = peer
	return &net.TCPAddr{IP: addr.AsSlice(), Port: peerPort}, nil
}

// byIP returns whose synthetic address ip is.
func (b *peerBook) byIP(ip string) (peer string, ok bool) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return "", false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	peer, ok = b.peers[addr]
	return peer, ok
}

// peerConn is a connection whose remote end has a synthetic address.
type peerConn struct {
	net.Conn
	remote *net.TCPAddr
}

// RemoteAddr returns the synthetic address.
func (c *peerConn) RemoteAddr() net.Addr { return c.remote }

// LocalAddr returns the unspecified address: a node has no address of its own here.
func (c *peerConn) LocalAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv6unspecified, Port: peerPort}
}

// peerDialer dials synthetic addresses.
type peerDialer struct {
	book *peerBook
	dial func(ctx context.Context, peer string) (net.Conn, error)
}

// DialerNetwork implements torrent.Dialer.
func (d *peerDialer) DialerNetwork() string { return "tcp6" }

// Dial implements torrent.Dialer. An address that is not in the book is refused: nothing that a
// peer says can make this node dial anything but peers that its user named.
func (d *peerDialer) Dial(ctx context.Context, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	peer, ok := d.book.byIP(host)
	if !ok {
		return nil, fmt.Errorf("torrents: %s is no peer's address", host)
	}
	remote, err := d.book.addrOf(peer)
	if err != nil {
		return nil, err
	}
	conn, err := d.dial(ctx, peer)
	if err != nil {
		return nil, err
	}
	return &peerConn{Conn: conn, remote: remote}, nil
}

// peerListener gives accepted connections their synthetic addresses.
type peerListener struct {
	net.Listener
	book   *peerBook
	once   sync.Once
	closed chan struct{}
}

func newPeerListener(l net.Listener, book *peerBook) *peerListener {
	return &peerListener{Listener: l, book: book, closed: make(chan struct{})}
}

// Accept returns the next connection. The library calls it again at once after an error, for as
// long as the client is open, so an error is only returned once the listener is closed.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			<-l.closed
			return nil, err
		}
		remote, err := l.book.addrOf(conn.RemoteAddr().String())
		if err != nil {
			conn.Close()
			continue
		}
		return &peerConn{Conn: conn, remote: remote}, nil
	}
}

// Close closes the listener below.
func (l *peerListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
