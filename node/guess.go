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
	rate  float64                  // what the latest guesses promise: tokens, those of other sessions included, in the time of a round without
	ahead float64                  // what a token of a draft model takes, in rounds
	row   float64                  // on a route: what a further row costs, in rounds of one row
	round float64                  // seconds of such a round; 0: not known

	load   load // of this node, where no route is walked
	steady bool // after a wrong guess the right rows are kept
}

// load is what a model's executor does beside a session, and what it would make of guesses.
type load struct {
	round  float64   // seconds of a round without guesses; 0: not known
	others int       // sessions that decode, too: longer rounds are theirs as well
	cost   []float64 // of a round with so many guesses, in rounds without, by guesses; it ends where no more are welcome. nil: not known
}

// firstRight is what is assumed of runs of 2, 4, 8, 16 and 32 tokens or more, and
// of a draft model.
var firstRight = [...]float64{0.5, 0.65, 0.8, 0.9, 0.95, classDraft: 0.8}

// classDraft is the class of a draft model's guesses.
const classDraft = 5

// firstAhead is what a token of a draft model is assumed to take.
const firstAhead = 1.0 / 8

// firstRow is what a row is assumed to cost until it has been measured, and
// mostRow the most that one measurement may say: a machine may pause at any time.
const firstRow, mostRow = 1.0 / 32, 0.5

func newNgram(steady bool) *ngram {
	return &ngram{last: map[[minRun]int32]int{}, right: firstRight, row: firstRow, ahead: firstAhead, steady: steady}
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
	g.rate = float64(1 + g.load.others)
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

// size returns how many guesses of the latest run make the most tokens in a second.
func (g *ngram) size(most int) (n int) {
	n, g.rate = g.best(most, g.right[g.run], 0)
	if n == 0 && most > 0 { // times change: it is tried again after some
		near(&g.right[g.run], firstRight[g.run], 256)
		near(&g.row, firstRow, 256)
	}
	return n
}

// draftSize returns how many tokens of a draft model do; 0 if the latest guesses promise as many without.
func (g *ngram) draftSize(most int) int {
	n, rate := g.best(most, g.right[classDraft], g.ahead)
	if n == 0 || rate <= g.rate {
		near(&g.right[classDraft], firstRight[classDraft], 256) // as above
		near(&g.ahead, firstAhead, 256)
		return 0
	}
	return n
}

// draftedIn takes how long a draft model took for each of its tokens.
func (g *ngram) draftedIn(each time.Duration) {
	round := g.round
	if g.load.cost != nil {
		round = g.load.round
	}
	if round > 0 {
		ahead, n := min(each.Seconds()/round, 2), 4.0
		if ahead > g.ahead { // what else the machine does only adds
			n = 16
		}
		near(&g.ahead, ahead, n)
	}
}

// best returns how many guesses make the most tokens in a second, those of other sessions in the same rounds included, and how many
// that is in the time of a round without: if one is right as often as right says where those before it are, and takes so much of a
// round to make.
func (g *ngram) best(most int, right, each float64) (n int, rate float64) {
	if c := g.load.cost; c != nil {
		most = min(most, len(c)-1)
	}
	chance, tokens := 1.0, float64(1+g.load.others)
	rate = tokens
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
		if cost += each * float64(k); tokens > rate*cost {
			rate, n = tokens/cost, k
		}
	}
	return n, rate
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
