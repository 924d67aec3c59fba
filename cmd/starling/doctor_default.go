//go:build !linux

package main

import (
	"errors"
	"syscall"
)

// clockUnsynced reports false: the system doesn't tell.
func clockUnsynced() bool { return false }

// noRoom reports whether an error says that the disk is full.
func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) }
