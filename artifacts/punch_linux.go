package artifacts

import (
	"os"
	"syscall"
)

// Modes of fallocate(2), from linux/falloc.h.
const (
	keepSize  = 0x01
	punchHole = 0x02
)

// punch frees the disk space of a run of a file's bytes, which read as zeros then. Blocks of the file system that are only partly
// in the run are zeroed.
func punch(f *os.File, offset, length int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), punchHole|keepSize, offset, length)
		if err != syscall.EINTR {
			return os.NewSyscallError("fallocate", err)
		}
	}
}

// canPunch tries punch beyond the file's end, where nothing is.
func canPunch(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	return punch(f, fi.Size(), LeafSize)
}
