package artifacts

import "fmt"

// spareFile is what the note "spare" holds.
type spareFile struct {
	Version  int   `json:"version"`
	Portions []int `json:"portions"`
}

// Spare returns the portions of the model that were fetched for the swarm's sake, ascending, also such as have gone since. Nothing
// keeps them: whoever frees what no pin needs may free them.
func (m *Model) Spare() ([]int, error) {
	var f spareFile
	if err := m.readNote("spare", 1<<16, &f); err != nil {
		return nil, fmt.Errorf("spare copies of model %s: %w", m.id.Short(), err)
	}
	return f.Portions, nil
}

// SetSpare replaces what Spare returns; when it returns that is on the disk.
func (m *Model) SetSpare(portions []int) error {
	if len(portions) == 0 {
		return m.writeNote("spare", nil)
	}
	return m.writeNote("spare", spareFile{Version: noteVersion, Portions: portions})
}
