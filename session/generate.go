package session

import (
	"context"
	"iter"

	"github.com/starling-swarm/starling/node/control"
)

// Token is one token of an answer.
type Token struct {
	ID   int32
	Text string // what the answer's text grows by: whole runes, and nothing that may begin a stop text, so that some tokens have none; nor has an end token
	// Logprobs are, if asked for, of ID and then of the likeliest tokens, by the model alone.
	Logprobs []Logprob
}

// Prefill computes the history, so that its decoder's cache has it when the next step comes; but for its last token, which any step
// computes for what follows it. Without a history of at least two tokens it does nothing.
func (s *Session) Prefill(ctx context.Context) error {
	n := s.Len() - 1
	if n < 1 {
		return nil
	}
	return s.run(ctx, n, control.RunRequest{PromptOnly: true}, func(Event) bool { return true })
}

// Generate goes on with the history and appends what it makes, each token before it is told. Leaving the loop ends the step; the
// tokens told so far stay, and there is no account. After an error no other token comes; the loop's last round has it.
func (s *Session) Generate(ctx context.Context, q Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		r := control.RunRequest{MaxNew: q.MaxNew, Sampling: q.Sampling, Stop: q.Stop, Fresh: q.Fresh, NoGuess: q.NoGuess, Proof: q.Proof, Timeline: q.Timeline}
		err := s.run(ctx, -1, r, func(ev Event) bool {
			if ev.Kind != "text" {
				return true
			}
			s.mu.Lock()
			s.tokens = append(s.tokens, ev.Token)
			s.mu.Unlock()
			return yield(Token{ev.Token, ev.Text, ev.Logprobs}, nil)
		})
		if err != nil {
			yield(Token{}, err)
		}
	}
}
