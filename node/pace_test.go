package node

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	now := time.Unix(0, 0)
	after := func(d time.Duration) time.Time { return now.Add(d) }
	never := func(string) time.Time { return time.Time{} }
	const silence = 2 * time.Second
	for _, c := range []struct {
		name  string
		play  func(p *pace)
		bulk  time.Duration // when bytes last came; 0: never
		until time.Duration // it is late from then on; 0: never
	}{
		{"nobody is waited for", func(p *pace) { p.set(1, 0, "", 0, now) }, 0, 0},
		{"it must open", func(p *pace) { p.set(1, 0, "a", 0, now) }, 0, openTimeout},
		{"its first chunk", func(p *pace) { p.set(1, 0, "a", 64, now) }, 0, openTimeout},
		{"at work on its first chunk", func(p *pace) {
			p.set(1, 0, "a", 64, now)
			for i := range 1000 {
				p.set(1, 1+i, "a", 64, after(time.Duration(i)*time.Second))
			}
		}, 0, stallTimeout + 64*stallPosition},
		{"a quick one", func(p *pace) {
			p.set(1, 0, "a", 64, now.Add(-time.Second))
			p.set(2, 0, "a", 64, now)
		}, 0, 3 * time.Second},
		{"a very quick one", func(p *pace) {
			p.set(1, 0, "a", 64, now.Add(-time.Millisecond))
			p.set(2, 0, "a", 64, now)
		}, 0, silence},
		{"a slow one before", func(p *pace) {
			p.set(1, 0, "a", 64, now.Add(-21*time.Second))
			p.set(2, 0, "b", 64, now.Add(-time.Second))
			p.set(3, 0, "b", 32, now)
		}, 0, 30 * time.Second},
		{"somebody else's turn", func(p *pace) {
			p.set(1, 0, "a", 1, now.Add(-11*time.Second))
			p.set(2, 0, "", 0, now.Add(-10*time.Second))
			p.set(2, 0, "a", 1, now)
		}, 0, 3 * time.Second},
		{"seams come", func(p *pace) {
			p.set(1, 0, "a", 1, now.Add(-time.Millisecond))
			p.set(2, 0, "a", 1, now)
		}, 5 * time.Second, 7 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p pace
			c.play(&p)
			bulk := never
			if c.bulk > 0 {
				bulk = func(string) time.Time { return after(c.bulk) }
			}
			if c.until == 0 {
				if p.peer != "" {
					t.Errorf("%s is waited for", p.peer)
				}
				return
			}
			if at := p.deadline(silence, bulk); p.peer == "" || !at.Equal(after(c.until)) {
				t.Errorf("%q is late after %v, want %v", p.peer, at.Sub(now), c.until)
			}
		})
	}
}
