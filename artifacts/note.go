package artifacts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A note is a small file in a model's folder that holds a JSON object with what users or nodes say of the model, and the format's
// version.

const noteVersion = 1

// readNote reads a note of at most limit bytes into v, a pointer. Where there is none it leaves v alone.
func (m *Model) readNote(name string, limit int64, v any) error {
	data, err := readLimited(filepath.Join(m.dir, name), limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var format struct {
		Version int `json:"version"`
	}
	if err == nil {
		err = json.Unmarshal(data, &format)
	}
	if err == nil && format.Version != noteVersion {
		err = fmt.Errorf("format version %d, this build reads version %d: update starling", format.Version, noteVersion)
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	return err
}

// writeNote replaces a note by v, which has its version, or removes it if v is nil; when it returns that is on the disk.
func (m *Model) writeNote(name string, v any) error {
	m.syncMu.Lock()
	defer m.syncMu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if v == nil {
		if err := os.Remove(filepath.Join(m.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return syncDir(m.dir)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFile(m.dir, name, append(data, '\n'))
}
