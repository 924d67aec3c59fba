package artifacts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNotesOnModels checks that spare portions and a licence outlast a restart, and what damaged ones are worth.
func TestNotesOnModels(t *testing.T) {
	s, m, _ := publish(t, testModel{layers: 3, seed: 6})
	if spare, err := m.Spare(); spare != nil || err != nil {
		t.Errorf("spare portions of a new model: %v, %v", spare, err)
	}
	if err := m.SetSpare([]int{1, 3}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "two\nlines", strings.Repeat("x", maxLicence+1)} {
		if err := m.SetLicence(bad); err == nil {
			t.Errorf("the licence %q is taken", bad)
		}
	}
	if got := m.Licence(); got != "" {
		t.Errorf("the header has no licence, but %q is said", got)
	}
	if err := m.SetLicence("CC BY 4.0"); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	m = mustGet(t, s, m.ID())
	if spare, err := m.Spare(); !slices.Equal(spare, []int{1, 3}) || err != nil {
		t.Errorf("spare portions after a restart: %v, %v", spare, err)
	}
	if got := m.Licence(); got != "CC BY 4.0" {
		t.Errorf("licence %q after a restart", got)
	}
	for _, damage := range []string{"", "{", `{"version":2,"portions":[1]}`, strings.Repeat(" ", 1<<16+1)} {
		if err := os.WriteFile(filepath.Join(m.dir, "spare"), []byte(damage), 0o644); err != nil {
			t.Fatal(err)
		}
		if spare, err := m.Spare(); spare != nil || err == nil {
			t.Errorf("spare portions of %.40q: %v, %v", damage, spare, err)
		}
	}
	if err := m.SetSpare(nil); err != nil {
		t.Fatal(err)
	}
	if spare, err := m.Spare(); spare != nil || err != nil {
		t.Errorf("spare portions when none are left: %v, %v", spare, err)
	}
}
