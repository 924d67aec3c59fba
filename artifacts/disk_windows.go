package artifacts

import (
	"os"
	"syscall"
)

// inodeOf returns 0: Windows tells no inode number without opening the file again.
func inodeOf(os.FileInfo) uint64 { return 0 }

// allocatedBytes returns the file's size: files are not sparse here.
func allocatedBytes(fi os.FileInfo) int64 { return fi.Size() }

// FreeBytes returns that the free space is not known.
func FreeBytes(string) (n int64, ok bool) { return 0, false }

// lockFile opens path so that no other process can write to it until it is closed.
func lockFile(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, syscall.FILE_SHARE_READ,
		nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	const sharingViolation = syscall.Errno(32)
	if err == sharingViolation {
		return nil, errLocked
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}
