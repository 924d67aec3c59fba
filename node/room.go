package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// A session that finds no room for its KV may wait in line for a while, if its client likes that better than asking elsewhere.
const (
	maxLine     = 16               // sessions in line at one model
	maxLineTime = 30 * time.Second // in line at most, whatever the client says
)

// When to ask again, as told to those that are refused.
const (
	leastRetry   = 100 * time.Millisecond
	mostRetry    = time.Minute
	unknownRetry = 5 * time.Second // where no session's end can be foreseen
)

// room is one model's memory for KV. Who reserves some has all that its session can need, before any work is done for it; those
// that wait are served in the order in which they came, and before those that don't. Its methods may be called from any goroutine.
type room struct {
	limit int64 // bytes that can be reserved in all
	// left estimates when n bytes more will be free.
	left func(n int64) time.Duration

	mu   sync.Mutex
	line []*guest
}

// guest waits in line.
type guest struct {
	try func() (runtime.Sequence, error)
	got chan runtime.Sequence // capacity 1
}

// reserve returns what try does, which calls an executor's NewSequence; while that has no room, it is tried again whenever a
// session leaves, for as long as wait says and ctx lasts. Errors: a *wire.Refusal of code busy, which says when to ask again
// (never, if the session needs more than there is), ctx's error, or try's own.
func (r *room) reserve(ctx context.Context, wait time.Duration, try func() (runtime.Sequence, error)) (runtime.Sequence, error) {
	r.mu.Lock()
	seq, err := runtime.Sequence(nil), error(nil)
	full := &runtime.CapacityError{}
	if len(r.line) > 0 {
		err = r.busy(0, "%d sessions wait for KV memory", len(r.line))
	} else if seq, err = try(); errors.As(err, &full) {
		if full.Asked > r.limit {
			err = wire.Refuse(wire.CodeBusy, "the session needs %d bytes of KV memory, this node has %d in all: ask for fewer tokens", full.Asked, r.limit)
			wait = 0
		} else {
			err = r.busy(full.Asked-full.Free, "the session needs %d bytes of KV memory, %d are free", full.Asked, full.Free)
		}
	} else {
		wait = 0
	}
	if wait <= 0 || len(r.line) >= maxLine {
		r.mu.Unlock()
		return seq, err
	}
	g := &guest{try: try, got: make(chan runtime.Sequence, 1)}
	r.line = append(r.line, g)
	r.mu.Unlock()
	timer := time.NewTimer(min(wait, maxLineTime))
	defer timer.Stop()
	select {
	case seq := <-g.got:
		return seq, nil
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.line, g); i >= 0 {
		r.line = slices.Delete(r.line, i, i+1)
		r.admitLocked() // whom it kept waiting
		return nil, err
	}
	return <-g.got, nil // in the last moment
}

// waiting returns how many sessions are in line.
func (r *room) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.line)
}

// busy refuses a session that may ask again when need bytes more will be free.
func (r *room) busy(need int64, format string, args ...any) *wire.Refusal {
	refusal := wire.Refuse(wire.CodeBusy, format, args...)
	refusal.RetryAfter = min(max(r.left(need), leastRetry), mostRetry)
	return refusal
}

// free closes a sequence and lets those in who wait for its memory.
func (r *room) free(seq runtime.Sequence) {
	seq.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.admitLocked()
}

// admitLocked lets in whoever is first and has room.
func (r *room) admitLocked() {
	for len(r.line) > 0 {
		seq, err := r.line[0].try()
		if err != nil {
			return // the rest of the line waits with it; a closed model's ends by its sessions
		}
		r.line[0].got <- seq
		r.line = r.line[1:]
	}
}

// ending is a session that will give bytes back, at the latest in so much time.
type ending struct {
	in    time.Duration
	bytes int64
}

// freeAfter returns when need bytes will have been given back.
func freeAfter(sessions []ending, need int64) time.Duration {
	slices.SortFunc(sessions, func(a, b ending) int { return cmp.Compare(a.in, b.in) })
	for _, s := range sessions {
		if need -= s.bytes; need <= 0 {
			return s.in
		}
	}
	return unknownRetry
}

// remaining extrapolates from work done to work left.
func remaining(took time.Duration, done, left int) time.Duration {
	if done <= 0 || took <= 0 {
		return unknownRetry
	}
	return time.Duration(float64(took) / float64(done) * float64(max(left, 0)))
}

// endings foretells the ends of the sessions of a model on this node.
func (n *Node) endings(s *served, now time.Time) (list []ending) {
	for _, d := range n.decoderList() {
		if !d.mu.TryLock() { // it is just doing something: whoever asks wants an answer now
			continue
		}
		if d.model == s.id && d.m.seq != nil && !d.ended {
			m := d.m
			e := ending{bytes: kvBytes(s.exec.Config(), m.seq, m.held, uint32(len(m.open.Tokens))+m.open.MaxNew)}
			if m.generated > 1 {
				e.in = remaining(d.lastTok.Sub(d.firstTok), m.generated-1, int(m.open.MaxNew)-m.generated)
			} else {
				e.in = remaining(now.Sub(d.began), m.computed, len(m.open.Tokens)-m.computed+int(m.open.MaxNew))
			}
			list = append(list, e)
		}
		d.mu.Unlock()
	}
	for _, st := range n.stageMap() {
		if !st.mu.TryLock() { // as above
			continue
		}
		if st.model == s.id && !st.closed {
			m := st.m
			list = append(list, ending{bytes: kvBytes(s.exec.Config(), m.seq, m.layers, m.plan.Capacity),
				in: remaining(now.Sub(st.began), int(m.computed), int(m.plan.Capacity)-int(m.computed))})
		}
		st.mu.Unlock()
	}
	return list
}
