package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/route/assign"
)

// Times of the product, in seconds.
const (
	lookEvery   = 300.0 // assignEvery of package node
	offerEvery  = 300.0 // half an offer's life
	offerSettle = 0.2   // from a change to its push
	notice      = 1.8   // until a silent peer counts as lost
	keptLinks   = 16    // that an offer tells
)

// peer is a machine.
type peer struct {
	id     string
	order  uint64
	budget int64 // bytes of weights

	route.Peer            // as it is: Holds what it serves, KVFreeBytes what is free, Load its sessions
	said       route.Peer // as its latest offer says
	x, y       float64    // where it is, in seconds of round trip
	access     float64    // seconds of round trip
	links      []route.Link

	alive   bool
	claim   route.Range
	disk    []bool
	watch   assign.Watch
	pushing bool
	life    int // how often it has come: what was scheduled in an earlier one is void
	used    map[*session]bool

	trackers       []int // that it tells
	sent, received float64
	since          float64 // when counting began
}

// draw makes a new machine.
func (w *world) draw() *peer {
	c := w.class()
	w.made++
	p := &peer{id: fmt.Sprintf("12D3KooW%044d", w.rng.Uint64()), disk: make([]bool, w.model.Layers), used: map[*session]bool{}, x: w.rng.Float64() * 0.15, y: w.rng.Float64() * 0.05}
	h := fnv.New64a()
	fmt.Fprint(h, p.id)
	p.order = h.Sum64()
	vary := func(v float64) float64 { return v * math.Exp(c.Spread*w.rng.NormFloat64()) }
	p.budget = int64(vary(float64(c.WeightBytes)))
	p.Peer = route.Peer{ID: p.id, PrefillFlops: max(vary(c.PrefillFlops), 1), DecodeBytesPerSec: max(vary(c.DecodeBytesPerSec), 1), KVFreeBytes: int64(vary(float64(c.KVBytes))),
		Up: max(vary(c.Up), 1), Down: max(vary(c.Down), 1)}
	p.access = vary(c.AccessSeconds)
	n := w.s.Trackers
	p.trackers = w.rng.Perm(n)[:min(n, toldTrackers)]
	return p
}

func (w *world) class() *Class {
	total := 0.0
	for _, c := range w.s.Classes {
		total += c.Share
	}
	at := w.rng.Float64() * total
	for i := range w.s.Classes {
		if at -= w.s.Classes[i].Share; at < 0 {
			return &w.s.Classes[i]
		}
	}
	return &w.s.Classes[len(w.s.Classes)-1]
}

// lifetimeSigma makes times that peers stay spread from minutes to days.
const lifetimeSigma = 1.5

// lifetime draws how long a newcomer stays, in seconds, or how much longer one does that is met at any time.
func (w *world) lifetime(met bool) float64 {
	if w.s.ChurnPerHour == 0 {
		return math.Inf(1)
	}
	mu := math.Log(3600/w.s.ChurnPerHour) - lifetimeSigma*lifetimeSigma/2
	if met { // longer stays are met more often
		return w.rng.Float64() * math.Exp(mu+lifetimeSigma*lifetimeSigma+lifetimeSigma*w.rng.NormFloat64())
	}
	return math.Exp(mu + lifetimeSigma*w.rng.NormFloat64())
}

// rtt is the round trip between two peers, in seconds.
func rtt(a, b *peer) float64 { return 0.001 + a.access + b.access + math.Hypot(a.x-b.x, a.y-b.y) }

// measure notes in both offers what a session has told of a way.
func measure(a, b *peer) {
	for _, d := range [][2]*peer{{a, b}, {b, a}} {
		from, to := d[0], d[1]
		to.links = slices.DeleteFunc(to.links, func(l route.Link) bool { return l.From == from.id })
		to.links = append(to.links, route.Link{From: from.id, To: to.id, RTT: rtt(a, b)})
		to.links = to.links[max(len(to.links)-keptLinks, 0):]
	}
}

// enter brings a machine into the swarm. met: it is there when the time begins.
func (w *world) enter(p *peer, met bool) {
	p.alive, p.claim, p.Holds, p.Load, p.watch = true, route.Range{}, route.Range{}, 0, assign.Watch{}
	p.Head, p.Embed = false, false
	p.life++
	p.since, p.sent, p.received = w.now, 0, 0
	w.alive = append(w.alive, p)
	life := p.life
	then := func(seconds float64, do func()) {
		w.after(seconds, func() {
			if p.alive && p.life == life {
				do()
			}
		})
	}
	if stay := w.lifetime(met); !math.IsInf(stay, 1) {
		then(stay, func() { w.exit(p) })
	}
	var look, renew func()
	look = func() { w.look(p); then(lookEvery*(0.5+w.rng.Float64()), look) }
	renew = func() { w.push(p); then(offerEvery, renew) }
	then(lookEvery*(0.5+w.rng.Float64()), look)
	then(offerEvery*w.rng.Float64(), renew)
	w.join(p, met)
}

// join chooses the layers of a newcomer, and fetches them.
func (w *world) join(p *peer, met bool) {
	to := assign.Choose(&w.model, w.volunteer(p), w.assignView(p))
	if to.Len() == 0 {
		return
	}
	if met {
		w.serve(p, to)
		w.push(p)
		return
	}
	w.fetch(p, to)
}

// fetch claims layers, and serves them when their bytes are there.
func (w *world) fetch(p *peer, to route.Range) {
	p.claim = to
	w.changed(p)
	missing := int64(0)
	for x := to.First; x < to.Last; x++ {
		if !p.disk[x] {
			missing += w.model.LayerWeightBytes[x]
		}
	}
	life := p.life
	w.after(10+2*float64(missing)/p.Down, func() { // 10 s to load
		if !p.alive || p.life != life {
			return
		}
		if p.Holds.Len() > 0 && !assign.MayLeave(&w.model, w.volunteer(p), to, w.assignView(p)) {
			p.claim = route.Range{}
			w.changed(p)
			return
		}
		w.serve(p, to)
	})
}

// serve gives up what p has served and takes to. Sessions that need the former go on elsewhere.
func (w *world) serve(p *peer, to route.Range) {
	w.count(p.Holds, -1)
	if p.Holds.Len() > 0 {
		for _, s := range sorted(p.used) {
			w.lost(s, p, 0)
		}
	}
	for x := to.First; x < to.Last; x++ {
		p.disk[x] = true
	}
	p.Holds, p.claim = to, route.Range{}
	p.Head, p.Embed = to.Last == w.model.Layers, to.First == 0
	w.count(to, 1)
	w.changed(p)
}

// exit takes a machine out of the swarm.
func (w *world) exit(p *peer) {
	w.count(p.Holds, -1)
	p.alive = false
	w.alive = slices.DeleteFunc(w.alive, func(o *peer) bool { return o == p })
	w.account(p)
	late := 0.0
	if w.rng.Float64() < w.s.Abrupt {
		late = notice
		w.after(notice, func() { w.forget(p) }) // whoever dials it finds out
	} else {
		w.forget(p)
	}
	for _, s := range sorted(p.used) {
		w.lost(s, p, late)
	}
	p.Holds = route.Range{}
	w.gone = append(w.gone, p)
	if len(w.gone) > w.s.Peers {
		w.gone = w.gone[1:]
	}
}

// look is what a volunteer does now and then.
func (w *world) look(p *peer) {
	if p.claim.Len() > 0 {
		return
	}
	if p.Holds.Len() == 0 {
		w.join(p, false)
		return
	}
	to, ok := p.watch.Look(&w.model, w.volunteer(p), w.assignView(p), w.rng.Float64())
	if !ok {
		return
	}
	if w.counting {
		w.r.Moves++
	}
	w.fetch(p, to)
}

// volunteer is a peer in package assign's terms.
func (w *world) volunteer(p *peer) assign.Volunteer {
	return assign.Volunteer{ID: p.id, Serves: p.Holds, PrefillFlops: p.PrefillFlops, Budget: p.budget, OnDisk: p.disk, Order: func(r route.Range) uint64 {
		z := p.order ^ uint64(r.First)<<32 ^ uint64(r.Last)
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}}
}
