package kernels

// rowKernels are a variant's functions on rows of values, everything but matrix products and attention. Nil functions
// leave the work to the Go code.
type rowKernels struct {
	quantise [Q8x256 + 1]rowQuantiser // by form of activations
}
