package artifacts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// MaxBundle bounds the bundle file of a model in the store: 16 TiB in pieces of 16 MiB and the most
// parts, with room to spare.
const MaxBundle = 64 << 20

// Store is the models on this machine: published ones, whose files lie where their owner keeps
// them and are never written, and fetched ones, sparse files with the original offsets in the
// store's folder. It remembers which pieces were verified and believes it after a restart as long
// as the files' size, inode and modification time say that nobody else wrote to them.
//
// One process uses a store at a time. Methods may be called from any goroutine.
type Store struct {
	dir      string
	lock     *os.File
	hashed   atomic.Int64
	limit    atomic.Int64 // see SetLimit
	problems []error

	mu       sync.Mutex
	models   map[ID]*Model
	incoming map[string]bool // folders that Download is working in
}

// removed ends the name of a model's folder that is being deleted.
const removed = ".removed"

// errLocked is returned by lockFile when another process has the lock.
var errLocked = errors.New("locked")

// OpenStore opens the store in dir, making it if need be. Files whose record can't be believed are
// hashed again here, the affected ones only. A model that can't be read does not make it fail: see
// [Store.Problems] and [Model.Problem]. What a newer build has written does, and stays as it is.
func OpenStore(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "models"), 0o755); err != nil {
		return nil, fmt.Errorf("model store: %w: choose a data folder that can be written", err)
	}
	lockPath := filepath.Join(dir, "lock")
	lock, err := lockFile(lockPath)
	if errors.Is(err, errLocked) {
		who := "another process"
		if b, err := os.ReadFile(lockPath); err == nil && len(b) < 64 && strings.TrimSpace(string(b)) != "" {
			who = strings.TrimSpace(string(b))
		}
		return nil, fmt.Errorf("model store %s is in use by %s: stop it, or use another data folder", dir, who)
	}
	if err != nil {
		return nil, fmt.Errorf("model store: %w: choose a data folder that can be written", err)
	}
	s := &Store{dir: dir, lock: lock, models: make(map[ID]*Model), incoming: make(map[string]bool)}
	err = s.checkFormat()
	if err == nil {
		err = s.load()
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("model store %s: %w", dir, err)
	}
	return s, nil
}

// load reads the models that are there and writes who has the lock.
func (s *Store) load() error {
	if err := s.lock.Truncate(0); err != nil {
		return err
	}
	if _, err := s.lock.WriteAt(fmt.Appendf(nil, "process %d\n", os.Getpid()), 0); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, "models"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), removed) {
			if err := os.RemoveAll(filepath.Join(s.dir, "models", e.Name())); err != nil {
				return err
			}
			continue
		}
		id, err := ParseID(e.Name())
		if err != nil || !e.IsDir() {
			continue // not ours
		}
		m, err := s.loadModel(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // never got its bundle
		}
		if errors.Is(err, errNewer) {
			return fmt.Errorf("model %s: %w", id.Short(), err) // a fetch of it would overwrite what is there
		}
		if err != nil {
			s.problems = append(s.problems, fmt.Errorf("model %s in %s: %w", id.Short(), s.dir, err))
			continue
		}
		s.models[id] = m
	}
	return nil
}

// Problems returns what made models on disk unusable when the store was opened: one line each.
func (s *Store) Problems() []error { return slices.Clone(s.problems) }

// Dir returns the store's folder.
func (s *Store) Dir() string { return s.dir }

// SetLimit bounds the disk that fetched models may take, in bytes; 0 is no bound. It stops fetches from beginning; what is here
// stays.
func (s *Store) SetLimit(bytes int64) { s.limit.Store(bytes) }

// FetchedBytes returns the disk that fetched models take, in bytes.
func (s *Store) FetchedBytes() (n int64) {
	for _, m := range s.Models() {
		if !m.Published() {
			n += m.AllocatedBytes()
		}
	}
	return n
}

// checkRoom reports why need bytes more don't go into dir, a folder of the store.
func (s *Store) checkRoom(dir string, need int64) error {
	if limit := s.limit.Load(); limit > 0 {
		if used := s.FetchedBytes(); need > limit-used {
			return fmt.Errorf("%d MB are needed, and of the %d MB that models may take on this disk %d MB are used: raise --max-disk, free some with 'starling gc', or take fewer layers", need/1e6+1, limit/1e6, used/1e6)
		}
	}
	free, known := FreeBytes(dir)
	if !known || need <= free {
		return nil
	}
	return fmt.Errorf("%d MB are needed in %s and %d MB are free: make room, take fewer layers, or use another data folder", need/1e6+1, s.dir, free/1e6)
}

// HashedBytes returns how many bytes were hashed since the store was opened: by Publish, and for
// files whose record could not be believed.
func (s *Store) HashedBytes() int64 { return s.hashed.Load() }

// modelDir returns the folder of a model.
func (s *Store) modelDir(id ID) string { return filepath.Join(s.dir, "models", id.String()) }

// Models returns all models, ordered by ID.
func (s *Store) Models() []*Model {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Model, 0, len(s.models))
	for _, m := range s.models {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Model) int { return cmp.Compare(string(a.id[:]), string(b.id[:])) })
	return all
}

// Get returns the model id, if the store knows it.
func (s *Store) Get(id ID) (*Model, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.models[id]
	return m, ok
}

// AddBundle makes a model known, so that it can be fetched. The bundle is verified again. Of a known
// model only its web seeds are added.
func (s *Store) AddBundle(b *Bundle) (*Model, error) {
	id := b.Manifest.ID()
	data := b.Marshal()
	b, err := ParseBundle(data, id, MaxBundle)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.models[id]; ok {
		return m, m.amend(b.WebSeeds, nil)
	}
	dir := s.modelDir(id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("add model %s: %w", id.Short(), err)
	}
	if err := writeFile(dir, "bundle", data); err != nil {
		return nil, fmt.Errorf("add model %s: %w", id.Short(), err)
	}
	m := newModel(s, id, b)
	s.models[id] = m
	return m, nil
}

// Remove forgets a model and deletes what was fetched of it; published files stay. Nothing may use
// the model any more: drop it from Torrents first.
func (s *Store) Remove(id ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.models[id]; ok {
		m.close()
		delete(s.models, id)
	}
	dir := s.modelDir(id)
	err := os.Rename(dir, dir+removed) // whole or not at all: a killed process leaves no half
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.RemoveAll(dir + removed)
	}
	if err != nil {
		return fmt.Errorf("remove model %s: %w", id.Short(), err)
	}
	return nil
}

// Sync writes what was verified so far to the disk. A killed process loses nothing without it; it
// spares the next start from hashing recent pieces again.
func (s *Store) Sync() error {
	var first error
	for _, m := range s.Models() {
		if err := m.sync(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Close syncs and closes everything and lets go of the lock. Close the Torrents on it first.
func (s *Store) Close() error {
	err := s.Sync()
	for _, m := range s.Models() {
		m.close()
	}
	if e := s.lock.Close(); err == nil {
		err = e
	}
	return err
}
