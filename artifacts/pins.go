package artifacts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Pins are the layers of a model that its user wants to stay on this disk. The store keeps them and does nothing by them itself.
type Pins struct {
	Pinned *LayerRange `json:"pinned,omitempty"` // as somebody said
	Served *LayerRange `json:"served,omitempty"` // what a node served last
}

// pinsFile is what "pins" holds.
type pinsFile struct {
	Version int `json:"version"`
	Pins
}

const pinsVersion = 1

// Pins returns the model's pins. It is an error if they are there and can't be read: what they would say is not known then.
func (m *Model) Pins() (Pins, error) {
	data, err := readLimited(filepath.Join(m.dir, "pins"), 4096)
	if errors.Is(err, fs.ErrNotExist) {
		return Pins{}, nil
	}
	var f pinsFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && f.Version != pinsVersion {
		err = fmt.Errorf("format version %d, this build reads version %d: update starling", f.Version, pinsVersion)
	}
	if err != nil {
		return Pins{}, fmt.Errorf("pins of model %s: %w: pin or unpin it again", m.id.Short(), err)
	}
	return f.Pins, nil
}

// SetPins replaces the model's pins; when it returns they are on the disk.
func (m *Model) SetPins(p Pins) error {
	m.syncMu.Lock()
	defer m.syncMu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	name := filepath.Join(m.dir, "pins")
	if p == (Pins{}) {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return syncDir(m.dir)
	}
	data, err := json.Marshal(pinsFile{Version: pinsVersion, Pins: p})
	if err != nil {
		return err
	}
	return writeFile(m.dir, "pins", append(data, '\n'))
}
