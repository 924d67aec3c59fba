package node

import (
	"testing"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

func TestPace(t *testing.T) {
	now := time.Unix(0, 0)
	after := func(d time.Duration) time.Time { return now.Add(d) }
	const silence = 2 * time.Second
	type done = map[string]stageWork
	for _, c := range []struct {
		name  string
		play  func(p *pace)
		sign  time.Duration // when bytes last came; 0: never
		until time.Duration // it is late from then on; 0: never
	}{
		{"nobody is waited for", func(p *pace) { p.set(nil, "", 0, now) }, 0, 0},
		{"it must open", func(p *pace) { p.set(nil, "a", 0, now) }, 0, openTimeout},
		{"another one has opened meanwhile", func(p *pace) {
			p.set(nil, "a", 0, now)
			p.set(done{"b": {1, 0}}, "a", 0, after(time.Second))
		}, 0, openTimeout},
		{"its first chunk", func(p *pace) { p.set(nil, "a", 64, now) }, 0, openTimeout},
		{"its first chunk, as it should be quick", func(p *pace) {
			p.reckon("a", reckoned{once: time.Millisecond, each: time.Millisecond})
			p.set(nil, "a", 64, now)
		}, 0, silence},
		{"its first chunk, as it should be slow", func(p *pace) {
			p.reckon("a", reckoned{once: time.Second, each: time.Second})
			p.set(nil, "a", 64, now)
		}, 0, 3 * 65 * time.Second},
		{"its first chunk behind a quick one", func(p *pace) {
			p.reckon("b", reckoned{each: 100 * time.Millisecond})
			p.set(nil, "a", 64, now.Add(-time.Millisecond))
			p.set(done{"a": {1, 1}}, "b", 64, now)
		}, 0, 3 * 6400 * time.Millisecond},
		{"it must open, and should be quick", func(p *pace) {
			p.reckon("a", reckoned{each: time.Millisecond})
			p.set(nil, "a", 0, now)
		}, 0, openTimeout},
		{"slower than its offer said", func(p *pace) {
			p.reckon("a", reckoned{each: time.Millisecond})
			p.set(nil, "a", 64, now.Add(-time.Second))
			p.set(done{"a": {1, 1}}, "a", 64, now)
		}, 0, 3 * time.Second},
		{"at work on its first chunk", func(p *pace) {
			p.set(nil, "a", 64, now)
			for i := range 1000 {
				p.set(done{"a": {0, 1 + i}}, "a", 64, after(time.Duration(i)*time.Second))
			}
		}, 0, stallTimeout + 64*stallPosition},
		{"a quick one", func(p *pace) {
			p.set(nil, "a", 64, now.Add(-time.Second))
			p.set(done{"a": {1, 1}}, "a", 64, now)
		}, 0, 3 * time.Second},
		{"a very quick one", func(p *pace) {
			p.set(nil, "a", 64, now.Add(-time.Millisecond))
			p.set(done{"a": {1, 1}}, "a", 64, now)
		}, 0, silence},
		{"others get on before it", func(p *pace) {
			p.set(nil, "b", 64, now.Add(-time.Millisecond))
			p.set(done{"b": {1, 1}}, "b", 64, now)
			p.set(done{"a": {2, 2}, "b": {1, 1}}, "b", 64, after(time.Second))
			p.set(done{"a": {2, 9}, "b": {1, 1}}, "b", 64, after(1500*time.Millisecond))
		}, 0, silence},
		{"a slow one before, and nothing is known of this one", func(p *pace) {
			p.set(nil, "a", 64, now.Add(-20*time.Second))
			p.set(done{"a": {1, 1}}, "b", 32, now)
		}, 0, 30 * time.Second},
		{"a slow one before", func(p *pace) {
			p.set(nil, "a", 64, now.Add(-21*time.Second))
			p.set(done{"a": {1, 1}}, "b", 32, now.Add(-time.Second))
			p.set(done{"a": {1, 1}, "b": {1, 1}}, "b", 32, now)
		}, 0, 3 * time.Second},
		{"somebody else's turn", func(p *pace) {
			p.set(nil, "a", 1, now.Add(-11*time.Second))
			p.set(done{"a": {1, 1}}, "", 0, now.Add(-10*time.Second))
			p.set(done{"a": {1, 1}}, "a", 1, now)
		}, 0, 3 * time.Second},
		{"seams come", func(p *pace) {
			p.set(nil, "a", 1, now.Add(-time.Millisecond))
			p.set(done{"a": {1, 1}}, "a", 1, now)
		}, 5 * time.Second, 7 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p pace
			c.play(&p)
			sign := func(_ string, since time.Time) time.Time { return newer(since, now.Add(-time.Hour)) }
			if c.sign > 0 {
				sign = func(_ string, since time.Time) time.Time { return newer(since, after(c.sign)) }
			}
			if c.until == 0 {
				if p.peer != "" {
					t.Errorf("%s is waited for", p.peer)
				}
				return
			}
			if at := p.deadline(silence, sign); p.peer == "" || !at.Equal(after(c.until)) {
				t.Errorf("%q is late after %v, want %v", p.peer, at.Sub(now), c.until)
			}
		})
	}
}

func TestExpectedChunkTime(t *testing.T) {
	c := tempo{}
	want := func(peer string, positions int, took time.Duration) {
		t.Helper()
		if got := c.expected(peer, positions); got != took {
			t.Errorf("%d positions of %s: %v, want %v", positions, peer, got, took)
		}
	}
	want("a", 64, 0)
	c.add("a", 1, 300*time.Millisecond)
	want("a", 64, 64*300*time.Millisecond) // nothing else is known
	c.add("a", 64, 640*time.Millisecond)
	want("a", 64, 640*time.Millisecond)
	want("a", 1, 300*time.Millisecond)
	want("a", 16, 160*time.Millisecond)
	want("b", 64, 640*time.Millisecond)
	c.add("b", 1, 10*time.Millisecond)
	want("b", 1, 10*time.Millisecond)
	want("b", 64, 640*time.Millisecond)
	c.add("a", 65, 65*time.Second)
	want("a", 64, 64*time.Second) // the slowest one
	for range lateSamples {
		c.add("a", 64, 64*time.Millisecond)
	}
	want("a", 64, 64*time.Millisecond) // that was once
	delete(c, "a")
	want("b", 64, 640*time.Millisecond)
}

// waitingFor returns a decoder's session over two stages, A and B, both of which have opened and were last heard at heard. Since begun it waits for B.
func waitingFor(begun time.Time) *decoderSession {
	s := &decoderSession{opened: begun.Add(-time.Minute), m: &decoding{closing: map[string]account{}, plan: &wire.Plan{Stages: []wire.PlanStage{{Peer: "A", Last: 1}, {Peer: "B", First: 1, Last: 2}}}}}
	s.route.set(nil, "B", 1, begun.Add(-time.Millisecond))
	s.route.set(map[string]stageWork{"B": {1, 1}}, "B", 1, begun)
	return s
}

// overdue returns who is lost some time after an instant, and which deadline comes next.
func overdue(s *decoderSession, at time.Time, word map[string]time.Time, large map[string]time.Time) (peers string, next time.Time) {
	due := deadlines{now: at, next: at.Add(time.Hour)}
	for _, l := range s.overdueLocked(&due, DefaultSilence, func(p string) time.Time { return word[p] },
		func(p string, since time.Time) time.Time { return newer(since, large[p]) }) {
		peers += l.peer
	}
	return peers, due.next
}

// A stage that stalls may just have told of a chunk whose seam never left it. The one behind it then gets nothing done for longer than the first
// is silent, and isn't to blame.
func TestStageBehindStalledOne(t *testing.T) {
	begun := time.Unix(100, 0)
	s := waitingFor(begun)
	stalled := begun.Add(5 * time.Millisecond) // A's last word
	for d := pingInterval; ; d += 10 * time.Millisecond {
		at := begun.Add(d)
		lost, next := overdue(s, at, map[string]time.Time{"A": stalled, "B": at}, nil)
		if late := !at.Before(stalled.Add(DefaultSilence)); lost != "" || late {
			if lost != "A" || !late {
				t.Errorf("%v after the last word of A %q is lost, want A after %v", at.Sub(stalled), lost, DefaultSilence)
			}
			break
		}
		if next.After(stalled.Add(DefaultSilence)) {
			t.Fatalf("%v after the last word of A nobody looks before %v have passed", at.Sub(stalled), next.Sub(stalled))
		}
	}
	at := begun.Add(DefaultSilence)
	if lost, _ := overdue(s, at, map[string]time.Time{"A": at.Add(-pingInterval), "B": at}, nil); lost != "B" {
		t.Errorf("where A speaks and B does nothing, %q is lost", lost)
	}
}

// What a peer sends for other sessions, on its streams of rows, is no sign for one whose words don't come.
func TestStageSilentBesideOthers(t *testing.T) {
	begun := time.Unix(100, 0)
	s := waitingFor(begun)
	at := begun.Add(DefaultSilence)
	if lost, _ := overdue(s, at, map[string]time.Time{"A": begun, "B": at}, nil); lost != "A" {
		t.Errorf("%q is lost, want the silent one", lost)
	}
	s.rows.note("A", at.Add(-time.Second)) // rows of this session
	s.rows.note("B", at.Add(-time.Second))
	if lost, next := overdue(s, at, map[string]time.Time{"A": begun, "B": at}, nil); lost != "" || !next.Equal(at.Add(DefaultSilence-time.Second)) {
		t.Errorf("%q is lost in spite of rows, the next deadline is in %v", lost, next.Sub(at))
	}
}

func TestHoldUp(t *testing.T) {
	n := &Node{links: &links{meter: newMeter()}}
	n.live.peers = map[string]*signs{}
	since := time.Now().Add(-time.Minute)
	n.hear("a", fragment{words: true})
	if at := n.holdUp("a", since); !at.Equal(since) {
		t.Errorf("small frames hold a session up for %v", at.Sub(since))
	}
	n.hear("a", fragment{large: true})
	if at := n.holdUp("a", since); !at.Equal(n.signsOf("a").large) {
		t.Errorf("on a link that nobody has measured large frames hold a session up for %v", at.Sub(since))
	}
	n.links.meter.fromLocked("a").rates = []float64{aheadBytes}
	if at := n.holdUp("a", since); !at.Equal(since.Add(time.Second)) {
		t.Errorf("large frames hold a session up for %v, the link brings %d bytes in 1s", at.Sub(since), aheadBytes)
	}
}
