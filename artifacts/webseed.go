package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
)

// What is asked of a web seed.
const (
	webRun   = 64 << 20 // is claimed at a time
	webPart  = 8 << 20  // … and asked for by one request, where several go on
	webLanes = 4        // requests at the same time
)

// errWrong says that bytes are not the model's.
var errWrong = errors.New("it sent wrong bytes")

// webSeed is an HTTP server that is said to have a model's files (BEP 19).
type webSeed struct {
	url   string // of the first part
	web   *webClient
	whole atomic.Bool // it ignores ranges: everything that is missing of a part is had in one pass
	lanes int         // requests at the same time that it admits, as far as is known; for the goroutine of fetch, and for webFetch under its lock
}

func newWebSeed(url string, web *webClient) *webSeed {
	return &webSeed{url: url, web: web, lanes: webLanes}
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
//
// A server that answers with a range is sent further requests meanwhile, on connections of their own: many give each no more than a share of
// what they have. One that refuses such a request is sent fewer from then on.
func (s *webSeed) fetch(ctx context.Context, m *Model, runs []pieceRun) error {
	url, err := partURL(s.url, runs[0].part, len(m.parts))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := &webFetch{seed: s, m: m, generation: m.generationNow(), url: url, answered: make(chan struct{})}
	w.left, w.going = w.portions(runs), 1
	lane := func() {
		if err := w.lane(ctx); err != nil {
			w.fail(err)
			stop()
		}
		w.noteAnswer() // or none came
	}
	w.lanes.Go(lane)
	<-w.answered
	for range w.widen() {
		w.lanes.Go(lane)
	}
	w.lanes.Wait()
	return w.err
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
