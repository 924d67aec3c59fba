//go:build purego || !(amd64 || arm64)

package kernels

// Pause is for loops that wait for another thread; here it does nothing.
func Pause() {}
