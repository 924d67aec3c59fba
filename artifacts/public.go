package artifacts

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	"github.com/anacrolix/torrent/storage"
	"golang.org/x/time/rate"
)

// PublicConfig says how ordinary BitTorrent clients are met.
type PublicConfig struct {
	// Listen is the TCP address, host:port, for connections of ordinary clients; empty: none can
	// connect.
	Listen string

	// Peers are addresses, host:port, of ordinary clients to connect to, for every model.
	Peers []string

	// Trackers are announce URLs (http, https or udp). They learn this node's address and which
	// torrents it has.
	Trackers []string
}

// public is a second BitTorrent client, which speaks v1 (BEP 3) with ordinary clients over TCP. It
// shares nothing with that of the swarm but the store: no address, connection or ban goes from one
// to the other, and peer exchange, DHT and local discovery are off, so nobody outside hears of the
// swarm's peers. It fetches only what it has claimed (see source) and writes only what agrees with
// the manifest's SHA-256 tree.
type public struct {
	client *torrent.Client
	listen net.Listener // nil: nobody can connect
	peers  []torrent.PeerInfo
	tiers  [][]string // of trackers
}

// publicPatience is how long a claim may bring nothing.
const publicPatience = 10 * time.Second

// publicClaim is how many bytes ordinary clients are asked for at a time; so much of pieces that are
// not whole is in memory at most.
const publicClaim = 64 << 20

// newPublic opens the client and its port. upload and download, if not nil, are limits that it shares with the swarm's client.
func newPublic(c *PublicConfig, upload, download *rate.Limiter, log *slog.Logger) (*public, error) {
	p := &public{}
	for _, text := range c.Peers {
		a, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			return nil, fmt.Errorf("torrent peer %s: %w: write HOST:PORT", quote(text), err)
		}
		p.peers = append(p.peers, torrent.PeerInfo{Addr: a, Source: torrent.PeerSourceDirect}) // an IP address: bans are by it
	}
	for _, text := range c.Trackers {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "udp" {
			return nil, fmt.Errorf("torrent tracker %s: write an http, https or udp URL", quote(text))
		}
		p.tiers = append(p.tiers, []string{text})
	}
	cfg := torrent.NewDefaultClientConfig()
	cfg.DefaultStorage = noStorage{}
	cfg.Seed = true
	cfg.NoDHT, cfg.DisablePEX, cfg.DisableWebtorrent, cfg.DisableWebseeds = true, true, true, true
	cfg.DisableTrackers = len(c.Trackers) == 0
	cfg.DisableTCP, cfg.DisableUTP, cfg.NoDefaultPortForwarding = true, true, true // TCP comes by the listener and dialer below
	cfg.PeriodicallyAnnounceTorrentsToDht = false
	cfg.DropDuplicatePeerIds = true
	cfg.MaxAllocPeerRequestDataPerConn = 16 << 20 // as in NewTorrents
	cfg.ExtendedHandshakeClientVersion, cfg.HTTPUserAgent = "starling", "starling"
	if upload != nil {
		cfg.UploadRateLimiter = upload
	}
	if download != nil {
		cfg.DownloadRateLimiter = download
	}
	cfg.Slogger = log
	if c.Listen != "" {
		l, err := net.Listen("tcp", c.Listen)
		if err != nil {
			return nil, fmt.Errorf("torrent port: %w: choose another with --torrent-listen", err)
		}
		p.listen = l
	}
	client, err := torrent.NewClient(cfg)
	if err != nil {
		if p.listen != nil {
			p.listen.Close()
		}
		return nil, fmt.Errorf("torrents: %w", err)
	}
	p.client = client
	client.AddDialer(torrent.NetworkDialer{Network: "tcp", Dialer: &net.Dialer{}})
	if p.listen != nil {
		client.AddListener(quietListener{p.listen})
	}
	return p, nil
}

// quietListener waits a little after an error: the library calls Accept again at once.
type quietListener struct{ net.Listener }

// Accept implements net.Listener.
func (l quietListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		time.Sleep(100 * time.Millisecond) // out of file descriptors, perhaps
	}
	return c, err
}

// add starts the v1 torrent of a part. A bundle without v1 hashes has none, and no error.
func (p *public) add(m *Model, part int) (*publicPart, error) {
	info, err := m.Bundle().infoV1(part)
	if err != nil {
		return nil, nil
	}
	v := &publicPart{m: m, generation: m.generationNow(), part: part, info: info, bufs: make(map[int]*pieceBuffer)}
	spec := &torrent.TorrentSpec{Trackers: p.tiers}
	spec.InfoBytes, spec.InfoHash = info, metainfo.Hash(sha1.Sum(info))
	spec.Storage = v
	if v.tor, _, err = p.client.AddTorrentSpec(spec); err != nil {
		return nil, fmt.Errorf("v1 torrent of model %s, part %d: %w", m.id.Short(), part+1, err)
	}
	v.tor.AddPeers(p.peers)
	return v, nil
}

func (p *public) close() error {
	err := errors.Join(p.client.Close()...)
	if p.listen != nil {
		if e := p.listen.Close(); err == nil && !errors.Is(e, net.ErrClosed) {
			err = e
		}
	}
	return err
}

// publicPart is the v1 torrent of one part of a model. Pieces on their way are in memory.
type publicPart struct {
	m          *Model
	generation int // as in partStorage
	part       int
	info       []byte
	tor        *torrent.Torrent

	mu   sync.Mutex // never held while the library is called
	bufs map[int]*pieceBuffer
	lies error // a piece had the SHA-1 that the bundle says, and not the manifest's SHA-256
}

// pieceBuffer is a piece of which chunks, of LeafSize, have come.
type pieceBuffer struct {
	data []byte
	have bitmap
}

// OpenTorrent implements storage.ClientImpl.
func (v *publicPart) OpenTorrent(context.Context, *metainfo.Info, metainfo.Hash) (storage.TorrentImpl, error) {
	return storage.TorrentImpl{Piece: func(p metainfo.Piece) storage.PieceImpl { return publicPiece{v, p.Index()} }}, nil
}

// publicPiece is one piece, as the library sees it.
type publicPiece struct {
	*publicPart
	piece int
}

// errGone says that chunks which the library has written are not here any more: the library then
// blames no peer for the piece.
var errGone = errors.New("the piece's chunks are not here")

// ReadAt implements io.ReaderAt.
func (p publicPiece) ReadAt(b []byte, off int64) (int, error) {
	if p.m.hasPiece(p.part, p.piece) {
		n, err := p.m.readAt(p.part, b, p.m.bundle.Manifest.pieceSpan(p.part, p.piece).Offset+off)
		if p.m.generationNow() != p.generation { // as in pieceStorage
			return 0, errReleased
		}
		return n, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	buf := p.bufs[p.piece]
	if buf == nil || off < 0 || off > int64(len(buf.data)) {
		return 0, errGone
	}
	n := min(len(b), len(buf.data)-int(off))
	for i := off / LeafSize; i*LeafSize < off+int64(n); i++ {
		if !buf.have.has(int(i)) {
			return 0, errGone
		}
	}
	return copy(b, buf.data[off:]), nil
}

// WriteAt implements io.WriterAt, of whole chunks.
func (p publicPiece) WriteAt(b []byte, off int64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	buf := p.bufs[p.piece]
	if buf == nil {
		span := p.m.bundle.Manifest.pieceSpan(p.part, p.piece)
		buf = &pieceBuffer{data: make([]byte, span.Length), have: newBitmap(int((span.Length + LeafSize - 1) / LeafSize))}
		p.bufs[p.piece] = buf
	}
	if off < 0 || off%LeafSize != 0 || off+int64(len(b)) > int64(len(buf.data)) {
		return 0, fmt.Errorf("a chunk of %d bytes at %d of a piece of %d", len(b), off, len(buf.data))
	}
	copy(buf.data[off:], b)
	for end := off + int64(len(b)); off < end && (off+LeafSize <= end || end == int64(len(buf.data))); off += LeafSize {
		buf.have.set(int(off / LeafSize))
	}
	return len(b), nil
}

// MarkComplete checks a piece whose SHA-1 is right by SHA-256, and stores it.
func (p publicPiece) MarkComplete() error {
	p.mu.Lock()
	buf := p.bufs[p.piece]
	delete(p.bufs, p.piece)
	p.mu.Unlock()
	if buf == nil || p.m.hasPiece(p.part, p.piece) {
		return nil
	}
	mp := &p.m.bundle.Manifest.Parts[p.part]
	if pieceHash(buf.data, mp.Size) != mp.Pieces[p.piece] {
		p.mu.Lock()
		p.lies = fmt.Errorf("%w: piece %d has the SHA-1 hash that the bundle says, but not the manifest's SHA-256: whoever sent the bundle lied; publish the model to put it right", errWrong, p.piece)
		p.mu.Unlock()
		return p.lies
	}
	return p.m.storePiece(p.generation, p.part, p.piece, buf.data)
}

// MarkNotComplete implements storage.PieceImpl; the chunks are fetched again over the old ones.
func (p publicPiece) MarkNotComplete() error { return nil }

// Completion implements storage.PieceImpl.
func (p publicPiece) Completion() storage.Completion {
	return storage.Completion{Ok: true, Complete: p.m.hasPiece(p.part, p.piece)}
}

// refresh is swarmModel.refresh for pieces [first, last).
func (v *publicPart) refresh(first, last int) {
	for i := first; i < last; i++ {
		if v.tor.PieceState(i).Complete != v.m.hasPiece(v.part, i) {
			v.tor.Piece(i).UpdateCompletion()
		}
	}
}

// pending returns how many bytes of pieces have come that are not whole.
func (v *publicPart) pending() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range v.bufs {
		n += b.have.count()
	}
	return n
}

// publicSource is ordinary BitTorrent clients as a source of one fetch.
//
// The library connects to nobody before a piece is wanted, and only who is connected says what he
// has. So where nothing can be had, one piece is wanted of a part without connections, in turns.
type publicSource struct {
	public *public
	parts  []*publicPart
	there  [][]pieceSet // what connected clients have, by part, as of the last reach
	hope   int          // the part of which a piece is wanted in hope, or -1
	turn   int
	busy   bool // fetch was called since the last reach
}

type pieceSet interface{ Contains(piece uint32) bool }

func (s *publicSource) name() string { return "ordinary BitTorrent clients" }

// reach implements source.
func (s *publicSource) reach() (most int64, gaps bool) {
	s.there = make([][]pieceSet, len(s.parts))
	for i, v := range s.parts {
		if v == nil {
			continue
		}
		v.tor.AddPeers(s.public.peers)
		for _, c := range v.tor.PeerConns() {
			s.there[i] = append(s.there[i], c.PeerPieces())
		}
	}
	idle := !s.busy
	s.busy, s.hope = false, -1
	for range s.parts {
		if i := s.turn % len(s.parts); idle && s.parts[i] != nil && len(s.there[i]) == 0 {
			s.hope = i
		}
		if s.turn++; s.hope >= 0 {
			return 1, false
		}
	}
	return publicClaim, true
}

// has implements source.
func (s *publicSource) has(part, piece int) bool {
	if s.hope >= 0 {
		return part == s.hope
	}
	return slices.ContainsFunc(s.there[part], func(p pieceSet) bool { return p.Contains(uint32(piece)) })
}

// fetch implements source.
func (s *publicSource) fetch(ctx context.Context, m *Model, runs []pieceRun) error {
	v := s.parts[runs[0].part]
	s.busy = true
	defer v.forget(runs)
	v.tor.AllowDataDownload()
	for _, r := range runs {
		v.tor.DownloadPieces(r.first, r.last)
	}
	last, pending, since := -1, 0, time.Now()
	tick := time.NewTicker(peerPoll)
	defer tick.Stop()
	for {
		changed := m.watch()
		left := 0
		for _, r := range missingOf(m, runs) {
			left += r.last - r.first
		}
		v.mu.Lock()
		lies := v.lies
		v.mu.Unlock()
		switch n := v.pending(); {
		case left == 0:
			return nil
		case lies != nil:
			return lies
		case left != last || n != pending:
			last, pending, since = left, n, time.Now()
		case time.Since(since) > publicPatience || s.hope >= 0 && len(v.tor.PeerConns()) > 0:
			return errNothing
		}
		if err := m.Problem(); err != nil {
			return errNothing // the fetch says it
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-tick.C:
			v.tor.AddPeers(s.public.peers)
		}
	}
}

// forget stops the fetching of runs and drops what came of pieces that are not whole.
func (v *publicPart) forget(runs []pieceRun) {
	for _, r := range runs {
		v.tor.CancelPieces(r.first, r.last)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range runs {
		for i := r.first; i < r.last; i++ {
			delete(v.bufs, i)
		}
	}
}
