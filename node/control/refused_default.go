//go:build !windows

package control

import (
	"errors"
	"syscall"
)

// refused reports whether nobody listens on a socket.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
