package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
)

// maxMachines is how many machines a plan may be made with beside the swarm's.
const maxMachines = 8

// readMachines reads the machines of a request.
func readMachines(list []string) (more []route.Machine, err error) {
	if len(list) > maxMachines {
		return nil, fmt.Errorf("what if with %d machines more: %d are possible", len(list), maxMachines)
	}
	for _, text := range list {
		m, err := route.ParseMachine(text)
		if err != nil {
			return nil, err
		}
		more = append(more, m)
	}
	return more, nil
}

// whatIf plans as r does, with machines more. Each in turn holds the layers with which the plan is the fastest; where there is none yet, those
// that most are missing of.
func (n *Node) whatIf(ctx context.Context, id artifacts.ID, c *artifacts.Card, q control.PlanRequest, r *control.PlanReply, more []route.Machine) (*control.WhatIf, error) {
	w, req, peers, links, err := n.problem(ctx, id, c, q.PromptTokens, q.NewTokens, q.Constraints)
	if err != nil {
		return nil, err
	}
	tokens := q.PromptTokens + q.NewTokens
	model, offers, trip := planModel(c, q.PromptTokens, tokens, w.kv, w.seam), n.offersOf(id), usualRTT(links)
	result := &control.WhatIf{}
	for i, m := range more {
		name := fmt.Sprintf("new-%d", i+1)
		list := m.Offers(model, tokens, name)
		if len(list) == 0 {
			return nil, fmt.Errorf("what if with %v: there is no room for a layer of model %s and its cache for %d tokens", m, id.Short(), tokens)
		}
		if trip > 0 {
			for _, p := range peers {
				links = append(links, route.Link{From: name, To: p.ID, RTT: trip})
			}
		}
		var best route.Plan
		var failure error
		chosen := -1
		for j, p := range list {
			plan, err := w.plan(c, offers, append(slices.Clone(peers), p), links, req)
			switch {
			case err != nil:
				failure = err
			case chosen < 0 || plan.Predicted.TotalSeconds < best.Predicted.TotalSeconds:
				best, chosen = plan, j
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		if chosen < 0 {
			if i == len(more)-1 || !mayHelp(failure) {
				return nil, failure
			}
			chosen = mostMissing(list, peers)
		}
		p := list[chosen]
		peers, result.Plan = append(peers, p), best
		result.Machines = append(result.Machines, control.Addition{Peer: name, Machine: m, Layers: control.Layers{First: p.Holds.First, Last: p.Holds.Last - 1}})
	}
	result.Explain = explainWhatIf(r, result)
	return result, nil
}

// mayHelp reports whether there may be a plan with more machines.
func mayHelp(err error) bool {
	return errors.Is(err, route.ErrNoRoute) || errors.Is(err, route.ErrConstraint)
}

// mostMissing returns which offer holds the most layers that no peer does.
func mostMissing(list, peers []route.Peer) (best int) {
	most := -1
	for i, p := range list {
		missing := 0
		for l := p.Holds.First; l < p.Holds.Last; l++ {
			if !slices.ContainsFunc(peers, func(o route.Peer) bool { return o.Holds.Contains(route.Range{First: l, Last: l + 1}) }) {
				missing++
			}
		}
		if missing > most {
			best, most = i, missing
		}
	}
	return best
}

// usualRTT is the median of the round trips of links, in seconds; 0: none is known.
func usualRTT(links []route.Link) float64 {
	var list []float64
	for _, l := range links {
		if l.RTT > 0 {
			list = append(list, l.RTT)
		}
	}
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// explainWhatIf is what machines would bring, and the plan with them.
func explainWhatIf(r *control.PlanReply, w *control.WhatIf) string {
	var b strings.Builder
	b.WriteString("with")
	for i, a := range w.Machines {
		if i > 0 {
			b.WriteString(" and")
		}
		fmt.Fprintf(&b, " %s (%v, %v)", a.Peer, a.Machine, route.Range{First: a.Layers.First, Last: a.Layers.Last + 1})
	}
	after, p := w.Plan.Predicted, r.Plan.Predicted
	if r.NoPlan != "" {
		fmt.Fprintf(&b, " there is a plan, without there is none: %s\n", r.NoPlan)
	} else {
		fmt.Fprintf(&b, ", against the plan above:\n\n  first token  %.3g s instead of %.3g s, %.2f × as fast\n", after.FirstTokenSeconds, p.FirstTokenSeconds, p.FirstTokenSeconds/after.FirstTokenSeconds)
		if r.Plan.NewTokens > 1 {
			fmt.Fprintf(&b, "  then         %.3g tokens/s instead of %.3g, %.2f × as fast\n", 1/after.TokenSeconds, 1/p.TokenSeconds, p.TokenSeconds/after.TokenSeconds)
		}
		fmt.Fprintf(&b, "  total        %.3g s instead of %.3g s, %.2f × as fast\n", after.TotalSeconds, p.TotalSeconds, p.TotalSeconds/after.TotalSeconds)
	}
	return b.String() + "\n" + w.Plan.Explain()
}
