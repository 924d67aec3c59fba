package node

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// A loss counts for less and less, and is forgotten.
func TestLossesDecay(t *testing.T) {
	var l losses
	now := time.Unix(1e9, 0)
	if got := l.perHour("a", now); got != 0 {
		t.Errorf("an unknown peer is lost %g times an hour", got)
	}
	l.note("a", now)
	first := l.perHour("a", now)
	if want := 6 * math.Ln2; math.Abs(first-want) > 1e-9 {
		t.Errorf("just lost: %g times an hour, want %g", first, want)
	}
	if got := l.perHour("a", now.Add(lossHalf)); math.Abs(got-first/2) > 1e-9 {
		t.Errorf("after %v: %g, before %g", lossHalf, got, first)
	}
	l.note("a", now.Add(lossHalf))
	if got := l.perHour("a", now.Add(lossHalf)); math.Abs(got-1.5*first) > 1e-9 {
		t.Errorf("lost again: %g, before %g", got, first)
	}
	if got := l.perHour("a", now.Add(-time.Hour)); got > 1.5*first {
		t.Errorf("with the clock set back: %g", got)
	}
	if got := l.perHour("a", now.Add(24*time.Hour)); got != 0 || len(l.peers) != 0 {
		t.Errorf("a day later: %g, and %d peers are remembered", got, len(l.peers))
	}
}

// Peers that are lost a steady number of times an hour come out as such.
func TestLossesTellARate(t *testing.T) {
	var l losses
	now := time.Unix(1e9, 0)
	for range 600 {
		l.note("a", now)
		now = now.Add(time.Minute)
	}
	if got := l.perHour("a", now.Add(-30*time.Second)); math.Abs(got-60) > 1 {
		t.Errorf("lost once a minute: %g times an hour", got)
	}
}

func TestLossesAreBounded(t *testing.T) {
	var l losses
	now := time.Unix(1e9, 0)
	l.note("often", now)
	l.note("often", now)
	for i := range 2 * maxLosses {
		l.note(fmt.Sprint(i), now.Add(time.Duration(i)))
	}
	if len(l.peers) != maxLosses || l.perHour("often", now) == 0 {
		t.Errorf("%d peers are remembered, and one that was lost twice is %g times an hour", len(l.peers), l.perHour("often", now))
	}
}
