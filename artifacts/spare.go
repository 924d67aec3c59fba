package artifacts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// spareFile is what "spare" holds.
type spareFile struct {
	Version  int   `json:"version"`
	Portions []int `json:"portions"`
}

const spareVersion = 1

// Spare returns the portions of the model that were fetched for the swarm's sake, ascending, also such as have gone since. Nothing
// keeps them: whoever frees what no pin needs may free them.
func (m *Model) Spare() ([]int, error) {
	data, err := readLimited(filepath.Join(m.dir, "spare"), 1<<16)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var f spareFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && f.Version != spareVersion {
		err = fmt.Errorf("format version %d, this build reads version %d: update starling", f.Version, spareVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("spare copies of model %s: %w", m.id.Short(), err)
	}
	return f.Portions, nil
}

// SetSpare replaces what Spare returns; when it returns that is on the disk.
func (m *Model) SetSpare(portions []int) error {
	m.syncMu.Lock()
	defer m.syncMu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if len(portions) == 0 {
		if err := os.Remove(filepath.Join(m.dir, "spare")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return syncDir(m.dir)
	}
	data, err := json.Marshal(spareFile{Version: spareVersion, Portions: portions})
	if err != nil {
		return err
	}
	return writeFile(m.dir, "spare", append(data, '\n'))
}
