package node

import "time"

// A stage that lives but gets nothing done holds its session up. The time that it
// may take is paceFactor times what its chunk is expected to take, but at least
// the silence that is allowed; from when it has last done something, or told that
// it is at work. Who tells so may be slow (the smallest machines, the largest
// chunks), and still has no longer than stallTimeout and stallPosition for each position.
const (
	paceFactor    = 3 // DESIGN §3, Failure
	stallTimeout  = 2 * time.Minute
	stallPosition = 2 * time.Second
)

// pace is how fast a route gets on, as its decoder sees it.
type pace struct {
	peer      string // whom the session waits for, "" for nobody
	positions int    // that its next word will be about; 0: it must open
	moves     int
	words     int
	moved     time.Time     // when something was done, or the wait began
	told      time.Time     // when a stage has told that it is at work
	slowest   time.Duration // for a position, of those waited for so far; 0: nothing has been done
}

// set takes how often the route has done something and told of work at time now, and for whom the session waits next.
func (p *pace) set(moves, words int, peer string, positions int, now time.Time) {
	switch {
	case moves != p.moves:
		if p.peer != "" && p.positions > 0 {
			p.slowest = max(p.slowest, now.Sub(p.moved)/time.Duration(p.positions))
		}
		p.moved = now
	case peer != p.peer:
		p.moved = now
	}
	if words != p.words {
		p.told = now
	}
	p.moves, p.words, p.peer, p.positions = moves, words, peer, positions
}

// expected returns how long somebody may take for a chunk; 0 where nothing is known yet.
func (p *pace) expected(positions int) time.Duration {
	return paceFactor * time.Duration(positions) * p.slowest
}

// deadline returns the time from which the peer that the session waits for holds it up, if there is one. bulk says when a peer was last
// sending seams or rows.
func (p *pace) deadline(silence time.Duration, bulk func(string) time.Time) time.Time {
	sign := p.moved
	for _, t := range []time.Time{p.told, bulk(p.peer)} {
		if t.After(sign) {
			sign = t
		}
	}
	limit := max(openTimeout, silence) // nobody knows how long it takes
	if p.slowest > 0 && p.positions > 0 {
		limit = max(p.expected(p.positions), silence)
	}
	at, most := sign.Add(limit), p.moved.Add(stallTimeout+time.Duration(p.positions)*stallPosition)
	if most.Before(at) {
		return most
	}
	return at
}
