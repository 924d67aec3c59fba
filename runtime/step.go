package runtime

import (
	"fmt"
	"slices"
)

// Step is one sequence's part of a Run: N consecutive positions through consecutive layers.
//
//	Layers.First == 0              input is Tokens
//	Layers.First  > 0              input is Seam, the residual stream after layer First−1
//	Layers.Last   < model layers   Out is the residual stream after layer Last−1
//	Layers.Last  == model layers   Logits of LogitRows; Out only with KeepHidden
//	Layers == {n, n}, n = model layers: no layer runs, only the head
type Step struct {
	Seq    Sequence // made by the same executor
	Layers Range    // within the executor's; empty only at the model's end
	Start  int      // position of row 0; equals Seq.Len(l) for every l in Layers
	N      int      // rows, ≥ 1

	Tokens []int32   // [N], iff Layers.First == 0
	Seam   []float32 // [N][Width] row-major, iff Layers.First > 0; not modified, not kept; checked finite

	// LogitRows are row numbers in [0, N), strictly ascending; only with Layers.Last == model layers. May be empty.
	LogitRows []int
	// KeepHidden asks for Out also at the model's end (the residual stream before the final norm).
	KeepHidden bool
	// Probe names boundaries whose residual stream is wanted, strictly ascending, of Layers.First to Layers.Last: boundary l
	// is the stream that layer l reads, Layers.Last the one that the last layer leaves. May be empty.
	Probe []int

	// Out receives [N][Width]. It is reused when its capacity suffices and allocated otherwise; nil when not wanted.
	Out []float32
	// Logits receives one [Vocab] per entry of LogitRows, in that order. Like Out it is reused where its capacity
	// suffices: whoever runs a Step again and keeps the Logits takes them out before.
	Logits [][]float32
	// Probed receives one [N][Width] per entry of Probe, in that order, reused like Out.
	Probed [][]float32
}

// CheckSteps returns a *StepError for the first step that cannot be run whatever its sequence holds: impossible layers,
// positions beyond the context, the wrong input, tokens outside the vocabulary, impossible LogitRows, a sequence named
// twice. have is the executor's range. Every Executor's Run begins with it.
func CheckSteps(c *Config, have Range, steps []*Step) error {
	for i, s := range steps {
		reason := s.reason(c, have)
		switch {
		case reason == "" && s.Seq == nil:
			reason = "it has no sequence"
		case reason == "" && slices.ContainsFunc(steps[:i], func(o *Step) bool { return o.Seq == s.Seq }):
			reason = "its sequence has two steps in this Run"
		}
		if reason != "" {
			return &StepError{i, reason}
		}
	}
	return nil
}

// reason says why a step makes no sense by itself; "" when it does.
func (s *Step) reason(c *Config, have Range) string {
	switch {
	case !have.Covers(s.Layers):
		return fmt.Sprintf("layers [%d, %d) of an executor that has %v", s.Layers.First, s.Layers.Last, have)
	case s.Layers.Len() == 0 && s.Layers.Last != c.Layers:
		return fmt.Sprintf("no layers, at layer %d of %d", s.Layers.First, c.Layers)
	case s.N < 1 || s.Start < 0 || s.N > c.Context-s.Start:
		return fmt.Sprintf("%d positions from %d on in a context of %d", s.N, s.Start, c.Context)
	case s.Layers.First == 0 && (len(s.Tokens) != s.N || s.Seam != nil):
		return fmt.Sprintf("%d tokens and %d seam values for %d rows from layer 0 on", len(s.Tokens), len(s.Seam), s.N)
	case s.Layers.First > 0 && (len(s.Seam) != s.N*c.Width || s.Tokens != nil):
		return fmt.Sprintf("%d seam values and %d tokens for %d rows of %d from layer %d on", len(s.Seam), len(s.Tokens), s.N, c.Width, s.Layers.First)
	case len(s.LogitRows) > 0 && s.Layers.Last != c.Layers:
		return fmt.Sprintf("logits asked for after layer %d of %d", s.Layers.Last, c.Layers)
	}
	for _, id := range s.Tokens {
		if id < 0 || int(id) >= c.Vocab {
			return fmt.Sprintf("token %d of a vocabulary of %d", id, c.Vocab)
		}
	}
	last := -1
	for _, r := range s.LogitRows {
		if r <= last || r >= s.N {
			return fmt.Sprintf("logit row %d after %d, of %d rows", r, last, s.N)
		}
		last = r
	}
	last = s.Layers.First - 1
	for _, l := range s.Probe {
		if l <= last || l > s.Layers.Last {
			return fmt.Sprintf("probe of boundary %d after %d, of layers [%d, %d)", l, last, s.Layers.First, s.Layers.Last)
		}
		last = l
	}
	return ""
}
