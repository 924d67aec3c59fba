package node

// turns says whose bytes go next where peers wait for a cap: those of the peer that has had least, however many streams it
// has. This is start-time fair queueing (Goyal, Vin, Cheng 1996) with a peer for a flow: who comes counts as having had as
// much as who was served last, so nobody saves up turns by being silent. No clock and no lock of its own.
type turns struct {
	peers   map[string]*line
	served  float64 // bytes that who was served last had had before
	lead    float64 // bytes that a peer is ahead of served at most, by what waits for no turn
	waiting int
	came    uint64
}

// line is one peer's.
type line struct {
	had  float64 // bytes
	wait []turn  // in the order of coming
}

// turn is one write or read that waits.
type turn struct {
	bytes int
	came  uint64
	next  chan struct{} // closed when it may go on
}

// line returns a peer's, who has come now if it has none.
func (t *turns) line(peer string) *line {
	l := t.peers[peer]
	if l == nil {
		l = &line{had: t.served}
		if t.peers == nil {
			t.peers = map[string]*line{}
		}
		t.peers[peer] = l
	}
	l.had = max(l.had, t.served)
	return l
}

// charge counts bytes of a peer.
func (t *turns) charge(peer string, n int) {
	l := t.line(peer)
	l.had = min(l.had+float64(n), t.served+t.lead)
}

// join puts n bytes of a peer in line.
func (t *turns) join(peer string, n int) chan struct{} {
	l := t.line(peer)
	t.came++
	l.wait = append(l.wait, turn{n, t.came, make(chan struct{})})
	t.waiting++
	return l.wait[len(l.wait)-1].next
}

// leave takes out one that waits no longer.
func (t *turns) leave(peer string, next chan struct{}) {
	l := t.peers[peer]
	if l == nil {
		return
	}
	for i := range l.wait {
		if l.wait[i].next == next {
			l.wait = append(l.wait[:i], l.wait[i+1:]...)
			t.waiting--
			return
		}
	}
}

// next lets the next one go on, and returns its bytes; some must wait.
func (t *turns) next() int {
	var peer string
	var first *line
	for p, l := range t.peers {
		switch {
		case len(l.wait) == 0 && l.had <= t.served:
			delete(t.peers, p) // as good as new
		case len(l.wait) == 0:
		case first == nil || l.had < first.had || l.had == first.had && l.wait[0].came < first.wait[0].came:
			peer, first = p, l
		}
	}
	w := first.wait[0]
	first.wait = first.wait[1:]
	t.waiting--
	t.served = first.had
	t.charge(peer, w.bytes)
	close(w.next)
	return w.bytes
}

// idle forgets who has had what: there was enough for all.
func (t *turns) idle() {
	clear(t.peers)
	t.served = 0
}
