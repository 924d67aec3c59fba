package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/starling-swarm/starling/session"
)

// asking is a request for answers to one prompt.
type asking struct {
	g *gateway
	s *session.Session // its history is the prompt

	mu    sync.Mutex
	peers []string // decoder, then stages, of the latest plan
}

// open begins a session with a model.
func (g *gateway) open(ctx context.Context, model string) (*asking, error) {
	a := &asking{g: g}
	s, err := session.Open(ctx, g.client, session.Options{Model: model, Wait: g.wait, On: a.event})
	if err != nil {
		return nil, err
	}
	a.s = s
	return a, nil
}

// event notes who computes.
func (a *asking) event(ev session.Event) {
	if ev.Plan == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &ev.Plan.Plan
	a.peers = []string{p.Decoder}
	for _, st := range p.Stages {
		a.peers = append(a.peers, st.Peer)
	}
}

// sign says in a reply's header who computed.
func (a *asking) sign(h http.Header) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.Set("Starling-Peers", strings.Join(a.peers, ","))
}

// usage counts tokens as OpenAI does: the prompt of several answers once.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// add counts an answer to a prompt of so many tokens, the first one to it or another.
func (u *usage) add(prompt int, first bool, account *session.Account) {
	if first {
		u.Prompt += prompt
		u.Details.Cached += account.Reused
	}
	u.Completion += len(account.NewTokens)
	u.Total = u.Prompt + u.Completion
}

// answers makes n answers to the prompt, each with a seed of its own after the first one's. piece gets every token as it comes, of all answers at
// once, and ends everything by an error; done gets each answer's account.
func (a *asking) answers(ctx context.Context, n int, q session.Request, piece func(choice int, t session.Token) error, done func(choice int, account *session.Account) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	sessions := []*session.Session{a.s}
	for len(sessions) < n {
		sessions = append(sessions, a.s.Fork())
	}
	var all sync.WaitGroup
	for choice, s := range sessions {
		q := q
		q.Seed += uint64(choice)
		all.Go(func() {
			err := generate(ctx, s, q, func(t session.Token) error { return piece(choice, t) })
			if err == nil {
				err = done(choice, s.Account())
			}
			if err != nil {
				end(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// generate hands on an answer's tokens.
func generate(ctx context.Context, s *session.Session, q session.Request, piece func(session.Token) error) error {
	for t, err := range s.Generate(ctx, q) {
		if err == nil {
			err = piece(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newID names an answer.
func newID(prefix string) string {
	var b [12]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}
