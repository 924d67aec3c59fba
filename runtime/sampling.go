package runtime

import (
	"fmt"
	"math"
)

// Sampling says how to choose a token from logits. The zero value is greedy. Names, meanings and ranges are llama.cpp's
// (common/common.h, common_params_sampling), and so is the order of the steps; Sample has both in full.
type Sampling struct {
	// Seed and Choice key the random numbers: the same key, position, history and logits give the same token,
	// everywhere and always. Choice tells apart several continuations of one prompt.
	Seed   uint64
	Choice uint32

	// Bias is added to logits, in any order; each token may be in it once.
	Bias []TokenBias

	// PenaltyLastN is how many of the latest tokens the three penalties look at: 0 none, −1 all.
	PenaltyLastN int
	// RepetitionPenalty divides a token's logit where it is positive and multiplies it elsewhere; 0 and 1 do nothing. At
	// most 100. FrequencyPenalty is subtracted for each time the token occurs, PresencePenalty once; both within ±100.
	RepetitionPenalty, FrequencyPenalty, PresencePenalty float32

	DRY DRY

	// TopK keeps that many of the largest logits; 0 keeps all.
	TopK int
	// TypicalP keeps the fewest tokens of the most typical probabilities whose sum exceeds it (Meister et al. 2022,
	// arXiv:2202.00666); 0 and 1 keep all.
	TypicalP float32
	// TopP keeps the fewest largest probabilities whose sum reaches it; 0 and 1 keep all.
	TopP float32
	// MinP keeps probabilities of at least MinP times the largest; 0 keeps all.
	MinP float32
	// XTCProbability is how often, of the tokens whose probability is at least XTCThreshold, all but the least likely are
	// excluded. 0, or a threshold above ½, where there never are two, does nothing.
	XTCProbability, XTCThreshold float32

	// Temperature divides the logits; 0 takes the largest of what is left. At most 100.
	Temperature float32
	// TemperatureRange makes the temperature depend on how undecided the model is: within ± the range, at least 0,
	// growing with the entropy of what is left, as a share of the largest possible, to the power of
	// TemperatureExponent. A range of 0 does nothing. Both at most 100.
	TemperatureRange, TemperatureExponent float32
}

// TokenBias changes the logit of one token, within ±1000; Ban excludes it.
type TokenBias struct {
	ID   int32
	Bias float32
}

// Ban is the bias of a token that must not be chosen.
const Ban float32 = -math.MaxFloat32

// MaxBias bounds the tokens that have a bias.
const MaxBias = 4096

// LlamaCpp returns llama.cpp's default settings. Those of samplers that it has off are what they begin from once turned on.
func LlamaCpp() Sampling {
	s := Greedy()
	s.Temperature, s.TopK, s.TopP, s.MinP = 0.8, 40, 0.95, 0.05
	return s
}

// Greedy returns greedy settings, in which every other sampler does nothing until its main parameter is set; the rest are
// llama.cpp's defaults.
func Greedy() Sampling {
	return Sampling{
		PenaltyLastN: 64, RepetitionPenalty: 1, TypicalP: 1, TopP: 1, XTCThreshold: 0.1, TemperatureExponent: 1,
		DRY: DRY{Base: 1.75, AllowedLength: 2, LastN: -1},
	}
}

// Validate returns an error that names the first setting out of range.
func (s *Sampling) Validate() error {
	for _, r := range []struct {
		name           string
		v, least, most float32
	}{
		{"repetition penalty", s.RepetitionPenalty, 0, 100},
		{"frequency penalty", s.FrequencyPenalty, -100, 100},
		{"presence penalty", s.PresencePenalty, -100, 100},
		{"DRY multiplier", s.DRY.Multiplier, 0, 100},
		{"DRY base", s.DRY.Base, 0, 100},
		{"typical-p", s.TypicalP, 0, 1},
		{"top-p", s.TopP, 0, 1},
		{"min-p", s.MinP, 0, 1},
		{"XTC probability", s.XTCProbability, 0, 1},
		{"XTC threshold", s.XTCThreshold, 0, 1},
		{"temperature", s.Temperature, 0, 100},
		{"temperature range", s.TemperatureRange, 0, 100},
		{"temperature exponent", s.TemperatureExponent, 0, 100},
	} {
		if !(r.v >= r.least && r.v <= r.most) { // also for NaN
			return fmt.Errorf("runtime: %s %v: not within %v to %v", r.name, r.v, r.least, r.most)
		}
	}
	for _, r := range []struct {
		name     string
		v, least int
	}{
		{"top-k", s.TopK, 0},
		{"penalty last-n", s.PenaltyLastN, -1},
		{"DRY allowed length", s.DRY.AllowedLength, 0},
		{"DRY penalty last-n", s.DRY.LastN, -1},
	} {
		if r.v < r.least || r.v > math.MaxInt32 {
			return fmt.Errorf("runtime: %s %d: not within %d to %d", r.name, r.v, r.least, math.MaxInt32)
		}
	}
	if len(s.Bias) > MaxBias {
		return fmt.Errorf("runtime: logit bias of %d tokens: at most %d", len(s.Bias), MaxBias)
	}
	seen := make(map[int32]bool, len(s.Bias))
	for _, b := range s.Bias {
		switch {
		case b.ID < 0 || seen[b.ID]:
			return fmt.Errorf("runtime: logit bias: token %d is none, or there twice", b.ID)
		case b.Bias != Ban && !(b.Bias >= -1000 && b.Bias <= 1000):
			return fmt.Errorf("runtime: logit bias %v of token %d: not within ±1000, nor a ban", b.Bias, b.ID)
		}
		seen[b.ID] = true
	}
	return nil
}
