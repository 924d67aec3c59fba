//go:build unix

package runtime

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is a model file that the system pages in as it is read.
type mapping struct {
	file *os.File
	data []byte
}

// mapFile maps size bytes of the file at path, read-only. The file must not shrink while it is mapped.
func mapFile(path string, size int64) (*mapping, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := mapOpen(f, size)
	if err != nil {
		f.Close()
		return nil, err
	}
	return m, nil
}

func mapOpen(f *os.File, size int64) (*mapping, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() < size {
		return nil, fmt.Errorf("runtime: %s has %d bytes where %d were expected: it was changed or cut short", f.Name(), st.Size(), size)
	}
	if size != int64(int(size)) {
		return nil, fmt.Errorf("runtime: %s has %d bytes, more than this machine can address", f.Name(), size)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("runtime: mapping %s: %w", f.Name(), err)
	}
	return &mapping{f, data}, nil
}

// bytes returns a part of the file. It is valid until close.
func (m *mapping) bytes(offset, size int64) ([]byte, error) {
	return m.data[offset : offset+size : offset+size], nil
}

// close unmaps the file.
func (m *mapping) close() error {
	err := unix.Munmap(m.data)
	if closeErr := m.file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// streams says that ahead and drop do something, so that a model larger than memory can pass through it.
const streams = true

// pages returns the pages of part, a slice of bytes' memory: those it touches, or those it has to itself. A nil mapping, which is
// that of a copy, has none.
func (m *mapping) pages(part []byte, whole bool) (offset, size int) {
	if m == nil {
		return 0, 0
	}
	page := os.Getpagesize()
	first := int(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))
	last := first + len(part)
	if whole {
		first = (first + page - 1) / page * page
		if last < len(m.data) {
			last = last / page * page
		}
	} else {
		first = first / page * page
	}
	return first, last - first
}

// ahead asks the system to read part, of bytes' memory, from the disk now. It may wait for the disk to accept that.
func (m *mapping) ahead(part []byte) {
	if at, n := m.pages(part, false); n > 0 {
		_ = unix.Madvise(m.data[at:at+n], unix.MADV_WILLNEED) // advice: without it things are slower
	}
}

// touch has the pages of part, of bytes' memory, mapped, so that no later use of them faults: Linux maps the 64 KiB around
// a fault, where they are in its cache. (Its MADV_POPULATE_READ takes three times as long.) It waits for the disk.
//
//go:noinline
func (m *mapping) touch(part []byte) (sum byte) {
	const around = 64 << 10
	at, n := m.pages(part, false)
	for last := at + n; at < last; at = (at/around + 1) * around {
		sum += m.data[at]
	}
	return sum
}

// drop gives back the memory of part, of bytes' memory, which is not needed soon: from this process and, with evict, from
// the system's cache of the file. It can be read again all the same.
func (m *mapping) drop(part []byte, evict bool) {
	at, n := m.pages(part, true)
	if n <= 0 {
		return
	}
	_ = unix.Madvise(m.data[at:at+n], unix.MADV_DONTNEED) // advice, as above
	if evict {
		m.evict(at, n)
	}
}

// allocate returns n zero bytes outside the Go heap, whose size they would otherwise double when it is collected.
func allocate(n int64) ([]byte, error) {
	if n != int64(int(n)) {
		return nil, fmt.Errorf("%d bytes are more than this machine can address", n)
	}
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	hugePages(b)
	return b, nil
}

// free ends the use of memory from allocate.
func free(b []byte) error { return unix.Munmap(b) }
