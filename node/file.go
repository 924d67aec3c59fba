package node

import (
	"os"
	"path/filepath"
)

// replaceFile puts text into a file of a data folder, which is made if need be. After an error the old file is what it was.
func replaceFile(dir, name string, text []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp := filepath.Join(dir, name+".new")
	err := os.WriteFile(tmp, text, 0o600)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(tmp) // what could be written of it
	}
	return err
}
