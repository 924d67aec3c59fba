//go:build purego || !(amd64 || arm64)

package kernels

// addImplementations does nothing: there is only the specification.
func addImplementations() {}
