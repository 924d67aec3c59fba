package runtime

import "time"

// othersEvery is how often a polite model looks at what else the machine does.
const othersEvery = 500 * time.Millisecond

// others estimates how many of the machine's processors other programs keep busy, so that a volunteer's desktop stays
// usable: a thread that shares a processor with them slows both down, and makes all its fellows wait at the next
// operation. One goroutine at a time may use it.
type others struct {
	processors int // of the machine; 0 where the system does not tell what they do
	looked     time.Time
	busy, own  time.Duration // processor time since some start: of everything, of this process
	load       float64       // processors that others use, smoothed over a few looks
	buf        [1024]byte    // for reading it
}

// limit returns how many of want threads should compute now: the processors that others leave, at least one.
func (o *others) limit(want int, now time.Time) int {
	if o == nil || o.processors == 0 {
		return want
	}
	if passed := now.Sub(o.looked); passed >= othersEvery {
		busy, own, ok := o.times()
		if !ok {
			return want
		}
		if !o.looked.IsZero() {
			load := float64((busy-o.busy)-(own-o.own)) / float64(passed)
			o.load += (min(max(load, 0), float64(o.processors)) - o.load) / 2
		}
		o.looked, o.busy, o.own = now, busy, own
	}
	return min(want, max(1, o.processors-int(o.load+0.5)))
}
