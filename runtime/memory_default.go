//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package runtime

// AvailableMemory is a guess that fits the smallest machines a model runs on.
func AvailableMemory() int64 { return fallbackMemory }
