package artifacts

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// errClosed is what a model says after its store was closed or it was removed.
var errClosed = errors.New("the model store is closed")

// readAt reads from a part, verified or not. Of a published file it first makes sure, once a
// second, that it is still the file that was hashed.
func (m *Model) readAt(part int, b []byte, off int64) (int, error) {
	f, err := m.reading(part)
	if err != nil {
		return 0, err
	}
	return f.ReadAt(b, off)
}

func (m *Model) reading(part int) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	p := &m.parts[part]
	if m.published && time.Since(p.checked) > time.Second {
		fi, err := os.Stat(p.path)
		if err != nil || stampInfo(fi) != p.stamp {
			p.have = newBitmap(p.have.n) // in memory: the record stays, and is checked by hash at the next start
			m.problem = changedError(p.path, err)
			m.notifyLocked()
			return nil, m.problem
		}
		p.checked = time.Now()
	}
	if p.file == nil {
		f, err := os.Open(p.path)
		if err != nil {
			return nil, err
		}
		p.file, p.writable = f, false
	}
	return p.file, nil
}

// changedError says that a published file is not what was published.
func changedError(path string, err error) error {
	if err != nil {
		return fmt.Errorf("published file can't be read: %w: put it back, or remove the model and publish or pull it again", err)
	}
	return fmt.Errorf("published file %s has changed: put the old file back and restart, or publish the new one", path)
}

// errElsewhere says that a write comes too late: the piece came, or is coming, from another source.
var errElsewhere = errors.New("the piece comes from elsewhere")

// writeAt writes bytes of a piece that is not verified yet, for a torrent of that generation.
func (m *Model) writeAt(generation, part, piece int, b []byte, off int64) (int, error) {
	f, attempt, err := m.beginWrite(generation, part, piece)
	if err != nil {
		return 0, err
	}
	n, err := f.WriteAt(b, off)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endWriteLocked(part, piece)
	if err != nil && attempt == m.attempt { // else it is news of before the last clearProblem
		m.problem = err
		m.notifyLocked()
	}
	return n, err
}

// beginWrite makes sure that the part's file can be written and that the record says so before it
// is.
func (m *Model) beginWrite(generation, part, piece int) (f *os.File, attempt int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, 0, errClosed
	}
	if generation != m.generation {
		return nil, 0, errReleased
	}
	p := &m.parts[part]
	if m.published {
		return nil, 0, changedError(p.path, nil)
	}
	if p.have.has(piece) || p.sealed[piece] {
		return nil, 0, errElsewhere
	}
	return m.openWriteLocked(part, piece)
}

// openWriteLocked is beginWrite for a piece that may be written.
func (m *Model) openWriteLocked(part, piece int) (f *os.File, attempt int, err error) {
	p := &m.parts[part]
	if !p.writable {
		f, err := openSparse(p.path, m.bundle.Manifest.Parts[part].Size)
		if err != nil {
			m.problem = err
			m.notifyLocked()
			return nil, 0, err
		}
		m.retireLocked(p)
		p.file, p.writable = f, true
	}
	if !m.dirty {
		if err := m.writeStateLocked(m.havesLocked(), false); err != nil {
			m.problem = err
			m.notifyLocked()
			return nil, 0, err
		}
		m.dirty = true
	}
	m.writes++
	m.writing++
	p.writing[piece]++
	return p.file, m.attempt, nil
}

func (m *Model) endWriteLocked(part, piece int) {
	m.writing--
	p := &m.parts[part]
	if p.writing[piece]--; p.writing[piece] == 0 {
		delete(p.writing, piece)
		m.written.Broadcast()
	}
}

// storePiece writes a whole piece that hashed right, and records it, for a source of that generation.
// Writes of the piece that go on end before, and no other begins.
func (m *Model) storePiece(generation, part, piece int, data []byte) error {
	f, attempt, err := m.sealPiece(generation, part, piece)
	if f == nil {
		return err
	}
	_, err = f.WriteAt(data, m.bundle.Manifest.pieceSpan(part, piece).Offset)
	if err == nil {
		err = m.markVerified(generation, part, piece)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endWriteLocked(part, piece)
	delete(m.parts[part].sealed, piece)
	m.written.Broadcast()
	if err != nil && attempt == m.attempt && m.problem == nil {
		m.problem = err
		m.notifyLocked()
	}
	return err
}

// sealPiece keeps others from writing a piece. No file means that there is nothing to write: the
// piece is here already, or an error says why not.
func (m *Model) sealPiece(generation, part, piece int) (f *os.File, attempt int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.parts[part]
	for !m.closed && (p.sealed[piece] || p.writing[piece] > 0) {
		m.written.Wait()
	}
	switch {
	case m.closed:
		return nil, 0, errClosed
	case generation != m.generation:
		return nil, 0, errReleased
	case p.have.has(piece):
		return nil, 0, nil
	case m.published:
		return nil, 0, changedError(p.path, nil)
	}
	p.sealed[piece] = true
	if f, attempt, err = m.openWriteLocked(part, piece); err != nil {
		delete(p.sealed, piece)
		m.written.Broadcast()
	}
	return f, attempt, err
}

// openSparse opens a file for writing and gives it its full size without allocating it.
func openSparse(path string, size int64) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && fi.Size() != size {
		err = f.Truncate(size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// markVerified records that the bytes of a piece in the file hashed right, for a torrent of that
// generation. When it returns nil a killed process does not lose the piece.
func (m *Model) markVerified(generation, part, piece int) error {
	m.mu.Lock()
	if m.closed || generation != m.generation || m.parts[part].have.has(piece) {
		defer m.mu.Unlock()
		if m.closed {
			return errClosed
		}
		if generation != m.generation {
			return errReleased
		}
		return nil
	}
	if err := m.journalLocked(part, piece); err != nil {
		m.problem = fmt.Errorf("record a verified piece: %w", err)
		m.notifyLocked()
		m.mu.Unlock()
		return err
	}
	m.parts[part].have.set(piece)
	m.unsynced += m.bundle.Manifest.pieceSpan(part, piece).Length
	full := m.unsynced >= syncBytes
	m.notifyLocked()
	m.mu.Unlock()
	if full {
		return m.sync()
	}
	return nil
}

// retireLocked puts a part's open file aside: reads of it may be going on.
func (m *Model) retireLocked(p *modelPart) {
	if p.file != nil {
		m.retired = append(m.retired, p.file)
	}
	p.file, p.writable = nil, false
}

// close closes the files for good.
func (m *Model) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.written.Broadcast()
	for i := range m.parts {
		m.retireLocked(&m.parts[i])
	}
	for _, f := range m.retired {
		f.Close()
	}
	m.retired = nil
	if m.journal != nil {
		m.journal.Close()
		m.journal = nil
	}
}
