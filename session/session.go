package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

var (
	// ErrRunning is what a call gets while a step is in progress that it would disturb.
	ErrRunning = errors.New("a step of the session is in progress")
	// ErrClosed is what calls get after Close, and a step that Close ends.
	ErrClosed = errors.New("the session is closed")
)

// Options say with which model a session talks, and who computes.
type Options struct {
	// Model is an ID, six or more digits of its start, or a unique name; "" means the only model known.
	Model string
	// Constraints narrow the choice of a route. A given shape, cut or assignment is walked by the session's first step, and by a
	// later one that has much to compute; else the decoder goes on alone from its cache. The zero value leaves all to the planner. Seams that are rounded where the first
	// plan with stages cuts are rounded there in all later steps.
	Constraints
	// Wait is how long a step waits for room where every peer that could compute it is busy; 0: it fails at once.
	Wait time.Duration
	// On gets everything that the node tells of a step as it comes: progress, plans, tokens, rows. It is called from the goroutine
	// of the step, and forks share it; nil means that nobody listens.
	On func(Event)
}

// Session is a history of tokens that goes on, with a model of a swarm.
type Session struct {
	client  *control.Client
	options Options
	model   Model

	mu      sync.Mutex
	tokens  []int32
	walked  bool // a step has walked a given route
	account *Account
	end     context.CancelCauseFunc // ends the step in progress; nil: there is none
	closed  bool
}

// Open begins an empty session. It finds the model out, whose header may have to be fetched for it, and asks nobody to compute.
// The client stays the caller's, who closes it after the session.
func Open(ctx context.Context, client *control.Client, o Options) (*Session, error) {
	m, err := client.Model(ctx, control.ModelRequest{Model: o.Model}, o.On)
	if err != nil {
		return nil, err
	}
	return &Session{client: client, options: o, model: *m}, nil
}

// Model describes the session's model: NumLayers, Width, Vocab, Context and its ID.
func (s *Session) Model() Model { return s.model }

// Len is the length of the history in tokens.
func (s *Session) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tokens)
}

// Tokens returns a copy of the history.
func (s *Session) Tokens() []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokens)
}

// Account is what the latest complete step cost: Reused says how much of it was in a cache. nil before the first one. Not to be
// changed.
func (s *Session) Account() *Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.account
}

// Append adds tokens to the history; they are computed by the next step.
func (s *Session) Append(tokens ...int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.idleLocked(); err != nil {
		return err
	}
	return s.appendLocked(tokens)
}

func (s *Session) appendLocked(tokens []int32) error {
	for _, id := range tokens {
		if id < 0 || int(id) >= s.model.Vocab {
			return fmt.Errorf("token %d: the vocabulary has %d", id, s.model.Vocab)
		}
	}
	if n := len(s.tokens) + len(tokens); n > s.model.Context {
		return &Error{Kind: TooLong, Text: fmt.Sprintf("a history of %d tokens: the model's context has %d positions", n, s.model.Context), Tokens: n, Context: s.model.Context}
	}
	s.tokens = append(s.tokens, tokens...)
	return nil
}

// AppendText adds a text as it is, without the model's chat template. At the beginning of a history it gets the tokens that the model
// wants before a text.
func (s *Session) AppendText(ctx context.Context, text string) error {
	tokens, err := s.client.Tokenize(ctx, control.TokenizeRequest{Model: s.model.ID, Text: text, Special: s.Len() == 0})
	if err != nil {
		return err
	}
	return s.Append(tokens...)
}

// Chat makes the history that of a conversation, as the model's template writes it, up to where the next answer begins. What it has
// in common with the history before is not computed again.
func (s *Session) Chat(ctx context.Context, messages []Message) error {
	tokens, err := s.client.Tokenize(ctx, control.TokenizeRequest{Model: s.model.ID, Messages: messages})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.idleLocked(); err != nil {
		return err
	}
	old := s.tokens
	s.tokens = nil
	if err = s.appendLocked(tokens); err != nil {
		s.tokens = old
	}
	return err
}

// Rewind cuts the history to its first n tokens.
func (s *Session) Rewind(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.idleLocked(); err != nil {
		return err
	}
	if n < 0 || n > len(s.tokens) {
		return fmt.Errorf("rewind to position %d of a history of %d tokens", n, len(s.tokens))
	}
	s.tokens = s.tokens[:n:n]
	return nil
}

// Fork returns a session of its own with the same history, also while a step is in progress: of that it has the tokens so far.
func (s *Session) Fork() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Session{client: s.client, options: s.options, model: s.model, tokens: slices.Clone(s.tokens), walked: s.walked, closed: s.closed}
}

// Close ends the step in progress, if there is one, and the session. Its decoder keeps the caches for a while, as those of every
// session, until it needs the memory.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; s.end != nil {
		s.end(ErrClosed)
	}
}

func (s *Session) idleLocked() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.end != nil:
		return ErrRunning
	}
	return nil
}

// run makes one request of the first n tokens of the history, all of them where n is below 0. Only one runs at a time. On gets its
// events; what it returns false to ends the request, which then has no account and no error.
func (s *Session) run(ctx context.Context, n int, q control.RunRequest, on func(Event) bool) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s.mu.Lock()
	err := s.idleLocked()
	if err == nil && n < 0 {
		n = len(s.tokens)
	}
	if err == nil && (n == 0 || n > len(s.tokens)) {
		err = fmt.Errorf("a step of %d tokens, the history has %d: append some", n, len(s.tokens))
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	s.end = end
	q.Model, q.Constraints, q.Wait, q.Tokens, q.Continued = s.model.ID, s.options.Constraints, s.options.Wait, slices.Clone(s.tokens[:n]), s.walked
	s.mu.Unlock()
	enough := false
	a, err := s.client.Run(ctx, q, func(ev Event) {
		if enough {
			return
		}
		if s.options.On != nil {
			s.options.On(ev)
		}
		if !on(ev) {
			enough = true
			end(nil)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = nil
	switch {
	case enough:
		return nil
	case err != nil && context.Cause(ctx) == ErrClosed:
		return ErrClosed
	case err == nil:
		if s.walked, s.account = true, a; a.Seam != "f32" {
			s.options.KV, s.options.Seam = a.KV, a.Seam
		} else if a.KV != "f16" {
			s.options.KV = a.KV
		}
	}
	return err
}
