package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anacrolix/torrent"
	infohash_v2 "github.com/anacrolix/torrent/types/infohash-v2"
	"golang.org/x/time/rate"
)

// TorrentConfig is what [NewTorrents] needs.
type TorrentConfig struct {
	// Store holds the models to seed and to fetch.
	Store *Store

	// Dial connects to the torrent service of a peer, by the peer's ID. It is called from many
	// goroutines and must honour ctx. The connection's Close must end reads on the other side.
	Dial func(ctx context.Context, peer string) (net.Conn, error)

	// Listener accepts connections of peers. RemoteAddr().String() of each must be the ID of the
	// peer at the other end, as verified by the transport: it is what a ban holds on to. Torrents
	// closes the listener. Nil means that nobody can connect to this node.
	Listener net.Listener

	// WebSeeds lets fetches use the web seeds that bundles name, as far as they are at public
	// addresses. Those of UseRemote are used in any case.
	WebSeeds bool

	// Public, if not nil, has ordinary BitTorrent clients fetch from this node, and it from them, by
	// BitTorrent v1 on connections of its own.
	Public *PublicConfig

	// MaxUpload bounds what all peers together are sent, in bytes per second; 0 is no bound. What Yield hears of counts.
	MaxUpload int64

	// MaxDownload bounds what all peers together send, likewise. What comes from web servers is not counted.
	MaxDownload int64

	// Log receives the BitTorrent library's messages; nil drops them.
	Log *slog.Logger
}

// Torrents is a node's BitTorrent client. It fetches pieces into a [Store] and seeds what the store
// holds. It opens no socket, and knows no tracker, DHT, peer exchange or local discovery: peers are
// those that its user names, reached by the connections that its user provides. Two things are
// sources of missing pieces beside the swarm, if its user wants them: web seeds, and ordinary
// BitTorrent clients.
//
// Each part of a model is one torrent, of BitTorrent v2 (BEP 52): its info dictionary and piece
// layer follow from the manifest, so a torrent is known by the model ID alone and pieces are
// checked against the same SHA-256 tree that the ID covers.
type Torrents struct {
	store  *Store
	client *torrent.Client
	peers  *peerBook
	listen *peerListener
	stop   context.CancelFunc
	done   chan struct{} // closed when the sync loop has ended
	log    *slog.Logger
	public *public // nil: ordinary clients are not met

	upload, download *rate.Limiter // nil: no bound

	hintWeb *webClient // for web seeds of bundles; nil: they are not used

	mu     sync.Mutex
	closed bool
	models map[ID]*swarmModel
	named  map[ID][]namedSeed
	banned map[string]bool // web seeds that sent wrong bytes
}

// swarmModel is a model's torrents, one per part, and how many fetches want each piece.
type swarmModel struct {
	model  *Model
	parts  []*torrent.Torrent
	public []atomic.Pointer[publicPart] // v1; nil where ordinary clients are not met, or for parts without v1 hashes
	gone   chan struct{}                // closed when the torrents are dropped

	// by part and piece, guarded by Torrents.mu
	wanted  [][]int32 // by so many fetches
	claimed [][]bool  // a source fetches it, not these torrents

	front    map[pieceAt]bool // see spread; guarded by Torrents.mu, like the next
	spreadAt time.Time
}

// NewTorrents starts a client. Close it before the store.
func NewTorrents(c TorrentConfig) (*Torrents, error) {
	if c.Store == nil || c.Dial == nil {
		return nil, errors.New("torrents: a store and a dialer are needed")
	}
	cfg := torrent.NewDefaultClientConfig()
	cfg.DefaultStorage = noStorage{} // each torrent brings its own; the default would write to the working directory
	cfg.Seed = true
	cfg.NoDHT, cfg.DisableTrackers, cfg.DisablePEX, cfg.DisableWebtorrent, cfg.DisableWebseeds = true, true, true, true, true
	cfg.DisableTCP, cfg.DisableUTP, cfg.NoDefaultPortForwarding = true, true, true
	cfg.PeriodicallyAnnounceTorrentsToDht = false
	// Connections are encrypted already.
	cfg.HeaderObfuscationPolicy = torrent.HeaderObfuscationPolicy{Preferred: false, RequirePreferred: true}
	cfg.DropDuplicatePeerIds = true
	cfg.DisableIPv6 = false // peers' addresses look like IPv6, see peerBook
	cfg.DialRateLimiter = rate.NewLimiter(500, 500)
	// At its default of 64 MiB a connection looks at no more than the first 64 MiB of missing pieces, the rarest, whether its peer has them or
	// not: where many are rare, those that peers do have are asked of nobody but the seed.
	cfg.MaxUnverifiedBytes = 0
	// At its default of 1 MiB an uploader can wait for ever on a reservation (v1.59.1; not seen
	// with v1.62.0, but the margin costs nothing until it is used): 1024 requests of 16 KiB.
	cfg.MaxAllocPeerRequestDataPerConn = 16 << 20
	upload, download := newLimiter(c.MaxUpload), newLimiter(c.MaxDownload)
	if upload != nil {
		cfg.UploadRateLimiter = upload
	}
	if download != nil {
		cfg.DownloadRateLimiter = download
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Slogger = c.Log
	client, err := torrent.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("torrents: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &Torrents{
		store:  c.Store,
		client: client,
		peers:  newPeerBook(),
		upload: upload, download: download,
		stop:   stop,
		done:   make(chan struct{}),
		log:    c.Log,
		models: make(map[ID]*swarmModel),
		named:  make(map[ID][]namedSeed),
		banned: make(map[string]bool),
	}
	if c.Public != nil {
		if t.public, err = newPublic(c.Public, upload, download, c.Log); err != nil {
			stop()
			return nil, errors.Join(append(client.Close(), err)...)
		}
	}
	if c.WebSeeds {
		t.hintWeb = newWebClient(true)
	}
	client.AddDialer(&peerDialer{book: t.peers, dial: c.Dial})
	if c.Listener != nil {
		t.listen = newPeerListener(c.Listener, t.peers)
		client.AddListener(t.listen)
	}
	go t.syncLoop(ctx)
	return t, nil
}

// newLimiter returns what keeps to so many bytes per second, or nil for 0.
func newLimiter(most int64) *rate.Limiter {
	if most <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(most), int(max(most/4, 256<<10)))
}

// Yield counts bytes that something else has sent and received towards what torrents may send and fetch:
// they get the rest.
func (t *Torrents) Yield(sent, received int) {
	yield(t.upload, sent)
	yield(t.download, received)
}

func yield(l *rate.Limiter, n int) {
	for ; l != nil && n > 0; n -= l.Burst() {
		l.ReserveN(time.Now(), min(n, l.Burst()))
	}
}

// Traffic returns the bytes that BitTorrent peers have been sent and have sent since the start.
func (t *Torrents) Traffic() (sent, received int64) {
	clients := []*torrent.Client{t.client}
	if t.public != nil {
		clients = append(clients, t.public.client)
	}
	for _, c := range clients {
		s := c.ConnStats()
		sent, received = sent+s.BytesWritten.Int64(), received+s.BytesRead.Int64()
	}
	return sent, received
}

// syncLoop writes the record of what was verified to the disk from time to time. An error shows
// in the next fetch, which writes it too.
func (t *Torrents) syncLoop(ctx context.Context) {
	defer close(t.done)
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = t.store.Sync()
			t.meetPublic()
		}
	}
}

// meetPublic connects to the ordinary clients that were named, where it isn't yet.
func (t *Torrents) meetPublic() {
	if t.public == nil || len(t.public.peers) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sm := range t.models {
		for i := range sm.public {
			if v := sm.public[i].Load(); v != nil {
				v.tor.AddPeers(t.public.peers)
			}
		}
	}
}

// PublicAddr returns the address at which ordinary BitTorrent clients can connect, or "".
func (t *Torrents) PublicAddr() string {
	if t.public == nil || t.public.listen == nil {
		return ""
	}
	return t.public.listen.Addr().String()
}

// Seed offers what the store holds, and comes to hold, of a model to peers that connect. Call it
// again after publishing a model of which a part was seeded.
func (t *Torrents) Seed(m *Model) error {
	sm, err := t.add(m)
	if err != nil {
		return err
	}
	if err := t.renewPublic(sm); err != nil {
		return err
	}
	sm.refresh(m.Manifest().All())
	return nil
}

// renewPublic makes the v1 torrents agree with the bundle, where its v1 hashes have changed.
func (t *Torrents) renewPublic(sm *swarmModel) error {
	if t.public == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range sm.public {
		v := sm.public[i].Load()
		info, err := sm.model.Bundle().infoV1(i)
		if err != nil || v != nil && bytes.Equal(v.info, info) {
			continue
		}
		if v != nil {
			v.tor.Drop()
		}
		if v, err = t.public.add(sm.model, i); err != nil {
			return err
		}
		sm.public[i].Store(v)
	}
	return nil
}

// Drop stops seeding a model and ends its fetches with an error.
func (t *Torrents) Drop(id ID) {
	t.mu.Lock()
	sm := t.models[id]
	delete(t.models, id)
	t.mu.Unlock()
	if sm != nil {
		sm.drop()
	}
}

// isGone reports whether the torrents have been dropped.
func (sm *swarmModel) isGone() bool {
	select {
	case <-sm.gone:
		return true
	default:
		return false
	}
}

func (sm *swarmModel) drop() {
	close(sm.gone)
	for _, tor := range sm.parts {
		tor.Drop()
	}
	for i := range sm.public {
		if v := sm.public[i].Load(); v != nil {
			v.tor.Drop()
		}
	}
}

// refresh has the library ask the store again about the pieces that cover spans, where the two
// disagree: after the record of a piece could not be written, or the model was published.
func (sm *swarmModel) refresh(spans []Span) { sm.refreshRuns(sm.model.Manifest().pieceRuns(spans)) }

func (sm *swarmModel) refreshRuns(runs []pieceRun) {
	for _, r := range runs {
		for i := r.first; i < r.last; i++ {
			if p := sm.parts[r.part].Piece(i); sm.parts[r.part].PieceState(i).Complete != sm.model.hasPiece(r.part, i) {
				p.UpdateCompletion()
			}
		}
		if v := sm.public[r.part].Load(); v != nil {
			v.refresh(r.first, r.last)
		}
	}
}

// add returns the torrents of a model, starting them if need be.
func (t *Torrents) add(m *Model) (*swarmModel, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addLocked(m)
}

func (t *Torrents) addLocked(m *Model) (*swarmModel, error) {
	if t.closed {
		return nil, errors.New("torrents: closed")
	}
	if sm, ok := t.models[m.id]; ok {
		return sm, nil
	}
	man := m.Manifest()
	sm := &swarmModel{model: m, gone: make(chan struct{}), public: make([]atomic.Pointer[publicPart], len(man.Parts))}
	generation := m.generationNow()
	for i := range man.Parts {
		info := man.infoV2(i)
		spec := &torrent.TorrentSpec{PieceLayers: man.layersV2(i)}
		spec.InfoBytes = info
		spec.InfoHashV2.Value, spec.InfoHashV2.Ok = infohash_v2.HashBytes(info), true
		spec.Storage = partStorage{m: m, generation: generation, part: i}
		tor, _, err := t.client.AddTorrentSpec(spec)
		if err != nil {
			sm.drop()
			return nil, fmt.Errorf("torrent of model %s, part %d: %w", m.id.Short(), i+1, err)
		}
		tor.SetOnWriteChunkError(func(err error) {
			if !errors.Is(err, errElsewhere) {
				tor.DisallowDataDownload() // the model keeps the error
			}
		})
		sm.parts = append(sm.parts, tor)
		sm.wanted = append(sm.wanted, make([]int32, len(man.Parts[i].Pieces)))
		if t.public != nil {
			v, err := t.public.add(m, i)
			if err != nil {
				sm.drop()
				return nil, err
			}
			sm.public[i].Store(v)
		}
		sm.claimed = append(sm.claimed, make([]bool, len(man.Parts[i].Pieces)))
	}
	t.models[m.id] = sm
	return sm, nil
}

// Banned returns the IDs of the peers, the addresses of ordinary clients, and the URLs of the web seeds, that sent wrong bytes. They
// are not asked again.
func (t *Torrents) Banned() []string {
	var ids []string
	for _, ip := range t.client.BadPeerIPs() {
		if id, ok := t.peers.byIP(ip); ok {
			ids = append(ids, id)
		}
	}
	if t.public != nil {
		for _, ip := range t.public.client.BadPeerIPs() {
			if a, err := netip.ParseAddr(ip); err == nil {
				ip = a.Unmap().String()
			}
			ids = append(ids, ip)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(ids, slices.Sorted(maps.Keys(t.banned))...)
}

// Close ends all connections and waits for them. What was verified is on the disk when it returns.
func (t *Torrents) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	for id, sm := range t.models {
		delete(t.models, id)
		close(sm.gone)
	}
	t.mu.Unlock()
	t.stop()
	<-t.done
	err := errors.Join(t.client.Close()...)
	if t.public != nil {
		err = errors.Join(err, t.public.close())
	}
	if t.listen != nil {
		if e := t.listen.Close(); err == nil && !errors.Is(e, net.ErrClosed) {
			err = e
		}
	}
	if e := t.store.Sync(); err == nil {
		err = e
	}
	return err
}
