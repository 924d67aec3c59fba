//go:build unix

package main

import (
	"os"
	"syscall"
)

// ownGroup keeps a terminal's Ctrl-C from a child: its parent ends it in order.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends a child and what it may have started.
func killGroup(p *os.Process) {
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL) // it may have ended by itself
}
