package artifacts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// reopen closes a store and opens it again.
func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return openStore(t, s.Dir())
}

func mustGet(t testing.TB, s *Store, id ID) *Model {
	t.Helper()
	m, ok := s.Get(id)
	if !ok {
		t.Fatalf("model %s is not in the store; problems: %v", id.Short(), s.Problems())
	}
	return m
}

func TestPublishAndRestart(t *testing.T) {
	s, m, paths := publish(t, testModel{layers: 6, parts: 2, seed: 1})
	if !m.Published() || m.Path() != paths[0] || !m.Held().Whole || m.HeldBytes() != m.TotalBytes() {
		t.Errorf("published %v, path %s, held %+v", m.Published(), m.Path(), m.Held())
	}
	if s.HashedBytes() != m.TotalBytes() {
		t.Errorf("hashed %d bytes of %d", s.HashedBytes(), m.TotalBytes())
	}
	if entries, _ := filepath.Glob(filepath.Join(s.modelDir(m.ID()), "*.gguf")); len(entries) != 0 {
		t.Errorf("publishing copied the files: %q", entries)
	}
	// The same files again, named by another part, cost nothing.
	again, err := s.Publish(t.Context(), []string{paths[1], paths[0]}, func(done, total int64) { t.Error("the files were read again") })
	if err != nil || again != m {
		t.Errorf("publishing twice: %v", err)
	}
	s = reopen(t, s)
	m = mustGet(t, s, m.ID())
	if s.HashedBytes() != 0 || !m.Held().Whole || m.Problem() != nil || m.Path() != paths[0] {
		t.Errorf("after a restart: hashed %d bytes, held %+v, %v", s.HashedBytes(), m.Held(), m.Problem())
	}
	if len(s.Models()) != 1 {
		t.Errorf("%d models", len(s.Models()))
	}
}

func TestTouchedFileIsHashedAgain(t *testing.T) {
	s, m, paths := publish(t, testModel{layers: 6, parts: 2, seed: 1})
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(paths[1], later, later); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	m = mustGet(t, s, m.ID())
	if want := m.Manifest().Parts[1].Size; s.HashedBytes() != want || !m.Held().Whole || m.Problem() != nil {
		t.Errorf("hashed %d bytes, want the touched part's %d; held %+v, %v", s.HashedBytes(), want, m.Held(), m.Problem())
	}
	s = reopen(t, s)
	if s.HashedBytes() != 0 {
		t.Errorf("the next restart hashed %d bytes", s.HashedBytes())
	}
}

func TestChangedPublishedFile(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 500_000) },
		"removed":   os.Remove,
		"edited": func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte("edited"), 100_000)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, m, paths := publish(t, testModel{layers: 6, seed: 1})
			good := mustRead(t, paths[0])
			if err := damage(paths[0]); err != nil {
				t.Fatal(err)
			}
			// It is noticed while the store is open…
			if _, err := m.readAt(0, make([]byte, 10), 0); err == nil || !strings.Contains(err.Error(), paths[0]) {
				t.Errorf("reading: %v", err)
			}
			if m.Held().Whole {
				t.Error("still held as a whole")
			}
			// …and after a restart, where the good pieces are found by hash.
			s = reopen(t, s)
			m = mustGet(t, s, m.ID())
			if err := m.Problem(); err == nil || !strings.Contains(err.Error(), paths[0]) || strings.Contains(err.Error(), "\n") {
				t.Errorf("problem: %v", err)
			}
			switch held := m.HeldBytes(); name {
			case "truncated":
				if held != 500_000/LeafSize*LeafSize {
					t.Errorf("%d bytes held of the truncated file", held)
				}
			case "removed":
				if held != 0 {
					t.Errorf("%d bytes held of a removed file", held)
				}
			case "edited":
				if held != m.TotalBytes()-LeafSize {
					t.Errorf("%d bytes held of %d", held, m.TotalBytes())
				}
			}
			// Nobody's file is written to.
			n := newTestNet()
			err := n.join(t, "x", s).Fetch(t.Context(), m, m.Manifest().All(), peersOf(), nil)
			if err == nil || !strings.Contains(err.Error(), paths[0]) {
				t.Errorf("fetching into a published file: %v", err)
			}
			// Publishing the right file again cures it.
			if err := os.WriteFile(paths[0], good, 0o644); err != nil {
				t.Fatal(err)
			}
			again, err := s.Publish(t.Context(), paths, nil)
			if err != nil || again != m || m.Problem() != nil || !m.Held().Whole {
				t.Errorf("publishing the old file again: %v, %v", err, m.Problem())
			}
		})
	}
}

func TestPublishRefuses(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, t.TempDir())
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	special := func(name, typ, arch string) string {
		var w gguf.Writer
		w.Set("general.type", gguf.ValueOf(typ))
		w.Set("general.architecture", gguf.ValueOf(arch))
		w.AddTensor("a.weight", gguf.F32, []uint64{4}, make([]byte, 16))
		var buf bytes.Buffer
		if _, err := w.WriteTo(&buf); err != nil {
			t.Fatal(err)
		}
		return write(name, buf.Bytes())
	}
	model := mustRead(t, writeModel(t, t.TempDir(), testModel{layers: 2})[0])
	good := write("good.gguf", model)
	split := writeModel(t, dir, testModel{layers: 4, parts: 3})
	if err := os.Remove(split[1]); err != nil {
		t.Fatal(err)
	}
	fetched := filepath.Join(s.Dir(), "models", "own.gguf")
	if err := os.WriteFile(fetched, model, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		paths []string
		want  string
	}{
		"nothing":     {nil, "no file"},
		"missing":     {[]string{filepath.Join(dir, "nix.gguf")}, "nix.gguf"},
		"LoRA":        {[]string{special("lora.gguf", "adapter", "llama")}, "LoRA adapter"},
		"mmproj":      {[]string{special("mmproj.gguf", "mmproj", "clip")}, "mmproj"},
		"truncated":   {[]string{write("cut.gguf", model[:len(model)-1000])}, "cut.gguf"},
		"no GGUF":     {[]string{write("x.gguf", []byte("hello, I am a text file, am I not?"))}, "x.gguf"},
		"two models":  {[]string{good, write("other.gguf", model)}, "one model at a time"},
		"lost part":   {[]string{split[0]}, "missing"},
		"store's own": {[]string{fetched}, "store's own"},
	} {
		_, err := s.Publish(t.Context(), c.paths, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q in one line", name, err, c.want)
		}
	}
	if s.HashedBytes() != 0 || len(s.Models()) != 0 {
		t.Errorf("refusing hashed %d bytes and left %d models", s.HashedBytes(), len(s.Models()))
	}
}

func TestStoreIsLocked(t *testing.T) {
	s := openStore(t, t.TempDir())
	_, err := OpenStore(s.Dir())
	if err == nil || !strings.Contains(err.Error(), "in use by process ") || !strings.Contains(err.Error(), s.Dir()) {
		t.Errorf("opening twice: %v", err)
	}
	reopen(t, s)
}

func TestUnusableDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(path); err == nil || !strings.Contains(err.Error(), "choose a data folder") {
		t.Errorf("a file as a store: %v", err)
	}
}

// write puts pieces of src into a model by hand, as the torrent client does.
func write(t testing.TB, m *Model, src string, part int, pieces ...int) {
	t.Helper()
	data := mustRead(t, src)
	for _, i := range pieces {
		sp := m.Manifest().pieceSpan(part, i)
		if _, err := m.writeAt(0, part, i, data[sp.Offset:sp.Offset+sp.Length], sp.Offset); err != nil {
			t.Fatal(err)
		}
		if err := m.markVerified(0, part, i); err != nil {
			t.Fatal(err)
		}
	}
}

func TestVerifiedPiecesAreNotWritten(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 2})
	s := openStore(t, t.TempDir())
	m := learn(t, s, src)
	write(t, m, paths[0], 0, 3)
	if _, err := m.writeAt(0, 0, 3, []byte("x"), 3*LeafSize); err == nil {
		t.Error("a verified piece was written")
	}
	if _, err := src.writeAt(0, 0, 3, []byte("x"), 3*LeafSize); err == nil {
		t.Error("a published file was written")
	}
	sp := m.Manifest().pieceSpan(0, 3)
	if !m.Have([]Span{sp}) || m.Have([]Span{{0, sp.Offset, sp.Length + 1}}) || m.Have(nil) {
		t.Error("Have is wrong at the borders of a piece")
	}
	miss := m.Missing([]Span{{0, sp.Offset - 1, sp.Length + 2}})
	if len(miss) != 2 || SpanBytes(miss) != 2*LeafSize {
		t.Errorf("missing %v", miss)
	}
}

func TestAdoptPublishedCopy(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 4, seed: 2})
	s := openStore(t, t.TempDir())
	m := learn(t, s, src)
	own := m.Path()
	write(t, m, paths[0], 0, 0, 1, 2)
	got, err := s.Publish(t.Context(), paths, nil)
	if err != nil || got != m || !m.Published() || !m.Held().Whole || m.Path() != paths[0] {
		t.Fatalf("publishing over a part: %v, %+v", err, m.Held())
	}
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("the fetched copy is still there: %v", err)
	}
	s = reopen(t, s)
	if m = mustGet(t, s, m.ID()); !m.Published() || !m.Held().Whole || s.HashedBytes() != 0 {
		t.Errorf("after a restart: %+v, hashed %d", m.Held(), s.HashedBytes())
	}
	if err := s.Remove(m.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(paths[0]); err != nil {
		t.Errorf("removing the model removed its owner's file: %v", err)
	}
	if s = reopen(t, s); len(s.Models()) != 0 {
		t.Error("the removed model came back")
	}
}

// However the record is damaged, what is right on disk is found again by hash, and what is wrong
// is not believed.
func TestDamagedRecord(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"state cut":   func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, "state"), 20) },
		"state lost":  func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "state")) },
		"state empty": func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, "state"), 0) },
		"state zeros": func(t *testing.T, dir string) { os.WriteFile(filepath.Join(dir, "state"), make([]byte, 200), 0o644) },
		"other shape": func(t *testing.T, dir string) {
			os.WriteFile(filepath.Join(dir, "state"), []byte(`{"version":1,"parts":[{"have":"AAAA"}]}`), 0o644)
		},
		"no journal": func(t *testing.T, dir string) {
			os.WriteFile(filepath.Join(dir, "journal"), []byte("garbage garbage"), 0o644)
		},
		"file changed": func(t *testing.T, dir string) { corruptPiece(t, filepath.Join(dir, "model.gguf"), 2) },
		"nothing":      func(t *testing.T, dir string) {},
	} {
		_, src, paths := publish(t, testModel{layers: 4, seed: 3})
		s := openStore(t, t.TempDir())
		m := learn(t, s, src)
		write(t, m, paths[0], 0, 0, 2, 5)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		damage(t, s.modelDir(m.ID()))
		s = openStore(t, s.Dir())
		m = mustGet(t, s, m.ID())
		want := int64(3 * LeafSize)
		if name == "file changed" {
			want = 2 * LeafSize
		}
		if m.HeldBytes() != want || m.Problem() != nil {
			t.Errorf("%s: %d bytes held, want %d; %v", name, m.HeldBytes(), want, m.Problem())
		}
		if hashed := s.HashedBytes(); (name == "nothing" || name == "no journal") && hashed != 0 {
			t.Errorf("%s: %d bytes hashed", name, hashed)
		}
		s = reopen(t, s)
		if s.HashedBytes() != 0 {
			t.Errorf("%s: the next restart hashed %d bytes", name, s.HashedBytes())
		}
	}
}

// corruptPiece changes a byte of a piece, as another program would.
func corruptPiece(t testing.TB, path string, piece int64) {
	t.Helper()
	time.Sleep(20 * time.Millisecond) // a new modification time: file systems count in ticks of the kernel
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, piece*LeafSize); err != nil {
		t.Fatal(err)
	}
	b[0]++
	if _, err := f.WriteAt(b, piece*LeafSize); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedBundle(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 2})
	s := openStore(t, t.TempDir())
	m := learn(t, s, src)
	if err := os.Truncate(filepath.Join(s.modelDir(m.ID()), "bundle"), 50); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0].Error(), m.ID().Short()) {
		t.Errorf("problems %v", p)
	}
	learn(t, s, src) // and it can be had again
	if s = reopen(t, s); len(s.Models()) != 1 || len(s.Problems()) != 0 {
		t.Errorf("%d models, problems %v", len(s.Models()), s.Problems())
	}
}

// A bundle whose manifest lies is refused, however it got here.
func TestAddBundleVerifies(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 2})
	s := openStore(t, t.TempDir())
	b, err := ParseBundle(src.Bundle().Marshal(), src.ID(), MaxBundle)
	if err != nil {
		t.Fatal(err)
	}
	b.Manifest.Parts[0].Pieces[1][0]++
	if _, err := s.AddBundle(b); err == nil || len(s.Models()) != 0 {
		t.Errorf("a lying bundle was added: %v", err)
	}
}

// abandon lets go of a store as a killed process does: nothing is written any more.
func abandon(t testing.TB, s *Store) {
	t.Helper()
	for _, m := range s.Models() {
		m.close()
	}
	if err := s.lock.Close(); err != nil {
		t.Fatal(err)
	}
}

// After an unclean end, pieces of the last snapshot are believed and those since are hashed, unless
// the file was written to long after the record was.
func TestUncleanEnd(t *testing.T) {
	for _, touched := range []bool{false, true} {
		_, src, paths := publish(t, testModel{layers: 6, parts: 2, seed: 4})
		s := openStore(t, t.TempDir())
		m := learn(t, s, src)
		write(t, m, paths[0], 0, 0, 1, 2)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		write(t, m, paths[0], 0, 7)
		write(t, m, paths[1], 1, 4)
		// One more was being written, and its journal entry too.
		sp := m.Manifest().pieceSpan(0, 9)
		if _, err := m.writeAt(0, 0, 9, make([]byte, 100), sp.Offset); err != nil {
			t.Fatal(err)
		}
		abandon(t, s)
		f, err := os.OpenFile(filepath.Join(m.dir, "journal"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Write(appendJournal(nil, 0, 9)[:7])
		f.Close()
		wantHashed := int64(2 * LeafSize)
		if touched {
			later := time.Now().Add(time.Hour)
			if err := os.Chtimes(partPaths(m)[0], later, later); err != nil {
				t.Fatal(err)
			}
			wantHashed = 5 * LeafSize
		}
		held := m.HeldBytes()
		s = openStore(t, s.Dir())
		m = mustGet(t, s, m.ID())
		if m.HeldBytes() != held || s.HashedBytes() != wantHashed {
			t.Errorf("touched %v: %d bytes held, want %d; %d hashed, want %d", touched, m.HeldBytes(), held, s.HashedBytes(), wantHashed)
		}
		s = reopen(t, s)
		if m = mustGet(t, s, m.ID()); m.HeldBytes() != held || s.HashedBytes() != 0 {
			t.Errorf("touched %v, next start: %d bytes held, %d hashed", touched, m.HeldBytes(), s.HashedBytes())
		}
	}
}

// A store keeps to its limit of disk: no fetch begins that would pass it, and what is published elsewhere doesn't count.
func TestStoreLimit(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 6, seed: 3})
	src.store.SetLimit(1)
	if n := src.store.FetchedBytes(); n != 0 {
		t.Errorf("a published model counts %d bytes", n)
	}
	n := newTestNet()
	if err := n.join(t, "whole", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, t.TempDir())
	tor, m := n.join(t, "leecher", s), learn(t, s, src)
	s.SetLimit(1000)
	if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("whole"), nil); err == nil || !strings.Contains(err.Error(), "--max-disk") || m.HeldBytes() != 0 {
		t.Errorf("a fetch beyond the limit: %v, %d bytes held", err, m.HeldBytes())
	}
	s.SetLimit(2 * m.TotalBytes())
	if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("whole"), nil); err != nil {
		t.Error(err)
	}
	if _, received := tor.Traffic(); received < m.TotalBytes() || s.FetchedBytes() == 0 {
		t.Errorf("%d bytes received, %d on the disk, of a model of %d", received, s.FetchedBytes(), m.TotalBytes())
	}
}
