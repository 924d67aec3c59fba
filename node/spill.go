package node

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	spillSuffix = ".kv"
	// spillPause is how long nothing is written after a disk has refused.
	spillPause = time.Minute
	// assumedRead is the bytes a second of a disk until it has been measured: an old SSD's.
	assumedRead = 256 << 20
)

// spill is a node's budget of disk for caches that memory may have to give up. Its files are sealed with a key that only this process
// has: they are of no use to anybody once it has ended, and the next one removes them.
type spill struct {
	dir   string
	limit int64 // bytes
	log   *slog.Logger
	aead  cipher.AEAD
	wake  chan struct{} // holds one token when there may be something to write

	mu     sync.Mutex
	used   int64
	number uint64
	files  []*spillFile
	age    float64 // of the value by which caches are kept (value)
	rest   time.Time
	read   float64 // bytes a second
}

// spillFile is a file of the budget.
type spillFile struct {
	number uint64
	bytes  int64
	worth  float64 // operations a byte
	value  float64
	gone   bool
}

// newSpill takes a folder into use and removes what an earlier process has left there. It is nil where nothing may be written.
func newSpill(dir string, limit int64, log *slog.Logger) (*spill, error) {
	old, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("kv-disk: %w", err)
	}
	for _, e := range old {
		if strings.HasSuffix(e.Name(), spillSuffix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				log.Warn("can't remove an earlier process's KV file", "error", err)
			}
		}
	}
	if limit <= 0 {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("kv-disk: %w", err)
	}
	var key [32]byte
	rand.Read(key[:])
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	s := &spill{dir: dir, limit: limit, log: log, read: assumedRead, wake: make(chan struct{}, 1)}
	s.aead, err = cipher.NewGCM(block)
	return s, err
}

func (s *spill) path(f *spillFile) string {
	return filepath.Join(s.dir, fmt.Sprintf("%d%s", f.number, spillSuffix))
}

// nudge says that there may be something to write.
func (s *spill) nudge() {
	if s == nil {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// reserve makes room for a file of so many bytes whose computing anew takes so many operations for each; nil if there can be none.
func (s *spill) reserve(bytes int64, worth float64) *spillFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes > s.limit || time.Now().Before(s.rest) {
		return nil
	}
	for s.used+bytes > s.limit {
		least := slices.MinFunc(s.files, func(a, b *spillFile) int { return cmp.Compare(a.value, b.value) })
		s.age = max(s.age, least.value)
		s.removeLocked(least)
	}
	s.number++
	f := &spillFile{number: s.number, bytes: bytes, worth: worth, value: s.age + worth}
	s.files = append(s.files, f)
	s.used += bytes
	return f
}

// failed gives up a file that can't be written; nothing is written for a while.
func (s *spill) failed(f *spillFile, err error) {
	s.remove(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = time.Now().Add(spillPause)
	s.log.Warn("can't write a KV file; kept caches stay in memory only for now", "error", err)
}

// wasRead notes that a file was read, so many bytes in so much time.
func (s *spill) wasRead(f *spillFile, bytes int64, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.value = s.age + f.worth
	if bytes > 1<<20 && took > 0 {
		s.read += (float64(bytes)/took.Seconds() - s.read) / 4
	}
}

// readRate returns how many bytes a second are read.
func (s *spill) readRate() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}

func (s *spill) remove(f *spillFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(f)
}

func (s *spill) removeLocked(f *spillFile) {
	if f.gone {
		return
	}
	f.gone = true
	s.used -= f.bytes
	s.files = slices.DeleteFunc(s.files, func(o *spillFile) bool { return o == f })
	if err := os.Remove(s.path(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("can't remove a KV file", "error", err)
	}
}

func (s *spill) isGone(f *spillFile) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.gone
}

// bytes returns what the files take, 0 where there is no budget.
func (s *spill) bytes() int64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// close removes everything.
func (s *spill) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.files) > 0 {
		s.removeLocked(s.files[0])
	}
	_ = os.Remove(s.dir) // unless there is something of somebody else's in it
}
