package artifacts

// A model's bytes are divided into portions, by which copies are counted: portion l is what layer l owns, and the one behind the
// last layer everything else (headers, tokenizer, embedding table, head, padding). All portions together are the model.

// Portions returns how many portions the model has.
func (c *Card) Portions() int { return c.Layers + 1 }

// Portion returns the spans of portion p; none if there is no such portion.
func (c *Card) Portion(p int) []Span {
	switch {
	case p < 0 || p > c.Layers:
		return nil
	case p < c.Layers:
		return c.LayerSpans[p]
	}
	var all []Span
	for _, l := range c.LayerSpans {
		all = append(all, l...)
	}
	var rest []Span
	at := Span{} // end of the latest layer's span
	end := func() {
		if n := c.PartSizes[at.Part] - at.Offset; n > 0 {
			rest = append(rest, Span{at.Part, at.Offset, n})
		}
	}
	for _, s := range mergeSpans(all, 0) {
		for at.Part < s.Part {
			end()
			at = Span{Part: at.Part + 1}
		}
		if s.Offset > at.Offset {
			rest = append(rest, Span{at.Part, at.Offset, s.Offset - at.Offset})
		}
		at.Offset = s.Offset + s.Length
	}
	for ; at.Part < len(c.PartSizes); at = (Span{Part: at.Part + 1}) {
		end()
	}
	return rest
}

// HeldPortions returns which portions are here: bit p%8 of byte p/8 is portion p. It is empty as long as the header is not here.
func (m *Model) HeldPortions() []byte {
	c, ok := m.Card()
	if !ok {
		return nil
	}
	held := newBitmap(c.Portions())
	for p := range held.n {
		if m.Have(c.Portion(p)) {
			held.set(p)
		}
	}
	return held.b
}

// PieceBytes returns the bytes of the pieces that cover spans.
func (m *Manifest) PieceBytes(spans []Span) (n int64) {
	for _, r := range m.pieceRuns(spans) {
		first, last := m.pieceSpan(r.part, r.first), m.pieceSpan(r.part, r.last-1)
		n += last.Offset + last.Length - first.Offset
	}
	return n
}
