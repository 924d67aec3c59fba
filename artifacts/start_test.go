package artifacts

import (
	"os"
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// startStore makes a store that holds all of a 4 GB model, sparse, and returns its folder and the model's ID.
func startStore(t *testing.T) (dir string, id ID) {
	t.Helper()
	path := write7B(t)
	set, err := gguf.OpenSet(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := Part{Name: partName(0, 1), Size: set.Size(), Pieces: make([][32]byte, pieceCount(set.Size()))}
	length := PieceLength(p.Size)
	buf := make([]byte, length)
	zeros := pieceHash(buf, p.Size)
	for i := range p.Pieces {
		p.Pieces[i] = zeros
		off := int64(i) * length
		if off > set.Meta().HeaderSize && off+length <= p.Size {
			continue
		}
		b := buf[:min(length, p.Size-off)]
		if _, err := f.ReadAt(b, off); err != nil {
			t.Fatal(err)
		}
		p.Pieces[i] = pieceHash(b, p.Size)
	}
	p.Root = rootOf(p.Pieces, p.Size)
	s := openStore(t, t.TempDir())
	m, err := s.AddBundle(&Bundle{Manifest: &Manifest{Parts: []Part{p}}, Torrents: TorrentInfos{make([]byte, 20*len(p.Pieces))}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, m.Path()); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	m.parts[0].have.fill()
	err = m.recordLocked(true)
	m.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Dir(), m.ID()
}

// A node that has 4 GB of verified weights starts without reading them.
func TestStartOf4GB(t *testing.T) {
	dir, id := startStore(t)
	began := time.Now()
	s := openStore(t, dir)
	m := mustGet(t, s, id)
	card, ok := m.Card()
	took := time.Since(began)
	if !ok || card.Layers != 32 || !m.Held().Whole {
		t.Fatalf("held %+v", m.Held())
	}
	t.Logf("a store with %d bytes opened, and the card read, in %v", m.TotalBytes(), took)
	if s.HashedBytes() != 0 {
		t.Errorf("%d bytes were hashed", s.HashedBytes())
	}
	if took > time.Minute { // some milliseconds on an idle machine
		t.Errorf("the start took %v", took)
	}
}
