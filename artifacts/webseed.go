package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
)

// webRun is how many bytes are asked of a web seed at a time.
const webRun = 64 << 20

// errWrong says that bytes are not the model's.
var errWrong = errors.New("it sent wrong bytes")

// webSeed is an HTTP server that is said to have a model's files (BEP 19).
type webSeed struct {
	url   string // of the first part
	web   *webClient
	whole atomic.Bool // it ignores ranges: everything that is missing of a part is had in one pass
}

func (s *webSeed) name() string { return "web seed " + s.url }

// has implements source: a web seed has everything, until it turns out not to.
func (s *webSeed) has(int, int) bool { return true }

// reach implements source.
func (s *webSeed) reach() (most int64, gaps bool) {
	if s.whole.Load() {
		return math.MaxInt64, true
	}
	return webRun, false
}

// fetch implements source. What fails is tried again, with growing pauses, as long as the server
// doesn't do what makes trying vain; wrong bytes end it at once.
func (s *webSeed) fetch(ctx context.Context, m *Model, runs []pieceRun) error {
	url, err := partURL(s.url, runs[0].part, len(m.parts))
	if err != nil {
		return err
	}
	generation := m.generationNow()
	return s.web.persist(ctx, func() (more, progress bool, err error) {
		left := missingOf(m, runs)
		if len(left) == 0 {
			return false, false, nil
		}
		stored, err := s.pass(ctx, m, generation, url, left)
		return true, stored > 0, err
	})
}

// pass makes one request, from the first of runs to the end of the last, and stores the pieces of
// runs as they come.
func (s *webSeed) pass(ctx context.Context, m *Model, generation int, url string, runs []pieceRun) (stored int, err error) {
	part := runs[0].part
	p := &m.Manifest().Parts[part]
	from := m.Manifest().pieceSpan(part, runs[0].first).Offset
	end := m.Manifest().pieceSpan(part, runs[len(runs)-1].last-1)
	a, err := s.web.get(ctx, url, from, end.Offset+end.Length, p.Size, "")
	if err != nil {
		return 0, err
	}
	defer a.Close()
	if a.first != from {
		s.whole.Store(true)
	}
	buf := make([]byte, min(PieceLength(p.Size), p.Size))
	at := a.first
	for _, r := range runs {
		for i := r.first; i < r.last; i++ {
			span := m.Manifest().pieceSpan(part, i)
			skipped, err := io.CopyN(io.Discard, a, span.Offset-at)
			if at += skipped; err != nil {
				return stored, cutShort(err, at, p.Size)
			}
			data := buf[:span.Length]
			n, err := io.ReadFull(a, data)
			if at += int64(n); err != nil {
				return stored, cutShort(err, at, p.Size)
			}
			if pieceHash(data, p.Size) != p.Pieces[i] {
				return stored, &webError{err: fmt.Errorf("%w: bytes %d to %d are not the model's", errWrong, span.Offset, at-1), lasting: true}
			}
			if err := m.storePiece(generation, part, i, data); err != nil {
				return stored, err // the disk's, which the model keeps
			}
			stored++
		}
	}
	return stored, nil
}

// cutShort says where an answer ended too early.
func cutShort(err error, at, size int64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("its answer ended at byte %d of %d", at, size)
	}
	return &webError{err: err}
}

// missingOf returns what of runs is not held yet.
func missingOf(m *Model, runs []pieceRun) (left []pieceRun) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range runs {
		for i := r.first; i < r.last; i++ {
			if !m.parts[r.part].have.has(i) {
				left = appendPiece(left, r.part, i)
			}
		}
	}
	return left
}

// appendPiece adds a piece behind ascending runs.
func appendPiece(runs []pieceRun, part, i int) []pieceRun {
	if n := len(runs); n > 0 && runs[n-1].part == part && runs[n-1].last == i {
		runs[n-1].last++
		return runs
	}
	return append(runs, pieceRun{part: part, first: i, last: i + 1})
}
