package route

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var soak = flag.Bool("soak", false, "compare on as many random problems as the planner is judged by")

// oracle is a planner nobody would ship: it writes down every plan the package comment allows, prices each by the
// comment's formulas from the values as given, and takes the best. It shares no code with the planner.
type oracle struct {
	m     Model
	peers []Peer
	links []Link
	r     Request
}

// candidate is one complete plan: peers[i] runs [ends[i-1], ends[i]), the last peer decodes from there.
type candidate struct {
	shape Shape
	peers []Peer
	ends  []int
	chunk int
	kv    bool
}

func (o *oracle) rtt(a, b Peer) float64 {
	var forth, back float64
	for _, l := range o.links {
		if l.From == a.ID && l.To == b.ID {
			forth = math.Max(forth, l.RTT)
		}
		if l.From == b.ID && l.To == a.ID {
			back = math.Max(back, l.RTT)
		}
	}
	if forth > 0 {
		return forth
	}
	if back > 0 {
		return back
	}
	return DefaultRTT
}

func (o *oracle) rate(a, b Peer) float64 {
	rate := math.Min(a.Up, b.Down)
	for _, l := range o.links {
		if l.From == a.ID && l.To == b.ID && l.BytesPerSec > 0 {
			rate = math.Min(rate, l.BytesPerSec)
		}
	}
	return rate
}

// sums returns F, W and K of layers [a, b).
func (o *oracle) sums(a, b int) (f, w, k float64) {
	for x := a; x < b; x++ {
		f += o.m.LayerFlops[x]
		w += float64(o.m.LayerWeightBytes[x])
		k += float64(o.m.KVBytesPerToken[x])
	}
	return f, w, k
}

// cache returns the cache rows of layers [a, b) of a session of so many tokens, in bytes.
func (o *oracle) cache(a, b int, tokens float64) (bytes float64) {
	for x := a; x < b; x++ {
		n := tokens
		if o.m.KVPositions != nil && o.m.KVPositions[x] != 0 {
			n = math.Min(n, float64(o.m.KVPositions[x]))
		}
		bytes += n * float64(o.m.KVBytesPerToken[x])
	}
	return bytes
}

func (o *oracle) allowed(c candidate) bool {
	tokens := float64(o.r.PromptTokens + o.r.NewTokens)
	first := 0
	for i, p := range c.peers {
		last := o.m.Layers
		if i < len(c.ends) {
			last = c.ends[i]
		}
		decoder := i == len(c.peers)-1
		own, all := o.cache(first, last, tokens), o.cache(0, o.m.Layers, tokens)
		if _, out := o.r.Exclude[p.ID]; out {
			return false
		}
		if p.Context > 0 && float64(p.Context) < tokens {
			return false
		}
		if first < last && (p.Holds.First > first || p.Holds.Last < last) {
			return false
		}
		if first == 0 && last > 0 && !p.Embed || own > float64(p.KVFreeBytes) {
			return false
		}
		if decoder {
			if p.NoDecode || !p.Head || c.kv && all > float64(p.KVFreeBytes) {
				return false
			}
			if c.shape != Pipelined && (p.Holds != Range{0, o.m.Layers} || !p.Embed) {
				return false
			}
		}
		first = last
	}
	return true
}

func (o *oracle) total(c candidate) float64 {
	var (
		T, N  = float64(o.r.PromptTokens), float64(o.r.NewTokens)
		ch    = float64(c.chunk)
		seam  = float64(o.m.SeamBytes)
		d     = c.peers[len(c.peers)-1]
		steps = math.Max(N-1, 0)
		fill  float64
		slow  float64
		tail  float64
		token float64
		first int
	)
	stages := c.peers[:len(c.peers)-1]
	if len(stages) > 0 {
		fill = o.rtt(d, stages[0]) / 2
		token = o.rtt(d, stages[0]) / 2
	}
	for i, p := range stages {
		n := c.peers[i+1]
		f, w, k := o.sums(first, c.ends[i])
		rows := 0.0
		if c.kv {
			rows = k
		}
		q := 1 + p.Load
		compute := q*(w/p.DecodeBytesPerSec+missed(p, w)+ch*f/p.PrefillFlops) + PassOverhead
		send := math.Max(ch*(seam+rows)/p.Up, math.Max(ch*seam/o.rate(p, n), ch*rows/o.rate(p, d)))
		if n.ID == d.ID {
			send = ch * (seam + rows) / o.rate(p, d)
		}
		if rows > 0 {
			slow = math.Max(slow, (compute+ch*rows/o.rate(p, d)+o.rtt(p, d))/2)
		}
		fill += compute + o.rtt(p, n)/2 + ch*seam/o.rate(p, n)
		if h := float64(o.r.HeldTokens); h > 0 && !slices.Contains(o.r.Former, Stage{p.ID, Range{first, c.ends[i]}}) {
			fill += o.rtt(d, p) + h*k/o.rate(d, p)
		}
		slow = math.Max(slow, math.Max(compute, send))
		tail = math.Max(tail, ch*rows/o.rate(p, d))
		pass := q*((w+o.cache(first, c.ends[i], T+N/2))/p.DecodeBytesPerSec+missed(p, w)+o.r.Guesses*f/p.PrefillFlops) + PassOverhead
		token += math.Max(pass+o.rtt(p, n)/2+(1+o.r.Guesses)*seam/o.rate(p, n), (1+o.r.Guesses)*rows/o.rate(p, d))
		first = c.ends[i]
	}
	q := 1 + d.Load
	f, w, _ := o.sums(first, o.m.Layers)
	read := o.cache(first, o.m.Layers, T+N/2)
	own := 0.0
	if first < o.m.Layers {
		own = q*(w/d.DecodeBytesPerSec+missed(d, w)+ch*f/d.PrefillFlops) + PassOverhead
	}
	_, _, remote := o.sums(0, first)
	if !c.kv {
		remote = 0
	}
	if len(stages) > 0 {
		own += q * 16 * ch * (seam + remote) / d.DecodeBytesPerSec
	}
	fill += own
	slow = math.Max(slow, own)
	if len(stages) > 0 {
		slow = math.Max(slow, ch*(seam+remote)/d.Down)
		tail = math.Max(tail, ch*remote/d.Down)
	}
	if c.shape != Pipelined {
		f, w, _ = o.sums(0, o.m.Layers)
		read = o.cache(0, o.m.Layers, T+N/2)
		token = 0
	}
	w += float64(o.m.HeadBytes)
	alone := q*((w+read)/d.DecodeBytesPerSec+missed(d, w)+o.r.Guesses*(f+o.m.HeadFlops)/d.PrefillFlops) + PassOverhead
	token += alone
	head := q * math.Max(o.m.HeadFlops/d.PrefillFlops, float64(o.m.HeadBytes)/d.DecodeBytesPerSec)
	steps /= 1 + o.r.Accepted
	took := fill + ((T-float64(o.r.HeldTokens))/ch-1)*slow + tail + head + steps*token
	risk := d.FailuresPerHour * took * (RecoverySeconds + took/2)
	for _, p := range stages {
		switch {
		case c.shape != Pipelined:
			risk += p.FailuresPerHour * math.Max(took-steps*alone, 0) * RecoverySeconds
		case c.kv:
			risk += p.FailuresPerHour * took * RecoverySeconds
		default:
			risk += p.FailuresPerHour * took * (RecoverySeconds + took/2)
		}
	}
	return took + risk/3600
}

// missed returns the seconds that p waits for weights that its memory is too short for.
func missed(p Peer, weights float64) float64 {
	if p.MemoryBytes == 0 || weights <= float64(p.MemoryBytes) {
		return 0
	}
	return math.Min(weights, 2*(weights-float64(p.MemoryBytes))) / p.DiskBytesPerSec
}

// each yields every candidate that the request's own words allow.
func (o *oracle) each(yield func(candidate)) {
	cuts := append(append([]int{}, o.m.Cuts...), o.m.Layers)
	var grow func(peers []Peer, ends []int)
	grow = func(peers []Peer, ends []int) {
		for _, d := range o.peers {
			if uses(peers, d.ID) || o.r.Decoder != "" && o.r.Decoder != d.ID {
				continue
			}
			o.shapes(append(append([]Peer{}, peers...), d), ends, yield)
		}
		last := 0
		if len(ends) > 0 {
			last = ends[len(ends)-1]
		}
		for _, p := range o.peers {
			for _, end := range cuts {
				if !uses(peers, p.ID) && end > last {
					grow(append(append([]Peer{}, peers...), p), append(append([]int{}, ends...), end))
				}
			}
		}
	}
	grow(nil, nil)
}

func uses(peers []Peer, id string) bool {
	for _, p := range peers {
		if p.ID == id {
			return true
		}
	}
	return false
}

func (o *oracle) shapes(peers []Peer, ends []int, yield func(candidate)) {
	if len(o.r.Cuts) > 0 && fmt.Sprint(o.r.Cuts) != fmt.Sprint(ends) {
		return
	}
	for i, id := range o.r.Assign {
		if i >= len(peers) || id != "" && peers[i].ID != id {
			return
		}
	}
	if len(o.r.Assign) > 0 && len(o.r.Cuts) == 0 && len(o.r.Assign) != len(peers) {
		return
	}
	for _, id := range o.r.Include {
		if !uses(peers, id) {
			return
		}
	}
	left := o.r.PromptTokens - o.r.HeldTokens
	sizes := []int{min(o.r.Chunk, left)}
	if o.r.Chunk == 0 {
		sizes = nil
		for _, s := range []int{16, 32, 64, 128, 256, 512} {
			if s < left {
				sizes = append(sizes, s)
			}
		}
		if left <= 512 {
			sizes = append(sizes, left)
		}
	}
	for _, size := range sizes {
		forms := []candidate{{Local, peers, ends, size, false}}
		if len(ends) > 0 {
			forms = []candidate{{Across, peers, ends, size, true}, {Pipelined, peers, ends, size, true}, {Pipelined, peers, ends, size, false}}
		}
		for _, c := range forms {
			if (o.r.Shape == Any || o.r.Shape == c.shape) && o.allowed(c) {
				yield(c)
			}
		}
	}
}

// answer returns the total of the plan to take, +Inf if there is none, and the number of plans looked at.
func (o *oracle) answer() (total float64, plans int) {
	inf := math.Inf(1)
	all, own := [4]float64{inf, inf, inf, inf}, [4]float64{inf, inf, inf, inf}
	o.each(func(c candidate) {
		plans++
		k := int(c.shape - Local)
		if c.shape == Pipelined && !c.kv {
			k++
		}
		t := o.total(c)
		all[k] = math.Min(all[k], t)
		if c.peers[len(c.peers)-1].Self {
			own[k] = math.Min(own[k], t)
		}
	})
	least := func(v [4]float64) float64 { return min(v[0], v[1], v[2], v[3]) }
	from := all
	if o.r.PreferSelf && least(own) <= 1.25*least(all) {
		from = own
	}
	for _, t := range from {
		if t <= 1.1*least(from) {
			return t, plans
		}
	}
	return inf, plans
}

// random builds a small problem. Speeds, sizes and memory are spread over scales on which each limit matters in some.
func random(rng *rand.Rand, peers, layers int) (Model, []Peer, []Link, Request) {
	pick := func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, rng.Float64()) }
	chance := func(p float64) bool { return rng.Float64() < p }
	m := Model{Layers: layers, HeadBytes: int64(pick(1e6, 3e8)), EmbedBytes: 1e6, HeadFlops: pick(1e6, 1e9), SeamBytes: int64(pick(500, 3e4))}
	flops, weight, kv := pick(1e6, 1e9), pick(1e6, 4e8), pick(100, 1e5)
	for i := range layers {
		m.LayerFlops = append(m.LayerFlops, flops*pick(0.7, 1.4))
		m.LayerWeightBytes = append(m.LayerWeightBytes, int64(weight*pick(0.7, 1.4)))
		m.KVBytesPerToken = append(m.KVBytesPerToken, int64(kv*pick(0.7, 1.4)))
		if i > 0 && chance(0.85) {
			m.Cuts = append(m.Cuts, i)
		}
	}
	if chance(0.3) { // some layers have windows
		for range layers {
			m.KVPositions = append(m.KVPositions, int64(rng.IntN(3)*rng.IntN(300)))
		}
	}
	r := Request{PromptTokens: 1 + rng.IntN(700), NewTokens: rng.IntN(200), PreferSelf: chance(0.5), Reasons: true}
	if chance(0.4) {
		r.Chunk = 1 + rng.IntN(1000) // often the whole prompt: then fill and tail are all there is
	}
	if chance(0.3) {
		r.Shape = Shape(1 + rng.IntN(3))
	}
	need := kv * float64(layers) * float64(r.PromptTokens+r.NewTokens)
	var ps []Peer
	self := rng.IntN(peers + 1)
	for i := range peers {
		p := Peer{
			ID: fmt.Sprintf("p%d", i), Holds: Range{0, layers}, Head: chance(0.92), Embed: chance(0.92), NoDecode: chance(0.1),
			PrefillFlops: pick(1e9, 1e12), DecodeBytesPerSec: pick(1e9, 1e11), KVFreeBytes: int64(need * pick(0.4, 30)),
			Up: pick(3e5, 1e9), Down: pick(1e6, 1e9), Self: i == self,
		}
		if chance(0.5) {
			p.Holds.First = rng.IntN(layers)
			p.Holds.Last = p.Holds.First + rng.IntN(layers-p.Holds.First+1)
		}
		if chance(0.3) {
			p.Load = float64(rng.IntN(4))
		}
		if chance(0.1) {
			p.Context = rng.IntN(900)
		}
		ps = append(ps, p)
	}
	var links []Link
	for i := range ps {
		for j := range ps {
			if i != j && chance(0.5) {
				l := Link{From: ps[i].ID, To: ps[j].ID, RTT: pick(1e-4, 0.3)}
				if chance(0.5) {
					l.BytesPerSec = pick(1e5, 1e9)
				}
				links = append(links, l)
			}
		}
	}
	force(rng, m, ps, &r)
	if chance(0.15) {
		tailRegime(rng, &m, ps, links, &r)
	}
	for i := range ps {
		if chance(0.2) {
			ps[i].MemoryBytes, ps[i].DiskBytesPerSec = int64(weight*float64(layers)*pick(0.2, 2)), pick(3e7, 5e9)
		}
		if chance(0.2) {
			ps[i].FailuresPerHour = pick(0.1, 300)
		}
	}
	if chance(0.2) {
		r.Guesses = pick(0.1, 8)
		r.Accepted = r.Guesses * rng.Float64()
	}
	if chance(0.2) { // somebody was lost
		r.HeldTokens = rng.IntN(r.PromptTokens)
		for a := 0; a < layers; {
			b := a + 1 + rng.IntN(layers-a)
			r.Former = append(r.Former, Stage{ps[rng.IntN(len(ps))].ID, Range{a, b}})
			a = b
		}
	}
	return m, ps, links, r
}

// tailRegime makes the last cache rows what matters: one chunk, thin seams, fat rows, equal machines, uneven uplinks.
func tailRegime(rng *rand.Rand, m *Model, ps []Peer, links []Link, r *Request) {
	r.Chunk, r.NewTokens, r.Shape = r.PromptTokens, 0, Any
	m.SeamBytes = 10
	for i := range m.KVBytesPerToken {
		m.KVBytesPerToken[i] = 1e5
		m.LayerFlops[i] = 1e8
	}
	for i := range ps {
		ps[i].PrefillFlops, ps[i].DecodeBytesPerSec, ps[i].KVFreeBytes = 1e10*(0.9+0.2*rng.Float64()), 1e15, 1e15
		ps[i].Up, ps[i].Down, ps[i].Load = 5e6*float64(1+rng.IntN(20)), 1e12, 0
		if ps[i].Holds.Len() == m.Layers && i > 0 {
			ps[i].Head = false
		}
	}
	if len(ps) > 1 {
		ps[0].Holds, ps[0].Head, ps[0].Embed, ps[0].NoDecode = Range{0, m.Layers}, true, true, false
		ps[0].PrefillFlops = 1e8
	}
	for i := range links {
		links[i].RTT, links[i].BytesPerSec = 1e-4, 0
	}
}

// force makes some requests insist on something.
func force(rng *rand.Rand, m Model, ps []Peer, r *Request) {
	anyone := func() string { return ps[rng.IntN(len(ps))].ID }
	switch rng.IntN(12) {
	case 0:
		r.Decoder = anyone()
	case 1:
		r.Include = []string{anyone()}
	case 2:
		r.Exclude = map[string]string{anyone(): "test"}
	case 3:
		for _, c := range append(append([]int{}, m.Cuts...), m.Layers) {
			if rng.IntN(3) == 0 && r.Shape != Local {
				r.Cuts = append(r.Cuts, c)
			}
		}
	case 4:
		perm := rng.Perm(len(ps))
		for _, i := range perm[:1+rng.IntN(len(ps))] {
			id := ps[i].ID
			if rng.IntN(3) == 0 {
				id = ""
			}
			r.Assign = append(r.Assign, id)
		}
	}
}

func TestOracle(t *testing.T) {
	cases, peers, layers := 2200, 4, 6
	switch {
	case *soak:
		cases = 10000
	case testing.Short():
		cases = 500
	}
	compareWithOracle(t, cases, peers, layers)
}

func TestOracleSixPeers(t *testing.T) { compareWithOracle(t, 12, 6, 5) }

func compareWithOracle(t *testing.T, cases, maxPeers, maxLayers int) {
	var routes, none, refused, plans int
	shapes := make(map[Shape]int)
	for seed := range cases {
		rng := rand.New(rand.NewPCG(uint64(seed), uint64(maxPeers)))
		m, ps, links, r := random(rng, maxPeers-rng.IntN(maxPeers)*rng.IntN(2), maxLayers-rng.IntN(3))
		want, n := (&oracle{m, ps, links, r}).answer()
		plans += n
		plan, err := Make(m, ps, links, r)
		switch {
		case err == nil && math.IsInf(want, 1):
			t.Fatalf("seed %d: the planner made %v where the oracle has nothing", seed, plan)
		case err == nil:
			routes++
			shapes[plan.Shape]++
			if got := plan.Predicted.TotalSeconds; math.Abs(got-want) > 1e-9*want {
				t.Fatalf("seed %d: %v costs %.12g, the oracle's best %.12g\nrequest %+v", seed, plan, got, want, r)
			}
			if err := plan.Validate(m, ps); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		case !math.IsInf(want, 1):
			t.Fatalf("seed %d: %v, but the oracle has a plan for %g\nrequest %+v", seed, err, want, r)
		case errors.Is(err, ErrNoRoute):
			none++
		case errors.Is(err, ErrConstraint):
			refused++
		default:
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d plans enumerated; %d routes %v, %d without, %d refused", plans, routes, shapes, none, refused)
	if maxPeers == 4 && (routes < cases/4 || none == 0 || refused == 0 || len(shapes) != 3) {
		t.Errorf("the random problems are one-sided: %d routes %v, %d without, %d refused", routes, shapes, none, refused)
	}
}
