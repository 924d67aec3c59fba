package node

import (
	"cmp"
	"fmt"
	"math"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/tokenizer"
	"github.com/starling-swarm/starling/swarm/wire"
)

// defaultMaxNew is how many tokens an answer may have when the request doesn't
// say and the model's context has room.
const defaultMaxNew = 256

// MaxNew returns how many tokens the answer to a prompt of so many tokens may
// have, if asked are asked for (0: what is usual): an answer that reaches the
// end of the model's context ends there. A prompt that leaves room for none is
// an error.
func MaxNew(prompt, asked, context int) (int, error) {
	switch room := context - prompt; {
	case asked < 0:
		return 0, bad(fmt.Errorf("%d new tokens asked for: at least 1, or 0 for the default of %d", asked, defaultMaxNew))
	case room < 1:
		return 0, tooLong(prompt, context, "the prompt has %d tokens, and the model's context of %d has no room for an answer: shorten the prompt", prompt, context)
	case asked == 0:
		return min(defaultMaxNew, room), nil
	default:
		return min(asked, room), nil
	}
}

// fits checks that a prompt of which nothing is asked but to be computed has room in the model's context.
func fits(prompt, context int) error {
	if prompt > context {
		return tooLong(prompt, context, "the prompt has %d tokens, the model's context %d: shorten the prompt", prompt, context)
	}
	return nil
}

// Sampling returns settings as a model with this tokenizer takes
// them, or an error that names the first one out of range. A top-k beyond every
// vocabulary means all of it.
func Sampling(q *control.Sampling, tok *tokenizer.Tokenizer) (runtime.Sampling, error) {
	s := runtime.Sampling{
		Seed: q.Seed, Temperature: q.Temperature, TemperatureRange: q.TemperatureRange, TemperatureExponent: q.TemperatureExponent,
		TopK: min(q.TopK, math.MaxInt32), TypicalP: q.TypicalP, TopP: q.TopP, MinP: q.MinP, XTCProbability: q.XTCProbability, XTCThreshold: q.XTCThreshold,
		PenaltyLastN: q.PenaltyLastN, RepetitionPenalty: q.RepetitionPenalty, FrequencyPenalty: q.FrequencyPenalty, PresencePenalty: q.PresencePenalty,
		DRY: runtime.DRY{Multiplier: q.DRYMultiplier, Base: q.DRYBase, AllowedLength: q.DRYAllowedLength, LastN: q.DRYLastN},
	}
	for _, b := range q.LogitBias {
		ids := []int32{b.Token}
		if b.Text != "" {
			ids = tok.Encode(b.Text, tokenizer.EncodeOptions{})
		}
		if b.Ban {
			b.Bias = runtime.Ban
		}
		seen := map[int32]bool{} // a text may have a token twice
		for _, id := range ids {
			if int(id) >= tok.Size() {
				return s, fmt.Errorf("logit bias: token %d: the vocabulary has %d", id, tok.Size())
			}
			if !seen[id] {
				s.Bias = append(s.Bias, runtime.TokenBias{ID: id, Bias: b.Bias})
			}
			seen[id] = true
		}
	}
	if q.Logprobs < 0 || q.Logprobs > runtime.MaxLogprobs {
		return s, fmt.Errorf("log-probabilities of %d tokens: at most %d", q.Logprobs, runtime.MaxLogprobs)
	}
	err := finishSampling(&s, q.DRYBreakers, tok)
	return s, err
}

// finishSampling adds the sequence breakers and checks everything.
func finishSampling(s *runtime.Sampling, breakers []string, tok *tokenizer.Tokenizer) (err error) {
	if s.DRY.Multiplier != 0 {
		s.DRY.Breakers, err = runtime.NewBreakers(tok, breakers)
	}
	return cmp.Or(s.Validate(), err)
}

// wireSampling returns valid settings, and the sequence breakers as texts, as
// they travel.
func wireSampling(s *runtime.Sampling, breakers []string) wire.Sampling {
	w := wire.Sampling{
		Seed: s.Seed, Temperature: s.Temperature, TemperatureRange: s.TemperatureRange, TemperatureExponent: s.TemperatureExponent,
		TopK: uint32(s.TopK), TypicalP: s.TypicalP, TopP: s.TopP, MinP: s.MinP, XTCProbability: s.XTCProbability, XTCThreshold: s.XTCThreshold,
		PenaltyLastN: int32(s.PenaltyLastN), RepetitionPenalty: s.RepetitionPenalty, FrequencyPenalty: s.FrequencyPenalty, PresencePenalty: s.PresencePenalty,
		DRYMultiplier: s.DRY.Multiplier, DRYBase: s.DRY.Base, DRYAllowedLength: uint32(s.DRY.AllowedLength), DRYLastN: int32(s.DRY.LastN),
	}
	if s.DRY.Multiplier != 0 {
		w.DRYBreakers = breakers
	}
	for _, b := range s.Bias {
		w.Bias = append(w.Bias, wire.TokenBias{ID: uint32(b.ID), Bias: b.Bias})
	}
	return w
}

// readSampling is wireSampling's inverse; it checks everything.
func readSampling(w *wire.Sampling, tok *tokenizer.Tokenizer) (runtime.Sampling, error) {
	s := runtime.Sampling{
		Seed: w.Seed, Temperature: w.Temperature, TemperatureRange: w.TemperatureRange, TemperatureExponent: w.TemperatureExponent,
		TopK: int(w.TopK), TypicalP: w.TypicalP, TopP: w.TopP, MinP: w.MinP, XTCProbability: w.XTCProbability, XTCThreshold: w.XTCThreshold,
		PenaltyLastN: int(w.PenaltyLastN), RepetitionPenalty: w.RepetitionPenalty, FrequencyPenalty: w.FrequencyPenalty, PresencePenalty: w.PresencePenalty,
		DRY: runtime.DRY{Multiplier: w.DRYMultiplier, Base: w.DRYBase, AllowedLength: int(w.DRYAllowedLength), LastN: int(w.DRYLastN)},
	}
	for _, b := range w.Bias {
		s.Bias = append(s.Bias, runtime.TokenBias{ID: int32(b.ID), Bias: b.Bias}) // an ID beyond int32 turns negative, which is refused
	}
	err := finishSampling(&s, w.DRYBreakers, tok)
	return s, err
}

// Logprobs returns the log-probabilities of a chosen token, and of the
// likeliest, for an event.
func Logprobs(tok *tokenizer.Tokenizer, chosen runtime.Logprob, top []runtime.Logprob) []control.Logprob {
	var list []control.Logprob
	for _, p := range append([]runtime.Logprob{chosen}, top...) {
		list = append(list, control.Logprob{Token: p.ID, Text: tok.Decode([]int32{p.ID}, true), Logprob: p.Logprob})
	}
	return list
}
