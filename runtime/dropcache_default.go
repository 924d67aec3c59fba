//go:build !linux

package runtime

import "os"

// DropsCache reports whether DropCache does anything.
const DropsCache = false

// DropCache does nothing: reading measures the system's cache.
func DropCache(*os.File) {}
