package swarm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSwarmsStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := OpenSwarms(dir)
	if l, err := s.List(); err != nil || len(l) != 0 {
		t.Errorf("an empty folder lists %v, %v", l, err)
	}
	boot := []string{"/ip4/192.0.2.1/tcp/4141/p2p/" + Ephemeral().ID()}
	pub, err := CreateSwarm(dir, "open house", true, boot)
	if err != nil {
		t.Fatal(err)
	}
	prv, err := CreateSwarm(dir, "friends", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	twin, err := CreateSwarm(dir, "friends", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(pub.ID, "pub-") || !strings.HasPrefix(prv.ID, "prv-") || prv.Public || !pub.Public || prv.Owner == "" || pub.Owner != "" {
		t.Errorf("made %+v and %+v", pub, prv)
	}
	for _, want := range []*Info{pub, prv, twin} {
		got, err := s.Load(want.ID)
		if err != nil || got.ID != want.ID || got.Name != want.Name || got.Owner != want.Owner || !slices.Equal(got.Bootstrap, want.Bootstrap) {
			t.Errorf("loaded %+v, %v, want %+v", got, err, want)
		}
	}
	if got, err := s.Load("open house"); err != nil || got.ID != pub.ID {
		t.Errorf("by name: %v, %v", got, err)
	}
	if _, err := s.Load("friends"); err == nil || !containsAll(err.Error(), prv.ID, twin.ID) {
		t.Errorf("an ambiguous name: %v", err)
	}
	if _, err := s.Load("nobody"); err == nil {
		t.Error("an unknown name is found")
	}
	if _, err := s.Load(privateID("x")); err == nil || !strings.Contains(err.Error(), "invite") {
		t.Errorf("an unknown ID: %v", err)
	}
	l, err := s.List()
	if err != nil || len(l) != 3 || l[2].ID != pub.ID {
		t.Errorf("list %v, %v", l, err)
	}
	// A damaged description is named.
	bad := filepath.Join(dir, "swarms", pub.ID+".json")
	for _, content := range []string{"{", `{"id":"../../x","name":"x","public":true}`, `{"id":"` + pub.ID + `","name":"x","public":false}`, `{"id":"` + prv.ID + `","name":"x","owner":"` + Ephemeral().ID() + `"}`} {
		if err := os.WriteFile(bad, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.List(); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("description %s: %v", content, err)
		}
	}
}

func TestCreateSwarmRefuses(t *testing.T) {
	t.Parallel()
	for _, public := range []bool{true, false} {
		for name, c := range map[string]struct {
			name string
			boot []string
		}{
			"no name":      {"", nil},
			"long name":    {strings.Repeat("x", 65), nil},
			"control":      {"a\nb", nil},
			"not UTF-8":    {"\xff", nil},
			"no peer":      {"x", []string{"/ip4/127.0.0.1/tcp/1"}},
			"no multiaddr": {"x", []string{"example.org:4141"}},
		} {
			dir := t.TempDir()
			if _, err := CreateSwarm(dir, c.name, public, c.boot); err == nil {
				t.Errorf("public %v, %s: no error", public, name)
			}
			if l, _ := OpenSwarms(dir).List(); len(l) != 0 {
				t.Errorf("public %v, %s: left %v", public, name, l)
			}
		}
	}
}

func TestPublicInvite(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	boot := []string{"/ip4/192.0.2.1/tcp/4141/p2p/" + Ephemeral().ID()}
	own := "/ip4/192.0.2.2/tcp/4141/p2p/" + Ephemeral().ID()
	info, err := CreateSwarm(dir, "open house", true, boot)
	if err != nil {
		t.Fatal(err)
	}
	token, err := OpenSwarms(dir).CreateInvite("open house", 0, 0, []string{own})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // any number of peers, without contact
		got, err := Join(testCtx(t), Ephemeral(), token, other)
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != info.ID || got.Name != info.Name || !slices.Equal(got.Bootstrap, []string{own, boot[0]}) {
			t.Errorf("joined %+v", got)
		}
	}
}
