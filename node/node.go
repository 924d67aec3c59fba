package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/node/metrics"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/ledbat"
	"github.com/starling-swarm/starling/swarm/wire"
)

// maxSessions bounds the sessions of each role; memory for KV usually ends first.
const maxSessions = 4096

// Node is one daemon or ephemeral client. Its methods may be called from any
// goroutine until Close.
type Node struct {
	cfg      Config
	log      *slog.Logger
	identity *swarm.Identity
	swarms   *swarm.Swarms
	host     *swarm.Host
	store    *artifacts.Store
	torrents *artifacts.Torrents
	links    *links
	caps     *caps
	metrics  *metrics.Metrics
	seeding  seeding
	blocking sync.Mutex // held while the block list changes
	spill    *spill     // nil: there is no disk for caches
	reuse    struct{ hits, positions atomic.Int64 }
	began    time.Time

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	// sessions in which this node takes part, by session
	sessions struct {
		sync.Mutex
		closed   bool
		standing standing
		away     string          // why the terms forbid work for others now
		silent   []string        // what the terms ask for and the system doesn't tell
		blocked  map[string]bool // IDs of peers and models that the owner wants nothing to do with
		taken    taken           // by clients, of their shares
		idle     chan struct{}   // closed when the last session has gone; nil: nobody waits
		stages   map[wire.SessionID]*stageSession
		decoders map[wire.SessionID]*decoderSession
		clients  map[wire.SessionID]*clientSession
		bequests map[wire.SessionID]*bequest
	}

	recent    recent                           // of this node as a client
	salt      [32]byte                         // likewise: of its tokens' hashes
	losses    losses                           // of those that sessions of this node have worked with
	hindsight hindsight                        // likewise
	measured  atomic.Pointer[control.Measured] // nil: not yet

	turnover chan struct{} // holds one token when stages or decoders have come or gone

	// models that are loaded and offered
	weights sync.RWMutex // held for reading from when bytes of the store are found to be there until they are loaded; for writing while some are freed

	models struct {
		sync.Mutex
		served  map[artifacts.ID]*served
		loading map[artifacts.ID]bool
		claims  map[artifacts.ID]runtime.Range    // layers that will be served
		fresh   map[artifacts.ID]runtime.Executor // that are open and not yet served
		opening sync.Mutex                        // held, before the other, while a model is opened
	}

	// when each peer was last heard on a stage or KV stream, and when it was sending seams or rows
	live struct {
		sync.Mutex
		peers  map[string]*signs // that were heard lately
		parted []string          // stages of sessions that have ended since the latest ping
	}
}

// Start opens the data folder and joins the swarm. It returns as soon as the
// node listens: other peers are found in the background.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Log.With("pkg", "node"), began: time.Now(), swarms: swarm.OpenSwarms(cfg.DataDir)}
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.turnover = make(chan struct{}, 1)
	n.sessions.stages = map[wire.SessionID]*stageSession{}
	n.sessions.decoders = map[wire.SessionID]*decoderSession{}
	n.sessions.clients = map[wire.SessionID]*clientSession{}
	n.sessions.bequests = map[wire.SessionID]*bequest{}
	n.sessions.taken.shares = cfg.Shares
	n.models.served = map[artifacts.ID]*served{}
	n.models.loading = map[artifacts.ID]bool{}
	n.models.claims = map[artifacts.ID]runtime.Range{}
	n.models.fresh = map[artifacts.ID]runtime.Executor{}
	n.live.peers = map[string]*signs{}
	n.metrics = metrics.New(cfg.Version, n.state)
	if err := n.start(ctx); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) (err error) {
	if n.identity, err = identityFor(&n.cfg); err != nil {
		return err
	}
	n.salt = sha256.Sum256(n.identity.Sign("starling/salt/1", nil)) // nobody else can know, and it is the same the next time
	if n.store, err = artifacts.OpenStore(n.cfg.storeDir()); err != nil {
		return err
	}
	listen := n.cfg.Listen
	if len(listen) == 0 && !n.cfg.Client { // a client only dials
		var port int
		if listen, port = DefaultListen(); port != DefaultPort {
			n.log.Warn("the usual port is in use, others are taken: who knows this node's address must learn it again", "port", DefaultPort)
		}
	}
	n.store.SetLimit(n.cfg.MaxDisk)
	n.host, err = swarm.Start(ctx, swarm.Config{Identity: n.identity, Dir: n.cfg.DataDir, Swarm: n.cfg.Swarm, Listen: listen,
		Bootstrap: n.cfg.Bootstrap, Reachability: n.cfg.Reachability, Relay: n.cfg.Relay, LAN: n.cfg.LAN, Tracker: n.cfg.Tracker, Client: n.cfg.Client,
		Log: n.cfg.Log.With("pkg", "swarm")})
	if err != nil {
		return err
	}
	if !n.cfg.Client { // the folder may be a daemon's
		if n.spill, err = newSpill(n.cfg.spillDir(), n.cfg.KVDisk, n.log); err != nil {
			return err
		}
	}
	if public := n.cfg.public(); public != nil && !n.cfg.Swarm.Public {
		n.log.Warn("ordinary BitTorrent clients get what this node holds of models, members of the private swarm or not")
	}
	n.torrents, err = artifacts.NewTorrents(artifacts.TorrentConfig{Store: n.store, Listener: ledbat.Listener{Listener: n.host.Listener(protoTorrent), Busy: n.inSession},
		Log: n.cfg.Log.With("pkg", "artifacts"), Public: n.cfg.public(), WebSeeds: n.cfg.WebSeeds,
		MaxUpload: n.cfg.MaxUpload, MaxDownload: n.cfg.MaxDownload,
		Dial: func(ctx context.Context, peer string) (net.Conn, error) {
			s, err := n.host.Open(ctx, peer, protoTorrent)
			if err != nil {
				return nil, err
			}
			return ledbat.New(s, n.inSession), nil
		}})
	if err != nil {
		return err
	}
	n.caps = newCaps(n.cfg.MaxUpload, n.cfg.MaxDownload, n.torrents.Yield)
	n.links = newLinks(n.host, n.open, n.metrics)
	n.links.deliver, n.links.lost, n.links.heard, n.links.alive, n.links.partner = n.deliver, n.peerGone, n.hear, n.heardLately, n.partner
	n.links.listen(func(s *swarm.Stream) stream { return n.caps.capped(s) })
	n.host.OnDisconnect(func(peer string) {
		n.links.forget(peer)
		n.peerGone(peer, errors.New("the connection is gone"))
	})
	n.host.OnDirect(func(peer string) {
		n.links.meter.forget(peer)
		n.links.reopen(peer)
	})
	n.host.Handle(protoSession, n.counted(func(s *swarm.Stream) { n.serveSession(s.Peer(), &meteredConn{n.wrapped(s), n.metrics}) }))
	n.host.Handle(protoBundle, n.counted(func(s *swarm.Stream) { n.serveBundle(n.caps.capped(s)) }))
	blocked, err := readBlocked(n.cfg.DataDir)
	if err != nil {
		return err
	}
	n.obeyBlocked(&blocked)
	if n.spill != nil {
		n.wg.Go(n.routineSpill)
	}
	if !n.cfg.Client {
		n.wg.Go(n.routineTerms)
	}
	if n.cfg.Measure {
		m, err := readMeasured(n.cfg.DataDir, n.cfg.Version, runtime.Variant())
		if err != nil {
			n.log.Warn(err.Error())
		}
		if n.measured.Store(m); m == nil {
			n.wg.Go(n.routineMeasure)
		}
	}
	n.wg.Go(n.routinePing)
	n.wg.Go(n.routineOffer)
	if !n.cfg.Client {
		n.wg.Go(n.routineAssign)
	}
	if n.cfg.SeedSpare > 0 && !n.cfg.Client {
		n.wg.Go(n.routineSpare)
	}
	n.offer()
	return nil
}

// identityFor returns the node's key: the data folder's, or a fresh one for an
// ephemeral client of a public swarm.
func identityFor(cfg *Config) (*swarm.Identity, error) {
	if cfg.Client && cfg.Swarm.Public {
		return swarm.Ephemeral(), nil
	}
	return swarm.LoadIdentity(cfg.DataDir)
}

// Close ends every session, leaves the swarm and frees the data folder.
func (n *Node) Close() error {
	n.sessions.Lock()
	n.sessions.closed = true
	n.sessions.Unlock()
	for _, s := range n.stageMap() {
		s.close()
	}
	for _, d := range n.decoderList() {
		d.abort(wire.Refuse(wire.CodePeerLost, "the decoder is closing"))
	}
	for _, b := range n.bequestList() {
		b.close()
	}
	n.stop()
	var errs []error
	if n.torrents != nil {
		n.torrents.Close()
	}
	if n.links != nil {
		n.links.Close()
	}
	if n.host != nil {
		errs = append(errs, n.host.Close())
	}
	n.wg.Wait()
	n.models.Lock()
	for _, s := range n.models.served {
		s.prefixes.clear()
		errs = append(errs, s.batcher.close(), s.draft.close())
	}
	clear(n.models.served)
	n.models.Unlock()
	n.spill.close()
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}

// begin counts a goroutine in that Close waits for, unless the node is closing.
func (n *Node) begin() bool {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if n.sessions.closed {
		return false
	}
	n.wg.Add(1)
	return true
}

// spawn runs f on a goroutine that Close waits for; not at all on a node that
// is closing, where nobody needs its result.
func (n *Node) spawn(f func()) bool {
	ok := n.begin()
	if ok {
		go func() {
			defer n.wg.Done()
			f()
		}()
	}
	return ok
}

// counted makes Close wait for a stream handler.
func (n *Node) counted(f func(*swarm.Stream)) func(*swarm.Stream) {
	return func(s *swarm.Stream) {
		if !n.begin() {
			s.Reset()
			return
		}
		defer n.wg.Done()
		f(s)
	}
}

// stream is a swarm's stream.
type stream interface {
	sessionConn
	wire.Budget
	CloseWrite() error
	Reset() error
	Peer() string
}

// open opens a stream to a peer.
func (n *Node) open(ctx context.Context, peer, protocol string) (stream, error) {
	s, err := n.host.Open(ctx, peer, protocol)
	if err != nil {
		return nil, err
	}
	return n.wrapped(s), nil
}

// wrapped puts between the node and a stream what it needs: the caps.
func (n *Node) wrapped(s stream) stream {
	s = n.caps.capped(s)
	if n.cfg.wrap != nil {
		return n.cfg.wrap(s)
	}
	return s
}

// ID returns the node's peer ID.
func (n *Node) ID() string { return n.identity.ID() }

// Addrs returns the node's addresses, each with /p2p/ID.
func (n *Node) Addrs() []string { return n.host.Addrs() }

func (n *Node) stage(id wire.SessionID) *stageSession {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	return n.sessions.stages[id]
}

func (n *Node) stageMap() map[wire.SessionID]*stageSession {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	return maps.Clone(n.sessions.stages)
}

// addStage registers s, unless the session has another stage by now or the node
// is closing.
func (n *Node) addStage(id wire.SessionID, s *stageSession) *wire.Refusal {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if r := n.refusalLocked(); r != nil {
		return r
	}
	switch {
	case n.sessions.stages[id] != nil:
		return wire.Refuse(wire.CodeBusy, "session %v is being opened already", id)
	case len(n.sessions.stages) >= maxSessions:
		return wire.Refuse(wire.CodeBusy, "this node has %d stages open already", maxSessions)
	}
	if r := n.probeRefusalLocked(s.m.probeBytes()); r != nil {
		return r
	}
	if r := n.shareRefusalLocked(s.client, int(s.m.plan.Capacity)); r != nil {
		return r
	}
	n.sessions.stages[id] = s
	n.turned()
	return nil
}

// inSession reports whether this node takes part in a session, whose frames torrents must not delay.
func (n *Node) inSession() bool {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	return len(n.sessions.stages)+len(n.sessions.decoders)+len(n.sessions.bequests) > 0
}

func (n *Node) removeStage(id wire.SessionID, s *stageSession) {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if n.sessions.stages[id] == s {
		delete(n.sessions.stages, id)
		n.turned()
		n.tellIdleLocked()
	}
}

// turned says that the load has changed.
func (n *Node) turned() {
	select {
	case n.turnover <- struct{}{}:
	default:
	}
}

// addClient registers a run of this node's own, unless the node is closing.
func (n *Node) addClient(s *clientSession) error {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if n.sessions.closed || n.sessions.standing == leaving {
		return errors.New("this node is about to close: start it again, or run with another data folder")
	}
	n.sessions.clients[s.id] = s
	return nil
}

func (n *Node) removeClient(s *clientSession) {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	delete(n.sessions.clients, s.id)
	n.tellIdleLocked()
}

func (n *Node) decoder(id wire.SessionID) *decoderSession {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	return n.sessions.decoders[id]
}

func (n *Node) decoderList() []*decoderSession {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	return slices.Collect(maps.Values(n.sessions.decoders))
}

// addDecoder registers d, unless the session is open or the node is closing.
func (n *Node) addDecoder(id wire.SessionID, d *decoderSession) *wire.Refusal {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if r := n.refusalLocked(); r != nil {
		return r
	}
	switch {
	case n.sessions.decoders[id] != nil:
		return wire.Refuse(wire.CodeBadGrant, "session %v is already open here", id)
	case len(n.sessions.decoders) >= maxSessions:
		return wire.Refuse(wire.CodeBusy, "this node decodes %d sessions already", maxSessions)
	}
	if r := n.probeRefusalLocked(d.m.probed.bytes()); r != nil {
		return r
	}
	if r := n.shareRefusalLocked(d.client, len(d.m.open.Tokens)+int(d.m.open.MaxNew)); r != nil {
		return r
	}
	n.sessions.decoders[id] = d
	n.turned()
	return nil
}

func (n *Node) removeDecoder(id wire.SessionID, d *decoderSession) {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if n.sessions.decoders[id] == d {
		delete(n.sessions.decoders, id)
		n.turned()
		n.tellIdleLocked()
	}
}
