package route

import (
	"fmt"
	"slices"
)

// instance is one planning problem with names resolved: peers by index in ID order, sums by layer position.
type instance struct {
	model  *Model
	req    Request
	peers  []Peer // distinct, by ID, defaults filled in
	times  []int  // how often each was offered
	bounds []int  // legal positions, 0 and Layers included
	within []int  // by layer: the last of the bounds that isn't behind it, as an index
	net    network

	// Prefix sums: the entry at position x is the sum over layers before x.
	flops, weight, kv, tail []float64 // kv: cache rows as they travel
	rows, read              []float64 // cache rows in bytes: of the whole session, of those that the average decoded token reads

	tokens  float64 // prompt + new: what cache memory must hold
	context float64 // cached positions an average decoded token reads
	steps   float64 // passes over the layers that decode tokens after the first: fewer than tokens where guesses are right
	guesses float64 // rows in each of them beside the token's own

	former []part // who has had which stage

	barred  []string // per peer: why it can't be used at all; "" if it can
	guessed []string // per peer: what was not measured; "" if all was
}

// newInstance expects a checked model. It knows no links yet: see [network.learn].
func newInstance(m Model, peers []Peer, r Request) *instance {
	in := &instance{
		model:   &m,
		req:     r,
		bounds:  m.bounds(),
		flops:   make([]float64, m.Layers+1),
		weight:  make([]float64, m.Layers+1),
		kv:      make([]float64, m.Layers+1),
		tail:    make([]float64, m.Layers+1),
		rows:    make([]float64, m.Layers+1),
		read:    make([]float64, m.Layers+1),
		tokens:  float64(r.PromptTokens) + float64(r.NewTokens),
		context: float64(r.PromptTokens) + float64(r.NewTokens)/2,
		steps:   float64(max(r.NewTokens-1, 0)) / (1 + r.Accepted),
		guesses: r.Guesses,
	}
	in.within = make([]int, m.Layers+1)
	for i, at := range in.bounds {
		in.within[at] = i
	}
	for i := range m.Layers {
		in.within[i+1] = max(in.within[i+1], in.within[i])
		in.flops[i+1] = in.flops[i] + m.LayerFlops[i]
		in.weight[i+1] = in.weight[i] + float64(m.LayerWeightBytes[i])
		each := float64(m.KVBytesPerToken[i])
		in.kv[i+1] = in.kv[i] + float64(m.sent(i))
		in.rows[i+1] = in.rows[i] + each*m.kept(i, in.tokens)
		in.read[i+1] = in.read[i] + each*m.kept(i, in.context)
		in.tail[i+1] = in.tail[i]
		if len(m.TailBytes) > 0 {
			in.tail[i+1] += float64(m.TailBytes[i])
		}
	}
	in.peers, in.times = distinct(peers)
	in.barred, in.guessed = make([]string, len(in.peers)), make([]string, len(in.peers))
	for i := range in.peers {
		in.guessed[i] = in.peers[i].unmeasured()
		in.barred[i] = in.bar(&in.peers[i])
		in.peers[i] = in.peers[i].withDefaults()
	}
	in.net.peers = in.peers
	for _, s := range r.Former {
		if i := in.net.index(s.Peer); i >= 0 && r.HeldTokens > 0 {
			in.former = append(in.former, part{i, s.Layers.First, s.Layers.Last})
		}
	}
	return in
}

// part is the layers [a, b) at peer p.
type part struct{ p, a, b int }

// everybody returns the indexes of all peers.
func (in *instance) everybody() []int {
	all := make([]int, len(in.peers))
	for i := range all {
		all[i] = i
	}
	return all
}

// bar says why a peer is of no use for this request, whatever the others do; "" if it may be.
func (in *instance) bar(p *Peer) string {
	if why, out := in.req.Exclude[p.ID]; out {
		if why == "" {
			return "excluded by the request"
		}
		return "excluded: " + why
	}
	if why := p.fault(in.model.Layers); why != "" {
		return why
	}
	if p.Context > 0 && float64(p.Context) < in.tokens {
		return fmt.Sprintf("takes sessions of %d tokens at most; this one needs %.0f", p.Context, in.tokens)
	}
	if in.undecoding(p) == "" {
		return "" // could decode with no layers of its own
	}
	holds := false
	for i, a := range in.bounds[:len(in.bounds)-1] {
		b := in.bounds[i+1]
		if !p.Holds.Contains(Range{a, b}) {
			continue
		}
		holds = true
		if in.fits(p, a, b) {
			return ""
		}
	}
	switch {
	case holds:
		return fmt.Sprintf("has %s of cache free, too little for %.0f tokens of any of its layers", bytesText(float64(p.KVFreeBytes)), in.tokens)
	case p.Holds.Len() > 0:
		return fmt.Sprintf("holds only %s, which no legal cut allows to run alone", p.Holds)
	}
	return "holds no layers of this model"
}

// fits reports whether p can reserve the cache of layers [a, b) for the whole session.
func (in *instance) fits(p *Peer, a, b int) bool {
	return in.rows[b]-in.rows[a]+float64(in.model.HeldTails)*(in.tail[b]-in.tail[a]) <= float64(p.KVFreeBytes)
}

// route is a plan over indexes: peers[i] runs [ends[i−1], ends[i]), the decoder what is left.
type route struct {
	shape Shape
	peers []int
	ends  []int
	dec   int
	chunk int
	kv    bool // cache rows go to the decoder
}

// start returns where the decoder's own range begins.
func (r *route) start() int {
	if len(r.ends) == 0 {
		return 0
	}
	return r.ends[len(r.ends)-1]
}

// span returns the layers [a, b) of stage i.
func (r *route) span(i int) (a, b int) {
	if i > 0 {
		a = r.ends[i-1]
	}
	return a, r.ends[i]
}

// next returns who receives the seam of stage i.
func (r *route) next(i int) int {
	if i+1 < len(r.peers) {
		return r.peers[i+1]
	}
	return r.dec
}

// feasible says why the model and the offers don't allow r; "" if they do. It doesn't look at what a request forces.
func (in *instance) feasible(r route) string {
	remote := len(r.peers) > 0
	switch {
	case r.shape == Local && (remote || r.kv):
		return "a local plan has no stages and moves no cache"
	case r.shape == Across && (!remote || !r.kv):
		return "a plan across peers has stages, and their cache goes to the decoder"
	case r.shape == Pipelined && !remote:
		return "a pipelined plan has stages"
	case r.shape < Local || r.shape > Pipelined:
		return fmt.Sprintf("a plan can't have shape %v", r.shape)
	}
	used := map[int]bool{r.dec: true}
	for i, p := range r.peers {
		a, b := r.span(i)
		if used[p] {
			return fmt.Sprintf("peer %s is used twice", in.peers[p].ID)
		}
		used[p] = true
		if why := in.stageFault(p, a, b); why != "" {
			return fmt.Sprintf("stage %d: %s", i+1, why)
		}
	}
	if why := in.decoderFault(r.dec, r.start(), r.shape != Pipelined, r.kv); why != "" {
		return "decoder: " + why
	}
	return ""
}

// allows is feasible without the words.
func (in *instance) allows(r *route) bool {
	remote := len(r.peers) > 0
	switch r.shape {
	case Local:
		if remote || r.kv {
			return false
		}
	case Across:
		if !remote || !r.kv {
			return false
		}
	case Pipelined:
		if !remote {
			return false
		}
	default:
		return false
	}
	for i, p := range r.peers {
		a, b := r.span(i)
		if p == r.dec || slices.Contains(r.peers[:i], p) || !in.canRun(p, a, b) {
			return false
		}
	}
	return in.canDecode(r.dec, r.start(), r.shape != Pipelined, r.kv)
}

// canRun reports whether peer p can run [a, b) as a remote stage.
func (in *instance) canRun(p, a, b int) bool {
	peer := &in.peers[p]
	return peer.Holds.First <= a && b <= peer.Holds.Last && in.barred[p] == "" && (a > 0 || peer.Embed) &&
		in.fits(peer, a, b) && in.legal(a) && in.legal(b)
}

// stageFault says why peer p can't run [a, b) as a remote stage; "" where canRun is true.
func (in *instance) stageFault(p, a, b int) string {
	peer := &in.peers[p]
	switch {
	case in.barred[p] != "":
		return fmt.Sprintf("peer %s %s", peer.ID, in.barred[p])
	case !in.legal(a) || !in.legal(b):
		return fmt.Sprintf("the model can't be cut at %d and %d", a, b)
	case !peer.Holds.Contains(Range{a, b}):
		return fmt.Sprintf("peer %s holds %s, not %s", peer.ID, peer.Holds, Range{a, b})
	case a == 0 && !peer.Embed:
		return fmt.Sprintf("peer %s lacks the embedding table that the first stage needs", peer.ID)
	case !in.fits(peer, a, b):
		return fmt.Sprintf("peer %s lacks cache memory for %s", peer.ID, Range{a, b})
	}
	return ""
}

// undecoding says why a peer decodes nothing in answer to this request, whatever its layers; "" if it may.
func (in *instance) undecoding(p *Peer) string {
	switch {
	case p.NoDecode:
		return "serves layers only"
	case !p.Head:
		return "lacks the output head"
	case in.req.Draft != "" && p.Draft != in.req.Draft:
		return "has no draft model " + in.req.Draft
	}
	return ""
}

// canDecode reports whether peer d can decode with its own prefill range from x on. whole: it decodes all layers
// alone. kv: it receives everyone's cache rows.
func (in *instance) canDecode(d, x int, whole, kv bool) bool {
	peer, last := &in.peers[d], in.model.Layers
	if in.barred[d] != "" || in.undecoding(peer) != "" || !in.legal(x) {
		return false
	}
	if whole && !peer.Holds.Contains(Range{0, last}) || (whole || x == 0) && !peer.Embed {
		return false
	}
	if kv && !whole && in.req.LeaveKV {
		return false
	}
	if whole || kv {
		return peer.Holds.Contains(Range{x, last}) && in.fits(peer, 0, last)
	}
	return peer.Holds.Contains(Range{x, last}) && in.fits(peer, x, last)
}

// decoderFault says why peer d can't decode; "" where canDecode is true.
func (in *instance) decoderFault(d, x int, whole, kv bool) string {
	peer := &in.peers[d]
	all := Range{0, in.model.Layers}
	own := Range{x, in.model.Layers}
	switch {
	case in.barred[d] != "":
		return fmt.Sprintf("peer %s %s", peer.ID, in.barred[d])
	case in.undecoding(peer) != "":
		return fmt.Sprintf("peer %s %s", peer.ID, in.undecoding(peer))
	case !in.legal(x):
		return fmt.Sprintf("the model can't be cut at %d", x)
	case whole && !peer.Holds.Contains(all):
		return fmt.Sprintf("peer %s holds %s, not all %d layers", peer.ID, peer.Holds, all.Last)
	case (whole || x == 0) && !peer.Embed:
		return fmt.Sprintf("peer %s lacks the embedding table", peer.ID)
	case !peer.Holds.Contains(own):
		return fmt.Sprintf("peer %s holds %s, not %s", peer.ID, peer.Holds, own)
	case kv && !whole && in.req.LeaveKV:
		return "cache rows are to stay with the stages"
	case (whole || kv) && !in.fits(peer, 0, all.Last):
		return fmt.Sprintf("peer %s lacks cache memory for all layers", peer.ID)
	case !in.fits(peer, x, all.Last):
		return fmt.Sprintf("peer %s lacks cache memory for %s", peer.ID, own)
	}
	return ""
}

// legal reports whether a range may begin or end at x.
func (in *instance) legal(x int) bool {
	_, ok := slices.BinarySearch(in.bounds, x)
	return ok
}
