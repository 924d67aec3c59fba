package artifacts

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// contents returns the files of a folder, but for the lock, whose owner changes.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "lock" {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A store from before stores said their version is read as it is, and says it from then on.
func TestFormerStore(t *testing.T) {
	s, m, _ := publish(t, testModel{layers: 6, seed: 1})
	s.Close()
	path := filepath.Join(s.Dir(), formatFile)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.Dir())
	if m = mustGet(t, s, m.ID()); s.HashedBytes() != 0 || !m.Held().Whole || m.Problem() != nil {
		t.Errorf("hashed %d bytes, held %+v, %v", s.HashedBytes(), m.Held(), m.Problem())
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "1\n" {
		t.Errorf("afterwards its format is %q, %v", data, err)
	}
}

// What a newer build has written is refused, with what to do, and not one byte of it changes.
func TestNewerStore(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s *Store, m *Model)
		want   []string
	}{
		"store": {func(t *testing.T, s *Store, _ *Model) { put(t, filepath.Join(s.Dir(), formatFile), "2\n") },
			[]string{"it has format 2, this build reads 1", "update starling, or use another data folder"}},
		"record of a model": {func(t *testing.T, s *Store, m *Model) {
			put(t, filepath.Join(s.modelDir(m.ID()), "state"), `{"version":2,"files":{}}`)
		}, []string{"its record has format 2, this build reads 1", "update starling, or use another data folder"}},
		"no version": {func(t *testing.T, s *Store, _ *Model) { put(t, filepath.Join(s.Dir(), formatFile), "one") },
			[]string{`format says "one"`, "remove that file"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, m, _ := publish(t, testModel{layers: 6, seed: 1})
			s.Close()
			c.change(t, s, m)
			put(t, filepath.Join(s.modelDir(m.ID()), "state.tmp-1"), "half")
			before := contents(t, s.Dir())
			again, err := OpenStore(s.Dir())
			if err == nil {
				again.Close()
				t.Fatal("it is opened")
			}
			for _, w := range append(c.want, s.Dir()) {
				if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
					t.Errorf("the error is %q, without %q", err, w)
				}
			}
			if !maps.Equal(before, contents(t, s.Dir())) {
				t.Error("something in it was changed")
			}
		})
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
