package artifacts

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkPieces hashes every piece that the store calls verified.
func checkPieces(t testing.TB, m *Model) {
	t.Helper()
	for i, path := range partPaths(m) {
		p := &m.Manifest().Parts[i]
		var data []byte
		for j := range p.Pieces {
			if !m.hasPiece(i, j) {
				continue
			}
			if data == nil {
				data = mustRead(t, path)
			}
			if s := m.Manifest().pieceSpan(i, j); pieceHash(data[s.Offset:s.Offset+s.Length], p.Size) != p.Pieces[j] {
				t.Errorf("part %d: piece %d is called verified, and its bytes are wrong", i, j)
			}
		}
	}
}

// A node that needs fewer layers than it has gives the others' disk space back, and nothing else; when it wants them again it
// fetches those alone.
func TestRelease(t *testing.T) {
	for _, parts := range []int{1, 3} {
		_, src, _ := publish(t, testModel{layers: 12, parts: parts, seed: 21})
		card, _ := src.Card()
		n := newTestNet()
		if err := n.join(t, "seeder", src.store).Seed(src); err != nil {
			t.Fatal(err)
		}
		s := openStore(t, t.TempDir())
		tor := n.join(t, "leecher", s)
		m := learn(t, s, src)
		if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("seeder"), nil); err != nil {
			t.Fatal(err)
		}
		keep := card.Spans(LayerRange{4, 6})
		if _, err := tor.Release(m, keep); err != nil {
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			t.Fatal(err)
		}
		var kept int64
		for _, r := range m.Manifest().pieceRuns(keep) {
			for i := r.first; i < r.last; i++ {
				kept += m.Manifest().pieceSpan(r.part, i).Length
			}
		}
		if m.HeldBytes() != kept || !m.Have(keep) || m.Held().Layers != (LayerRange{4, 6}) {
			t.Errorf("%d bytes held, %d were to be kept; %+v", m.HeldBytes(), kept, m.Held())
		}
		if got := m.AllocatedBytes(); got > kept+int64(parts)*64<<10 {
			t.Errorf("%d bytes are allocated for %d", got, kept)
		}
		if got := m.Releasable(keep); got != 0 {
			t.Errorf("%d bytes can be released after a release", got)
		}
		checkPieces(t, m)
		held := m.HeldBytes()
		tor.Close()
		s = reopen(t, s)
		m = mustGet(t, s, src.ID())
		if m.HeldBytes() != held || s.HashedBytes() != 0 {
			t.Errorf("after a restart %d bytes held of %d, %d hashed", m.HeldBytes(), held, s.HashedBytes())
		}
		tor = n.join(t, "again", s)
		if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("seeder"), nil); err != nil {
			t.Fatal(err)
		}
		if got, want := received(tor, m.ID()), m.TotalBytes()-held; got != want {
			t.Errorf("received %d bytes, %d were missing", got, want)
		}
		checkPieces(t, m)
		if err := tor.Remove(m); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Get(src.ID()); ok {
			t.Error("a removed model is still there")
		}
		if left, err := os.ReadDir(filepath.Join(s.Dir(), "models")); err != nil || len(left) != 0 {
			t.Errorf("left of a removed model: %v (%v)", left, err)
		}
	}
}

func TestReleaseRefused(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 4, seed: 22})
	card, _ := src.Card()
	n := newTestNet()
	seeder := n.join(t, "seeder", src.store)
	if err := seeder.Seed(src); err != nil {
		t.Fatal(err)
	}
	if _, err := seeder.Release(src, card.Spans(LayerRange{0, 1})); err == nil || !strings.Contains(err.Error(), "published") {
		t.Errorf("releasing a published model: %v", err)
	}
	if src.Releasable(nil) != 0 || !src.Held().Whole {
		t.Error("a published model lost something")
	}
	s := openStore(t, t.TempDir())
	tor := n.join(t, "leecher", s)
	m := learn(t, s, src)
	if _, err := tor.Release(m, nil); err == nil || !strings.Contains(err.Error(), "remove") {
		t.Errorf("releasing everything: %v", err)
	}
	started, done := make(chan struct{}, 1), make(chan error)
	go func() {
		done <- tor.Fetch(t.Context(), m, m.Manifest().All(), peersOf(), func(int64, int64) {
			select {
			case started <- struct{}{}:
			default:
			}
		})
	}()
	<-started
	for _, refused := range []error{tor.Remove(m), second(tor.Release(m, card.Spans(LayerRange{0, 1})))} {
		if refused == nil || !strings.Contains(refused.Error(), "being fetched") {
			t.Errorf("of a model that is being fetched: %v", refused)
		}
	}
	tor.Drop(m.ID())
	<-done
}

func second[T any](_ T, err error) error { return err }

// A torrent that outlived a release can neither bring back what went nor read it.
func TestReleaseEndsOldTorrents(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 4, seed: 23})
	card, _ := src.Card()
	s := openStore(t, t.TempDir())
	m := learn(t, s, src)
	data := mustRead(t, paths[0])
	at := func(generation, i int) pieceStorage {
		return pieceStorage{m: m, generation: generation, piece: i, offset: int64(i) * LeafSize}
	}
	for i := range m.Manifest().Parts[0].Pieces {
		sp := m.Manifest().pieceSpan(0, i)
		if _, err := at(0, i).WriteAt(data[sp.Offset:sp.Offset+sp.Length], 0); err != nil {
			t.Fatal(err)
		}
		if i == 20 {
			continue // hashed right, and not recorded yet
		}
		if err := at(0, i).MarkComplete(); err != nil {
			t.Fatal(err)
		}
	}
	keep := card.Spans(LayerRange{0, 1})
	if slices.ContainsFunc(m.Manifest().pieceRuns(keep), func(r pieceRun) bool { return r.first <= 20 && 20 < r.last }) {
		t.Fatal("piece 20 is kept: this test can't fail")
	}
	if _, err := m.Release(keep); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if err := at(0, 20).MarkComplete(); !errors.Is(err, errReleased) {
		t.Errorf("recording a piece that went: %v", err)
	}
	if _, err := at(0, 20).WriteAt([]byte("x"), 0); !errors.Is(err, errReleased) {
		t.Errorf("writing to a piece that went: %v", err)
	}
	if _, err := at(0, 20).ReadAt(make([]byte, 10), 0); !errors.Is(err, errReleased) {
		t.Errorf("reading a piece that went: %v", err)
	}
	sp := m.Manifest().pieceSpan(0, 20)
	if _, err := at(1, 20).WriteAt(data[sp.Offset:sp.Offset+sp.Length], 0); err != nil {
		t.Errorf("a new torrent: %v", err)
	}
	checkPieces(t, m)
}

func TestPins(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 4, seed: 24})
	s := openStore(t, t.TempDir())
	m := learn(t, s, src)
	if p, err := m.Pins(); err != nil || p != (Pins{}) {
		t.Errorf("%+v, %v", p, err)
	}
	want := Pins{Pinned: &LayerRange{1, 3}, Served: &LayerRange{0, 4}}
	if err := m.SetPins(want); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	m = mustGet(t, s, src.ID())
	if p, err := m.Pins(); err != nil || p.Pinned == nil || *p.Pinned != *want.Pinned || p.Served == nil || *p.Served != *want.Served {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "{", `{"version":2}`, strings.Repeat(" ", 5000)} {
		if err := os.WriteFile(filepath.Join(m.dir, "pins"), []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Pins(); err == nil {
			t.Errorf("pins %.10q were read", bad)
		}
	}
	if err := m.SetPins(Pins{}); err != nil {
		t.Fatal(err)
	}
	if p, err := m.Pins(); err != nil || p != (Pins{}) {
		t.Errorf("%+v, %v", p, err)
	}
}
