//go:build !unix

package main

import (
	"os"
	"syscall"
)

// ownGroup changes nothing where there are no process groups: children end with
// their standard input.
func ownGroup() *syscall.SysProcAttr { return nil }

// killGroup ends a child.
func killGroup(p *os.Process) {
	_ = p.Kill() // it may have ended by itself
}
