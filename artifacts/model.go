package artifacts

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Model is one model of a [Store].
type Model struct {
	store  *Store
	id     ID
	bundle *Bundle // its Manifest never changes; the rest is guarded by mu
	dir    string

	syncMu sync.Mutex // held while a snapshot is made; taken before mu

	mu        sync.Mutex
	parts     []modelPart
	published bool
	problem   error
	attempt   int // counts clearProblem
	card      *Card
	tried     int           // verified pieces when the header was last looked at
	changed   chan struct{} // closed and replaced when a piece is verified or a problem appears

	retired []*os.File // open, but no longer a part's
	closed  bool       // nothing is read, written or recorded any more

	journal   *os.File
	journaled int   // entries that no snapshot has
	unsynced  int64 // bytes verified since the last snapshot
	dirty     bool  // the snapshot says so: files may have been written since
	writes    uint64
	writing   int        // writes going on
	written   *sync.Cond // on mu: the last write of a piece has ended

	generation int // counts releases: torrents of an earlier one read and write nothing
}

// modelPart is one file of a model. Invariant: a set bit of have is a piece whose bytes in the file
// hashed right, and which is never written again.
type modelPart struct {
	path     string
	have     bitmap
	stamp    stamp // of a published file
	file     *os.File
	writable bool
	writing  map[int]int  // writes going on, by piece
	sealed   map[int]bool // pieces that storePiece writes, and nobody else
	checked  time.Time    // when a published file's stamp was last compared
}

func newModel(s *Store, id ID, b *Bundle) *Model {
	m := &Model{store: s, id: id, bundle: b, dir: s.modelDir(id), changed: make(chan struct{}), tried: -1}
	m.written = sync.NewCond(&m.mu)
	m.parts = make([]modelPart, len(b.Manifest.Parts))
	for i := range m.parts {
		p := &b.Manifest.Parts[i]
		m.parts[i] = modelPart{path: filepath.Join(m.dir, p.Name), have: newBitmap(len(p.Pieces)), writing: map[int]int{}, sealed: map[int]bool{}}
	}
	return m
}

// ID returns the model's ID.
func (m *Model) ID() ID { return m.id }

// Manifest returns the model's manifest. It is shared: don't change it.
func (m *Model) Manifest() *Manifest { return m.bundle.Manifest }

// Bundle returns what other peers ask for by the model's ID. What it refers to is shared: don't change it.
func (m *Model) Bundle() *Bundle {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := *m.bundle
	return &b
}

// AddWebSeeds adds URLs to the bundle, where others find them: see [Bundle.WebSeeds].
func (m *Model) AddWebSeeds(urls []string) error {
	if _, err := partURLs(urls, 0, len(m.parts)); err != nil {
		return err
	}
	for _, u := range urls {
		if err := CheckWebSeed(u); err != nil {
			return err
		}
	}
	return m.amend(urls, nil)
}

// amend adds web seeds to the bundle, and puts in the BitTorrent v1 hashes of files that were hashed
// here, if infos is not nil: those that came with a bundle are somebody's word.
func (m *Model) amend(webSeeds []string, infos TorrentInfos) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := *m.bundle
	b.WebSeeds = mergeWebSeeds(b.WebSeeds, webSeeds)
	if infos != nil {
		b.Torrents = infos
	}
	data := b.Marshal()
	if bytes.Equal(data, m.bundle.Marshal()) {
		return nil
	}
	if err := writeFile(m.dir, "bundle", data); err != nil {
		return fmt.Errorf("model %s: %w", m.id.Short(), err)
	}
	m.bundle.Torrents, m.bundle.WebSeeds = b.Torrents, b.WebSeeds
	return nil
}

// TotalBytes returns the bytes of the whole model.
func (m *Model) TotalBytes() int64 { return m.bundle.Manifest.TotalBytes() }

// Path returns the path of the model's first part, which is what to open. Parts lie beside each
// other under their split names. Bytes that are not held read as zeros.
func (m *Model) Path() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parts[0].path
}

// Published reports whether the model's files are somebody's own, outside the store.
func (m *Model) Published() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.published
}

// Problem returns what is wrong with the model's files and what to do about it, or nil.
func (m *Model) Problem() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problem
}

// Have reports whether all bytes of spans were verified here. No spans are not held.
func (m *Model) Have(spans []Span) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.haveLocked(spans)
}

func (m *Model) haveLocked(spans []Span) bool {
	runs := m.bundle.Manifest.pieceRuns(spans)
	for _, r := range runs {
		for i := r.first; i < r.last; i++ {
			if !m.parts[r.part].have.has(i) {
				return false
			}
		}
	}
	return len(runs) > 0
}

// Missing returns the pieces that must be fetched so that spans are held, as spans: merged,
// ascending, rounded to pieces.
func (m *Model) Missing(spans []Span) []Span {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Span
	for _, r := range m.bundle.Manifest.pieceRuns(spans) {
		for i := r.first; i < r.last; i++ {
			if !m.parts[r.part].have.has(i) {
				out = append(out, m.bundle.Manifest.pieceSpan(r.part, i))
			}
		}
	}
	return mergeSpans(out, 0)
}

// HeldBytes returns the bytes verified so far.
func (m *Model) HeldBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var n int64
	for i := range m.parts {
		have := m.parts[i].have
		n += int64(have.count()) * PieceLength(m.bundle.Manifest.Parts[i].Size)
		if last := have.n - 1; have.has(last) {
			n -= PieceLength(m.bundle.Manifest.Parts[i].Size) - m.bundle.Manifest.pieceSpan(i, last).Length
		}
	}
	return n
}

// Holding is what a store has of a model.
type Holding struct {
	Header bool       // metadata and tokenizer: the model has a card
	Layers LayerRange // the longest run of layers, the first of several
	Embed  bool       // the token embedding table
	Head   bool       // the output norm and matrix
	Whole  bool       // everything
}

// Held returns what is here of the model.
func (m *Model) Held() Holding {
	card, ok := m.Card()
	m.mu.Lock()
	defer m.mu.Unlock()
	h := Holding{Header: ok, Whole: m.haveLocked(m.bundle.Manifest.All())}
	if !ok {
		return h
	}
	h.Embed, h.Head = m.haveLocked(card.EmbedSpans), m.haveLocked(card.HeadSpans)
	first := 0
	for i := range card.LayerSpans {
		if !m.haveLocked(card.LayerSpans[i]) {
			first = i + 1
		} else if i+1-first > h.Layers.Len() {
			h.Layers = LayerRange{First: first, Last: i + 1}
		}
	}
	return h
}

// AllocatedBytes returns the bytes of disk that the model's files take: of a sparse file only what
// was written.
func (m *Model) AllocatedBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var n int64
	for i := range m.parts {
		if fi, err := os.Stat(m.parts[i].path); err == nil {
			n += allocatedBytes(fi)
		}
	}
	return n
}

// watch returns a channel that is closed at the next change.
func (m *Model) watch() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *Model) notifyLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// hasPiece reports whether one piece was verified.
func (m *Model) hasPiece(part, piece int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parts[part].have.has(piece)
}

// generationNow returns how many releases there were.
func (m *Model) generationNow() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation
}

// clearProblem forgets a problem that may have gone away, such as a full disk, and reports whether
// there was one. A published file that changed stays one.
func (m *Model) clearProblem() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	had := m.problem != nil && !m.published
	if had {
		m.problem = nil
		m.attempt++
	}
	return had
}
