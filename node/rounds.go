package node

import (
	"slices"
	"time"

	"github.com/starling-swarm/starling/runtime"
)

// How an executor's time is shared among the sessions of a model. A step of few rows is as fast as memory, so the decoding steps
// of all sessions go together; rows of a prompt cost arithmetic, so a round takes only as many as its decoding steps can bear.
const (
	shortRows  = 16  // rows of a decoding step at most: a token, one with guesses, or a few of a short turn
	roundShort = 64  // rows of decoding steps in a round
	roundLong  = 512 // rows of prompts in a round: as many as the executor passes through a layer at once
	firstSlice = 8   // rows of a prompt beside decoding steps, until it is known how many are bearable
	firstIdle  = 128 // rows of a prompt alone, likewise
	leastIdle  = 64  // rows of a prompt alone at least: fewer are slower per row

	slowdown  = 1.75             // how much longer than its decoding steps alone a round with rows of a prompt should take; 2 is the promise
	idleRound = time.Second      // how long a round of prompts alone should take, since a token may come in the middle
	staleness = 32               // rounds after which it is measured again how long decoding steps alone take
	lately    = time.Second      // a session that decoded so recently goes on decoding
	leastWait = time.Millisecond // how long a round waits for a session that is expected back, beyond twice its usual time
)

// seat is a session's place at a model: who has one may ask for steps, and is waited for between two tokens.
type seat struct {
	b     *batcher
	last  time.Time     // when its last decoding step was done; zero: it has decoded nothing
	back  time.Duration // how long it usually takes to come with the next one; 0: not known
	until time.Time     // the next round waits for it until then, unless it comes or leaves
}

// work is a step that a session asks for. Steps of prompts are computed in pieces, which changes no bit of any result.
type work struct {
	seat  *seat
	step  *runtime.Step
	whole bool          // in one piece, please
	done  int           // rows computed
	took  time.Duration // its share of the rounds it was in

	gone     error      // its session has ended while it was being computed
	finished chan error // gets the result, once
}

func (w *work) short() bool { return w.step.N <= shortRows }

// layers is how often a row of the step passes through a layer; the head alone counts as one.
func (w *work) layers() int { return max(1, w.step.Layers.Len()) }

// piece is the next n rows of a step.
type piece struct {
	w *work
	n int
}

// rounds decides what an executor computes next: pure, without a clock. Its owner serialises calls.
//
// Each round takes the waiting decoding steps, oldest first, and rows of the oldest prompts: as many as keep the round within
// slowdown times what its decoding steps take alone (which is measured, now and then by a round without prompts), but always
// some, so that nobody starves. A round begins when every session that has just decoded and usually comes back at once has
// come back: without that the sessions would drift apart and share nothing. Steps of one session keep their order.
type rounds struct {
	queue []*work // that aren't done, by arrival
	seats map[*seat]bool

	count  int                       // rounds so far
	alone  [roundShort + 1]aloneTime // by rows of decoding steps, of rounds without prompts
	slice  float64                   // rows × layers of prompts that decoding steps bear beside them; 0: not known
	perRow float64                   // seconds that a row of a prompt takes in a layer, without decoding steps; 0: not known
}

// aloneTime is how long rounds of so many rows of decoding steps take.
type aloneTime struct {
	took time.Duration // 0: not known
	at   int           // the round that told
}

// add queues a step.
func (r *rounds) add(w *work, now time.Time) {
	s := w.seat
	if s.last != (time.Time{}) && !s.until.IsZero() {
		usual := now.Sub(s.last)
		if s.back > 0 {
			usual = (3*s.back + min(usual, 8*s.back+leastWait)) / 4 // a pause now and then isn't the rule
		}
		s.back = max(usual, 1)
	}
	s.until = time.Time{}
	r.queue = append(r.queue, w)
}

// drop forgets a step that isn't in a round; it reports whether there was one.
func (r *rounds) drop(w *work) bool {
	i := slices.Index(r.queue, w)
	if i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
	}
	return i >= 0
}

// pick returns the next round; none while there is nothing to do, or, with wait > 0, until so much time has passed or
// something has changed. The round's steps stay queued until finish or drop.
func (r *rounds) pick(now time.Time) (round []piece, wait time.Duration) {
	if len(r.queue) == 0 {
		return nil, 0
	}
	decoding := false
	for s := range r.seats {
		wait = max(wait, s.until.Sub(now))
		decoding = decoding || s.last != (time.Time{}) && now.Sub(s.last) < lately
	}
	if wait > 0 {
		return nil, wait
	}
	rows := 0
	var long []*work
	taken := map[*seat]bool{}
	for _, w := range r.queue {
		switch {
		case taken[w.seat]: // behind another step of its session
		case !w.short():
			long = append(long, w)
		case rows+w.step.N <= roundShort:
			round = append(round, piece{w, w.step.N})
			rows += w.step.N
		}
		taken[w.seat] = true
	}
	if rows > 0 && r.aloneFor(rows) == 0 {
		return round, 0
	}
	return append(round, r.cut(long, rows > 0 || decoding)...), 0
}

// cut takes rows of prompts for a round, from the oldest step on: at least one row.
func (r *rounds) cut(long []*work, decoding bool) (round []piece) {
	left, rows := 0.0, roundLong
	for i, w := range long {
		each := float64(w.layers())
		if i == 0 {
			left = r.allowance(each, decoding)
		}
		n := min(w.step.N-w.done, rows, max(int(left/each), 1))
		if i > 0 && (left < each || w.whole) {
			break
		}
		if w.whole {
			n = w.step.N
		}
		round = append(round, piece{w, n})
		left -= float64(n) * each
		if rows -= n; rows <= 0 {
			break
		}
	}
	return round
}

// allowance is how many rows × layers of prompts a round may have, the oldest of which pass through so many layers.
func (r *rounds) allowance(layers float64, decoding bool) float64 {
	switch {
	case decoding && r.slice > 0:
		return r.slice
	case decoding:
		return firstSlice * layers
	case r.perRow > 0:
		return min(max(idleRound.Seconds()/r.perRow, leastIdle*layers), roundLong*layers)
	}
	return firstIdle * layers
}

// aloneFor returns how long rows of decoding steps take without prompts: what was measured lately with so many, or with
// somewhat fewer; 0: it must be measured.
func (r *rounds) aloneFor(rows int) time.Duration {
	for n := rows; 2*n >= rows && n > 0; n-- {
		if t := r.alone[n]; t.took > 0 && r.count-t.at <= staleness {
			return t.took
		}
	}
	return 0
}

// finish notes that a round has been computed within took, and returns the steps that are done. Sessions that have decoded
// are expected back.
func (r *rounds) finish(round []piece, took time.Duration, now time.Time) (done []*work) {
	r.learn(round, took)
	cost := 0
	for _, p := range round {
		cost += p.n * p.w.layers()
	}
	window := min(max(took/2, 2*leastWait), 200*leastWait)
	for _, p := range round {
		w := p.w
		w.took += time.Duration(float64(took) * float64(p.n*w.layers()) / float64(cost))
		if w.done += p.n; w.done < w.step.N {
			continue
		}
		r.drop(w)
		done = append(done, w)
		if w.short() {
			s := w.seat
			s.last = now
			switch {
			case s.back == 0:
				s.until = now.Add(window)
			case s.back > window: // who walks a route comes when it comes
				s.until = now
			default:
				s.until = now.Add(min(window, 2*s.back+leastWait))
			}
		}
	}
	return done
}

// learn takes a round's time for what follows.
func (r *rounds) learn(round []piece, took time.Duration) {
	rows, long, layers := 0, 0.0, 0.0
	for _, p := range round {
		if p.w.short() {
			rows += p.n
			continue
		}
		long += float64(p.n * p.w.layers())
		layers = float64(p.w.layers())
	}
	r.count++
	switch {
	case long == 0:
		t := &r.alone[rows]
		if t.took == 0 || r.count-t.at > staleness {
			t.took = took
		}
		t.took, t.at = (3*t.took+took)/4, r.count
	case rows == 0 && (r.perRow == 0 || long >= leastIdle*layers):
		each := took.Seconds() / long
		if r.perRow > 0 {
			each = (r.perRow + each) / 2
		}
		r.perRow = each
	case rows > 0 && took > 0:
		change := min(max(slowdown*r.aloneFor(rows).Seconds()/took.Seconds(), 0.5), 1.25)
		if change < 1 {
			r.slice = max(long*change, layers)
		} else {
			r.slice = min(max(r.slice, long*change), roundLong*layers)
		}
	}
}
