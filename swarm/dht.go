package swarm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/ipfs/go-cid"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
	"github.com/multiformats/go-multihash"
)

// Times of announcing and looking.
const (
	announceEvery = 10 * time.Minute
	announceRetry = time.Second      // when nobody could be told
	announceLimit = 30 * time.Second // for one record
	meetSoon      = time.Second      // after the start; doubles up to meetSeldom
	meetEvery     = time.Minute      // while peers come and go
	meetSeldom    = 10 * time.Minute // while nothing changes
	meetEnough    = smallSwarm       // connections at which looking for more ends: who tells everyone must know everyone
	lookupLimit   = 10 * time.Second
)

// What the DHT costs a node that does nothing goes with the square of the buckets' size: so many peers are asked, and each names so many.
// Eight, as in BitTorrent's, are enough where everybody announces again every ten minutes.
const (
	bucketSize   = 8
	refreshEvery = time.Hour // of the table's buckets that no look-up has gone through; connections fill it, too
)

// What nodes announce about themselves in the swarm's DHT.
var (
	memberKey  = sha256.Sum256([]byte("starling/member/1"))
	trackerKey = sha256.Sum256([]byte("starling/tracker/1"))
)

// startDHT joins the swarm's own Kademlia DHT, whose protocol contains the
// swarm ID. It carries provider records only.
func (h *Host) startDHT(boot []peer.AddrInfo) error {
	mode := dht.ModeServer
	if h.cfg.Client {
		mode = dht.ModeClient
	}
	d, err := dht.New(h.lp,
		dht.ProtocolPrefix(protocol.ID("/starling/"+h.info.ID)),
		dht.Mode(mode),
		dht.DisableValues(),
		dht.BootstrapPeers(boot...),
		dht.BucketSize(bucketSize),
		dht.RoutingTableRefreshPeriod(refreshEvery),
	)
	if err != nil {
		return fmt.Errorf("DHT: %w", err)
	}
	h.dht = d
	return nil
}

// joinedDHT tells the announcer that there are new peers to tell.
func (h *Host) joinedDHT() {
	select {
	case h.found <- struct{}{}:
	default:
	}
}

// recordKey is the DHT's key for one of ours.
func recordKey(key [32]byte) cid.Cid {
	mh, err := multihash.Encode(key[:], multihash.SHA2_256)
	if err != nil {
		panic("swarm: multihash: " + err.Error()) // 32 bytes are always right
	}
	return cid.NewCidV1(cid.Raw, mh)
}

// Announce tells the swarm's DHT, now and every ten minutes, that this node
// has what key stands for (a model ID, say). A client announces nothing.
func (h *Host) Announce(key [32]byte) {
	h.mu.Lock()
	h.announced[key] = true
	h.mu.Unlock()
	h.joinedDHT()
}

// Withdraw ends Announce; records that are out live on until they expire, so
// finders must ask the peer.
func (h *Host) Withdraw(key [32]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.announced, key)
}

// Lookup returns up to max peers, without this node, that announced key. It
// takes as long as ctx allows, ten seconds at most; what was found until then
// counts.
func (h *Host) Lookup(ctx context.Context, key [32]byte, max int) ([]PeerID, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	h.awaitContact(ctx)
	for range 50 { // identify tells the DHT of a new connection's peer a little later
		if len(h.Connected()) == 0 || h.dht.RoutingTable().Size() > 0 || !sleep(ctx, 20*time.Millisecond) {
			break
		}
	}
	if h.dht.RoutingTable().Size() == 0 {
		return nil, fmt.Errorf("lookup: no other node of swarm %s has been reached yet", h.info.ID)
	}
	var peers []PeerID
	for info := range h.dht.FindProvidersAsync(ctx, recordKey(key), max+1) {
		if info.ID == h.lp.ID() || len(peers) == max {
			continue
		}
		h.lp.Peerstore().AddAddrs(info.ID, info.Addrs, peerstore.TempAddrTTL)
		peers = append(peers, info.ID.String())
	}
	return peers, nil
}

// announceLoop keeps this node's provider records in the DHT.
func (h *Host) announceLoop(ctx context.Context) {
	if h.cfg.Client {
		return
	}
	wait := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.found:
			if !sleep(ctx, 100*time.Millisecond) { // let identify finish
				return
			}
		case <-time.After(wait):
		}
		wait = announceEvery
		if h.dht.RoutingTable().Size() == 0 {
			wait = announceRetry
			continue
		}
		for _, key := range h.announcements() {
			if err := h.provide(ctx, key); err != nil && ctx.Err() == nil {
				h.log.Info("announcement failed, trying on", "error", oneLine(err))
				wait = announceRetry
			}
		}
	}
}

func (h *Host) announcements() [][32]byte {
	keys := [][32]byte{memberKey}
	if h.cfg.Tracker {
		keys = append(keys, trackerKey)
	}
	if h.Serves() != nil {
		return keys
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.announced {
		keys = append(keys, k)
	}
	add := func(k [32]byte) {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, o := range h.own {
		add(o.Model)
	}
	for _, l := range h.listings.list {
		words := Words(l.Name)
		for _, w := range words[:min(len(words), maxListedWords)] {
			add(wordKey(w))
		}
	}
	return keys
}

func (h *Host) provide(ctx context.Context, key [32]byte) error {
	ctx, cancel := context.WithTimeout(ctx, announceLimit)
	defer cancel()
	return h.dht.Provide(ctx, recordKey(key), true)
}

// meetLoop finds members while few are connected, and trackers where many are. It looks again soon when peers have come or gone, and
// else the less often the longer nothing has changed: whoever is new looks, too.
func (h *Host) meetLoop(ctx context.Context) {
	for last, wait := time.Now(), meetSoon; ; {
		select {
		case <-ctx.Done():
			return
		case <-h.moved:
			if wait = min(wait, meetEvery); time.Since(last) > wait {
				last = time.Now().Add(meetSoon - wait) // let the newcomer say who it is
			}
			continue
		case <-time.After(time.Until(last.Add(wait))):
		}
		last = time.Now()
		if h.dht.RoutingTable().Size() == 0 {
			wait = meetSoon
			continue
		}
		wait = min(2*wait, meetSeldom)
		n := len(h.Connected())
		if n < meetEnough {
			h.meet(ctx, memberKey, meetEnough)
		}
		if n > h.cfg.smallSwarm && len(h.knownTrackers()) < maxTrackers {
			h.meet(ctx, trackerKey, maxTrackers)
			if len(h.knownTrackers()) == 0 {
				h.meetStandIns(ctx)
			}
		}
	}
}

// meetStandIns finds who stands in for trackers where there are none: the peers that are the nearest to the trackers' key in the DHT. They
// are the same for everybody, as far as everybody sees the same swarm; so all offers meet there, however few of the others a node is connected to.
func (h *Host) meetStandIns(ctx context.Context) {
	look, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	peers, err := h.dht.GetClosestPeers(look, string(recordKey(trackerKey).Hash()))
	if err != nil {
		return
	}
	var met []PeerID
	for _, id := range peers {
		dial, cancel := context.WithTimeout(ctx, findTimeout)
		if err := h.lp.Connect(dial, peer.AddrInfo{ID: id}); err == nil && h.members.mayTrack(id.String()) {
			met = append(met, id.String())
		}
		cancel()
		if len(met) == maxTrackers {
			break
		}
	}
	h.mu.Lock()
	news := !slices.Equal(met, h.standIns)
	h.standIns = met
	h.mu.Unlock()
	if news {
		h.kickPublisher()
	}
}

// peerMoved tells the routine that meets members that one has come or gone.
func (h *Host) peerMoved() {
	select {
	case h.moved <- struct{}{}:
	default:
	}
}

// meet connects to peers that announced key.
func (h *Host) meet(ctx context.Context, key [32]byte, max int) {
	peers, err := h.Lookup(ctx, key, max)
	if err != nil {
		return
	}
	for _, p := range peers {
		id, err := decodePeer(p)
		if err != nil || ctx.Err() != nil {
			continue
		}
		// Peers that are gone stay in the DHT for a while: libp2p's back-off
		// keeps us from dialling them again and again.
		dial, cancel := context.WithTimeout(ctx, findTimeout)
		if h.lp.Network().Connectedness(id) != network.Connected {
			err = h.lp.Connect(dial, peer.AddrInfo{ID: id})
		}
		cancel()
		if err == nil && key == trackerKey {
			h.noteTracker(p, true)
		}
	}
}

// startMDNS announces and looks for nodes of this swarm on the local network.
// A network that can't do multicast is no reason not to run.
func (h *Host) startMDNS() {
	s := mdns.NewMdnsService(h.lp, "_"+h.info.ID[:12]+"._udp", (*lanPeers)(h))
	if err := s.Start(); err != nil {
		h.log.Warn("no discovery on the local network", "error", err)
		return
	}
	h.mdns = s
}

// lanPeers is a Host as mDNS sees it.
type lanPeers Host

// HandlePeerFound implements mdns.Notifee.
func (l *lanPeers) HandlePeerFound(info peer.AddrInfo) {
	h := (*Host)(l)
	if info.ID == h.lp.ID() {
		return
	}
	h.goDo(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, findTimeout)
		defer cancel()
		if err := h.lp.Connect(ctx, info); err == nil {
			h.joinedDHT()
		}
	})
}
