package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// errReleased is what a torrent's storage says that was opened before pieces were released.
var errReleased = errors.New("pieces of the model were released meanwhile")

// outside returns the pieces of a part that no span of keep needs.
func (m *Manifest) outside(part int, keep []pieceRun) bitmap {
	drop := newBitmap(len(m.Parts[part].Pieces))
	drop.fill()
	for _, r := range keep {
		if r.part != part {
			continue
		}
		for i := r.first; i < r.last; i++ {
			drop.clear(i)
		}
	}
	return drop
}

// Releasable returns the bytes of disk that [Model.Release] would free: verified pieces that no span of keep needs, and what was
// written of pieces that were never finished. Of a published model, whose files are somebody's own, it is 0.
func (m *Model) Releasable(keep []Span) int64 {
	held, allocated := m.HeldBytes(), m.AllocatedBytes()
	man := m.bundle.Manifest
	runs := man.pieceRuns(keep)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.published {
		return 0
	}
	var n, most int64
	for i := range m.parts {
		drop := man.outside(i, runs)
		for j := range drop.n {
			if drop.has(j) && m.parts[i].have.has(j) {
				n += man.pieceSpan(i, j).Length
			}
		}
		most = max(most, PieceLength(man.Parts[i].Size))
	}
	if rest := allocated - held; rest >= most { // less is what file systems round up
		n += rest
	}
	return n
}

// Release forgets the pieces that no span of keep needs and gives their disk space back; the file keeps its size and every kept
// byte its place. It returns the bytes of disk that were freed. A published model is refused, and so are spans without bytes:
// [Store.Remove] is for those. Nothing may fetch or seed the model meanwhile: see [Torrents.Release].
//
// The record forgets the pieces before their bytes go, so that a killed process leaves bytes without a record, which the next
// Release frees, but no record without its bytes.
func (m *Model) Release(keep []Span) (freed int64, err error) {
	before := m.AllocatedBytes()
	if err := m.release(keep); err != nil {
		return 0, fmt.Errorf("release of model %s: %w", m.id.Short(), err)
	}
	return before - m.AllocatedBytes(), nil
}

func (m *Model) release(keep []Span) error {
	runs := m.bundle.Manifest.pieceRuns(keep)
	if len(runs) == 0 {
		return errors.New("no bytes are to be kept: remove the model")
	}
	if err := m.sync(); err != nil { // outside the lock, for it can take long
		return err
	}
	m.syncMu.Lock()
	defer m.syncMu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if m.published {
		return fmt.Errorf("%s is a published file, and its owner's to delete", m.parts[0].path)
	}
	files := make([]*os.File, len(m.parts)) // nil: there is no file
	for i := range m.parts {
		f, err := os.OpenFile(m.parts[i].path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		defer f.Close()
		files[i] = f
		if err := canPunch(f); err != nil {
			return fmt.Errorf("%s: this file system can't free a part of a file (%w): keep everything, or remove the model", m.parts[i].path, err)
		}
	}
	m.generation++ // from here on old torrents write nothing
	for m.writing > 0 {
		m.written.Wait()
	}
	drops := make([]bitmap, len(m.parts))
	for i := range m.parts {
		drops[i] = m.bundle.Manifest.outside(i, runs)
		for j := range drops[i].n {
			if drops[i].has(j) {
				m.parts[i].have.clear(j)
			}
		}
		if m.parts[i].writable {
			if err := m.parts[i].file.Sync(); err != nil {
				return err
			}
		}
	}
	if err := m.recordLocked(false); err != nil {
		return err
	}
	m.notifyLocked()
	for i, f := range files {
		if f == nil {
			continue
		}
		if err := punchPieces(f, m.bundle.Manifest, i, drops[i]); err != nil {
			return err
		}
	}
	return m.recordLocked(true)
}

// recordLocked replaces the whole record, journals included, by a snapshot of what is held.
func (m *Model) recordLocked(clean bool) error {
	if m.journal != nil {
		m.journal.Close()
		m.journal = nil
	}
	if err := m.writeStateLocked(m.havesLocked(), clean); err != nil {
		return err
	}
	m.journaled, m.unsynced, m.dirty = 0, 0, !clean
	for _, name := range []string{"journal", "journal.old"} {
		if err := os.Remove(filepath.Join(m.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return syncDir(m.dir)
}

// punchPieces frees the disk space of some pieces of a part's file.
func punchPieces(f *os.File, man *Manifest, part int, drop bitmap) error {
	for i := 0; i < drop.n; i++ {
		if !drop.has(i) {
			continue
		}
		s := man.pieceSpan(part, i)
		for i+1 < drop.n && drop.has(i+1) {
			i++
			s.Length += man.pieceSpan(part, i).Length
		}
		if err := punch(f, s.Offset, s.Length); err != nil {
			return err
		}
	}
	return nil
}

// Release is [Model.Release] for a model that is seeded: its torrents end and begin again, so that no peer is sent bytes that are
// going, and none believes that this node still has them. While the model is being fetched it is refused.
func (t *Torrents) Release(m *Model, keep []Span) (freed int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seeded, err := t.endLocked(m)
	if err != nil {
		return 0, err
	}
	freed, err = m.Release(keep)
	if seeded && !t.closed {
		if _, e := t.addLocked(m); err == nil {
			err = e
		}
	}
	return freed, err
}

// Remove is [Store.Remove] for a model that is seeded. While it is being fetched it is refused.
func (t *Torrents) Remove(m *Model) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.endLocked(m); err != nil {
		return err
	}
	return t.store.Remove(m.id)
}

// endLocked ends a model's torrents and reports whether there were any.
func (t *Torrents) endLocked(m *Model) (seeded bool, err error) {
	sm, ok := t.models[m.id]
	if !ok {
		return false, nil
	}
	for _, part := range sm.wanted {
		for _, n := range part {
			if n > 0 {
				return true, fmt.Errorf("model %s is being fetched: wait until that ends", m.id.Short())
			}
		}
	}
	delete(t.models, m.id)
	sm.drop()
	return true, nil
}
