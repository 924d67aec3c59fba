package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// webFetch fetches what was claimed for a web seed, in portions. Each lane sends one request at a time.
type webFetch struct {
	seed       *webSeed
	m          *Model
	generation int
	url        string // of the part

	lanes    sync.WaitGroup
	once     sync.Once
	answered chan struct{} // closed at the server's first answer, or when the first lane has ended

	mu    sync.Mutex
	left  [][]pieceRun // portions that no lane has, ascending
	going int          // lanes
	err   error        // of the lane that failed first
}

// errCrowded ends a lane whose request the server refuses while it answers others.
var errCrowded = errors.New("the server admits fewer requests")

// portions cuts runs for the lanes.
func (w *webFetch) portions(runs []pieceRun) (list [][]pieceRun) {
	if w.seed.whole.Load() || w.seed.lanes == 1 {
		return [][]pieceRun{runs}
	}
	var portion []pieceRun
	bytes := int64(0)
	for _, r := range runs {
		for i := r.first; i < r.last; i++ {
			portion = appendPiece(portion, r.part, i)
			if bytes += w.m.Manifest().pieceSpan(r.part, i).Length; bytes >= webPart {
				list, portion, bytes = append(list, portion), nil, 0
			}
		}
	}
	if len(portion) > 0 {
		list = append(list, portion)
	}
	return list
}

// noteAnswer says that the server is known now.
func (w *webFetch) noteAnswer() { w.once.Do(func() { close(w.answered) }) }

// widen counts lanes in that are to begin beside the first one, and returns how many.
func (w *webFetch) widen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seed.whole.Load() || w.err != nil {
		return 0
	}
	n := min(w.seed.lanes-1, len(w.left))
	w.going += n
	return n
}

// take gives a lane its next portion. Without one the lane is over.
func (w *webFetch) take() []pieceRun {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.left) == 0 {
		w.going--
		return nil
	}
	portion := w.left[0]
	w.left = w.left[1:]
	return portion
}

// takeAll adds all portions that are left to a lane's.
func (w *webFetch) takeAll(portion []pieceRun) []pieceRun {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.left {
		portion = append(portion, p...)
	}
	w.left = nil
	slices.SortFunc(portion, func(a, b pieceRun) int { return a.first - b.first })
	return portion
}

// retire takes the portion of a lane back whose request failed, and ends it, if others go on: so many requests the server doesn't admit.
func (w *webFetch) retire(portion []pieceRun, err error) bool {
	var web *webError
	if !errors.As(err, &web) || web.lasting {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.going == 1 {
		return false
	}
	w.going--
	w.seed.lanes = w.going
	w.left = append([][]pieceRun{portion}, w.left...)
	return true
}

func (w *webFetch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// lane fetches portions until none are left.
func (w *webFetch) lane(ctx context.Context) error {
	for {
		portion := w.take()
		if portion == nil {
			return nil
		}
		err := w.seed.web.persist(ctx, func() (more, progress bool, err error) {
			left := missingOf(w.m, portion)
			if len(left) == 0 {
				return false, false, nil
			}
			a, err := w.ask(ctx, left)
			if err != nil {
				if w.retire(portion, err) {
					err = errCrowded
				}
				return true, false, err
			}
			defer a.Close()
			if !a.ranged {
				w.seed.whole.Store(true)
				portion = w.takeAll(portion)
				left = missingOf(w.m, portion)
			}
			w.noteAnswer()
			stored, err := w.store(a, left)
			return true, stored > 0, err
		})
		switch {
		case errors.Is(err, errCrowded):
			return nil
		case err != nil:
			return err
		}
	}
}

// ask makes one request, from the first of runs to the end of the last.
func (w *webFetch) ask(ctx context.Context, runs []pieceRun) (*answer, error) {
	man, part := w.m.Manifest(), runs[0].part
	end := man.pieceSpan(part, runs[len(runs)-1].last-1)
	return w.seed.web.get(ctx, w.url, man.pieceSpan(part, runs[0].first).Offset, end.Offset+end.Length, man.Parts[part].Size, "")
}

// store stores the pieces of runs as they come.
func (w *webFetch) store(a *answer, runs []pieceRun) (stored int, err error) {
	part := runs[0].part
	p := &w.m.Manifest().Parts[part]
	buf := make([]byte, min(PieceLength(p.Size), p.Size))
	at := a.first
	for _, r := range runs {
		for i := r.first; i < r.last; i++ {
			span := w.m.Manifest().pieceSpan(part, i)
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
			if err := w.m.storePiece(w.generation, part, i, data); err != nil {
				return stored, err // the disk's, which the model keeps
			}
			stored++
		}
	}
	return stored, nil
}
