package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// storeFormat is the version of the store's folder as docs/manifest.md has it. A change that a build of the former version would
// misread or destroy raises it, and this build then reads the former one, too, and turns it into the new one when it opens a store.
//
// Format 1 was first written without saying so: a folder that has no version is of format 1.
const storeFormat = 1

// formatFile is in the store's folder.
const formatFile = "format"

// errNewer is wrapped by errors about what a newer build has written. Nothing of it is changed.
var errNewer = errors.New("a newer starling has written it")

// newerError says what to do where something has a later version than this build knows.
func newerError(what string, version, known int) error {
	return fmt.Errorf("%s has format %d, this build reads %d: %w; update starling, or use another data folder", what, version, known, errNewer)
}

// checkFormat refuses a store of a format that this build doesn't read, before anything in it is touched, and lets a folder say which
// format it has that doesn't yet.
func (s *Store) checkFormat() error {
	data, err := readLimited(filepath.Join(s.dir, formatFile), 32)
	if errors.Is(err, fs.ErrNotExist) {
		_ = writeFile(s.dir, formatFile, fmt.Appendln(nil, storeFormat)) // a disk that is full has room some other time
		return nil
	}
	if err != nil {
		return err
	}
	text := strings.TrimSpace(string(data))
	version, err := strconv.Atoi(text)
	switch {
	case err != nil || version < 1:
		return fmt.Errorf("%s says %q, and no version: if no newer starling has used this folder, remove that file", filepath.Join(s.dir, formatFile), text)
	case version > storeFormat:
		return newerError("it", version, storeFormat)
	}
	return nil
}
