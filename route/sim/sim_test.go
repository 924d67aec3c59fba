package sim

import (
	"reflect"
	"strings"
	"testing"
)

// TestSmall plays a short scenario twice: nothing goes wrong, and nothing is different.
func TestSmall(t *testing.T) {
	s, err := Builtin("small")
	if err != nil {
		t.Fatal(err)
	}
	s.Minutes, s.WarmupMinutes, s.Trackers = 4, 1, 4
	r, err := Run(s, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Sessions < 10 || r.Failed > 0 || r.UncoveredLayerSeconds > 0 || r.WorstHolders < 2 {
		t.Errorf("%d sessions ended well, %d failed (%v), %g layer-seconds uncovered, %d holders at worst", r.Sessions, r.Failed, r.Failures, r.UncoveredLayerSeconds, r.WorstHolders)
	}
	if !(r.PeerBytesPerSec.Mean > 10 && r.PeerBytesPerSec.Mean < 2000) || r.TrackerBytesPerSec.Mean < r.PeerBytesPerSec.Mean || r.SessionBytes < 1000 {
		t.Errorf("control traffic: peers %v, trackers %v, %g bytes a session", r.PeerBytesPerSec, r.TrackerBytesPerSec, r.SessionBytes)
	}
	again, err := Run(s, nil, nil)
	if err != nil || !reflect.DeepEqual(r, again) {
		t.Errorf("the same scenario gives %+v and then %+v, %v", r, again, err)
	}
}

// TestStorm lets machines stay for minutes: sessions lose peers and go on.
func TestStorm(t *testing.T) {
	s, err := Builtin("small")
	if err != nil {
		t.Fatal(err)
	}
	s.Minutes, s.WarmupMinutes, s.ChurnPerHour, s.Abrupt, s.NewTokens, s.Sessions = 10, 2, 12, 1, 1000, 4
	r, err := Run(s, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Losses == 0 || r.Recovered == 0 {
		t.Errorf("with peers that stay for 5 minutes, sessions lose %d and %d go on", r.Losses, r.Recovered)
	}
	if len(r.Series) != 10 || r.Series[9].Peers < 50 {
		t.Errorf("the series has %d points: %+v", len(r.Series), r.Series)
	}
}

func TestScenarios(t *testing.T) {
	for _, name := range BuiltinNames() {
		if s, err := Builtin(name); err != nil || s.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Builtin("none"); err == nil || !strings.Contains(err.Error(), "small") {
		t.Errorf("an unknown scenario: %v", err)
	}
	data, _ := scenarios.ReadFile("scenarios/small.json")
	for old, bad := range map[string]string{`"peers": 100`: `"peers": 1e9`, `"minutes": 10`: `"minutes": -1`, `"seed"`: `"sead"`, `"share": 0.5`: `"share": -1`, `"layers": 12`: `"layers": 0`} {
		text := strings.Replace(string(data), old, bad, 1)
		if text == string(data) {
			t.Fatalf("%s isn't there", old)
		}
		if _, err := ParseScenario([]byte(text)); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestTimeline(t *testing.T) {
	var l timeline
	var got []int
	note := func(i int) func() { return func() { got = append(got, i) } }
	l.after(2, note(3))
	l.after(1, func() { note(1)(); l.after(0, note(2)) })
	l.after(5, note(5))
	l.after(2, note(4))
	l.run(3)
	if !reflect.DeepEqual(got, []int{1, 2, 3, 4}) || l.now != 3 {
		t.Errorf("%v at %g", got, l.now)
	}
}
