package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// origin is where the files of a folder of incoming are from, and what they were when their fetch
// began.
type origin struct {
	URL   string   `json:"url"`
	Sizes []int64  `json:"sizes"`
	Tags  []string `json:"tags"` // a file that has none is not continued
}

// Download fetches all of a model of which nobody has made the manifest, from its web server, and
// makes it. Nothing can be verified before the last byte is here; until then the files are in the
// store's incoming folder, where an interrupted Download of unchanged files goes on. fetched and
// hashed, if not nil, are progress as for [Build].
func (s *Store) Download(ctx context.Context, r *Remote, fetched, hashed func(done, total int64)) (*Model, error) {
	m, err := s.download(ctx, r, fetched, hashed)
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", r.first, err)
	}
	return m, nil
}

func (s *Store) download(ctx context.Context, r *Remote, fetched, hashed func(done, total int64)) (*Model, error) {
	sum := sha256.Sum256([]byte(r.first))
	dir := filepath.Join(s.dir, "incoming", hex.EncodeToString(sum[:16])) // no text of a URL gets into a path
	if !s.enter(dir) {
		return nil, errors.New("it is being downloaded already")
	}
	defer s.leave(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w: choose a data folder that can be written", err)
	}
	now := origin{URL: r.first}
	paths := make([]string, len(r.parts))
	for i, p := range r.parts {
		now.Sizes, now.Tags = append(now.Sizes, p.size), append(now.Tags, p.tag)
		paths[i] = filepath.Join(dir, partName(i, len(r.parts)))
	}
	if err := begin(dir, paths, now); err != nil {
		return nil, err
	}
	total, done := r.card.TotalBytes, int64(0)
	for _, path := range paths {
		if fi, err := os.Stat(path); err == nil {
			done += fi.Size()
		}
	}
	if err := s.checkRoom(dir, total-done); err != nil {
		return nil, err
	}
	count := newCounter(total, fetched)
	for i, p := range r.parts {
		if err := p.download(ctx, paths[i], count); err != nil {
			return nil, fmt.Errorf("%w; %d of %d bytes are kept: put that right and pull again", err, count.done, total)
		}
	}
	man, infos, err := Build(ctx, paths, hashed)
	if err != nil {
		return nil, err
	}
	s.hashed.Add(man.TotalBytes())
	m, err := s.AddBundle(&Bundle{Manifest: man, Torrents: infos})
	if err != nil {
		return nil, err
	}
	if err := m.amend(nil, infos); err != nil {
		return nil, err
	}
	if err := m.own(paths); err != nil {
		return nil, err
	}
	return m, os.RemoveAll(dir)
}

// enter notes that a folder of incoming is in use, unless it is.
func (s *Store) enter(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.incoming[dir] {
		return false
	}
	s.incoming[dir] = true
	return true
}

func (s *Store) leave(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.incoming, dir)
}

// begin keeps what is in dir of the files that are on the server now, and removes the rest.
func begin(dir string, paths []string, now origin) error {
	var before origin
	data, err := readLimited(filepath.Join(dir, "origin"), 16<<20)
	if err == nil && json.Unmarshal(data, &before) != nil {
		before = origin{}
	}
	for i, path := range paths {
		same := before.URL == now.URL && len(before.Sizes) == len(paths) && len(before.Tags) == len(paths) &&
			before.Sizes[i] == now.Sizes[i] && before.Tags[i] == now.Tags[i] && now.Tags[i] != ""
		if same {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if data, err = json.Marshal(now); err != nil {
		return err
	}
	return writeFile(dir, "origin", append(data, '\n'))
}

// download appends to the file at path what it lacks.
func (f *remoteFile) download(ctx context.Context, path string, count *counter) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	fi, err := out.Stat()
	if err != nil {
		return err
	}
	have := fi.Size()
	count.add(have)
	err = f.web.persist(ctx, func() (more, progress bool, err error) {
		if have >= f.size {
			return false, false, nil
		}
		a, err := f.web.get(ctx, f.url, have, f.size, f.size, f.tag)
		if err != nil {
			return true, false, err
		}
		defer a.Close()
		if a.tag != f.tag {
			return true, false, lastingError("the file changed on the server while it was fetched")
		}
		if _, err := io.CopyN(io.Discard, a, have-a.first); err != nil {
			return true, false, cutShort(err, a.first, f.size)
		}
		n, err := f.append(ctx, out, a, f.size-have, count)
		have += n
		if err == nil && have < f.size {
			err = io.EOF
		}
		switch {
		case errors.As(err, new(*fs.PathError)):
			return true, false, err // the disk's
		case err != nil:
			return true, n >= webLeast, cutShort(err, have, f.size)
		}
		return true, true, nil
	})
	if err == nil {
		err = out.Sync()
	}
	return err
}

// append copies up to most bytes, and counts them.
func (f *remoteFile) append(ctx context.Context, out io.Writer, in io.Reader, most int64, count *counter) (done int64, err error) {
	buf := make([]byte, 256<<10)
	for done < most && ctx.Err() == nil {
		n, err := in.Read(buf[:min(int64(len(buf)), most-done)])
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return done, err
			}
			done += int64(n)
			count.add(int64(n))
		}
		if err != nil {
			return done, err
		}
	}
	return done, ctx.Err()
}

// own makes whole files, just hashed, the model's own, in its folder.
func (m *Model) own(files []string) error {
	m.syncMu.Lock()
	defer m.syncMu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.haveLocked(m.bundle.Manifest.All()) {
		return nil // somebody was quicker
	}
	for i := range m.parts {
		p := &m.parts[i]
		for len(p.sealed) > 0 || len(p.writing) > 0 {
			m.written.Wait()
		}
		m.retireLocked(p)
		p.path = filepath.Join(m.dir, m.bundle.Manifest.Parts[i].Name)
		if err := os.Rename(files[i], p.path); err != nil {
			return err
		}
		p.have.fill()
	}
	m.published, m.problem = false, nil
	m.notifyLocked()
	return m.recordLocked(true)
}
