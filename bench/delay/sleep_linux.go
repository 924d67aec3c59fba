package main

import (
	"syscall"
	"time"
)

// sleep is time.Sleep to within tens of microseconds: an idle Go process waits
// in epoll, which counts in milliseconds.
func sleep(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil) // a signal ends it early: the packet goes a little sooner
}
