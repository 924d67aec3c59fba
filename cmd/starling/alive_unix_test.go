//go:build unix

package main

import (
	"os"
	"syscall"
)

// alive reports whether a process lives.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// interrupt is Ctrl-C.
func interrupt(p *os.Process) error { return p.Signal(os.Interrupt) }
