package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// Publish makes a model on this machine known to the store without copying it: the files are read
// once, to be hashed, and recorded where they are. They must not be changed afterwards. paths is
// any file of the model; parts of a split model lie beside it, and may be named too. Publishing the
// same unchanged files again reads nothing. progress is as for [Build].
//
// Files that are not a model to run alone (a LoRA adapter, an mmproj file, a vocabulary) are
// refused.
func (s *Store) Publish(ctx context.Context, paths []string, progress func(done, total int64)) (*Model, error) {
	m, err := s.publish(ctx, paths, progress)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	return m, nil
}

func (s *Store) publish(ctx context.Context, paths []string, progress func(done, total int64)) (*Model, error) {
	files, err := s.findParts(paths)
	if err != nil {
		return nil, err
	}
	stamps, err := stampAll(files)
	if err != nil {
		return nil, err
	}
	if m := s.publishedAs(files, stamps); m != nil {
		return m, nil
	}
	man, infos, err := Build(ctx, files, progress)
	if err != nil {
		return nil, err
	}
	s.hashed.Add(man.TotalBytes())
	after, err := stampAll(files)
	if err != nil {
		return nil, err
	}
	for i := range stamps {
		if after[i] != stamps[i] {
			return nil, fmt.Errorf("%s: the file changed while it was read: publish it again when nobody writes to it", files[i])
		}
	}
	m, err := s.AddBundle(&Bundle{Manifest: man, Torrents: infos})
	if err != nil {
		return nil, err
	}
	if err := m.amend(nil, infos); err != nil {
		return nil, err
	}
	return m, m.adopt(files, stamps)
}

// findParts returns the absolute paths of all parts of the model that paths belong to.
func (s *Store) findParts(paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, errors.New("no file was named")
	}
	set, err := gguf.OpenSet(paths[0])
	if err != nil {
		return nil, err
	}
	if _, err := NewCard(set); err != nil {
		return nil, err
	}
	files := make([]string, len(set.Parts))
	infos := make([]os.FileInfo, len(files))
	for i, p := range set.Parts {
		if files[i], err = filepath.Abs(p.Path); err != nil {
			return nil, err
		}
		if infos[i], err = os.Stat(files[i]); err != nil {
			return nil, err
		}
		if strings.HasPrefix(files[i], filepath.Join(s.dir, "models")+string(filepath.Separator)) {
			return nil, fmt.Errorf("%s: the file is the store's own: the model is seeded as far as it is held", files[i])
		}
	}
	for _, path := range paths[1:] {
		fi, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		found := false
		for _, known := range infos {
			found = found || os.SameFile(fi, known)
		}
		if !found {
			return nil, fmt.Errorf("%s: it is not a part of the model %s: publish one model at a time", path, paths[0])
		}
	}
	return files, nil
}

func stampAll(files []string) ([]stamp, error) {
	stamps := make([]stamp, len(files))
	for i, path := range files {
		fi, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		stamps[i] = stampInfo(fi)
	}
	return stamps, nil
}

// publishedAs returns the model that was published as exactly these files, or nil.
func (s *Store) publishedAs(files []string, stamps []stamp) *Model {
	for _, m := range s.Models() {
		if m.isPublishedAs(files, stamps) {
			return m
		}
	}
	return nil
}

func (m *Model) isPublishedAs(files []string, stamps []stamp) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.published || m.problem != nil || len(m.parts) != len(files) {
		return false
	}
	for i := range m.parts {
		if m.parts[i].path != files[i] || m.parts[i].stamp != stamps[i] {
			return false
		}
	}
	return true
}

// adopt makes published files, just hashed, the model's files. What was fetched of it before is
// then there twice, and the fetched copy goes. A whole fetched model stays as it is.
func (m *Model) adopt(files []string, stamps []stamp) error {
	m.syncMu.Lock()
	defer m.syncMu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.published && m.haveLocked(m.bundle.Manifest.All()) {
		return nil
	}
	old := make([]string, 0, len(files))
	for i := range m.parts {
		p := &m.parts[i]
		if !m.published {
			old = append(old, p.path)
		}
		m.retireLocked(p)
		p.path, p.stamp, p.have = files[i], stamps[i], newBitmap(p.have.n)
		p.have.fill()
	}
	m.published, m.problem = true, nil
	if err := m.recordLocked(true); err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	m.notifyLocked()
	return nil
}
