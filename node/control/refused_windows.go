package control

import (
	"errors"
	"syscall"
)

// wsaRefused is WSAECONNREFUSED, which package syscall doesn't name.
const wsaRefused = syscall.Errno(10061)

// refused reports whether nobody listens on a socket.
func refused(err error) bool { return errors.Is(err, wsaRefused) }
