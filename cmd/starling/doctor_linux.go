package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// clockUnsynced reports whether the system says that nothing keeps its clock right.
func clockUnsynced() bool {
	state, err := unix.Adjtimex(&unix.Timex{}) // changes nothing; its state is TIME_ERROR then
	return err == nil && state == unix.TIME_ERROR
}

// dropCache has the system forget a file's pages, so that reading it reads the disk.
func dropCache(f *os.File) {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // else the cache is measured
}

// noRoom reports whether an error says that a disk, or this user's share of it, is full.
func noRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
