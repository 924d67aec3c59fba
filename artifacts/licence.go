package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// maxLicence bounds what a publisher may say of a licence in bytes.
const maxLicence = 128

// Licence returns under which licence the model is: what its publisher here said, else its header; may be empty.
func (m *Model) Licence() string {
	if said, err := readLimited(filepath.Join(m.dir, "licence"), maxLicence); err == nil {
		return printable(string(said))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "" // not what the header says: somebody said otherwise
	}
	if c, ok := m.Card(); ok {
		return c.License
	}
	return ""
}

// SetLicence makes a text what Licence returns, whatever the header says.
func (m *Model) SetLicence(text string) error {
	if text == "" || len(text) > maxLicence || text != printable(text) {
		return fmt.Errorf("licence %s: write 1 to %d bytes on one line, such as apache-2.0", quote(text), maxLicence)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	return writeFile(m.dir, "licence", []byte(text))
}
