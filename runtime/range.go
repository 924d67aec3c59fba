package runtime

import "fmt"

// Range is a half-open range of layer numbers, [First, Last).
type Range struct{ First, Last int }

// Len returns the number of layers in r.
func (r Range) Len() int { return r.Last - r.First }

// Contains reports whether layer l lies in r.
func (r Range) Contains(l int) bool { return r.First <= l && l < r.Last }

// Covers reports whether every layer of o lies in r. An empty o is covered where both its ends lie within r's ends.
func (r Range) Covers(o Range) bool {
	return r.First <= o.First && o.First <= o.Last && o.Last <= r.Last
}

// String renders r as people see it, both ends included: "layers 0–9 (10)", "layer 3 (1)", "no layers".
func (r Range) String() string {
	switch r.Len() {
	case 0:
		return "no layers"
	case 1:
		return fmt.Sprintf("layer %d (1)", r.First)
	}
	return fmt.Sprintf("layers %d–%d (%d)", r.First, r.Last-1, r.Len())
}

// CheckLayers returns a *LayerError, with the first layer that have lacks, unless have covers r.
func CheckLayers(r, have Range) error {
	if have.Covers(r) {
		return nil
	}
	l := r.First
	for l+1 < r.Last && have.Contains(l) {
		l++
	}
	return &LayerError{Layer: l, Have: have}
}
