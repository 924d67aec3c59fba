package ledbat

import (
	"math/rand/v2"
	"testing"
	"time"
)

// link is a way of a rate and a round trip, in virtual time: bytes queue at its slowest part.
type link struct {
	rate  float64 // bytes per second
	rtt   time.Duration
	noise time.Duration // that acknowledgements may come later, as those of a busy processor
	rng   *rand.Rand
	free  time.Duration // when the slowest part has sent all that it has got
	delay []time.Duration

	sent, acked int64
	under       []flight
}

// flight is a frame under way: where it ends, when it was sent and will be acknowledged.
type flight struct {
	end      int64
	at, back time.Duration
}

// pass returns when n bytes sent at a time are acknowledged.
func (l *link) pass(n int64, at time.Duration) time.Duration {
	wait := max(l.free-at, 0)
	l.delay = append(l.delay, wait)
	l.free = at + wait + time.Duration(float64(n)/l.rate*1e9)
	return l.free + l.rtt + time.Duration(l.rng.Int64N(int64(l.noise)+1))
}

// run sends what a window lets it, and returns the bytes acknowledged.
func (l *link) run(w *window, from, to time.Duration) int64 {
	before, start := l.acked, time.Unix(0, 0)
	for now := from; ; {
		for n := int64(w.frame()); len(l.under) == 0 || w.fits(n, l.sent-l.acked); {
			l.sent += n
			back := l.pass(n, now)
			if n := len(l.under); n > 0 {
				back = max(back, l.under[n-1].back)
			}
			l.under = append(l.under, flight{l.sent, now, back})
		}
		f := l.under[0]
		if f.back > to {
			return l.acked - before
		}
		now, l.acked, l.under = f.back, f.end, l.under[1:]
		w.acknowledged(l.acked, l.sent, now-f.at, start.Add(now))
	}
}

// What a window sends fills most of a link, of whatever rate and length, and what else comes waits little longer than target. Where all
// acknowledgements come late for other reasons, it errs on the side of what else comes, but gets some 2 MB/s.
func TestWindow(t *testing.T) {
	for _, rate := range []float64{1e6, 12.5e6, 125e6} { // bytes per second
		for _, rtt := range []time.Duration{200 * time.Microsecond, 20 * time.Millisecond, 150 * time.Millisecond} {
			if rate*rtt.Seconds() > mostWindow {
				continue
			}
			for _, noise := range []time.Duration{0, 8 * time.Millisecond} {
				l := &link{rate: rate, rtt: rtt, noise: noise, rng: rand.New(rand.NewPCG(1, 1))}
				w := newWindow(time.Unix(0, 0))
				const warm, end = 10 * time.Second, 70 * time.Second
				before := l.run(w, 0, warm)
				l.delay = nil
				got := float64(l.run(w, warm, end)) / (end - warm).Seconds() / rate
				mean := time.Duration(0)
				for _, d := range l.delay {
					mean += d / time.Duration(len(l.delay))
				}
				most := 2*target + noise + 2*time.Duration(mostFrame/rate*1e9)
				if got < 0.5 && (noise == 0 || got*rate < 2e6) || mean > most {
					t.Errorf("%.3g bytes/s, %v, noise %v: %.0f %% of the link, others wait %v, at most %v were meant", rate, rtt, noise, 100*got, mean, most)
				}
				t.Logf("%.3g bytes/s, %v, noise %v: %.0f %% of the link, others wait %v; %d bytes at first", rate, rtt, noise, 100*got, mean, before)
			}
		}
	}
}

// A window that meets a queue of others' gives way to it, and takes the link back afterwards; it doesn't take a way that has become
// longer for a queue for ever.
func TestWindowYields(t *testing.T) {
	l := &link{rate: 12.5e6, rtt: 20 * time.Millisecond, rng: rand.New(rand.NewPCG(1, 1))}
	w := newWindow(time.Unix(0, 0))
	l.run(w, 0, 5*time.Second)
	alone := w.size
	for now := 5 * time.Second; now < 7*time.Second; now += 50 * time.Millisecond {
		l.free = max(l.free, now+60*time.Millisecond)
		l.run(w, now, now+50*time.Millisecond)
	}
	if w.size > alone/8 {
		t.Errorf("window of %d bytes beside a full queue, %d alone", w.size, alone)
	}
	l.run(w, 7*time.Second, 9*time.Second)
	if w.size < alone/2 {
		t.Errorf("window of %d bytes two seconds later, %d before", w.size, alone)
	}
	l.rtt = 60 * time.Millisecond
	l.run(w, 9*time.Second, 75*time.Second)
	if got := float64(l.run(w, 75*time.Second, 90*time.Second)) / 15 / l.rate; got < 0.6 {
		t.Errorf("%.0f %% of a link that has become longer", 100*got)
	}
}
