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
	peer      string              // whom the session waits for, "" for nobody
	positions int                 // that its next word will be about; 0: it must open
	work      stageWork           // of that peer
	moved     time.Time           // when that peer has got something done, or the wait for it began
	told      time.Time           // when it has told that it is at work
	times     tempo               // of this session's chunks
	reckoned  map[string]reckoned // by stage: what its chunks should take
}

// set takes what each stage has done at time now, and for whom the session waits next.
func (p *pace) set(done map[string]stageWork, peer string, positions int, now time.Time) {
	was := done[p.peer]
	switch {
	case p.peer != "" && was.moves != p.work.moves:
		if p.positions > 0 {
			if p.times == nil {
				p.times = tempo{}
			}
			p.times.add(p.peer, p.positions, now.Sub(p.moved))
		}
		p.moved = now
	case peer != p.peer:
		p.moved = now
	case was.words != p.work.words:
		p.told = now
	}
	p.work, p.peer, p.positions = done[peer], peer, positions
}

// reckon notes what chunks of a stage should take.
func (p *pace) reckon(peer string, r reckoned) {
	if p.reckoned == nil {
		p.reckoned = map[string]reckoned{}
	}
	p.reckoned[peer] = r
}

// limit returns how long a stage may take for a chunk; 0 where nothing is known yet. Of one that has had none, what others took says less than what
// it should take by its offer, if that is more.
func (p *pace) limit(peer string, positions int) time.Duration {
	expected := p.times.expected(peer, positions)
	if len(p.times[peer]) == 0 {
		expected = max(expected, p.reckoned[peer].of(positions))
	}
	return paceFactor * expected
}

// deadline returns the time from which the peer that the session waits for holds it up, if there is one. sign says when a peer last gave a sign that it
// gets on with the session, or since if that is later.
func (p *pace) deadline(silence time.Duration, sign func(peer string, since time.Time) time.Time) time.Time {
	limit := max(openTimeout, silence) // nobody knows how long it takes
	if p.positions > 0 {
		if known := p.limit(p.peer, p.positions); known > 0 {
			limit = max(known, silence)
		}
	}
	at, most := sign(p.peer, newer(p.moved, p.told)).Add(limit), p.moved.Add(stallTimeout+time.Duration(p.positions)*stallPosition)
	if most.Before(at) {
		return most
	}
	return at
}
