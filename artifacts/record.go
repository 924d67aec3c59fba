package artifacts

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The record of what was verified is two files per model. "state" is a snapshot, replaced by rename;
// "journal" has the pieces verified since, 12 bytes each, appended as they come, so that a killed
// process loses none. While a snapshot is being written the entries it includes are in
// "journal.old". Data and snapshot are synced to the disk together (see Model.sync); what the
// journals say was perhaps not, so after an unclean end those pieces are hashed again.

// state is the snapshot.
type state struct {
	Version int         `json:"version"`
	Clean   bool        `json:"clean"` // nothing was written since: stamps must match exactly
	Parts   []partState `json:"parts"`
}

// partState is what is known of one part's file.
type partState struct {
	Path string `json:"path,omitempty"` // a published file; empty for one in the model's folder
	stamp
	Have []byte `json:"have"` // bitmap of verified pieces
}

const stateVersion = 1

// openWindow is how long after the last entry in the record an unclean store may have gone on
// writing to a model's files. Entries come at least every syncEvery.
const openWindow = 10 * time.Second

// readState reads and checks the snapshot of a model with these parts.
func readState(dir string, m *Manifest) (*state, error) {
	data, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if s.Version > stateVersion {
		return nil, newerError("its record", s.Version, stateVersion)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("state: format version %d, this build reads version %d", s.Version, stateVersion)
	}
	if len(s.Parts) != len(m.Parts) {
		return nil, fmt.Errorf("state: %d parts, the model has %d", len(s.Parts), len(m.Parts))
	}
	for i := range s.Parts {
		if _, ok := bitmapFrom(s.Parts[i].Have, len(m.Parts[i].Pieces)); !ok {
			return nil, fmt.Errorf("state: part %d: the bitmap does not fit its %d pieces", i+1, len(m.Parts[i].Pieces))
		}
	}
	return &s, nil
}

// writeState replaces the snapshot; when it returns it is on the disk.
func writeState(dir string, s *state) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeFile(dir, "state", append(data, '\n'))
}

// writeFile replaces a file by one with the given contents, synced to the disk.
func writeFile(dir, name string, data []byte) error {
	f, err := os.CreateTemp(dir, name+".tmp-*") // see removeTemporary
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return syncDir(dir)
}

// removeTemporary deletes what a killed process left of writeFile.
func removeTemporary(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), ".tmp-") {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// syncDir makes a rename in dir durable, where the platform can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}

const journalEntry = 12 // u32 part, u32 piece, u32 CRC-32C of the eight bytes before

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendJournal returns the entry for one verified piece.
func appendJournal(b []byte, part, piece int) []byte {
	n := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(part))
	b = binary.LittleEndian.AppendUint32(b, uint32(piece))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[n:], castagnoli))
}

// readJournal adds the pieces in a journal file to have, up to the first damaged entry (a torn last
// one is normal). A missing file is an empty one. at is when the last entry was written.
func readJournal(path string, have []bitmap) (entries int, at time.Time, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, time.Time{}, nil
	}
	if err != nil {
		return 0, time.Time{}, err
	}
	if fi, err := os.Stat(path); err == nil {
		at = fi.ModTime()
	}
	return parseJournal(data, have), at, nil
}

// parseJournal is readJournal for bytes.
func parseJournal(data []byte, have []bitmap) (entries int) {
	for ; len(data) >= journalEntry; data = data[journalEntry:] {
		part := binary.LittleEndian.Uint32(data)
		piece := binary.LittleEndian.Uint32(data[4:])
		if crc32.Checksum(data[:8], castagnoli) != binary.LittleEndian.Uint32(data[8:]) ||
			uint64(part) >= uint64(len(have)) || uint64(piece) >= uint64(have[part].n) {
			break
		}
		have[part].set(int(piece))
		entries++
	}
	return entries
}
