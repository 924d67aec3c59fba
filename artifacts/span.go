package artifacts

import (
	"fmt"
	"slices"
)

// LayerRange is the layers [First, Last); half open, counted from 0.
type LayerRange struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Len returns the number of layers.
func (r LayerRange) Len() int { return r.Last - r.First }

// String returns the range as people read it, inclusive: "layers 0–9 (10)".
func (r LayerRange) String() string {
	switch r.Len() {
	case 0:
		return "no layers"
	case 1:
		return fmt.Sprintf("layer %d", r.First)
	}
	return fmt.Sprintf("layers %d–%d (%d)", r.First, r.Last-1, r.Len())
}

// Span is a run of bytes in one part of a model.
type Span struct {
	Part   int   `json:"part"`
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// SpanBytes returns the bytes of all spans together.
func SpanBytes(spans []Span) int64 {
	var n int64
	for _, s := range spans {
		n += s.Length
	}
	return n
}

// mergeSpans sorts spans and joins those that overlap or are at most gap bytes apart. Empty ones
// are dropped.
func mergeSpans(spans []Span, gap int64) []Span {
	spans = slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.Length <= 0 })
	slices.SortFunc(spans, func(a, b Span) int {
		if a.Part != b.Part {
			return a.Part - b.Part
		}
		switch {
		case a.Offset < b.Offset:
			return -1
		case a.Offset > b.Offset:
			return 1
		}
		return 0
	})
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && out[n-1].Part == s.Part && s.Offset <= out[n-1].Offset+out[n-1].Length+gap {
			out[n-1].Length = max(out[n-1].Length, s.Offset+s.Length-out[n-1].Offset)
			continue
		}
		out = append(out, s)
	}
	return out
}

// pieceRun is the pieces [first, last) of one part.
type pieceRun struct {
	part        int
	first, last int
}

// pieceRuns returns the pieces that cover spans, merged and ascending. What lies outside the model
// is ignored.
func (m *Manifest) pieceRuns(spans []Span) []pieceRun {
	var runs []pieceRun
	for _, s := range mergeSpans(spans, 0) {
		if s.Part < 0 || s.Part >= len(m.Parts) {
			continue
		}
		p := &m.Parts[s.Part]
		first, end := max(s.Offset, 0), min(s.Offset+s.Length, p.Size)
		if first >= end {
			continue
		}
		n := PieceLength(p.Size)
		r := pieceRun{part: s.Part, first: int(first / n), last: int((end-1)/n) + 1}
		if k := len(runs); k > 0 && runs[k-1].part == r.part && r.first <= runs[k-1].last {
			runs[k-1].last = max(runs[k-1].last, r.last)
			continue
		}
		runs = append(runs, r)
	}
	return runs
}

// pieceSpan returns the bytes of piece i of part.
func (m *Manifest) pieceSpan(part, i int) Span {
	p := &m.Parts[part]
	n := PieceLength(p.Size)
	off := int64(i) * n
	return Span{Part: part, Offset: off, Length: min(n, p.Size-off)}
}

// All returns the spans of the whole model: one per part.
func (m *Manifest) All() []Span {
	spans := make([]Span, len(m.Parts))
	for i := range m.Parts {
		spans[i] = Span{Part: i, Length: m.Parts[i].Size}
	}
	return spans
}
