package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/session"
)

// samplingFlags say how tokens are chosen. What is not given comes from the
// named settings.
type samplingFlags struct {
	MaxTokens int    `short:"n" placeholder:"N" help:"At most this many new tokens, and at most what the model's context leaves. Default: 256."`
	Seed      uint64 `placeholder:"N" help:"Seed of the draws. The same seed gives the same answer on any swarm."`
	Sampling  string `enum:"greedy,llama.cpp" default:"greedy" placeholder:"NAME" help:"Where the following begin from: greedy, the default, or llama.cpp (temperature 0.8, top-k 40, top-p 0.95, min-p 0.05)."`

	Temperature *float32 `group:"Sampling" placeholder:"T" help:"0 takes the likeliest token each time; higher is bolder. Default: 0."`
	TopK        *int     `group:"Sampling" name:"top-k" placeholder:"K" help:"Draw from the K likeliest tokens only. Default: 0, all."`
	TopP        *float32 `group:"Sampling" name:"top-p" placeholder:"P" help:"Draw from the likeliest tokens that together have probability P. Default: 1, all."`
	MinP        *float32 `group:"Sampling" name:"min-p" placeholder:"P" help:"Drop tokens less likely than P times the likeliest. Default: 0."`
	Typical     *float32 `group:"Sampling" placeholder:"P" help:"Draw from the tokens nearest to the expected surprise that together have probability P. Default: 1, all."`

	XTCProbability *float32 `group:"Sampling" name:"xtc-probability" placeholder:"P" help:"How often all likely tokens but the least likely of them are excluded. Default: 0."`
	XTCThreshold   *float32 `group:"Sampling" name:"xtc-threshold" placeholder:"P" help:"Probability from which a token is likely, for XTC. Default: 0.1."`
	DynatempRange  *float32 `group:"Sampling" placeholder:"T" help:"Vary the temperature by so much, with how undecided the model is. Default: 0."`
	DynatempExp    *float32 `group:"Sampling" placeholder:"X" help:"Exponent from entropy to temperature. Default: 1."`

	RepeatLastN      *int     `group:"Sampling" name:"repeat-last-n" placeholder:"N" help:"Latest tokens that the three penalties look at; -1: all. Default: 64."`
	RepeatPenalty    *float32 `group:"Sampling" placeholder:"X" help:"Divide the logits of tokens that have occurred. Default: 1."`
	FrequencyPenalty *float32 `group:"Sampling" placeholder:"X" help:"Subtract from a token's logit for each time that it has occurred. Default: 0."`
	PresencePenalty  *float32 `group:"Sampling" placeholder:"X" help:"Subtract from the logits of tokens that have occurred. Default: 0."`

	DRYMultiplier       *float32 `group:"Sampling" name:"dry-multiplier" placeholder:"X" help:"Subtract X * base^(length - allowed length) from tokens that prolong a repetition. Default: 0."`
	DRYBase             *float32 `group:"Sampling" name:"dry-base" placeholder:"X" help:"Base of that. Default: 1.75."`
	DRYAllowedLength    *int     `group:"Sampling" name:"dry-allowed-length" placeholder:"N" help:"Repetitions up to so many tokens are free. Default: 2."`
	DRYPenaltyLastN     *int     `group:"Sampling" name:"dry-penalty-last-n" placeholder:"N" help:"Latest tokens that DRY looks at; -1: all. Default: -1."`
	DRYSequenceBreakers []string `group:"Sampling" name:"dry-sequence-breaker" sep:"none" placeholder:"TEXT" help:"Text at which repetitions end; give it again for more; none: there are none. Default: newline : \" *"`

	LogitBias []logitBias `group:"Sampling" sep:"none" placeholder:"TOKEN=X" help:"Add X to the logit of a token, given as its ID or as text (then of all tokens of it); ban excludes it. Give it again for more."`
}

// request returns what the flags ask for.
func (f *samplingFlags) request() session.Request {
	s, breakers := runtime.Greedy(), runtime.DefaultBreakers()
	if f.Sampling == "llama.cpp" {
		s = runtime.LlamaCpp()
	}
	switch {
	case len(f.DRYSequenceBreakers) == 1 && f.DRYSequenceBreakers[0] == "none":
		breakers = nil
	case len(f.DRYSequenceBreakers) > 0:
		breakers = f.DRYSequenceBreakers
	}
	q := session.Request{MaxNew: f.MaxTokens, Sampling: session.Sampling{Seed: f.Seed,
		Temperature: or(f.Temperature, s.Temperature), TopK: or(f.TopK, s.TopK), TopP: or(f.TopP, s.TopP), MinP: or(f.MinP, s.MinP), TypicalP: or(f.Typical, s.TypicalP),
		XTCProbability: or(f.XTCProbability, s.XTCProbability), XTCThreshold: or(f.XTCThreshold, s.XTCThreshold),
		TemperatureRange: or(f.DynatempRange, s.TemperatureRange), TemperatureExponent: or(f.DynatempExp, s.TemperatureExponent),
		PenaltyLastN: or(f.RepeatLastN, s.PenaltyLastN), RepetitionPenalty: or(f.RepeatPenalty, s.RepetitionPenalty),
		FrequencyPenalty: or(f.FrequencyPenalty, s.FrequencyPenalty), PresencePenalty: or(f.PresencePenalty, s.PresencePenalty),
		DRYMultiplier: or(f.DRYMultiplier, s.DRY.Multiplier), DRYBase: or(f.DRYBase, s.DRY.Base), DRYAllowedLength: or(f.DRYAllowedLength, s.DRY.AllowedLength),
		DRYLastN: or(f.DRYPenaltyLastN, s.DRY.LastN), DRYBreakers: breakers}}
	for _, b := range f.LogitBias {
		q.LogitBias = append(q.LogitBias, session.LogitBias(b))
	}
	return q
}

// or returns the value given, or the default.
func or[T any](given *T, def T) T {
	if given == nil {
		return def
	}
	return *given
}

// logitBias is a bias on the command line: 42=-1.5, " the=2" or 42=ban.
type logitBias session.LogitBias

// UnmarshalText parses a bias.
func (l *logitBias) UnmarshalText(b []byte) error {
	text := string(b)
	at := strings.LastIndexByte(text, '=')
	if at < 1 {
		return fmt.Errorf("logit bias %q: write a token's ID or text, = and what to add, such as 42=-1.5 or 42=ban", text)
	}
	var parsed logitBias
	id, err := strconv.ParseUint(text[:at], 10, 31)
	switch {
	case err == nil:
		parsed.Token = int32(id)
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("logit bias %q: no token has this ID", text)
	default:
		parsed.Text = text[:at]
	}
	if parsed.Ban = text[at+1:] == "ban"; !parsed.Ban {
		x, err := strconv.ParseFloat(text[at+1:], 32)
		if err != nil {
			return fmt.Errorf("logit bias %q: %q is not a number, nor ban", text, text[at+1:])
		}
		parsed.Bias = float32(x)
	}
	*l = parsed
	return nil
}
