package runtime

import (
	"testing"
	"time"
)

func TestParseBusy(t *testing.T) {
	for _, c := range []struct {
		stat string
		want time.Duration
		ok   bool
	}{
		{"cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7\n", 163 * tick, true},
		{"cpu 1 0 0 9 9 0 0\n", tick, true},
		{"cpu 1 0 0 9 9 0\n", 0, false},
		{"cpu0 1 2 3 4 5 6 7\n", 0, false},
		{"", 0, false},
	} {
		if got, ok := parseBusy([]byte(c.stat)); ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %v, %v", c.stat, got, ok)
		}
	}
}

// TestOthers checks that what this process does is not taken for others' work, and that real figures are read.
func TestOthers(t *testing.T) {
	o := newOthers()
	if o.processors < 1 {
		t.Fatal("no processors")
	}
	if busy, own, ok := o.times(); !ok || busy <= 0 || own < 0 {
		t.Fatalf("%v, %v, %v", busy, own, ok)
	}
	o.processors = 8
	now := time.Now()
	if got := o.limit(6, now); got != 6 {
		t.Errorf("%d threads at the first look", got)
	}
	got := 0
	for tries := 0; tries < 1000 && got != 5; tries++ { // again where others really were at work between two looks
		for range 20 { // others use three processors, this process uses all it has: as time would have passed
			o.busy, o.own = o.busy-(3+5)*time.Second, o.own-5*time.Second
			o.looked = now.Add(-time.Second)
			o.limit(6, now)
		}
		got = o.limit(6, now)
	}
	if got != 5 {
		t.Errorf("%d threads beside others on %.2f of 8 processors", got, o.load)
	}
	if got := o.limit(2, now); got != 2 {
		t.Errorf("%d threads where 2 are wanted", got)
	}
	o.load = 8
	if got := o.limit(6, now); got != 1 {
		t.Errorf("%d threads beside others on all processors", got)
	}
}
