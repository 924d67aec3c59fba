//go:build unix

package runtime

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapping is a model file that the system pages in as it is read.
type mapping struct{ data []byte }

// mapFile maps size bytes of the file at path, read-only. The file must not shrink while it is mapped.
func mapFile(path string, size int64) (*mapping, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() < size {
		return nil, fmt.Errorf("runtime: %s has %d bytes where %d were expected: it was changed or cut short", path, st.Size(), size)
	}
	if size != int64(int(size)) {
		return nil, fmt.Errorf("runtime: %s has %d bytes, more than this machine can address", path, size)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("runtime: mapping %s: %w", path, err)
	}
	return &mapping{data}, nil
}

// bytes returns a part of the file. It is valid until close.
func (m *mapping) bytes(offset, size int64) ([]byte, error) {
	return m.data[offset : offset+size : offset+size], nil
}

// close unmaps the file.
func (m *mapping) close() error { return unix.Munmap(m.data) }
