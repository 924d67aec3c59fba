package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A snapshot is written after this many verified bytes, and this often while something is written.
// The first bounds what is hashed again after a crash, the second must be well under openWindow.
const (
	syncBytes = 64 << 20
	syncEvery = 2 * time.Second
)

// sync makes what was verified durable: data first, then the snapshot that vouches for them.
func (m *Model) sync() error {
	m.syncMu.Lock()
	defer m.syncMu.Unlock()

	m.mu.Lock()
	if m.closed || !m.dirty && m.journaled == 0 {
		m.mu.Unlock()
		return nil
	}
	writes, journaled, haves := m.writes, m.journaled, m.havesLocked()
	var files []*os.File
	for i := range m.parts {
		if m.parts[i].writable {
			files = append(files, m.parts[i].file)
		}
	}
	err := m.rotateJournalLocked()
	m.mu.Unlock()

	for _, f := range files {
		if e := f.Sync(); e != nil && err == nil {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("sync model %s: %w", m.id.Short(), err)
	}

	m.mu.Lock()
	clean := m.writes == writes && m.writing == 0
	if err = m.writeStateLocked(haves, clean); err == nil {
		m.journaled -= journaled
		m.dirty = !clean
	}
	m.mu.Unlock()
	if err == nil {
		err = os.Remove(filepath.Join(m.dir, "journal.old"))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("sync model %s: %w", m.id.Short(), err)
	}
	return nil
}

// havesLocked returns a copy of the sets of verified pieces.
func (m *Model) havesLocked() []bitmap {
	haves := make([]bitmap, len(m.parts))
	for i := range haves {
		haves[i] = m.parts[i].have.clone()
	}
	return haves
}

// writeStateLocked writes a snapshot with these sets and the files' present stamps.
func (m *Model) writeStateLocked(haves []bitmap, clean bool) error {
	s := &state{Version: stateVersion, Clean: clean, Parts: make([]partState, len(m.parts))}
	for i := range m.parts {
		p := &m.parts[i]
		s.Parts[i].Have = haves[i].b
		if m.published {
			s.Parts[i].Path, s.Parts[i].stamp = p.path, p.stamp
		} else if fi, err := os.Stat(p.path); err == nil {
			s.Parts[i].stamp = stampInfo(fi)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return writeState(m.dir, s)
}

// journalLocked appends one verified piece.
func (m *Model) journalLocked(part, piece int) error {
	if m.journal == nil {
		f, err := os.OpenFile(filepath.Join(m.dir, "journal"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		m.journal = f
	}
	if _, err := m.journal.Write(appendJournal(nil, part, piece)); err != nil {
		return err
	}
	m.journaled++
	return nil
}

// rotateJournalLocked puts the journal's entries aside, for a snapshot that has them to be written.
// If an earlier snapshot failed, its entries are still aside and the present ones stay.
func (m *Model) rotateJournalLocked() error {
	m.unsynced = 0
	if m.journal != nil {
		m.journal.Close()
		m.journal = nil
	}
	old := filepath.Join(m.dir, "journal.old")
	if _, err := os.Lstat(old); err == nil {
		return nil
	}
	err := os.Rename(filepath.Join(m.dir, "journal"), old)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
