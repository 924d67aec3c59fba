package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// A session's numerics profile is what its client chose, signed in the grant, by the rules that all its peers share. Seams are
// rounded at the cuts that the grant names, by whoever runs the layers before them: at first those of the plan, and the same
// after any loss, so that the answer is a function of tokens and profile alone. Where the residual stream travels at another
// place it is f32.

// profileOf returns the profile of a session, or refuses what this executor can't compute.
func profileOf(e runtime.Executor, chosen wire.Numerics) (runtime.Profile, *wire.Refusal) {
	cuts := make([]int, len(chosen.Cuts))
	for i, c := range chosen.Cuts {
		cuts[i] = int(c)
	}
	p := e.Profile().Rounding(runtime.KVType(chosen.KV), runtime.SeamType(chosen.Seam), cuts)
	if err := e.Computes(p); err != nil {
		return p, wire.Refuse(wire.CodeProfile, "this node can't compute by the session's profile: %v", err)
	}
	return p, nil
}

// numericsOf is profileOf's inverse.
func numericsOf(kv runtime.KVType, seam runtime.SeamType, cuts []int) wire.Numerics {
	n := wire.Numerics{KV: uint8(kv), Seam: uint8(seam)}
	for _, c := range cuts {
		n.Cuts = append(n.Cuts, uint32(c))
	}
	return n
}

// seam is the type of the seams that come to a decoder.
func (d *decoding) seam() runtime.SeamType { return d.seq.Profile().SeamAt(int(d.plan.DecoderFirst)) }

// offerProfiles sets what an executor says of its profiles in an offer.
func offerProfiles(o *swarm.Offer, e runtime.Executor) {
	own := e.Profile()
	o.Profile = own.ID()
	for _, kv := range runtime.KVTypes() {
		if e.Computes(own.Rounding(kv, runtime.SeamF32, nil)) == nil {
			o.KVTypes |= 1 << kv
		}
	}
	for _, seam := range runtime.SeamTypes() {
		if e.Computes(own.Rounding(own.KV, seam, []int{1})) == nil {
			o.SeamTypes |= 1 << seam
		}
	}
}

// wanted is what a request says of its session's profile.
type wanted struct {
	kv   runtime.KVType
	seam runtime.SeamType
	cuts []int // where seams are rounded; nil: where the plan cuts

	autoKV, autoSeam bool // the plan may choose the type
}

func readNumerics(k control.Constraints) (w wanted, err error) {
	if w.autoKV = k.KV == "auto"; !w.autoKV {
		if w.kv, err = runtime.ParseKVType(cmp.Or(k.KV, runtime.KVF16.String())); err != nil {
			return w, err
		}
	}
	if w.autoSeam = k.Seam == "auto"; w.autoSeam {
		return w, nil
	}
	w.seam, w.cuts, err = runtime.ParseSeam(cmp.Or(k.Seam, runtime.SeamF32.String()))
	return w, err
}

// autoMargin is how much longer a whole answer may take with finer numbers; autoKV and autoSeams are what "auto" chooses from, the finest
// first: seams in half precision are not among them, for what exceeds it ends a session.
const autoMargin = 0.10

var (
	autoKV    = []runtime.KVType{runtime.KVF16, runtime.KVQ8}
	autoSeams = []runtime.SeamType{runtime.SeamF32, runtime.SeamBF16, runtime.SeamQ8}
)

// plan makes the best plan for a request, with its numerics filled in. Of the types that it may choose from it takes the finest with which
// the answer hardly takes longer than with any, and rounds seams, which are gone with the prompt, before rows, which every token reads.
func (w wanted) plan(c *artifacts.Card, offers []swarm.Offer, peers []route.Peer, links []route.Link, req route.Request) (route.Plan, error) {
	if n := len(w.cuts); n > 0 && w.cuts[n-1] > c.Layers {
		return route.Plan{}, fmt.Errorf("seams are to be rounded before layer %d: the model has %d layers", w.cuts[n-1], c.Layers)
	}
	rows, seams := []runtime.KVType{w.kv}, []runtime.SeamType{w.seam}
	if w.autoKV {
		rows = autoKV
	}
	if w.autoSeam {
		seams = autoSeams
	}
	var plans []route.Plan
	var errs []error
	for _, w.kv = range rows {
		for _, typ := range seams {
			p, err := w.planIn(typ, c, offers, peers, links, req)
			if errs = append(errs, err); err == nil {
				plans = append(plans, p)
			}
		}
	}
	if len(plans) == 0 {
		return route.Plan{}, errs[0]
	}
	total := func(p route.Plan) float64 { return p.Predicted.TotalSeconds }
	least := slices.MinFunc(plans, func(a, b route.Plan) int { return cmp.Compare(total(a), total(b)) })
	return plans[slices.IndexFunc(plans, func(p route.Plan) bool { return total(p) <= total(least)*(1+autoMargin) })], nil
}

// planIn is plan with seams of a type. Where the profile's cuts are given, as they are after a loss, a plan that cuts there competes
// with one that sends f32 wherever it cuts.
func (w wanted) planIn(typ runtime.SeamType, c *artifacts.Card, offers []swarm.Offer, peers []route.Peer, links []route.Link, req route.Request) (route.Plan, error) {
	req.Exclude = maps.Clone(req.Exclude)
	if req.Exclude == nil {
		req.Exclude = map[string]string{}
	}
	for _, o := range offers {
		switch {
		case w.kv != runtime.KVF16 && o.KVTypes&(1<<w.kv) == 0:
			req.Exclude[o.Peer] = fmt.Sprintf("doesn't compute with KV rows in %v", w.kv)
		case typ != runtime.SeamF32 && o.SeamTypes&(1<<typ) == 0:
			req.Exclude[o.Peer] = fmt.Sprintf("doesn't compute with seams in %v", typ)
		}
	}
	in := func(sent runtime.SeamType, cuts []int) (route.Plan, error) {
		r := req
		r.Cuts = cuts
		p, err := route.Make(planModel(c, req.PromptTokens, req.PromptTokens+req.NewTokens, w.kv, sent), peers, links, r)
		rounded := w.cuts
		if rounded == nil {
			rounded = cutsOf(p)
		}
		p.KV, p.Seam = w.kv.String(), runtime.Profile{}.Rounding(w.kv, typ, rounded).SeamText()
		return p, err
	}
	switch outside := func(cut int) bool { return !slices.Contains(w.cuts, cut) }; {
	case w.cuts == nil, len(req.Cuts) > 0 && !slices.ContainsFunc(req.Cuts, outside):
		return in(typ, req.Cuts)
	case len(req.Cuts) > 0 || len(req.Assign) > 0 || req.Shape == route.Local:
		return in(runtime.SeamF32, req.Cuts)
	}
	free, err := in(runtime.SeamF32, nil)
	if there, other := in(typ, w.cuts); other == nil && (err != nil || there.Predicted.TotalSeconds <= free.Predicted.TotalSeconds) {
		return there, nil
	}
	return free, err
}

// cutsOf returns where a plan cuts the model.
func cutsOf(p route.Plan) (cuts []int) {
	for _, s := range p.Stages {
		cuts = append(cuts, s.Layers.Last)
	}
	return cuts
}

// plannedNumerics returns what a plan says of its session's profile.
func plannedNumerics(p route.Plan) (wire.Numerics, error) {
	w, err := readNumerics(control.Constraints{KV: p.KV, Seam: p.Seam})
	return numericsOf(w.kv, w.seam, w.cuts), err
}
