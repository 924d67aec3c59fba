package runtime

import (
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/starling-swarm/starling/kernels"
)

// Sample chooses the token at a position of a sequence (that of the chosen token itself) from the logits there. history
// is the tokens before it, of the prompt too, which the penalties and DRY look at. It neither changes nor keeps its
// arguments. A NaN or infinite logit, of whatever token, is a *NonFiniteError; settings out of range, or that ban all
// tokens, are an error.
//
// The steps, in this order, every product and sum rounded on its own; what a setting turns off is left out:
//
//  1. bias: logit + Bias; banned tokens are no candidates. Here and in steps 2 and 3 results stay within ±MaxFloat32.
//  2. penalties, of tokens that occur in the last PenaltyLastN of history, n times: round(logit / RepetitionPenalty), or
//     round(logit · RepetitionPenalty) for logits ≤ 0; then − round(n·FrequencyPenalty), then − PresencePenalty.
//  3. DRY: logit − DRY.penalty.
//  4. order: descending logit, ties by ascending id. Temperature 0 without a range takes the first and ends here.
//  5. top-k: the first TopK; all does nothing.
//  6. typical: d = round(logit − largest); p = Exp(d); mean = Σ p·d / Σ p; keep the tokens nearest to it, by
//     |d − mean|, of equal ones the first in order, until their Σ p exceeds TypicalP·Σ p. (−log P + entropy is d − mean.)
//  7. top-p: the shortest prefix whose running Σ p is ≥ TopP·Σ p.
//  8. min-p: those before the first with p < MinP.
//  9. XTC, if the draw 1 is < XTCProbability: of the prefix with p ≥ XTCThreshold·Σ p all but its last are excluded.
//  10. temperature T: Temperature, or with a range, from the n > 1 candidates that are left, low + (high−low)·h^Exponent,
//     low = max(0, Temperature−Range), high = Temperature+Range, h = (log Σ p − Σ p·d / Σ p) / log n, rounded at the end.
//     T = 0 takes the first.
//  11. choice: p = Exp(round(round(logit − largest)/T)); the first candidate whose running sum exceeds u·Σ p, or, if none
//     does, the last with p > 0.
//
// p is float32; it is always relative to the largest of the candidates left, which has 1. Sums are float64 in the
// candidates' order; but Σ over the whole vocabulary, where steps 5 to 8 are all off or have yet to come, is by ascending
// id in four lanes, of the ids ≡ 0, 1, 2, 3 mod 4, added as (0+2)+(1+3). u and the draw of XTC are uniform in [0, 1) by
// (Seed, Choice, position, 0 and 1).
func Sample(logits []float32, history []int32, position int, s Sampling) (int32, error) {
	scratch := scratches.Get().(*[]float32)
	defer scratches.Put(scratch)
	c, err := s.distribution(scratch, logits, history, position)
	if err != nil {
		return 0, err
	}
	return c.draw(uniform(s.Seed, s.Choice, position, 0)), nil
}

// scratches are memory for logits: a fresh vocabulary of them for each token would cost more than most steps do.
var scratches = sync.Pool{New: func() any { return new([]float32) }}

// distribution does the steps before the choice. Its result may use scratch.
func (s *Sampling) distribution(scratch *[]float32, logits []float32, history []int32, position int) (*choosing, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(logits) == 0 {
		return nil, errors.New("runtime: no logits to sample from")
	}
	if kernels.CheckFinite(logits) >= 0 {
		return nil, &NonFiniteError{What: "logits", Pos: position}
	}
	logits = s.adjust(scratch, logits, history)
	first := kernels.ArgMax(logits)
	if math.IsInf(float64(logits[first]), -1) {
		return nil, errors.New("runtime: logit bias: every token is banned")
	}
	c := &choosing{logits: logits, largest: logits[first], t: 1}
	if s.Temperature == 0 && s.TemperatureRange == 0 {
		c.settle([]candidate{{id: int32(first), logit: logits[first]}})
		return c, nil
	}
	s.cut(c)
	if s.XTCProbability > 0 && s.XTCThreshold <= 0.5 && uniform(s.Seed, s.Choice, position, 1) < float64(s.XTCProbability) {
		c.excludeTop(float64(s.XTCThreshold))
	}
	if t := s.temperature(c); t > 0 {
		c.weigh(t)
	} else {
		c.settle([]candidate{c.at(0)})
	}
	return c, nil
}

// adjust returns the logits after steps 1 to 3, −∞ for banned tokens: the same slice where they change nothing, else scratch.
func (s *Sampling) adjust(scratch *[]float32, logits []float32, history []int32) []float32 {
	recent := latest(history, s.PenaltyLastN)
	repetition := s.RepetitionPenalty
	if repetition == 0 {
		repetition = 1
	}
	penalties := len(recent) > 0 && (repetition != 1 || s.FrequencyPenalty != 0 || s.PresencePenalty != 0)
	if len(s.Bias) == 0 && !penalties && s.DRY.Multiplier == 0 {
		return logits
	}
	out := append((*scratch)[:0], logits...)
	*scratch = out
	for _, b := range s.Bias {
		switch {
		case int(b.ID) >= len(out):
		case b.Bias == Ban:
			out[b.ID] = float32(math.Inf(-1))
		default:
			lower(&out[b.ID], -b.Bias)
		}
	}
	if penalties {
		recent = slices.Sorted(slices.Values(recent))
		for n := 0; len(recent) > 0; recent = recent[n:] {
			id := recent[0]
			for n = 1; n < len(recent) && recent[n] == id; n++ {
			}
			if id < 0 || int(id) >= len(out) {
				continue
			}
			l := &out[id]
			if *l <= 0 {
				*l = float32(*l * repetition)
			} else {
				*l = *l / repetition
			}
			lower(l, float32(float32(n)*s.FrequencyPenalty))
			lower(l, s.PresencePenalty)
		}
	}
	s.DRY.penalise(out, history)
	return out
}

// lower subtracts from a logit and keeps it within ±MaxFloat32, unless it is −∞.
func lower(logit *float32, by float32) {
	if !math.IsInf(float64(*logit), -1) {
		*logit = min(max(*logit-by, -math.MaxFloat32), math.MaxFloat32)
	}
}

// latest returns the last n of history; all for n = −1.
func latest(history []int32, n int) []int32 {
	if n < 0 {
		return history
	}
	return history[max(len(history)-n, 0):]
}

// cut does steps 4 to 8.
func (s *Sampling) cut(c *choosing) {
	if s.TopK > 0 && s.TopK < len(c.logits) {
		list := order(c.logits, s.TopK)
		for math.IsInf(float64(list[len(list)-1].logit), -1) {
			list = list[:len(list)-1]
		}
		c.settle(list)
	}
	if s.TypicalP > 0 && s.TypicalP < 1 {
		c.typical(float64(s.TypicalP))
	}
	if s.TopP > 0 && s.TopP < 1 {
		target, sum, n := float64(float64(s.TopP)*c.sum()), 0.0, 0
		for ; sum < target && c.has(n); n++ {
			sum += float64(c.at(n).p)
		}
		c.settle(c.list[:n])
	}
	if s.MinP > 0 {
		n := 0
		for c.has(n) && c.at(n).p >= s.MinP {
			n++
		}
		c.settle(c.list[:n])
	}
}

// temperature returns T of step 10.
func (s *Sampling) temperature(c *choosing) float32 {
	if s.TemperatureRange == 0 {
		return s.Temperature
	}
	n := c.count()
	if n < 2 {
		return s.Temperature
	}
	sum, mean := c.moments()
	h := (kernels.Log64(sum) - mean) / kernels.Log64(float64(n))
	power := 0.0
	switch {
	case s.TemperatureExponent == 0:
		power = 1
	case h > 0: // not so after rounding, where one token has all
		if power = kernels.Pow64(min(h, 1), float64(s.TemperatureExponent)); !(power > 0) { // too small for Pow64
			power = 0
		}
	}
	low, high := max(0, float64(s.Temperature)-float64(s.TemperatureRange)), float64(s.Temperature)+float64(s.TemperatureRange)
	return float32(low + float64((high-low)*power))
}
