package swarm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTrusted(t *testing.T) {
	dir := t.TempDir()
	s := OpenSwarms(dir)
	a, b := Ephemeral().ID(), Ephemeral().ID()
	want := func(peers ...PeerID) {
		t.Helper()
		slices.Sort(peers)
		if got, err := s.Trusted(); err != nil || !slices.Equal(got, peers) {
			t.Errorf("listed are %v, %v; want %v", got, err, peers)
		}
	}
	want()
	for range 2 {
		if err := s.Trust([]PeerID{b, a}, false); err != nil {
			t.Fatal(err)
		}
		want(a, b)
	}
	if err := s.Trust([]PeerID{b}, true); err != nil {
		t.Fatal(err)
	}
	want(a)
	if err := s.Trust([]PeerID{b}, true); err == nil {
		t.Error("a peer that isn't listed is taken off the list")
	}
	if err := s.Trust([]PeerID{"someone"}, false); err == nil || !strings.Contains(err.Error(), "someone") {
		t.Errorf("no peer ID: %v", err)
	}
	want(a)
	if err := os.WriteFile(filepath.Join(dir, "swarms", "trusted"), []byte("a friend\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Trusted(); err == nil || !strings.Contains(err.Error(), "trusted") {
		t.Errorf("a damaged list: %v", err)
	}
}
