package swarm

import (
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	lpswarm "github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// The stream windows of TCP connections, on both ends. With libp2p's 256 KiB a
// fresh stream needs five round trips for 1 MiB; with these, one
// (measured over a link of 50 ms).
const (
	initialWindow = 16 << 20
	maxWindow     = 64 << 20
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

func newMuxer() network.Multiplexer {
	t := *yamux.DefaultTransport
	t.InitialStreamWindowSize = initialWindow
	t.MaxStreamWindowSize = maxWindow
	return &t
}

// newResourceManager bounds what all peers together, and each alone, can make
// this process hold. libp2p's defaults are for small messages; windows as large
// as ours, and a busy peer's many short streams, need more per peer. The limits
// grow with the machine's memory. streams hears of each that is opened.
func newResourceManager(streams *flood) (network.ResourceManager, error) {
	limits := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&limits)
	limits.SystemBaseLimit.Memory = 512 << 20
	limits.SystemBaseLimit.Conns = 2 * highConns
	limits.SystemBaseLimit.ConnsInbound = highConns
	limits.SystemBaseLimit.ConnsOutbound = highConns
	limits.PeerBaseLimit.Memory = 256 << 20
	limits.ProtocolPeerBaseLimit.Streams = 512
	limits.ProtocolPeerBaseLimit.StreamsInbound = 256
	limits.ProtocolPeerBaseLimit.StreamsOutbound = 256
	return rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits.AutoScale()), rcmgr.WithMetrics(streams), rcmgr.WithLimitPerSubnet(
		[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: connsPerAddress}},
		[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: connsPerAddress}, {PrefixLength: 48, ConnCount: highConns}}))
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
