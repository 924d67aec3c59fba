package node

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm/wire"
)

func TestHours(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("no time zones here: %v", err)
	}
	at := func(text string) time.Time {
		at, err := time.ParseInLocation("2006-01-02 15:04", text, zone)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, test := range []struct {
		hours, at string
		open      bool
	}{
		{"22:00-07:00", "2027-01-10 21:59", false},
		{"22:00-07:00", "2027-01-10 22:00", true},
		{"22:00-07:00", "2027-01-11 00:00", true},
		{"22:00-07:00", "2027-01-11 06:59", true},
		{"22:00-07:00", "2027-01-11 07:00", false},
		{"09:00-17:00", "2027-01-11 09:00", true},
		{"09:00-17:00", "2027-01-11 17:00", false},
		{"0:00-24:00", "2027-01-11 23:59", true},
		{"18:00-24:00", "2027-01-11 23:59", true},
		{"18:00-24:00", "2027-01-11 00:00", false},
		{"06:00-08:00, 20:00-22:30", "2027-01-11 22:29", true},
		{"06:00-08:00, 20:00-22:30", "2027-01-11 12:00", false},
	} {
		h, err := ParseHours(test.hours)
		if err != nil || h.open(at(test.at)) != test.open {
			t.Errorf("%s at %s: open is %v, %v", test.hours, test.at, h.open(at(test.at)), err)
		}
		if again, err := ParseHours(h.String()); err != nil || again.String() != h.String() {
			t.Errorf("%s is written as %s: %v", test.hours, h, err)
		}
	}
	if !(Hours)(nil).open(at("2027-01-11 12:00")) {
		t.Error("no hours are never")
	}
	for _, bad := range []string{"", "22", "22:00", "22:00-", "-07:00", "22:00-22:00", "25:00-07:00", "22:60-07:00", "24:00-07:00", "24:01-1:00", "22:00-07:00,", "a:b-c:d", "-1:00-2:00"} {
		if h, err := ParseHours(bad); err == nil {
			t.Errorf("%q is read as %v", bad, h)
		}
	}

	// The night in which clocks are put forward has no 02:30, that in which they are put back has it twice.
	h, _ := ParseHours("01:00-04:00")
	forward, back := at("2027-03-28 01:00"), at("2027-10-31 01:00")
	for night, want := range map[time.Time]int{forward: 2 * 60, back: 4 * 60} {
		open := 0
		for m := range 6 * 60 {
			if h.open(night.Add(time.Duration(m) * time.Minute)) {
				open++
			}
		}
		if open != want {
			t.Errorf("on %s it works for %d minutes, not %d", night.Format(time.DateOnly), open, want)
		}
	}
}

func FuzzParseHours(f *testing.F) {
	for _, s := range []string{"22:00-07:00", "6:00-8:00, 20:00-22:30", "0:00-24:00", "24:00-1:00", "1-2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHours(s)
		if err != nil {
			return
		}
		if again, err := ParseHours(h.String()); err != nil || again.String() != h.String() {
			t.Errorf("%q is written as %q: %v", s, h, err)
		}
	})
}

func TestPower(t *testing.T) {
	for name, test := range map[string]struct {
		files          map[string]string
		battery, known bool
	}{
		"desktop":            {map[string]string{"AC/type": "Mains", "AC/online": "1"}, false, true},
		"laptop, plugged in": {map[string]string{"AC/type": "Mains", "AC/online": "1", "BAT0/type": "Battery", "BAT0/status": "Charging"}, false, true},
		"laptop, unplugged":  {map[string]string{"AC/type": "Mains", "AC/online": "0", "BAT0/type": "Battery", "BAT0/status": "Discharging"}, true, true},
		"weak charger":       {map[string]string{"AC/type": "USB", "AC/online": "1", "BAT0/type": "Battery", "BAT0/status": "Discharging"}, false, true},
		"battery alone":      {map[string]string{"BAT0/type": "Battery", "BAT0/status": "Discharging"}, true, true},
		"full":               {map[string]string{"BAT0/type": "Battery", "BAT0/status": "Full"}, false, true},
		"a mouse's":          {map[string]string{"hid/type": "Battery", "hid/scope": "Device", "hid/status": "Discharging"}, false, false},
		"nothing":            {nil, false, false},
	} {
		dir := t.TempDir()
		for path, text := range test.files {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if battery, known := power(dir); battery != test.battery || known != test.known {
			t.Errorf("%s: on battery %v, known %v", name, battery, known)
		}
	}
	if _, known := power("/no/such/folder"); known {
		t.Error("a missing folder tells something")
	}
}

func TestMetered(t *testing.T) {
	for text, want := range map[string][2]bool{"u 1\n": {true, true}, "u 3": {true, true}, "u 2\n": {false, true}, "u 4": {false, true}, "u 0\n": {}, "": {}, "s x": {}} {
		if yes, known := parseMetered(text); yes != want[0] || known != want[1] {
			t.Errorf("%q: %v, %v", text, yes, known)
		}
	}
}

// A node whose terms forbid work has no offer and refuses sessions, says why, and is back when they allow it; a resume doesn't
// change that.
func TestTerms(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	var battery atomic.Bool
	n := tn.start(func(c *Config) {
		c.Terms, c.termsEvery = Terms{Battery: true, Metered: true}, 5*time.Millisecond
		c.look = func(context.Context) surroundings {
			return surroundings{now: time.Now(), battery: battery.Load(), batteryKnown: true}
		}
	})
	tn.serve(n, id, 0, tn.layers())
	client := tn.start(func(c *Config) { c.Client = true })
	ctx := testContext(t)
	offered := func() bool {
		_ = client.host.Refresh(ctx)
		p, _ := client.planPeers(id)
		return len(p) == 1
	}
	eventually(t, "the offer", offered)
	if _, err := tn.run(ctx, client, id, control.Constraints{}, nil); err != nil {
		t.Fatal(err)
	}
	battery.Store(true)
	eventually(t, "the offer's end", func() bool { return !offered() })
	st, err := n.Control().Status(ctx)
	if err != nil || st.Standing != "paused" || st.Terms == nil || st.Terms.Away != "it runs on its battery" || len(st.Problems) != 1 {
		t.Errorf("status on battery: %+v, %+v, problems %q, %v", st.Standing, st.Terms, st.Problems, err)
	}
	n.sessions.Lock()
	r := n.refusalLocked()
	n.sessions.Unlock()
	if r == nil || r.Code != wire.CodeLeaving {
		t.Errorf("a session on battery: %v", r)
	}
	if err := n.Resume(); err == nil {
		t.Error("resume says nothing of the battery")
	}
	battery.Store(false)
	eventually(t, "the offer again", offered)
	if _, err := tn.run(ctx, client, id, control.Constraints{}, nil); err != nil {
		t.Fatal(err)
	}
}
