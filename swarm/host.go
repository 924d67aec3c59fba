package swarm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/pnet"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/host/autorelay"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	lpconnmgr "github.com/libp2p/go-libp2p/p2p/net/connmgr"
	lpswarm "github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/protocol/holepunch"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	tls "github.com/libp2p/go-libp2p/p2p/security/tls"
	quic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/p2p/transport/tcpreuse"
	ma "github.com/multiformats/go-multiaddr"
)

// Config says how a node takes part in a swarm.
type Config struct {
	// Identity is the node's key. Two running nodes must not share one.
	Identity *Identity

	// Dir is the data folder, where a private swarm's certificate and
	// revocation list are kept. A public swarm needs none.
	Dir string

	// Swarm is the swarm to take part in.
	Swarm *Info

	// Listen are the multiaddrs to listen on, TCP and QUIC
	// ("/ip4/0.0.0.0/tcp/4141", "/ip4/0.0.0.0/udp/4141/quic-v1"). None: the
	// node only dials.
	Listen []string

	// Bootstrap are full multiaddrs besides those of Swarm.
	Bootstrap []string

	// Reachability tells whether others can dial the node at public addresses;
	// empty or ReachUnknown: it asks peers to dial back, and knows within
	// seconds.
	Reachability Reachability

	// Relay is what the node relays while others can dial it; empty is RelayAuto.
	Relay RelayMode

	// LAN announces and finds nodes by mDNS.
	LAN bool

	// Tracker announces the node as one that collects everyone's offers.
	Tracker bool

	// Client makes a node that uses the swarm and announces nothing.
	Client bool

	// Log gets the events worth telling; nil for silence.
	Log *slog.Logger

	publishEvery time.Duration // 0: publishEvery
	smallSwarm   int           // 0: smallSwarm
	admitTimeout time.Duration // 0: admitTimeout
}

func (c *Config) validate() error {
	switch {
	case c.Identity == nil:
		return errors.New("swarm: no identity")
	case c.Swarm == nil:
		return errors.New("swarm: no swarm to take part in")
	case c.Client && c.Tracker:
		return errors.New("swarm: a client can't be a tracker")
	case !c.Swarm.Public && c.Dir == "":
		return errors.New("swarm: a private swarm needs a data folder")
	}
	return errors.Join(c.Reachability.Check(), c.Relay.Check(), c.Swarm.check())
}

// Host is a running node's place in one swarm. Its methods may be called
// concurrently.
type Host struct {
	cfg      Config
	info     *Info
	store    *Swarms
	members  *membership // nil in a public swarm
	instance uint64      // tells two runs of one identity apart
	log      *slog.Logger

	lp   host.Host
	dht  *dht.IpfsDHT
	mdns interface{ Close() error } // nil without LAN

	reservations *autorelay.AutoRelay
	punching     *holepunch.Service

	book      *offerBook
	catalogue *catalogue
	kick      chan struct{} // publish soon
	found     chan struct{} // the DHT gained peers: announce soon
	moved     chan struct{} // peers have come or gone: look for members soon

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	met    chan struct{} // closed at the first connection, or when all bootstrap nodes have failed once

	mu           sync.Mutex
	wg           sync.WaitGroup // adds under mu while !closed
	closed       bool
	own          []Offer // as they are published under seq
	latest       []Offer // as they will be next time
	listings     ownListings
	seq          uint64               // of the latest push
	sent         map[PeerID]uint64    // seq that the peer has acknowledged
	pushing      map[PeerID]bool      // peers to whom a push is under way
	trackers     map[PeerID]bool      // said so themselves
	standIns     []PeerID             // stand in for them where there are none
	contacts     map[PeerID]time.Time // peers whose last connection stands, since
	bootstrap    map[PeerID]contact   // as of the latest attempt
	blocked      map[PeerID]bool      // by this node's owner; replaced, never changed
	probing      map[PeerID]bool      // signers that are being contacted
	rtts         map[PeerID]time.Duration
	traffic      map[PeerID]*traffic // of those connected
	announced    map[[32]byte]bool
	onDisconnect []func(PeerID)
	onDirect     []func(PeerID)
	reach        Reachability
	nat          map[network.NATTransportProtocol]string // see noteNAT
	seen         map[network.Conn]ma.Multiaddr           // this node's address as the peer sees it
	conflict     error
	untried      int  // bootstrap nodes whose first attempt isn't over
	hasMet       bool // met is closed
}

// Start joins the swarm and returns at once, whether or not anyone can be
// reached: bootstrap nodes are tried until they answer, for as long as the host
// lives. ctx bounds only the start; Close ends the host.
func Start(ctx context.Context, cfg Config) (*Host, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.publishEvery == 0 {
		cfg.publishEvery = publishEvery
	}
	if cfg.smallSwarm == 0 {
		cfg.smallSwarm = smallSwarm
	}
	if cfg.admitTimeout == 0 {
		cfg.admitTimeout = admitTimeout
	}
	boot, err := parseBootstrap(mergeAddrs(cfg.Swarm.Bootstrap, cfg.Bootstrap))
	if err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, info: cfg.Swarm, store: OpenSwarms(cfg.Dir), instance: rand.Uint64(), log: cfg.Log,
		book: newOfferBook(), catalogue: newCatalogue(), kick: make(chan struct{}, 1), found: make(chan struct{}, 1), moved: make(chan struct{}, 1), met: make(chan struct{}),
		seq:  uint64(time.Now().UnixNano()),
		sent: map[PeerID]uint64{}, pushing: map[PeerID]bool{}, trackers: map[PeerID]bool{}, contacts: map[PeerID]time.Time{},
		rtts: map[PeerID]time.Duration{}, traffic: map[PeerID]*traffic{}, announced: map[[32]byte]bool{},
		probing: map[PeerID]bool{}, bootstrap: map[PeerID]contact{}, nat: map[network.NATTransportProtocol]string{}, reach: ReachUnknown, seen: map[network.Conn]ma.Multiaddr{},
	}
	h.listings.sent = map[PeerID]uint64{}
	if h.members, err = loadMembership(h.store, h.info, cfg.Identity.ID(), h.log); err != nil {
		return nil, err
	}
	var admit admission
	if h.members != nil {
		admit = h.members.admission(cfg.admitTimeout)
	}
	if !h.members.mayTrack(h.cfg.Identity.ID()) {
		h.cfg.Tracker = false // nobody would believe it
	}
	if h.lp, err = newLibp2p(cfg.Identity, cfg.Listen, admit, h.traversal()...); err != nil {
		return nil, err
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	if err := h.startTraversal(); err != nil {
		h.cancel()
		h.lp.Close()
		return nil, err
	}
	h.lp.Network().Notify(&network.NotifyBundle{ConnectedF: h.connected, DisconnectedF: h.disconnected})
	h.Handle(trackProtocol, h.serveTrack)
	h.Handle(clockProtocol, serveClock)
	if err := h.startDHT(boot); err != nil {
		h.cancel()
		h.punching.Close()
		h.reservations.Close()
		h.lp.Close()
		return nil, err
	}
	if cfg.LAN {
		h.startMDNS()
	}
	boot = slices.DeleteFunc(boot, func(b peer.AddrInfo) bool { return b.ID == cfg.Identity.id })
	h.mu.Lock() // connections may come in already
	if h.untried = len(boot); h.untried == 0 && !cfg.LAN {
		h.meetLocked()
	}
	h.mu.Unlock()
	for _, b := range boot {
		h.noteContact(b, nil)
		h.lp.Peerstore().AddAddrs(b.ID, b.Addrs, peerstore.PermanentAddrTTL)
		h.goDo(func(ctx context.Context) { h.keepConnected(ctx, b) })
	}
	h.goDo(h.reachLoop)
	h.goDo(h.announceLoop)
	h.goDo(h.meetLoop)
	h.goDo(h.publishLoop)
	h.goDo(h.sweepLoop)
	h.goDo(h.rememberLoop)
	return h, nil
}

// traversal is what a member's host has beside what newLibp2p gives everyone.
func (h *Host) traversal() []libp2p.Option {
	opts := []libp2p.Option{h.cfg.Reachability.option(), libp2p.ConnectionGater(dialGate{h.members})}
	if h.cfg.Reachability != ReachPrivate { // libp2p would make the service's dialler and never close it
		opts = append(opts, libp2p.EnableNATService())
	}
	if h.cfg.Relay != RelayOff && !h.cfg.Client {
		opts = append(opts, libp2p.EnableRelayService(relayOptions(h.cfg.Relay, h.members)...))
	}
	return opts
}

// newLibp2p makes a libp2p host: QUIC and TCP, TLS 1.3 before Noise, no port
// mapping, no contact with anyone unless told. With admit, no connection exists
// before it passed, relayed ones included. Only a host with further options
// has to do with relays.
func newLibp2p(id *Identity, listen []string, admit admission, traversal ...libp2p.Option) (host.Host, error) {
	key, err := id.libp2pKey()
	if err != nil {
		return nil, err
	}
	var addrs []ma.Multiaddr
	for _, s := range listen {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			return nil, fmt.Errorf("listen address %q: %w", s, err)
		}
		addrs = append(addrs, a)
	}
	var h host.Host
	limits, err := newResourceManager(limitsFor(admit != nil), newFlood(func(p peer.ID) { h.Network().ClosePeer(p) })) // h is there before any peer is
	if err != nil {
		return nil, err
	}
	conns, err := lpconnmgr.NewConnManager(lowConns, highConns)
	if err != nil {
		return nil, err
	}
	var upgrader transport.Upgrader
	gate := func(own crypto.PrivKey, t transport.Transport, err error) (transport.Transport, error) {
		// For dialling back libp2p has an identity of its own, which is no member and asks for nothing but an answer.
		if err != nil || admit == nil || !own.Equals(key) {
			return t, err
		}
		return &gatedTransport{t, admit}, nil
	}
	h, err = libp2p.New(append([]libp2p.Option{
		libp2p.Identity(key),
		libp2p.NoListenAddrs,  // below, where failure leaves nothing behind
		libp2p.DisableRelay(), // below, where it can be gated
		libp2p.DisableMetrics(),
		libp2p.UserAgent("starling"),
		libp2p.Transport(func(own crypto.PrivKey, u transport.Upgrader, rm network.ResourceManager, shared *tcpreuse.ConnMgr) (transport.Transport, error) {
			if own.Equals(key) {
				upgrader = u
			}
			t, err := tcp.NewTCPTransport(u, rm, shared)
			return gate(own, t, err)
		}),
		libp2p.Transport(func(own crypto.PrivKey, cm *quicreuse.ConnManager, psk pnet.PSK, g connmgr.ConnectionGater, rm network.ResourceManager) (transport.Transport, error) {
			t, err := quic.NewTransport(own, cm, psk, g, rm)
			return gate(own, t, err)
		}),
		libp2p.Security(tls.ID, tls.New),
		libp2p.Security(noise.ID, noise.New),
		libp2p.Muxer(yamux.ID, newMuxer(admit != nil)),
		libp2p.ResourceManager(limits),
		libp2p.ConnectionManager(conns),
		libp2p.SwarmOpts(lpswarm.WithDialRanker(rankDials)),
		libp2p.UDPBlackHoleSuccessCounter(nil), // an outage must not end dialling
		libp2p.IPv6BlackHoleSuccessCounter(nil),
	}, traversal...)...)
	if err != nil {
		return nil, fmt.Errorf("network: %w", oneLine(err))
	}
	for i, a := range addrs {
		if err := h.Network().Listen(a); err != nil {
			h.Close()
			return nil, fmt.Errorf("listen on %s: %w (choose another port, or end the program that uses it)", listen[i], oneLine(err))
		}
	}
	if len(traversal) > 0 {
		if err := addCircuits(h, upgrader, admit); err != nil {
			h.Close()
			return nil, fmt.Errorf("relays: %w", err)
		}
	}
	return h, nil
}

// goDo runs f in a goroutine that Close waits for; after Close it does nothing.
func (h *Host) goDo(f func(ctx context.Context)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.wg.Go(func() { f(h.ctx) })
	}
}

// Close withdraws this node's offers, closes every connection and waits for the
// host's goroutines. Calling it again does nothing.
func (h *Host) Close() error {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.mu.Unlock()
	if closed {
		return nil
	}
	h.withdraw()
	h.remember()
	h.cancel()
	var errs []error
	if h.mdns != nil {
		errs = append(errs, h.mdns.Close())
	}
	errs = append(errs, h.dht.Close(), h.reservations.Close(), h.punching.Close(), h.lp.Close())
	h.wg.Wait()
	return errors.Join(errs...)
}

// ID returns this node's peer ID.
func (h *Host) ID() PeerID { return h.lp.ID().String() }

// Addrs returns the full multiaddrs under which this node can be dialled.
func (h *Host) Addrs() []string {
	if len(h.lp.Addrs()) == 0 {
		return nil
	}
	addrs, err := peer.AddrInfoToP2pAddrs(&peer.AddrInfo{ID: h.lp.ID(), Addrs: h.lp.Addrs()})
	if err != nil {
		return nil
	}
	return addrStrings(addrs)
}

func addrStrings(addrs []ma.Multiaddr) []string {
	s := make([]string, len(addrs))
	for i, a := range addrs {
		s[i] = a.String()
	}
	return s
}

// Swarm returns the description of the host's swarm.
func (h *Host) Swarm() *Info { return h.info }

// Connected returns the peers with at least one open connection that carries
// whatever it is given: not one through a stranger's relay, with its limits.
func (h *Host) Connected() []PeerID {
	var peers []PeerID
	for _, id := range h.lp.Network().Peers() {
		if h.lp.Network().Connectedness(id) == network.Connected {
			peers = append(peers, id.String())
		}
	}
	return peers
}

// RTT returns the round-trip time to peer as last measured, 0 if it never was.
func (h *Host) RTT(peer PeerID) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rtts[peer]
}

// OnDisconnect calls f, on a goroutine of its own, each time the last
// connection to a peer is gone.
func (h *Host) OnDisconnect(f func(peer PeerID)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onDisconnect = append(h.onDisconnect, f)
}

// IdentityConflict returns an error if another running node has been seen to
// use this node's key.
func (h *Host) IdentityConflict() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conflict
}

// connected runs for every new connection. In a private swarm its peer has
// shown a certificate, which may have been revoked since.
func (h *Host) connected(_ network.Network, c network.Conn) {
	p := c.RemotePeer().String()
	err := h.members.admits(p)
	if err == nil {
		err = h.blockedPeer(p)
	}
	if err != nil {
		h.goDo(func(context.Context) { c.Close() })
		return
	}
	if relayed(c.RemoteMultiaddr()) && c.Stat().Direction == network.DirInbound {
		h.goDo(func(ctx context.Context) { h.punch(ctx, c) })
	}
	if c.Stat().Limited {
		return
	}
	h.mu.Lock()
	_, again := h.contacts[p]
	h.contacts[p] = time.Now()
	h.meetLocked()
	h.mu.Unlock()
	if again {
		if h.firstDirect(c) {
			h.becameDirect(c.RemotePeer())
		}
		return
	}
	h.goDo(func(ctx context.Context) { h.measure(ctx, c.RemotePeer()) })
	h.goDo(func(ctx context.Context) { h.pullLists(ctx, p) })
	h.kickPublisher()
	h.peerMoved()
}

// disconnected runs when a connection is gone.
func (h *Host) disconnected(n network.Network, c network.Conn) {
	h.mu.Lock()
	delete(h.seen, c)
	h.mu.Unlock()
	if n.Connectedness(c.RemotePeer()) == network.Connected {
		return
	}
	p := c.RemotePeer().String()
	h.mu.Lock()
	_, known := h.contacts[p]
	delete(h.contacts, p)
	delete(h.traffic, p)
	delete(h.sent, p)
	delete(h.listings.sent, p)
	fs := h.onDisconnect
	h.mu.Unlock()
	if !known {
		return
	}
	h.peerMoved()
	for _, f := range fs {
		h.goDo(func(context.Context) { f(p) })
	}
	if h.book.has(p, time.Now()) {
		h.goDo(func(ctx context.Context) { h.recontact(ctx, p) })
	}
}

// sweepLoop closes connections of members whose certificates ran out, and
// relayed ones that aren't needed any more. An owner's node renews its own
// certificate.
func (h *Host) sweepLoop(ctx context.Context) {
	for sleep(ctx, time.Minute) {
		if h.members != nil {
			h.members.renewOwn()
			h.closeForbidden()
		}
		h.dropRelayed()
	}
}

// sleep waits for d and reports whether ctx still stands.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
