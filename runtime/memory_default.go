//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package runtime

// availableMemory is a guess that fits the smallest machines a model runs on.
func availableMemory() int64 { return fallbackMemory }
