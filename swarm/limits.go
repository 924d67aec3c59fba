package swarm

import (
	"net"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	lpswarm "github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// The stream windows of TCP connections between members of a private swarm. With
// libp2p's 256 KiB a fresh stream needs five round trips for 1 MiB; with these,
// one (measured over a link of 50 ms). But the resource manager counts only
// libp2p's, and what is added when a window grows: strangers begin with them.
const (
	initialWindow = 16 << 20
	maxWindow     = 64 << 20
)

// peerLimits are what one peer may hold here.
type peerLimits struct {
	streams  int   // that it has opened
	outbound int   // that this node has opened to it
	memory   int64 // bytes of windows, and of frames that have come in part
}

// Strangers may cost some tens of megabytes. A stream's window takes 256 KiB, so
// all streams have room beside what windows may grow by (growPriority); more is
// the end of the connection. Members were let in by name, and can be revoked.
var (
	strangers = peerLimits{streams: 80, outbound: 72, memory: 24 << 20}
	members   = peerLimits{streams: 240, outbound: 240, memory: 256 << 20} // QUIC has 256 incoming streams at most
)

// limitsFor returns a peer's limits in a private swarm or a public one.
func limitsFor(private bool) peerLimits {
	if private {
		return members
	}
	return strangers
}

// Up to which part of a peer's memory something may be taken, (1+priority)/256.
const (
	growPriority  = 63  // of strangers' windows, a quarter: 6 MiB under way are 1 Gbit/s over 50 ms
	framePriority = 191 // three quarters
)

// Connections above highConns are cut back to lowConns, those without open
// streams of ours first.
const (
	lowConns  = 256
	highConns = 384
)

// connsPerAddress is how many connections may come from one IPv4 address, or one
// IPv6 site (/56): a firm or a laboratory behind one NAT. libp2p's 8 would keep
// its ninth node out.
const connsPerAddress = 64

// What keeps an idle TCP connection: of both ends' pings, which yamux sends every
// half minute to see that the other is there, and as often to measure the round
// trip, one is enough. Each costs 266 bytes on the wire. The dialler's comes
// before the listener's turn; the round trip only tells how fast windows grow.
const (
	diallerPings  = 30 * time.Second // of silence
	listenerPings = 35 * time.Second
	measureEvery  = 10 * time.Minute
)

// muxer is yamux with windows and pings as above.
type muxer struct {
	dialler, listener yamux.Transport
	private           bool
}

func newMuxer(private bool) network.Multiplexer {
	m := &muxer{dialler: *yamux.DefaultTransport, private: private}
	m.dialler.MeasureRTTInterval = measureEvery
	if private {
		m.dialler.InitialStreamWindowSize = initialWindow
		m.dialler.MaxStreamWindowSize = maxWindow
	}
	m.listener = m.dialler
	m.dialler.KeepAliveInterval, m.listener.KeepAliveInterval = diallerPings, listenerPings
	return m
}

// NewConn implements network.Multiplexer. In a public swarm it leaves memory for
// the windows of new streams when those of others grow: a connection that can't
// have one ends.
func (m *muxer) NewConn(c net.Conn, server bool, scope network.PeerScope) (network.MuxedConn, error) {
	if scope != nil && !m.private {
		scope = strangersScope{scope}
	}
	if server {
		return m.listener.NewConn(c, server, scope)
	}
	return m.dialler.NewConn(c, server, scope)
}

type strangersScope struct{ network.PeerScope }

// BeginSpan implements network.ResourceScope.
func (s strangersScope) BeginSpan() (network.ResourceScopeSpan, error) {
	span, err := s.PeerScope.BeginSpan()
	if err != nil {
		return nil, err
	}
	return windowSpan{span}, nil
}

// windowSpan is the memory of one stream's window.
type windowSpan struct{ network.ResourceScopeSpan }

// ReserveMemory implements network.ResourceScope: of whatever isn't a stream's first window.
func (s windowSpan) ReserveMemory(size int, priority uint8) error {
	if priority < network.ReservationPriorityAlways {
		priority = min(priority, growPriority)
	}
	return s.ResourceScopeSpan.ReserveMemory(size, priority)
}

// newResourceManager bounds what all peers together, and each alone, can make
// this process hold. libp2p's defaults are for small messages; windows as large
// as ours, and a busy peer's many short streams, need more per peer. The limits
// of all together grow with the machine's memory. streams hears of each that is
// opened.
func newResourceManager(most peerLimits, streams *flood) (network.ResourceManager, error) {
	limits := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&limits)
	limits.SystemBaseLimit.Memory = 512 << 20
	limits.SystemBaseLimit.Conns = 2 * highConns
	limits.SystemBaseLimit.ConnsInbound = highConns
	limits.SystemBaseLimit.ConnsOutbound = highConns
	limits.ProtocolPeerBaseLimit.Streams = most.streams + most.outbound
	limits.ProtocolPeerBaseLimit.StreamsInbound = most.streams
	limits.ProtocolPeerBaseLimit.StreamsOutbound = most.outbound
	limits.ProtocolPeerBaseLimit.Memory = most.memory
	limits.StreamBaseLimit.Memory = most.memory
	limits.PeerBaseLimit.Streams = most.streams + most.outbound
	limits.PeerBaseLimit.StreamsInbound = most.streams
	limits.PeerBaseLimit.StreamsOutbound = most.outbound
	limits.PeerBaseLimit.Memory = most.memory
	limits.PeerLimitIncrease = rcmgr.BaseLimitIncrease{} // what one may have doesn't grow
	m, err := rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits.AutoScale()), rcmgr.WithMetrics(streams), rcmgr.WithLimitPerSubnet(
		[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: connsPerAddress}},
		[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: connsPerAddress}, {PrefixLength: 48, ConnCount: highConns}}))
	if err != nil {
		return nil, err
	}
	streams.full = func(p peer.ID) (full bool) {
		_ = m.ViewPeer(p, func(s network.PeerScope) error { // what f returns
			full = s.Stat().NumStreamsInbound >= most.streams
			return nil
		})
		return full
	}
	return m, nil
}

// Local addresses are tried by TCP first, then QUIC; all others in libp2p's
// order, QUIC first. On a LAN the cipher's CPU time is the limit and TCP is more
// than twice as fast; also a killed process closes its TCP connections at once,
// where QUIC needs its idle timeout.
const (
	localStep = 30 * time.Millisecond  // between two TCP addresses
	localQUIC = 250 * time.Millisecond // from the first TCP address to the first QUIC one
)

func rankDials(addrs []ma.Multiaddr) []network.AddrDelay {
	var tcp, other, far []ma.Multiaddr
	for _, a := range addrs {
		_, err := a.ValueForProtocol(ma.P_TCP)
		switch {
		case !manet.IsPrivateAddr(a) || relayed(a):
			far = append(far, a)
		case err == nil:
			tcp = append(tcp, a)
		default:
			other = append(other, a)
		}
	}
	ranked := make([]network.AddrDelay, 0, len(addrs))
	for i, a := range tcp {
		ranked = append(ranked, network.AddrDelay{Addr: a, Delay: time.Duration(i) * localStep})
	}
	start := time.Duration(0)
	if len(tcp) > 0 {
		start = localQUIC
	}
	for i, a := range other {
		ranked = append(ranked, network.AddrDelay{Addr: a, Delay: start + time.Duration(i)*localStep})
	}
	return append(ranked, lpswarm.DefaultDialRanker(far)...)
}
