package node

import "time"

// wait is what a session's part on this node needs before its next step.
type wait uint8

const (
	waitNone   wait = iota // it computes, or hands on what it computed
	waitInput              // a stage: the next chunk, or its seam; the decoder: stages to open, seams
	waitCredit             // the successor is maxAhead seams behind
	waitRows               // a stage: the decoder is maxAhead chunks' KV rows behind; the decoder: rows of all layers
	waits
)

// waiting adds up how long a part waited for what. Only waits that ended count: after the last chunk a stage waits for nothing
// but its closing.
type waiting struct {
	what  wait
	since time.Time
	total [waits]time.Duration
}

// set notes what the part waits for at time now.
func (w *waiting) set(what wait, now time.Time) {
	if what == w.what {
		return
	}
	w.total[w.what] += now.Sub(w.since)
	w.what, w.since = what, now
}

// nanos returns the time spent on a kind of wait.
func (w *waiting) nanos(what wait) uint64 { return uint64(w.total[what]) }
