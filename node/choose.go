package node

import (
	"context"
	"maps"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
)

// Whom a client asks for what is left of its answer.

// choose plans what is left of the answer, and returns what the plan had to heed.
func (s *clientSession) choose(ctx context.Context, left int) (route.Plan, control.Constraints, error) {
	k := s.req.Constraints
	k.Excluded = maps.Clone(s.excluded)
	for p, r := range s.full {
		k.Excluded[p] = r.Error()
	}
	if s.failed > 0 {
		// What was asked for has failed; from here on any route will do.
		k.Cuts, k.Assign, k.Decoder, k.Shape, k.Draft = nil, nil, "", "", ""
	}
	plan, err := s.route(ctx, k, left)
	if err != nil {
		if hopeful, without := s.n.planWithoutKV(ctx, s.model, s.card, len(s.prompt)+len(s.made), left, k, func(string) bool { return true }); without == nil {
			plan, err = hopeful, nil
		}
	}
	return plan, k, err
}

// forgive takes decoders into account again that were lost without a word, where nobody else is left: the link to them may have broken, or they have
// been stopped, or have begun again. Each has one more try, until there is a new token. It reports whether there are any.
func (s *clientSession) forgive() (some bool) {
	for p, forgiven := range s.silent {
		if _, out := s.excluded[p]; out && !forgiven {
			delete(s.excluded, p)
			s.silent[p], some = true, true
		}
	}
	return some
}

// route plans what is left of the answer; over the decoder that has the cache of what the prompt begins with, where that can be.
func (s *clientSession) route(ctx context.Context, k control.Constraints, left int) (route.Plan, error) {
	tokens := len(s.prompt) + len(s.made)
	if d := s.n.recent.answer(s.model, s.prompt, k); d.decoder != "" && s.count == 0 && !s.req.Fresh && (!planned(k) || s.req.Continued) && k.Decoder == "" && k.Decode != "here" {
		to := k
		to.Decoder, to.KV, to.Seam = d.decoder, d.kv, d.seam
		if plan, err := s.n.plan(ctx, s.model, s.card, tokens, left, to); err == nil {
			return plan, nil
		}
	}
	return s.n.plan(ctx, s.model, s.card, tokens, left, k)
}
