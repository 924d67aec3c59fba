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
	firstSlice = 8   // rows of a prompt between decoding steps, until it is known how many are bearable
	firstIdle  = 128 // rows of a prompt alone, likewise
	leastIdle  = 64  // rows of a prompt alone at least: fewer are slower per row

	slowdown  = 1.8         // how much longer than its decoding steps alone a round with rows of a prompt should take
	restEvery = 4           // one round of so many has no prompts, which tells how long decoding steps alone take; so tokens take 1.6 times as long
	rests     = 8           // such rounds that are remembered
	idleRound = time.Second // how long a round of prompts alone should take, since a token may come in the middle

	growFirst = 1.25 // by what the share of prompts grows with each round until it was too much once
	grow      = 1.1  // by what it grows or shrinks from then on: it settles where half of the rounds are too long, however long the others

	costLife  = 2048             // rounds after which it is forgotten what one of so many rows takes
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
// Each round takes the waiting decoding steps, oldest first, and rows of the oldest prompts. As many rows × layers as the decoding
// steps have themselves cost at most as much again, so that needs no clock, and is the least. More come where rounds have been
// within slowdown times what their decoding steps take alone. A machine that does something else now and then lengthens single
// rounds by any factor: how much a round was too long is of no account, and of rounds without prompts one of the shortest counts.
//
// A round begins when every session that has just decoded and usually comes back at once has come back: without that the sessions
// would drift apart and share nothing. Steps of one session keep their order.
type rounds struct {
	queue []*work // that aren't done, by arrival
	seats map[*seat]bool

	count  int                  // rounds so far
	read   int                  // the latest one that had rows of prompts
	rested []rest               // the latest rounds without prompts, oldest first
	slice  float64              // rows × layers of prompts that decoding steps bear beside them; 0: not known
	over   bool                 // that was too much once
	costs  [roundShort + 1]cost // of rounds without prompts, by rows
	perRow float64              // seconds that a row of a prompt takes in a layer, without decoding steps; 0: not known
}

// cost is how long rounds of so many rows take that nothing holds up.
type cost struct {
	seconds float64 // 0: not known
	round   int     // that told so last
}

// rest is a round of decoding steps alone.
type rest struct {
	round int // its number
	rows  int
	took  time.Duration
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
	rows, least := 0, 0.0
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
			least += float64(w.step.N * w.layers())
		}
		taken[w.seat] = true
	}
	if took, fresh := r.alone(rows); rows > 0 && (took == 0 || !fresh) {
		return round, 0
	}
	return append(round, r.cut(long, least, decoding)...), 0
}

// cut takes rows of prompts for a round whose decoding steps have so many rows × layers, from the oldest step on: at least one row.
func (r *rounds) cut(long []*work, least float64, decoding bool) (round []piece) {
	left, rows := 0.0, roundLong
	for i, w := range long {
		each := float64(w.layers())
		if i == 0 {
			left = r.allowance(each, least, decoding)
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
func (r *rounds) allowance(layers, least float64, decoding bool) float64 {
	switch {
	case least > 0:
		return max(r.slice, least)
	case decoding && r.slice > 0:
		return r.slice
	case decoding:
		return firstSlice * layers
	case r.perRow > 0:
		return min(max(idleRound.Seconds()/r.perRow, leastIdle*layers), roundLong*layers)
	}
	return firstIdle * layers
}

// alone returns how long rows of decoding steps take without prompts, as rounds with so many or somewhat fewer have told, and
// whether one of the latest rounds was such a one; 0: it isn't known.
func (r *rounds) alone(rows int) (took time.Duration, fresh bool) {
	var list []time.Duration
	for _, x := range r.rested {
		if x.rows <= rows && 2*x.rows >= rows {
			list = append(list, x.took)
		}
		fresh = r.count-x.round < restEvery-1
	}
	if len(list) == 0 {
		return 0, false
	}
	slices.Sort(list)
	return list[(len(list)-1)/3], fresh
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
	rows, least, long, layers := 0, 0.0, 0.0, 0.0
	for _, p := range round {
		if p.w.short() {
			rows += p.n
			least += float64(p.n * p.w.layers())
			continue
		}
		long += float64(p.n * p.w.layers())
		layers = float64(p.w.layers())
	}
	if r.count++; long > 0 {
		r.read = r.count
	}
	switch {
	case long == 0:
		s, n, c := took.Seconds(), 2.0, &r.costs[rows]
		if c.seconds == 0 {
			c.seconds = s
		}
		if s > c.seconds { // what else the machine does only adds
			s, n = min(s, 2*c.seconds), 64
		}
		near(&c.seconds, s, n)
		c.round = r.count
		r.rested = append(r.rested, rest{r.count, rows, took})
		r.rested = r.rested[max(len(r.rested)-rests, 0):]
	case rows == 0 && (r.perRow == 0 || long >= leastIdle*layers):
		each := took.Seconds() / long
		if r.perRow > 0 {
			each = min((r.perRow+each)/2, 2*r.perRow)
		}
		r.perRow = each
	case rows > 0:
		r.weigh(long, max(r.slice, least), layers, rows, took)
	}
}

// weigh notes how long a round with so many rows × layers of prompts took where it might have had slice of them. One with much
// less, as at the end of a chunk, says nothing of so many.
func (r *rounds) weigh(long, slice, layers float64, rows int, took time.Duration) {
	alone, _ := r.alone(rows)
	if alone == 0 || long < slice*3/4-layers {
		return
	}
	row := time.Duration(float64(took-alone) * layers / long) // one more has to fit, too
	switch {
	case took.Seconds() > slowdown*alone.Seconds():
		r.slice, r.over = slice/grow, true
	case (took + row).Seconds() > slowdown*alone.Seconds():
	case r.over:
		r.slice = min(slice*grow, roundLong*layers)
	default:
		r.slice = min(slice*growFirst, roundLong*layers)
	}
}

// load returns what the sessions beside one make of its guesses. While prompts are read, they are not welcome: the rows of those
// take all the arithmetic there is.
func (r *rounds) load(of *seat, now time.Time) load {
	l := load{cost: []float64{1}}
	if r.costs[1].seconds > 0 {
		l.round = r.roundOf(1)
	}
	for s := range r.seats {
		if s != of && s.last != (time.Time{}) && now.Sub(s.last) < lately {
			l.others++
		}
	}
	if r.read > 0 && r.count-r.read < restEvery || slices.ContainsFunc(r.queue, func(w *work) bool { return !w.short() }) {
		return l
	}
	for n := l.others + 2; n <= roundShort && len(l.cost) <= maxGuessed; n++ {
		l.cost = append(l.cost, max(r.roundOf(n)/r.roundOf(l.others+1), l.cost[len(l.cost)-1]))
	}
	return l
}

// roundOf estimates how long a round of so many rows takes, from those that have been measured not too long ago: on a line between the
// next smaller and larger ones; beyond the largest they are thought cheap, so that they are tried.
func (r *rounds) roundOf(rows int) float64 {
	known := func(n int) float64 {
		if c := r.costs[n]; r.count-c.round < costLife {
			return c.seconds
		}
		return 0
	}
	low, high := rows, rows
	for low > 0 && known(low) == 0 {
		low--
	}
	for high < roundShort && known(high) == 0 {
		high++
	}
	least, most := known(low), known(high)
	switch {
	case least == 0 && most == 0:
		return 1 + firstRow*float64(rows)
	case least == 0:
		return most / (1 + firstRow*float64(high-rows))
	case most == 0:
		return least * (1 + firstRow*float64(rows-low))
	case low == high:
		return least
	}
	return least + (most-least)*float64(rows-low)/float64(high-low)
}
