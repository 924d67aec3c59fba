//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package runtime

import "golang.org/x/sys/unix"

// AvailableMemory is three quarters of the machine's memory: these systems have no one number of what is free or could be.
func AvailableMemory() int64 {
	for _, name := range []string{"hw.memsize", "hw.physmem64", "hw.physmem"} { // macOS, NetBSD, the others
		if n, err := unix.SysctlUint64(name); err == nil && n>>62 == 0 {
			return int64(n) / 4 * 3
		}
	}
	return fallbackMemory
}
