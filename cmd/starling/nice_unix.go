//go:build unix && !linux

package main

import "golang.org/x/sys/unix"

// setNice lowers the process's priority.
func setNice(n int) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, n) }
