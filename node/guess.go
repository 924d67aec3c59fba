package node

import (
	"math/bits"
	"time"
)

// Tokens are guessed from what a sequence says again (prompt lookup): where its
// latest tokens stood before, the ones that followed there are proposed. That
// costs nothing but the rows in which guesses are verified.
const (
	maxGuessed = shortRows // rows of a chunk with guesses: as many as are computed at once, like a token alone
	minRun     = 2         // tokens that must have stood before
	maxRun     = 32        // more of them say nothing more
	maxTries   = 32        // places that are looked at, the latest first
)

// ngram guesses the tokens of one session, and learns how many are worth it. Its
// guesses change no token, so what it learns, even from the clock, need not be
// the same elsewhere.
type ngram struct {
	last map[[minRun]int32]int // the position behind the latest place of a run
	prev []int                 // [position behind a run] the same of the run's place before; 0: none
	run  int                   // class of the run of the latest guesses

	right [len(firstRight)]float64 // how often a guess is right, if those before it are, by class
	row   float64                  // on a route: what a further row costs, in rounds of one row
	round float64                  // seconds of such a round; 0: not known

	load   load // of this node, where no route is walked
	steady bool // after a wrong guess the right rows are kept
}

// load is what a model's executor does beside a session, and what it would make of guesses.
type load struct {
	others int       // sessions that decode, too: longer rounds are theirs as well
	cost   []float64 // of a round with so many guesses, in rounds without, by guesses; it ends where no more are welcome. nil: not known
}

// firstRight is what is assumed of runs of 2, 4, 8, 16 and 32 tokens or more.
var firstRight = [...]float64{0.5, 0.65, 0.8, 0.9, 0.95}

// firstRow is what a row is assumed to cost until it has been measured, and
// mostRow the most that one measurement may say: a machine may pause at any time.
const firstRow, mostRow = 1.0 / 32, 0.5

func newNgram(steady bool) *ngram {
	return &ngram{last: map[[minRun]int32]int{}, right: firstRight, row: firstRow, steady: steady}
}

// guess returns at most so many tokens that may follow tokens, which only ever
// grow from one call to the next.
func (g *ngram) guess(tokens []int32, most int) []int32 {
	for end := len(g.prev); end < len(tokens); end++ { // all but the newest run, which would find itself
		at := 0
		if end >= minRun {
			run := [minRun]int32(tokens[end-minRun : end])
			at = g.last[run]
			g.last[run] = end
		}
		g.prev = append(g.prev, at)
	}
	if len(tokens) < minRun {
		return nil
	}
	length, from := 0, 0
	at := g.last[[minRun]int32(tokens[len(tokens)-minRun:])]
	for try := 0; at > 0 && try < maxTries && length < maxRun; try++ {
		if n := alike(tokens[:at], tokens); n > length {
			length, from = n, at
		}
		at = g.prev[at]
	}
	if length == 0 {
		return nil
	}
	g.run = bits.Len(uint(length)) - 2
	var list []int32
	for i := range g.size(most) {
		if from+i < len(tokens) {
			list = append(list, tokens[from+i])
		} else { // it repeats itself
			list = append(list, list[from+i-len(tokens)])
		}
	}
	return list
}

// alike returns how many tokens, maxRun at most, a and b end in alike.
func alike(a, b []int32) (n int) {
	for n < min(len(a), len(b), maxRun) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// size returns how many guesses make the most tokens in a second, those of other sessions in the same rounds included.
func (g *ngram) size(most int) (n int) {
	if c := g.load.cost; c != nil {
		most = min(most, len(c)-1)
	}
	right, chance, tokens := g.right[g.run], 1.0, float64(1+g.load.others)
	best := tokens
	for k := 1; k <= most; k++ {
		chance *= right
		tokens += chance
		cost := 1 + g.row*float64(k)
		if g.load.cost != nil {
			cost = g.load.cost[k]
		}
		if !g.steady { // the right ones' rows are computed again
			cost += (1 - chance) * (cost - 1)
		}
		if tokens > best*cost {
			best, n = tokens/cost, k
		}
	}
	if n == 0 && most > 0 { // times change: it is tried again after some
		near(&g.right[g.run], firstRight[g.run], 256)
		near(&g.row, firstRow, 256)
	}
	return n
}

// near moves v the n-th part of the way to a newer value.
func near(v *float64, to, n float64) { *v += (to - *v) / n }

// learn takes how many of the latest guesses were right.
func (g *ngram) learn(right, guessed int) {
	for range right {
		near(&g.right[g.run], 1, 16)
	}
	if right < guessed {
		near(&g.right[g.run], 0, 16)
	}
}

// timed takes how long so many rows took on their round.
func (g *ngram) timed(rows int, took time.Duration) {
	s := took.Seconds()
	switch {
	case rows == 1 && g.round == 0:
		g.round = s
	case rows == 1:
		near(&g.round, s, 8)
	case g.round > 0:
		cost, n := min(max(s/g.round-1, 0)/float64(rows-1), mostRow), 4.0
		if cost > g.row { // what else the machine does only adds
			n = 16
		}
		near(&g.row, cost, n)
	}
}
