//go:build !unix

package runtime

import (
	"fmt"
	"os"
)

// mapping is an open model file whose parts are read into memory one by one.
type mapping struct {
	file *os.File
	path string
}

// mapFile opens the file at path, of which size bytes may be asked for.
func mapFile(path string, size int64) (*mapping, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Size() < size {
		err = fmt.Errorf("runtime: %s has %d bytes where %d were expected: it was changed or cut short", path, st.Size(), size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &mapping{f, path}, nil
}

// bytes returns a copy of a part of the file.
func (m *mapping) bytes(offset, size int64) ([]byte, error) {
	data := make([]byte, size)
	if _, err := m.file.ReadAt(data, offset); err != nil {
		return nil, fmt.Errorf("runtime: reading %s: %w", m.path, err)
	}
	return data, nil
}

// close closes the file.
func (m *mapping) close() error { return m.file.Close() }

// streams says that ahead, touch and drop do nothing: everything has been read into memory.
const streams = false

func (m *mapping) ahead(part []byte) {}

func (m *mapping) touch(part []byte) byte { return 0 }

func (m *mapping) drop(part []byte, evict bool) {}

// allocate returns n zero bytes.
func allocate(n int64) ([]byte, error) {
	if n != int64(int(n)) {
		return nil, fmt.Errorf("%d bytes are more than this machine can address", n)
	}
	return make([]byte, n), nil
}

// free leaves memory from allocate to the garbage collector.
func free(b []byte) error { return nil }
