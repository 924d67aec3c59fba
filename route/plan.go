package route

import (
	"fmt"
	"slices"
)

// Stage is one remote hop of a plan: a peer that prefills a layer range and hands the seam on.
type Stage struct {
	Peer   string `json:"peer"`
	Layers Range  `json:"layers"`
}

// Plan says who does what for one request. It is data: peers are names, and nothing in it holds resources.
type Plan struct {
	Shape Shape `json:"shape"`
	// PromptTokens and NewTokens are the request's; memory and predictions hold for them.
	PromptTokens int `json:"prompt_tokens"`
	NewTokens    int `json:"new_tokens"`
	// Guesses and Accepted are the request's: how many tokens are guessed with each that is decoded, and how many of them are right.
	Guesses  float64 `json:"guesses,omitempty"`
	Accepted float64 `json:"accepted,omitempty"`
	// HeldTokens and Former are the request's: what the decoder has already, and who has had which stage.
	HeldTokens int     `json:"held_tokens,omitempty"`
	Former     []Stage `json:"former,omitempty"`
	// Stages are the remote ranges before the decoder's, ascending from layer 0. Empty in a local plan.
	Stages []Stage `json:"stages"`
	// Decoder samples and, except in a pipelined plan, decodes all layers alone.
	Decoder string `json:"decoder"`
	// Draft names the model that guesses ahead there; "" if there is none.
	Draft string `json:"draft,omitempty"`
	// DecoderLayers is what the decoder runs in prefill: up to the last layer, and possibly empty.
	DecoderLayers Range `json:"decoder_layers"`
	// Chunk is the number of prompt tokens that travel together, at most.
	Chunk int `json:"chunk"`
	// LastChunk is the number of tokens of a prompt's last chunks where it walks a route, from 1 to Chunk.
	LastChunk int `json:"last_chunk"`
	// KVToDecoder says that stages send their cache rows to the decoder. False in a local plan; in a pipelined plan
	// false means that losing a stage costs a replay of the prompt.
	KVToDecoder bool `json:"kv_to_decoder"`
	// PushSeconds is how much of a pipelined plan's total is for sending cache rows to the decoder, or would be if they were sent.
	// 0 in other shapes, and where PushFault says why that decoder can't have them.
	PushSeconds float64 `json:"push_seconds,omitempty"`
	PushFault   string  `json:"push_fault,omitempty"`
	// KV and Seam name how everybody rounds, for whom the sizes of the model hold: "f16", and "f32" or "q8_0@10,20", the seam's
	// type and the cuts where it is rounded. The planner leaves them to its caller.
	KV   string `json:"kv,omitempty"`
	Seam string `json:"seam,omitempty"`

	Predicted Prediction `json:"predicted"`
	// Reasons has one entry per distinct peer offered, by ID, where the request asks for them.
	Reasons []Reason `json:"reasons,omitempty"`
}

// Reason says in words whether and why a peer is used.
type Reason struct {
	Peer string `json:"peer"`
	Used bool   `json:"used"`
	Text string `json:"text"`
}

// Ranges returns the number of layer ranges: the stages and the decoder's own.
func (p Plan) Ranges() int { return len(p.Stages) + 1 }

// Validate checks that p is a plan the model and the offers allow: ranges contiguous and legal, every peer known,
// used once, holding what it is asked to run, and with memory and context for the plan's tokens.
// The error wraps [ErrInvalid] or [ErrModel].
func (p Plan) Validate(m Model, peers []Peer) error {
	in, r, err := p.resolve(m, peers, nil)
	if err != nil {
		return err
	}
	if why := in.feasible(r); why != "" {
		return fmt.Errorf("%w: %s", ErrInvalid, why)
	}
	return nil
}

// Predict returns what p costs over the given offers and links, whoever made it. The error is [Plan.Validate]'s.
func (p Plan) Predict(m Model, peers []Peer, links []Link) (Prediction, error) {
	in, r, err := p.resolve(m, peers, links)
	if err != nil {
		return Prediction{}, err
	}
	if why := in.feasible(r); why != "" {
		return Prediction{}, fmt.Errorf("%w: %s", ErrInvalid, why)
	}
	return in.predict(r), nil
}

// resolve turns peer names into indexes and layer ranges into ends, checking what indexes can't express.
func (p Plan) resolve(m Model, peers []Peer, links []Link) (*instance, route, error) {
	if err := m.check(); err != nil {
		return nil, route{}, err
	}
	bad := func(format string, args ...any) (*instance, route, error) {
		return nil, route{}, fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	if p.PromptTokens < 1 || p.NewTokens < 0 || p.PromptTokens > maxTokens || p.NewTokens > maxTokens {
		return bad("%d prompt tokens and %d new ones", p.PromptTokens, p.NewTokens)
	}
	if p.HeldTokens < 0 || p.HeldTokens >= p.PromptTokens {
		return bad("%d tokens held of a prompt of %d", p.HeldTokens, p.PromptTokens)
	}
	if p.Chunk < 1 || p.Chunk > p.PromptTokens-p.HeldTokens {
		return bad("a chunk of %d for a prompt of %d tokens", p.Chunk, p.PromptTokens-p.HeldTokens)
	}
	if p.LastChunk < 1 || p.LastChunk > p.Chunk {
		return bad("last chunks of %d tokens, others have %d", p.LastChunk, p.Chunk)
	}
	req := Request{PromptTokens: p.PromptTokens, NewTokens: p.NewTokens, Guesses: p.Guesses, Accepted: p.Accepted, HeldTokens: p.HeldTokens, Former: p.Former}
	if why := req.guessFault(); why != "" {
		return bad("%s", why)
	}
	in := newInstance(m, peers, req)
	r := route{shape: p.Shape, kv: p.KVToDecoder, chunk: p.Chunk}
	next := 0
	for i, s := range p.Stages {
		if s.Layers.First != next || s.Layers.Len() < 1 {
			return bad("stage %d has layers [%d, %d) where %d comes next", i+1, s.Layers.First, s.Layers.Last, next)
		}
		next = s.Layers.Last
		j := in.net.index(s.Peer)
		if j < 0 {
			return bad("stage %d is peer %s, which offers nothing", i+1, s.Peer)
		}
		r.peers = append(r.peers, j)
		r.ends = append(r.ends, next)
	}
	if p.DecoderLayers != (Range{next, m.Layers}) {
		return bad("the decoder has layers [%d, %d) where [%d, %d) is left", p.DecoderLayers.First, p.DecoderLayers.Last, next, m.Layers)
	}
	if r.dec = in.net.index(p.Decoder); r.dec < 0 {
		return bad("the decoder is peer %s, which offers nothing", p.Decoder)
	}
	in.net.learn(links, append(slices.Clone(r.peers), r.dec), false)
	return in, r, nil
}
