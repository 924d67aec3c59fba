package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// clockUnsynced reports whether the system says that nothing keeps its clock right.
func clockUnsynced() bool {
	state, err := unix.Adjtimex(&unix.Timex{}) // changes nothing; its state is TIME_ERROR then
	return err == nil && state == unix.TIME_ERROR
}

// noRoom reports whether an error says that a disk, or this user's share of it, is full.
func noRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
