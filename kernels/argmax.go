package kernels

// ArgMax returns the index of the largest value of x, the lowest of equals, or -1 if x is empty. There must be no NaN.
func ArgMax(x []float32) int {
	if len(x) == 0 {
		return -1
	}
	most, n := x[0], 0
	if active.largest != nil && len(x) >= 8 {
		n = len(x) &^ 7
		most = active.largest(&x[0], n)
	}
	for _, v := range x[n:] {
		most = max(most, v)
	}
	return IndexAtLeast(x, most)
}

// IndexAtLeast returns the index of the first value of x that is at least least, or -1.
func IndexAtLeast(x []float32, least float32) int {
	n := 0
	if active.seek != nil {
		n = active.seek(pointerTo(x), len(x)&^7, least)
	}
	for i := n; i < len(x); i++ {
		if x[i] >= least {
			return i
		}
	}
	return -1
}
