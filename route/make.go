package route

import (
	"fmt"
	"slices"
	"strings"
)

// ExactPeers is the number of usable peers up to which [Make] finds the optimum; beyond it the search is a
// heuristic (see the package comment).
const ExactPeers = 8

// exactEffort is the number of labels after which an exact search goes on as a heuristic: about a second's worth.
// Only large models over many unequal peers, none of which can decode alone, come near it.
const exactEffort = 1 << 18

// Make plans one request. Offers and links may come from strangers: impossible ones are set aside with a reason.
// Errors wrap [ErrNoRoute], [ErrContext], [ErrConstraint] or [ErrModel].
func Make(m Model, peers []Peer, links []Link, r Request) (Plan, error) {
	if err := m.check(); err != nil {
		return Plan{}, err
	}
	if err := r.check(&m); err != nil {
		return Plan{}, err
	}
	in := newInstance(m, peers, r)
	if err := in.checkWanted(); err != nil {
		return Plan{}, err
	}
	best, ok := in.best(links)
	if !ok {
		return Plan{}, in.noRoute()
	}
	p := in.plan(best)
	if r.Reasons {
		in.net.learn(links, in.everybody(), false)
		p.Reasons = in.reasons(best, p.Predicted)
	}
	return p, nil
}

// checkWanted refuses a request that names peers which can't be used.
func (in *instance) checkWanted() error {
	for _, id := range slices.Concat(in.req.Assign, in.req.Include, []string{in.req.Decoder}) {
		if id == "" {
			continue
		}
		i := in.net.index(id)
		if i < 0 {
			return constraintf("peer %s is asked for but offers nothing", id)
		}
		if why := in.barred[i]; why != "" {
			return constraintf("peer %s is asked for but %s", id, why)
		}
	}
	for _, id := range []string{in.req.Decoder, in.req.assignedDecoder()} {
		if id == "" {
			continue
		}
		if why := in.undecoding(&in.peers[in.net.index(id)]); why != "" {
			return constraintf("peer %s is to decode but %s", id, why)
		}
	}
	return nil
}

// plan turns a route into what the caller gets.
func (in *instance) plan(r route) Plan {
	p := Plan{
		Shape:         r.shape,
		PromptTokens:  in.req.PromptTokens,
		NewTokens:     in.req.NewTokens,
		Guesses:       in.req.Guesses,
		Accepted:      in.req.Accepted,
		HeldTokens:    in.req.HeldTokens,
		Former:        in.req.Former,
		Stages:        make([]Stage, 0, len(r.peers)),
		Decoder:       in.peers[r.dec].ID,
		Draft:         in.peers[r.dec].Draft,
		DecoderLayers: Range{r.start(), in.model.Layers},
		Chunk:         r.chunk,
		LastChunk:     in.lastChunk(r),
		KVToDecoder:   r.kv,
		Predicted:     in.predict(r),
	}
	for i, j := range r.peers {
		a, b := r.span(i)
		p.Stages = append(p.Stages, Stage{Peer: in.peers[j].ID, Layers: Range{a, b}})
	}
	if r.shape == Pipelined {
		p.PushSeconds, p.PushFault = in.pushCost(r)
	}
	return p
}

// pushCost returns what sending cache rows to the decoder adds to the total of a pipelined route, or why they can't be sent.
func (in *instance) pushCost(r route) (seconds float64, fault string) {
	with, without := r, r
	with.kv, without.kv = true, false
	if fault = in.decoderFault(r.dec, r.start(), false, true); fault != "" {
		return 0, fault
	}
	return max(in.total(with)-in.total(without), 0), ""
}

// noRoute explains a search that found nothing.
func (in *instance) noRoute() error {
	e := &NoRouteError{}
	covered := make([]bool, in.model.Layers)
	var embed, head bool
	for i := range in.peers {
		p := &in.peers[i]
		e.Reasons = append(e.Reasons, Reason{Peer: p.ID, Text: in.idleText(i)})
		if in.barred[i] != "" {
			continue
		}
		head = head || in.undecoding(p) == ""
		for k, a := range in.bounds[:len(in.bounds)-1] {
			b := in.bounds[k+1]
			if !p.Holds.Contains(Range{a, b}) || !in.fits(p, a, b) {
				continue
			}
			embed = embed || a == 0 && p.Embed
			for x := a; x < b; x++ {
				covered[x] = true
			}
		}
	}
	for x, ok := range covered {
		if n := len(e.Uncovered); ok {
			continue
		} else if n > 0 && e.Uncovered[n-1].Last == x {
			e.Uncovered[n-1].Last++
		} else {
			e.Uncovered = append(e.Uncovered, Range{x, x + 1})
		}
	}
	var detail []string
	if !head {
		what := "no usable peer has the output head and decodes"
		if in.req.Draft != "" {
			what += ", with the draft model " + in.req.Draft
		}
		detail = append(detail, what)
	}
	if !embed {
		detail = append(detail, "no usable peer has the embedding table with the first layers")
	}
	if len(e.Uncovered) == 0 && len(detail) == 0 {
		if forced := in.req.forced(); forced != "" {
			return constraintf("no plan satisfies %s; every layer has a usable peer, so relax one of them", forced)
		}
		detail = append(detail, "every layer has a usable peer, but no order of different peers with enough memory joins them")
	}
	e.Detail = strings.Join(detail, "; ")
	return e
}

// forced lists what the request insists on, "" if nothing.
func (r *Request) forced() string {
	var out []string
	if r.Shape != Any {
		out = append(out, "shape "+r.Shape.String())
	}
	if len(r.Cuts) > 0 {
		out = append(out, fmt.Sprintf("cuts %v", r.Cuts))
	}
	if len(r.Assign) > 0 {
		out = append(out, fmt.Sprintf("assignment %q", r.Assign))
	}
	if r.Decoder != "" {
		out = append(out, "decoder "+r.Decoder)
	}
	if len(r.Include) > 0 {
		out = append(out, fmt.Sprintf("included peers %q", r.Include))
	}
	return strings.Join(out, ", ")
}
