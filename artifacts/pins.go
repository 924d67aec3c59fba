package artifacts

import "fmt"

// Pins are the layers of a model that its user wants to stay on this disk. The store keeps them and does nothing by them itself.
type Pins struct {
	Pinned *LayerRange `json:"pinned,omitempty"` // as somebody said
	Served *LayerRange `json:"served,omitempty"` // what a node served last
}

// pinsFile is what the note "pins" holds.
type pinsFile struct {
	Version int `json:"version"`
	Pins
}

// Pins returns the model's pins. It is an error if they are there and can't be read: what they would say is not known then.
func (m *Model) Pins() (Pins, error) {
	var f pinsFile
	if err := m.readNote("pins", 4096, &f); err != nil {
		return Pins{}, fmt.Errorf("pins of model %s: %w: pin or unpin it again", m.id.Short(), err)
	}
	return f.Pins, nil
}

// SetPins replaces the model's pins; when it returns they are on the disk.
func (m *Model) SetPins(p Pins) error {
	if p == (Pins{}) {
		return m.writeNote("pins", nil)
	}
	return m.writeNote("pins", pinsFile{Version: noteVersion, Pins: p})
}
