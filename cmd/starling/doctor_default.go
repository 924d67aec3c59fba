//go:build !linux

package main

import (
	"errors"
	"os"
	"syscall"
)

// clockUnsynced reports false: the system doesn't tell.
func clockUnsynced() bool { return false }

// dropCache does nothing: reading measures the system's cache.
func dropCache(*os.File) {}

// noRoom reports whether an error says that the disk is full.
func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) }
