package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-swarm/starling/runtime"
)

// batcher lets the sessions of a model share its executor: it gathers their steps and computes them in rounds (rounds.go),
// each one Run. Its methods may be called from any goroutine.
type batcher struct {
	exec  runtime.Executor
	wake  chan struct{} // holds one token when there may be something new to do
	ended chan struct{} // closed when routineRounds has returned
	done  atomic.Int64  // rounds

	mu      sync.Mutex
	rounds  rounds
	running []piece            // the round being computed
	stop    context.CancelFunc // ends it
	closed  bool
}

// newBatcher takes over exec: nobody else runs steps on it or closes it from now on.
func newBatcher(exec runtime.Executor) *batcher {
	b := &batcher{exec: exec, wake: make(chan struct{}, 1), ended: make(chan struct{}), rounds: rounds{seats: map[*seat]bool{}}}
	go b.routineRounds()
	return b
}

// close ends all work and frees the model.
func (b *batcher) close() error {
	b.mu.Lock()
	b.closed = true
	if b.stop != nil {
		b.stop()
	}
	b.mu.Unlock()
	b.poke()
	<-b.ended
	return b.exec.Close()
}

// sit gives a session a seat; it leaves when it ends.
func (b *batcher) sit() *seat {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &seat{b: b}
	b.rounds.seats[s] = true
	return s
}

// leave gives the seat up: nobody waits for the session any more. Its steps end with their context.
func (s *seat) leave() {
	s.b.mu.Lock()
	delete(s.b.rounds.seats, s)
	s.b.mu.Unlock()
	s.b.poke()
}

// run computes a step among those of other sessions, with the result and the errors of runtime.Executor.Run, and returns the
// time that the executor spent on it. whole keeps it in one piece: else an error may leave some of its rows in the sequence.
// When ctx ends, a step that waits is given up at once, one that is being computed after the round, which goes on for the
// others' sake; a round in which nobody is left ends within a layer.
func (s *seat) run(ctx context.Context, step *runtime.Step, whole bool) (time.Duration, error) {
	b := s.b
	w := &work{seat: s, step: step, whole: whole, finished: make(chan error, 1)}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return 0, runtime.ErrClosed
	}
	b.rounds.add(w, time.Now())
	b.mu.Unlock()
	b.poke()
	select {
	case err := <-w.finished:
		return w.took, err
	case <-ctx.Done():
	}
	b.giveUp(w, ctx.Err())
	err := <-w.finished
	return w.took, err
}

// load says what guesses of the session cost now.
func (s *seat) load() load {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.b.rounds.load(s, time.Now())
}

// giveUp ends a step for the sake of err.
func (b *batcher) giveUp(w *work, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.gone = err
	computed, wanted := false, false
	for _, p := range b.running {
		computed = computed || p.w == w
		wanted = wanted || p.w.gone == nil
	}
	switch {
	case !computed:
		if b.rounds.drop(w) { // else it is done
			w.finished <- err
		}
	case !wanted:
		b.stop()
	}
}

func (b *batcher) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// routineRounds computes rounds until the batcher is closed.
func (b *batcher) routineRounds() {
	defer close(b.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		round, ctx, wait := b.begin()
		switch {
		case ctx != nil:
			b.compute(ctx, round)
			continue
		case wait < 0:
			return
		case wait > 0:
			timer.Reset(wait)
		}
		select {
		case <-b.wake:
		case <-timer.C:
		}
	}
}

// begin takes up the next round. Without one ctx is nil: wait until something changes, or for as long as wait says; below 0
// there is none any more.
func (b *batcher) begin() (round []piece, ctx context.Context, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		for _, w := range b.rounds.queue {
			w.finished <- runtime.ErrClosed
		}
		b.rounds.queue = nil
		return nil, nil, -1
	}
	if round, wait = b.rounds.pick(time.Now()); len(round) > 0 {
		b.running = round
		ctx, b.stop = context.WithCancel(context.Background())
	}
	return round, ctx, wait
}

// compute runs a round and gives out what is done. A step that fails fails alone: the others run again without it.
func (b *batcher) compute(ctx context.Context, round []piece) {
	steps := make([]*runtime.Step, len(round))
	for i, p := range round {
		steps[i] = p.cut(b.exec.Config())
	}
	errs := make([]error, len(round))
	began := time.Now()
	b.runAll(ctx, steps, errs)
	took := time.Since(began)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop()
	b.running, b.stop = nil, nil
	b.done.Add(1)
	done := round[:0]
	for i, p := range round {
		switch {
		case p.w.gone != nil: // its rows are nobody's any more
			b.rounds.drop(p.w)
			p.w.finished <- p.w.gone
		case errs[i] != nil:
			b.rounds.drop(p.w)
			p.w.finished <- errs[i]
		default:
			p.join(steps[i])
			done = append(done, p)
		}
	}
	if len(done) == 0 {
		return
	}
	for _, w := range b.rounds.finish(done, took, time.Now()) {
		w.finished <- nil
	}
}

// runAll runs steps together and fills in the error of each: where one is at fault, the rest again without it, and where
// that can't be told, each by itself.
func (b *batcher) runAll(ctx context.Context, steps []*runtime.Step, errs []error) {
	var left []int // of steps
	for i := range steps {
		left = append(left, i)
	}
	for len(left) > 0 {
		some := make([]*runtime.Step, len(left))
		for i, at := range left {
			some[i] = steps[at]
		}
		err := b.exec.Run(ctx, some)
		if err == nil {
			return
		}
		at, own := culprit(err)
		switch {
		case at >= 0 && at < len(left):
			errs[left[at]] = own
			left = append(left[:at], left[at+1:]...)
		case len(left) == 1 || ctx.Err() != nil:
			for _, at := range left {
				errs[at] = err
			}
			return
		default:
			for _, at := range left {
				errs[at] = b.exec.Run(ctx, steps[at:at+1])
			}
			return
		}
	}
}

// culprit returns which step of a Run an error is about, and the error as if that step had run alone; below 0: it doesn't say.
func culprit(err error) (step int, own error) {
	var (
		senseless *runtime.StepError
		nan       *runtime.NonFiniteError
	)
	switch {
	case errors.As(err, &senseless):
		e := *senseless
		e.Step = 0
		return senseless.Step, &e
	case errors.As(err, &nan):
		e := *nan
		e.Step = 0
		return nan.Step, &e
	}
	return -1, err
}

// cut returns the piece as a step of its own; a step in one piece is itself. Rows of Out go where they belong.
func (p piece) cut(c runtime.Config) *runtime.Step {
	s, first, last := p.w.step, p.w.done, p.w.done+p.n
	if p.n == s.N {
		return s
	}
	part := &runtime.Step{Seq: s.Seq, Layers: s.Layers, Start: s.Start + first, N: p.n, KeepHidden: s.KeepHidden, Probe: s.Probe}
	if s.Tokens != nil {
		part.Tokens = s.Tokens[first:last]
	}
	if s.Seam != nil {
		part.Seam = s.Seam[first*c.Width : last*c.Width]
	}
	for _, r := range s.LogitRows {
		if r >= first && r < last {
			part.LogitRows = append(part.LogitRows, r-first)
		}
	}
	if s.Layers.Last < c.Layers || s.KeepHidden {
		if first == 0 && cap(s.Out) < s.N*c.Width {
			s.Out = make([]float32, s.N*c.Width)
		}
		s.Out = s.Out[:s.N*c.Width]
		part.Out = s.Out[first*c.Width : last*c.Width : last*c.Width]
	} else {
		s.Out = nil
	}
	if first == 0 {
		s.Logits = s.Logits[:0]
		s.Probed = make([][]float32, len(s.Probe))
		for i := range s.Probed {
			s.Probed[i] = make([]float32, s.N*c.Width)
		}
	}
	for _, rows := range s.Probed {
		part.Probed = append(part.Probed, rows[first*c.Width:last*c.Width:last*c.Width])
	}
	return part
}

// join takes a computed piece's results to the step that it is of.
func (p piece) join(part *runtime.Step) {
	s := p.w.step
	if part == s {
		return
	}
	if width := len(part.Out) / p.n; width > 0 {
		copy(s.Out[p.w.done*width:], part.Out) // onto itself, where the executor has reused the memory
	}
	s.Logits = append(s.Logits, part.Logits...)
	for i, rows := range part.Probed {
		width := len(rows) / p.n
		copy(s.Probed[i][p.w.done*width:], rows) // likewise
	}
}
