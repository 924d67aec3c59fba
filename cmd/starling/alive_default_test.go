//go:build !unix

package main

import (
	"errors"
	"os"
)

// alive can't tell here.
func alive(int) bool { return false }

// interrupt can't send Ctrl-C here.
func interrupt(p *os.Process) error {
	return errors.Join(errors.New("no interrupts on this system"), p.Kill())
}
