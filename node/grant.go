package node

import (
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// grantLife is how long a grant lasts.
const grantLife = 2 * time.Hour

// signGrant fills in the signature.
func signGrant(id *swarm.Identity, g *wire.Grant) {
	g.Signature = id.Sign(wire.DomainGrant, g.SigningBytes())
}

// signPlan fills in the signature.
func signPlan(id *swarm.Identity, p *wire.Plan) {
	p.Signature = id.Sign(wire.DomainPlan, p.SigningBytes())
}

// checkGrant checks a grant that names decoder as the session's driver.
func checkGrant(g *wire.Grant, decoder string, now time.Time) *wire.Refusal {
	if err := swarm.VerifySignature(g.Client, wire.DomainGrant, g.SigningBytes(), g.Signature); err != nil {
		return wire.Refuse(wire.CodeBadGrant, "the grant is not signed by its client: %v", err)
	}
	if g.Decoder != decoder {
		return wire.Refuse(wire.CodeBadGrant, "the grant names another decoder")
	}
	if exp := time.Unix(int64(min(g.Expires, 1<<40)), 0); now.After(exp.Add(wire.ClockSkew)) {
		return wire.Refuse(wire.CodeBadGrant, "the grant expired at %s", exp.UTC().Format(time.RFC3339))
	} else if exp.After(now.Add(grantLife + wire.ClockSkew)) {
		return wire.Refuse(wire.CodeBadGrant, "the grant is to last until %s, longer than any may", exp.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkStageOpen checks everything in a stage's invitation that keys and plain
// comparison can tell: from whom it comes, that grant and plan belong together
// and that the plan is a route in which self is stage Index.
func checkStageOpen(m *wire.StageOpen, from, self string, now time.Time) *wire.Refusal {
	if r := checkGrant(&m.Grant, from, now); r != nil {
		return r
	}
	p := &m.Plan
	switch {
	case p.Decoder != from:
		return wire.Refuse(wire.CodeWrongPeer, "the plan names another decoder")
	case m.Session != m.Grant.Session || p.Head != m.Head || p.Model != m.Grant.Model || m.Epoch.Client != m.Grant.ClientEpoch:
		return wire.Refuse(wire.CodeBadGrant, "grant and plan don't belong together")
	case p.Capacity > m.Grant.Budget:
		return wire.Refuse(wire.CodeBadGrant, "the plan reserves %d positions, the grant allows %d", p.Capacity, m.Grant.Budget)
	case int64(m.Index) >= int64(len(p.Stages)) || p.Stages[m.Index].Peer != self:
		return wire.Refuse(wire.CodeBadGrant, "the plan has no stage %d of this peer", m.Index)
	}
	if err := swarm.VerifySignature(p.Decoder, wire.DomainPlan, p.SigningBytes(), p.Signature); err != nil {
		return wire.Refuse(wire.CodeBadGrant, "the plan is not signed by its decoder: %v", err)
	}
	if err := p.Check(); err != nil {
		return asRefusal(err)
	}
	return nil
}

// checkRoute checks that a route can be walked with self, which holds layers
// held of the model, as its decoder.
func checkRoute(rt *wire.Route, self string, layers int, held runtime.Range) *wire.Refusal {
	own := runtime.Range{First: int(rt.DecoderFirst), Last: layers}
	whole := runtime.Range{First: 0, Last: layers}
	switch {
	case rt.Chunk == 0 || rt.Chunk > wire.MaxTokens:
		return wire.Refuse(wire.CodeBadRequest, "chunks of %d tokens", rt.Chunk)
	case rt.LastChunk == 0 || rt.LastChunk > rt.Chunk:
		return wire.Refuse(wire.CodeBadRequest, "last chunks of %d tokens, others have %d", rt.LastChunk, rt.Chunk)
	case len(rt.Stages) == 0 && rt.DecoderFirst != 0, own.First > layers, !held.Covers(own):
		return wire.Refuse(wire.CodeUnknownModel, "this node can't run %v, it serves %v", own, held)
	case (rt.DecodeLocal || len(rt.Stages) == 0) && held != whole:
		return wire.Refuse(wire.CodeUnknownModel, "this node serves %v, decoding alone needs all %d", held, layers)
	}
	at, seen := uint32(0), map[string]bool{self: true}
	for i, st := range rt.Stages {
		switch {
		case st.First != at || st.Last <= st.First:
			return wire.Refuse(wire.CodeBadRequest, "the route's stage %d runs layers [%d,%d) after layer %d", i, st.First, st.Last, at)
		case st.Peer == "" || seen[st.Peer]:
			return wire.Refuse(wire.CodeBadRequest, "the route's stage %d is a peer that has another part in it already: %q", i, st.Peer)
		}
		at, seen[st.Peer] = st.Last, true
	}
	if at != rt.DecoderFirst {
		return wire.Refuse(wire.CodeBadRequest, "the route's stages end at layer %d, its decoder starts at %d", at, rt.DecoderFirst)
	}
	return nil
}
