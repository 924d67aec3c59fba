package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// loadModel reads a model of the store. Pieces whose record can't be believed are hashed; no other
// byte of the model is read.
func (s *Store) loadModel(id ID) (*Model, error) {
	dir := s.modelDir(id)
	data, err := readLimited(filepath.Join(dir, "bundle"), MaxBundle)
	if err != nil {
		return nil, err
	}
	b, err := ParseBundle(data, id, MaxBundle)
	if err != nil {
		return nil, err
	}
	m := newModel(s, id, b)
	st, err := readState(dir, b.Manifest)
	if errors.Is(err, errNewer) {
		return nil, err
	}
	if err := removeTemporary(dir); err != nil {
		return nil, err
	}
	if err != nil {
		st = m.unknownState()
	}
	journaled, last, err := m.readJournals()
	if err != nil {
		return nil, err
	}
	if fi, err := os.Stat(filepath.Join(dir, "state")); err == nil && fi.ModTime().After(last) {
		last = fi.ModTime()
	}
	rehashed := false
	for i := range m.parts {
		did, err := m.loadPart(i, st, journaled[i], last)
		if err != nil {
			m.problem = err
		}
		rehashed = rehashed || did
	}
	if rehashed && m.problem == nil {
		m.journaled = 1 // make sync write a snapshot
		if err := m.sync(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// unknownState stands in for a snapshot that is not there or can't be read: it claims every piece of
// the files that exist and is believed in none, so that all there is gets hashed.
func (m *Model) unknownState() *state {
	st := &state{Version: stateVersion, Clean: true, Parts: make([]partState, len(m.parts))}
	for i := range st.Parts {
		all := newBitmap(m.parts[i].have.n)
		if _, err := os.Stat(m.parts[i].path); err == nil {
			all.fill()
		}
		st.Parts[i].Have = all.b
	}
	return st
}

// readJournals returns the pieces in the journals and when the last one was written.
func (m *Model) readJournals() (pieces []bitmap, last time.Time, err error) {
	pieces = make([]bitmap, len(m.parts))
	for i := range pieces {
		pieces[i] = newBitmap(m.parts[i].have.n)
	}
	for _, name := range []string{"journal.old", "journal"} {
		_, at, err := readJournal(filepath.Join(m.dir, name), pieces)
		if err != nil {
			return nil, last, err
		}
		if at.After(last) {
			last = at
		}
	}
	return pieces, last, nil
}

// loadPart decides which recorded pieces of a part to believe, and hashes the others. last is when
// the record was last added to. It reports whether the record on disk must be written anew.
func (m *Model) loadPart(i int, st *state, journaled bitmap, last time.Time) (rehashed bool, err error) {
	p, rec := &m.parts[i], &st.Parts[i]
	recorded, _ := bitmapFrom(rec.Have, p.have.n)
	if rec.Path != "" {
		m.published = true
		p.path, p.stamp = rec.Path, rec.stamp
	}
	suspect := newBitmap(p.have.n)
	for j := range suspect.n {
		if journaled.has(j) && !recorded.has(j) {
			suspect.set(j)
		}
	}
	fi, err := os.Stat(p.path)
	if err != nil {
		if recorded.count()+suspect.count() == 0 && errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if m.published {
			return false, changedError(p.path, err)
		}
		return true, nil // its pieces are gone and can be fetched again
	}
	now := stampInfo(fi)
	believed := now == rec.stamp
	if !st.Clean && !m.published {
		believed = now.Size == rec.Size && now.Inode == rec.Inode && now.MTime >= rec.MTime &&
			fi.ModTime().Before(last.Add(openWindow))
	}
	if believed {
		p.have = recorded
	} else {
		for j := range suspect.n {
			if recorded.has(j) {
				suspect.set(j)
			}
		}
	}
	expected := suspect.count()
	if expected == 0 {
		return !st.Clean, nil
	}
	if err := m.rehash(i, suspect, now.Size); err != nil {
		return false, err
	}
	if m.published {
		if p.have.count() < expected {
			return false, changedError(p.path, nil)
		}
		p.stamp = now
	}
	return true, nil
}

// rehash hashes the suspects among a part's pieces and adds those that are right to have.
func (m *Model) rehash(part int, suspect bitmap, fileSize int64) error {
	p, mp := &m.parts[part], &m.bundle.Manifest.Parts[part]
	f, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	for j := range suspect.n {
		if s := m.bundle.Manifest.pieceSpan(part, j); s.Offset+s.Length > fileSize {
			suspect.clear(j)
		}
	}
	return eachPiece(context.Background(), f, mp.Size, &suspect, func(j int, data []byte) {
		m.store.hashed.Add(int64(len(data)))
		if pieceHash(data, mp.Size) != mp.Pieces[j] {
			return
		}
		m.mu.Lock()
		p.have.set(j)
		m.mu.Unlock()
	})
}

// readLimited reads a file of at most limit bytes.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: more than %d bytes", path, limit)
	}
	return data, nil
}
