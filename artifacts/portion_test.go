package artifacts

import (
	"slices"
	"testing"
)

// holds checks that exactly want are the portions held of a model.
func holds(t *testing.T, m *Model, want ...int) {
	t.Helper()
	c, ok := m.Card()
	if !ok {
		t.Fatal("the header is not here")
	}
	var got []int
	held := bitmap{b: m.HeldPortions(), n: c.Portions()}
	for p := range held.n {
		if held.has(p) {
			got = append(got, p)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("portions %v are held, want %v", got, want)
	}
}

// TestPortions checks that portions cover every byte once.
func TestPortions(t *testing.T) {
	for _, shape := range []testModel{{layers: 5, seed: 1}, {layers: 5, seed: 1, untied: true, parts: 3}, {layers: 2, seed: 1, parts: 2}} {
		_, m, _ := publish(t, shape)
		c, _ := m.Card()
		var all []Span
		for p := range c.Portions() {
			all = append(all, c.Portion(p)...)
		}
		if whole := m.Manifest().All(); SpanBytes(all) != m.TotalBytes() || !slices.Equal(mergeSpans(all, 0), whole) {
			t.Errorf("%+v: portions have %d bytes, in %v; the model has %d, in %v", shape, SpanBytes(all), mergeSpans(all, 0), m.TotalBytes(), whole)
		}
		if c.Portion(-1) != nil || c.Portion(c.Portions()) != nil {
			t.Error("there are portions beyond the last")
		}
		holds(t, m, slices.Collect(func(yield func(int) bool) {
			for p := range c.Portions() {
				if !yield(p) {
					return
				}
			}
		})...)
	}
}
