package ledbat

import "time"

// Limits of what is under way.
const (
	leastWindow = leastFrame // even where the way is full
	firstWindow = 32 << 10   // before anything is known
	mostWindow  = 8 << 20    // less than a stream takes without being read (swarm.initialWindow)
)

// Frames are a sixteenth of the window, within these limits: on a slow way what else comes mustn't wait long for one, on a quick one
// each costs processors on both ends.
const (
	leastFrame = 4 << 10
	mostFrame  = 16 << 10
)

// target is how much longer a round trip may take than on an empty way: what waits behind bulk data waits as long. RFC 6817 allows
// 100 ms, which is for people; a decoded token that walks a route takes some ten. bench/growth.py, one processor for each end: while
// layers are fetched tokens take 1.2 times as long and 45 % of the link is used; with 4 ms it is 1.4 times and 62 %. The less it is, the
// more late acknowledgements and short bursts count for a queue.
const target = 2500 * time.Microsecond

// What a window may become from one round to the next, as a factor.
const leastStep, mostStep = 0.5, 1.25

// After every slowEvery the window is as small as can be for a round, as in LEDBAT++: so the way's own round trip is measured anew, without
// the queue that the sender itself makes. Then, as at the beginning, it doubles until there is a queue, or it is what it was: if it were
// that at once, all of it would leave together.
const slowEvery = 30 * time.Second

// leastSamples is how many round trips a round has at least. Most of them may be longer for other reasons than a queue: on either end
// a busy processor has other things to do first.
const leastSamples = 8

// window says how many bytes may be under way. After each round it takes the size whose round trip would be that of an empty way and
// target more, if the queue is its own:
//
//	size ← size · (base + target) / least,   but at most 5/4 of it and at least 1/2; 5/4, or 2, where least < base + target/2
//
// where least is the shortest round trip of the round. A round begins when the first bytes are acknowledged that were sent with the
// size as it is, and is over when all are that had been sent by then.
type window struct {
	size   int
	base   [2]time.Duration // shortest round trip since the last slow round began, and from the one before to there; 0: none
	from   int64            // position from which on bytes are of this round
	end    int64            // … and where it ends, once it has begun
	seen   int              // round trips of this round
	least  time.Duration    // … the shortest
	full   bool             // somebody had to wait
	slow   bool             // this round is a slow one
	slowed time.Time        // when the last one began
	known  int              // up to that it doubles
}

func newWindow(now time.Time) *window {
	return &window{size: firstWindow, slowed: now, known: mostWindow}
}

// frame is how many bytes go together.
func (w *window) frame() int { return min(max(w.size/16, leastFrame), mostFrame) }

// fits reports whether n bytes more may be under way.
func (w *window) fits(n, under int64) bool {
	ok := under+n <= int64(w.size)
	w.full = w.full || !ok
	return ok
}

// acknowledged takes the news that all before position upto has been read, of all before sent, and that the last of it took rtt.
func (w *window) acknowledged(upto, sent int64, rtt time.Duration, now time.Time) {
	if upto <= w.from {
		return
	}
	if w.seen == 0 {
		w.end = sent
	}
	if rtt = max(rtt, 1); w.seen == 0 || rtt < w.least {
		w.least = rtt
	}
	if w.seen++; upto < w.end || w.seen < leastSamples {
		return
	}
	w.round(now)
	w.seen, w.full, w.from = 0, false, sent
}

// round ends a round.
func (w *window) round(now time.Time) {
	if w.base[0] == 0 || w.least < w.base[0] {
		w.base[0] = w.least
	}
	base := w.base[0]
	if w.base[1] > 0 {
		base = min(base, w.base[1])
	}
	by := min(max(float64(base+target)/float64(w.least), leastStep), mostStep)
	switch {
	case w.slow:
		w.slow, by = false, 1
	case now.Sub(w.slowed) >= slowEvery:
		w.base[0], w.base[1] = 0, w.base[0]
		w.slow, w.slowed, w.known, w.size = true, now, w.size, leastWindow
		return
	case !w.full:
		by = min(by, 1)
	case w.least >= base+target/2:
		w.known = 0
	case 2*w.size <= w.known:
		by = 2
	default:
		by = mostStep
	}
	w.size = min(max(int(float64(w.size)*by), leastWindow), mostWindow)
}
