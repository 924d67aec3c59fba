package route

import "slices"

// Prediction is what a plan should cost, by the formulas of the package comment. Times in seconds.
type Prediction struct {
	FillSeconds       float64 `json:"fill_seconds"`        // the first chunk's way through the route
	PeriodSeconds     float64 `json:"period_seconds"`      // per chunk after that: the slowest part
	Bottleneck        string  `json:"bottleneck"`          // which part that is, in words
	PrefillSeconds    float64 `json:"prefill_seconds"`     // fill and all periods
	KVTailSeconds     float64 `json:"kv_tail_seconds"`     // cache rows still on the way after the last seam
	HeadSeconds       float64 `json:"head_seconds"`        // output head for one token
	FirstTokenSeconds float64 `json:"first_token_seconds"` // prefill, tail and head
	TokenSeconds      float64 `json:"token_seconds"`       // per decoded token after the first
	RiskSeconds       float64 `json:"risk_seconds"`        // what losses are expected to add
	TotalSeconds      float64 `json:"total_seconds"`       // all tokens, and the risk
	SeamBytes         int64   `json:"seam_bytes"`          // hidden states that cross links, decoding included
	KVBytes           int64   `json:"kv_bytes"`            // cache rows that cross links, decoding included

	// Ranges are the parts in layer order, the decoder's last.
	Ranges []RangePrediction `json:"ranges"`
}

// RangePrediction is one peer's share. Times in seconds per chunk; bytes over the whole request.
type RangePrediction struct {
	Peer           string  `json:"peer"`
	Layers         Range   `json:"layers"`
	ComputeSeconds float64 `json:"compute_seconds"`
	DiskSeconds    float64 `json:"disk_seconds"` // part of ComputeSeconds: weights that its memory is too short for
	SendSeconds    float64 `json:"send_seconds"`
	WaitSeconds    float64 `json:"wait_seconds"` // least time between chunks while the decoder's acknowledgements travel
	SeamBytes      int64   `json:"seam_bytes"`
	KVBytes        int64   `json:"kv_bytes"`
	Hop            *Link   `json:"hop,omitempty"` // to the next part, as reckoned with; nil: this is the last one
}

// setting is what a cost depends on beside the ranges.
type setting struct {
	dec       int
	chunk     float64
	periods   float64 // chunks after the first: T/c − 1
	pipelined bool    // decoded tokens walk the route
	kv        bool    // cache rows go to the decoder
}

func (in *instance) setting(dec, chunk int, shape Shape, kv bool) setting {
	return setting{
		dec:       dec,
		chunk:     float64(chunk),
		periods:   float64(in.req.computed())/float64(chunk) - 1,
		pipelined: shape == Pipelined,
		kv:        kv,
	}
}

// computeTime returns seconds per chunk for peer p on layers [a, b): C of the package comment.
func (in *instance) computeTime(s *setting, p, a, b int) float64 {
	if a == b {
		return 0
	}
	return in.peers[p].passTime(s.chunk, in.flops[b]-in.flops[a], in.weight[b]-in.weight[a])
}

// passTime returns seconds that the peer takes for a pass of so many rows, each of which takes so many FLOPs, through layers with so many bytes of weights.
func (p *Peer) passTime(rows, flops, weight float64) float64 {
	each := rows * flops / p.PrefillFlops
	pass := weight/p.DecodeBytesPerSec + p.missTime(weight)
	return (1+p.Load)*(pass+each) + PassOverhead
}

// missTime returns seconds per pass over so many bytes of weights for which the peer waits for its disk. Pages that are read in turn and
// dropped in no particular order miss about twice as often as what is too much would tell: what comes back drops what is needed next.
func (p *Peer) missTime(weight float64) float64 {
	short := weight - float64(p.MemoryBytes)
	if p.MemoryBytes == 0 || short <= 0 {
		return 0
	}
	return min(weight, 2*short) / orDefault(p.DiskBytesPerSec, DefaultDiskBytesPerSec)
}

// ChunkSeconds returns how long a peer, whose speeds are known, should compute a chunk of so many tokens in layers of a model: C of the package comment.
func ChunkSeconds(m *Model, p *Peer, layers Range, tokens int) float64 {
	flops, weight := 0.0, 0.0
	for l := layers.First; l < layers.Last; l++ {
		flops += m.LayerFlops[l]
		weight += float64(m.LayerWeightBytes[l])
	}
	return p.passTime(float64(tokens), flops, weight)
}

// diskTime returns what of computeTime is for weights that come from p's disk.
func (in *instance) diskTime(p, a, b int) float64 {
	return (1 + in.peers[p].Load) * in.peers[p].missTime(in.weight[b]-in.weight[a])
}

// ownTime returns seconds per chunk for the decoder on its own layers, from x on, and on what comes from others: C(d).
func (in *instance) ownTime(s *setting, x int) float64 {
	own := in.computeTime(s, s.dec, x, in.model.Layers)
	if x == 0 {
		return own
	}
	peer := &in.peers[s.dec]
	came := s.chunk * (float64(in.model.SeamBytes) + in.rowBytes(s, 0, x))
	return own + (1+peer.Load)*came*ReceiveReads/peer.DecodeBytesPerSec
}

// sendTime returns seconds per chunk of p's uplink for the seam to the next peer and the cache rows to the decoder: X. last: the next
// peer is the decoder.
func (in *instance) sendTime(s *setting, p, a, b int, next, decoder line, last bool) float64 {
	seam := s.chunk * float64(in.model.SeamBytes)
	kv := in.rowBytes(s, a, b) * s.chunk
	if last {
		return (seam + kv) / decoder.rate
	}
	return max((seam+kv)/in.peers[p].Up, seam/next.rate, kv/decoder.rate)
}

// waitTime returns seconds per chunk that the owner of [a, b) needs because chunk j+2 may not start before the decoder has acknowledged
// the cache rows of chunk j: Z. 0 where no rows are sent.
func (in *instance) waitTime(s *setting, a, b int, compute float64, decoder line) float64 {
	rows := in.rowBytes(s, a, b)
	if rows == 0 {
		return 0
	}
	return (compute + s.chunk*rows/decoder.rate + decoder.rtt) / 2
}

// rowBytes returns the cache bytes per prompt token that the owner of [a, b) sends, its tails spread over a chunk's tokens: 0 where
// none are handed over.
func (in *instance) rowBytes(s *setting, a, b int) float64 {
	if !s.kv {
		return 0
	}
	return in.kv[b] - in.kv[a] + (in.tail[b]-in.tail[a])/s.chunk
}

// tokenBytes returns the cache bytes that the owner of [a, b) sends of a decoded token and the guesses behind it, its tails spread over all that go once.
func (in *instance) tokenBytes(s *setting, a, b int) float64 {
	if !s.kv {
		return 0
	}
	return (1+in.guesses)*(in.kv[b]-in.kv[a]) + (in.tail[b]-in.tail[a])/float64(max(in.model.TailEvery, 1))
}

// leastChunk is the smallest last chunk that the planner chooses. For as few rows the decoder needs, in its own layers, about the time
// of one more token, which reads all weights once.
const leastChunk = 4

// lastChunk returns how many tokens the last chunks of a route have ([Plan.LastChunk]).
func (in *instance) lastChunk(r route) int {
	for n := leastChunk; n < r.chunk && len(r.peers) > 0; n *= 2 {
		s, inTime := in.setting(r.dec, n, r.shape, r.kv), true
		for i, p := range r.peers {
			a, b := r.span(i)
			compute := in.computeTime(&s, p, a, b)
			inTime = inTime && in.waitTime(&s, a, b, compute, in.net.line(p, r.dec)) <= compute && in.net.line(p, r.next(i)).rtt <= compute
		}
		if inTime {
			return n
		}
	}
	return r.chunk
}

// hopTime returns seconds to the next peer for one chunk's seam: H.
func (in *instance) hopTime(s *setting, next line) float64 {
	return next.rtt/2 + s.chunk*float64(in.model.SeamBytes)/next.rate
}

// handTime returns seconds until peer p has the rows of [a, b) that the decoder holds; 0 where it has had the same part before. The decoder hands
// all on one line, so those of several peers add up.
func (in *instance) handTime(s *setting, p, a, b int) float64 {
	if in.req.HeldTokens == 0 || slices.Contains(in.former, part{p, a, b}) {
		return 0
	}
	way := in.net.line(s.dec, p)
	return way.rtt + (float64(in.req.HeldTokens)*(in.kv[b]-in.kv[a])+in.tail[b]-in.tail[a])/way.rate
}

// walkTime returns seconds a decoded token, with the guesses behind it, spends at stage p and on its way to the next peer. The stage isn't
// free for the next one before its cache rows are out.
func (in *instance) walkTime(s *setting, p, a, b int, next, decoder line) float64 {
	pass := in.readTime(p, in.weight[b]-in.weight[a], in.read[b]-in.read[a], in.flops[b]-in.flops[a]) + PassOverhead
	hop := next.rtt/2 + in.stepSeam()/next.rate
	return max(pass+hop, in.tokenBytes(s, a, b)/decoder.rate)
}

// stepSeam returns the bytes of the seams that walk together when a token is decoded.
func (in *instance) stepSeam() float64 { return (1 + in.guesses) * float64(in.model.SeamBytes) }

// readTime returns seconds for peer p to read weights and the cache of the average decoded token, and to compute the rows of the guesses
// behind it, which take so many FLOPs each.
func (in *instance) readTime(p int, weights, cache, flops float64) float64 {
	peer := &in.peers[p]
	return (1 + peer.Load) * ((weights+cache)/peer.DecodeBytesPerSec + peer.missTime(weights) + in.guesses*flops/peer.PrefillFlops)
}

// headTime returns seconds for one token's logits on peer d.
func (in *instance) headTime(d int) float64 {
	peer := &in.peers[d]
	return (1 + peer.Load) * max(in.model.HeadFlops/peer.PrefillFlops, float64(in.model.HeadBytes)/peer.DecodeBytesPerSec)
}

// decoderStep returns the decoder's own seconds per pass that decodes when its range begins at x.
func (in *instance) decoderStep(s *setting, x int) float64 {
	if !s.pipelined {
		x = 0
	}
	last := in.model.Layers
	flops := in.flops[last] - in.flops[x] + in.model.HeadFlops
	return in.readTime(s.dec, in.weight[last]-in.weight[x]+float64(in.model.HeadBytes), in.read[last]-in.read[x], flops) + PassOverhead
}

// inflow returns seconds per chunk of the decoder's downlink for the last seam and everyone's cache rows.
func (in *instance) inflow(s *setting, x int) float64 {
	return s.chunk * (float64(in.model.SeamBytes) + in.rowBytes(s, 0, x)) / in.peers[s.dec].Down
}

// total returns what a feasible route costs in all.
func (in *instance) total(r route) float64 { return in.price(r, nil).TotalSeconds }

// predict returns the cost of a feasible route in every detail.
func (in *instance) predict(r route) Prediction {
	parts := make([]RangePrediction, 0, len(r.peers)+1)
	out := in.price(r, func(part RangePrediction) { parts = append(parts, part) })
	out.Ranges = parts
	for _, part := range parts {
		out.SeamBytes += part.SeamBytes
		out.KVBytes += part.KVBytes
		switch {
		case out.Bottleneck != "":
		case part.ComputeSeconds == out.PeriodSeconds:
			out.Bottleneck = "compute of " + part.Peer
		case part.SendSeconds == out.PeriodSeconds:
			out.Bottleneck = "uplink of " + part.Peer
		case part.WaitSeconds == out.PeriodSeconds:
			out.Bottleneck = "acknowledgements to " + part.Peer
		}
	}
	if out.Bottleneck == "" {
		out.Bottleneck = "downlink of " + in.peers[r.dec].ID
	}
	return out
}

// price computes a route's times and, if detail is not nil, hands it the parts in layer order.
func (in *instance) price(r route, detail func(RangePrediction)) Prediction {
	s := in.setting(r.dec, r.chunk, r.shape, r.kv)
	last := in.model.Layers
	var out Prediction
	var step float64
	if len(r.peers) > 0 {
		trip := in.net.line(r.dec, r.peers[0]).rtt / 2
		out.FillSeconds += trip
		if s.pipelined {
			step += trip
		}
	}
	prompt, walked := int64(in.req.computed()), 0.0
	if s.pipelined {
		walked = in.steps
	}
	for i, p := range r.peers {
		a, b := r.span(i)
		n := r.next(i)
		next, decoder := in.net.line(p, n), in.net.line(p, r.dec)
		compute, send := in.computeTime(&s, p, a, b), in.sendTime(&s, p, a, b, next, decoder, n == r.dec)
		wait := in.waitTime(&s, a, b, compute, decoder)
		out.PeriodSeconds = max(out.PeriodSeconds, compute, send, wait)
		out.FillSeconds += compute + in.hopTime(&s, next) + in.handTime(&s, p, a, b)
		out.KVTailSeconds = max(out.KVTailSeconds, s.chunk*in.rowBytes(&s, a, b)/decoder.rate)
		if s.pipelined {
			step += in.walkTime(&s, p, a, b, next, decoder)
		}
		if detail != nil {
			detail(RangePrediction{
				Peer: in.peers[p].ID, Layers: Range{a, b}, ComputeSeconds: compute, DiskSeconds: in.diskTime(p, a, b), SendSeconds: send, WaitSeconds: wait,
				SeamBytes: in.model.SeamBytes*prompt + int64(in.stepSeam()*walked),
				KVBytes:   int64(in.rowBytes(&s, a, b))*prompt + int64(in.tokenBytes(&s, a, b)*walked),
				Hop:       &Link{From: in.peers[p].ID, To: in.peers[n].ID, RTT: next.rtt, BytesPerSec: next.rate, Basis: in.net.basis(p, n)},
			})
		}
	}
	x := r.start()
	own := in.ownTime(&s, x)
	out.PeriodSeconds = max(out.PeriodSeconds, own)
	if len(r.peers) > 0 {
		out.PeriodSeconds = max(out.PeriodSeconds, in.inflow(&s, x))
		out.KVTailSeconds = max(out.KVTailSeconds, s.chunk*in.rowBytes(&s, 0, x)/in.peers[r.dec].Down)
	}
	if detail != nil {
		detail(RangePrediction{Peer: in.peers[r.dec].ID, Layers: Range{x, last}, ComputeSeconds: own, DiskSeconds: in.diskTime(r.dec, x, last)})
	}
	out.FillSeconds += own
	out.PrefillSeconds = out.FillSeconds + s.periods*out.PeriodSeconds
	out.HeadSeconds = in.headTime(r.dec)
	out.FirstTokenSeconds = out.PrefillSeconds + out.KVTailSeconds + out.HeadSeconds
	step += in.decoderStep(&s, x)
	out.TokenSeconds = step / (1 + in.req.Accepted)
	undisturbed := out.FirstTokenSeconds + in.steps*step
	out.RiskSeconds = in.risk(&s, r.peers, undisturbed)
	out.TotalSeconds = undisturbed + out.RiskSeconds
	return out
}

// risk returns the seconds that losses are expected to add to a session of so many. They are few, so that two in one session don't count. It
// grows with the seconds and with the peers, so whatever is a bound without it is one.
func (in *instance) risk(s *setting, stages []int, seconds float64) float64 {
	risk := in.peers[s.dec].FailuresPerHour * seconds * (RecoverySeconds + seconds/2)
	work := in.stageWork(s, seconds)
	for _, p := range stages {
		risk += in.peers[p].FailuresPerHour * work
	}
	return risk / 3600
}

// stageWork returns what one failure of a stage per second would add to a session of so many seconds, in seconds: while the session depends on
// stages, each stops it for a while, and where the stages have the cache rows alone, half of what has been done on average is done again.
func (in *instance) stageWork(s *setting, seconds float64) float64 {
	if !s.pipelined {
		return max(seconds-in.steps*in.decoderStep(s, 0), 0) * RecoverySeconds
	}
	if s.kv {
		return seconds * RecoverySeconds
	}
	return seconds * (RecoverySeconds + seconds/2)
}
