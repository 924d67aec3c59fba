package node

import (
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

func TestTicks(t *testing.T) {
	wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for name, c := range map[string]struct{ mono, wall, late, missed time.Duration }{
		"in time":                         {pingInterval, pingInterval, 0, 0},
		"the machine was busy":            {3 * time.Second, 3 * time.Second, 3*time.Second - pingInterval, 0},
		"the process was stopped":         {day, day, day - pingInterval, 0},
		"the machine slept":               {pingInterval, day, day - pingInterval, day - pingInterval},
		"it slept, and was stopped":       {time.Hour, day, day - pingInterval, day - time.Hour},
		"the wall clock was set back":     {pingInterval, -day, 0, 0},
		"… while the process was stopped": {time.Hour, -day, time.Hour - pingInterval, 0},
	} {
		ticks := ticks{time.Minute, wall, pingInterval}
		late, missed := ticks.next(time.Minute+c.mono, wall.Add(c.wall))
		if late != c.late || missed != c.missed {
			t.Errorf("%s: %v late, %v of it missed, want %v and %v", name, late, missed, c.late, c.missed)
		}
		if late, missed := ticks.next(time.Minute+c.mono+pingInterval, wall.Add(c.wall+pingInterval)); late != 0 || missed != 0 {
			t.Errorf("%s: the tick after it is %v late, missed %v", name, late, missed)
		}
	}
}

func TestDeadlines(t *testing.T) {
	now := time.Unix(100, 0)
	d := deadlines{now: now, next: now.Add(pingInterval)}
	for _, c := range []struct {
		at     time.Duration
		passed bool
		next   time.Duration // when the timer fires after that
	}{
		{time.Second, false, pingInterval},
		{300 * time.Millisecond, false, 300 * time.Millisecond},
		{400 * time.Millisecond, false, 300 * time.Millisecond},
		{0, true, 300 * time.Millisecond},
		{-time.Hour, true, 300 * time.Millisecond},
		{1, false, 1},
	} {
		if passed := d.passed(now.Add(c.at)); passed != c.passed || !d.next.Equal(now.Add(c.next)) {
			t.Errorf("a deadline in %v: passed %v, the next one in %v; want %v, %v", c.at, passed, d.next.Sub(now), c.passed, c.next)
		}
	}
}

// A watch that is waited for too long says how late it is, and goes on from there.
func TestWatch(t *testing.T) {
	w := newWatch()
	defer w.Stop()
	time.Sleep(pingInterval + 2*lateTick)
	<-w.C
	late, missed, pings, due := w.tick()
	if late < 2*lateTick || missed > time.Second || !pings || due.next.Before(due.now) {
		t.Errorf("late %v, missed %v, pings %v, next in %v", late, missed, pings, due.next.Sub(due.now))
	}
	soon := due.now.Add(20 * time.Millisecond)
	due.passed(soon)
	w.sleep(due)
	<-w.C
	planned := w.last.wait
	if _, _, _, due := w.tick(); planned != 20*time.Millisecond || due.now.Before(soon) {
		t.Errorf("woken %v after a deadline, planned in %v", due.now.Sub(soon), planned)
	}
}

// TestWakingNode has a stage and a decoder sleep in the middle of sessions: after a moment nothing changes, after more than a lease their
// parts in others' sessions are over, which end with the same bytes elsewhere, and what they offer has a new number.
func TestWakingNode(t *testing.T) {
	s := newSlowNet(t)
	want, err := s.run(testContext(t), s.client, s.id, s.k, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		sleeper *Node
		slept   time.Duration
		lost    bool
	}{
		"a stage, a moment":   {s.second, wakeAfter + time.Second, false},
		"a stage, a night":    {s.second, 8 * time.Hour, true},
		"the decoder":         {s.decoder, 8 * time.Hour, true},
		"a node without part": {s.spare, 8 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			seq := func() (seq uint64) {
				for _, o := range s.client.host.Offers() {
					if o.Peer == c.sleeper.ID() {
						seq = o.Seq
					}
				}
				return seq
			}
			var before uint64
			eventually(t, "the offer", func() bool { _ = s.client.host.Refresh(t.Context()); before = seq(); return before > 0 })
			slept := false
			s.gates[s.decoder].hold(8)
			got, err := s.run(testContext(t), s.client, s.id, s.k, func(ev control.Event) error {
				if ev.Phase == "prefill" && !slept {
					slept = true
					c.sleeper.wake(c.slept, 0)
					s.gates[s.decoder].release()
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			sameAnswer(t, got, want)
			if lost := len(got.Recovered) > 0; lost != c.lost {
				t.Errorf("recovered: %v", got.Recovered)
			}
			eventually(t, "a newer offer", func() bool { return seq() > before })
			s.mustBeIdle()
		})
	}
}

// A run of a node's own survives its sleep.
func TestWakingClient(t *testing.T) {
	s := newSlowNet(t)
	want, err := s.run(testContext(t), s.client, s.id, s.k, nil)
	if err != nil {
		t.Fatal(err)
	}
	slept := false
	got, err := s.run(testContext(t), s.decoder, s.id, s.k, func(ev control.Event) error {
		if ev.Phase == "prefill" && !slept {
			slept = true
			s.decoder.wake(time.Hour, 0)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sameAnswer(t, got, want)
	s.mustBeIdle()
}
