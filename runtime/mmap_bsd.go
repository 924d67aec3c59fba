//go:build unix && !linux

package runtime

// evict has no call here: what nobody maps is dropped when memory is short.
func (m *mapping) evict(at, n int) {}

// hugePages is the system's own choice here.
func hugePages(b []byte) {}
