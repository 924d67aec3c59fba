package node

import (
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
