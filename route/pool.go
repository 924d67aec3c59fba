package route

import (
	"cmp"
	"slices"
)

// With more than ExactPeers usable peers the search runs on a pool of poolSizes[0] and keeps poolWidth labels per
// position and peer; where that finds no route, on the next larger pool.
var poolSizes = []int{12, 32, 64}

const poolWidth = 2

// pool returns up to size of the usable peers, ascending: those the request names, the best decoders, chains that cover
// the model with the strongest holders of each layer, chains that cover it with the fewest peers, and then the strongest.
func (in *instance) pool(usable []int, size int) []int {
	var pool []int
	add := func(i int) {
		if len(pool) < size && !slices.Contains(pool, i) {
			pool = append(pool, i)
		}
	}
	for _, i := range usable {
		id := in.peers[i].ID
		if id == in.req.Decoder || slices.Contains(in.req.Assign, id) || slices.Contains(in.req.Include, id) {
			add(i)
		}
	}
	for _, i := range usable {
		if in.peers[i].Self && in.req.PreferSelf {
			add(i)
		}
	}
	decoders := in.decoders(usable)
	for _, i := range decoders[:min(3, len(decoders))] {
		add(i)
	}
	strength := func(i int) float64 {
		p := &in.peers[i]
		return p.PrefillFlops / (1 + p.Load)
	}
	reach := func(i, a int) float64 { return float64(in.reach(i, a)) }
	work := func(i, a int) float64 { return strength(i) * float64(in.reach(i, a)-a) }
	used := make(map[int]bool)
	for _, score := range []func(i, a int) float64{reach, work, work} {
		for _, i := range in.chain(usable, used, score) {
			add(i)
			used[i] = true
		}
	}
	rest := slices.Clone(usable)
	slices.SortStableFunc(rest, func(a, b int) int {
		return cmp.Compare(strength(b)*float64(in.peers[b].Holds.Len()), strength(a)*float64(in.peers[a].Holds.Len()))
	})
	for _, i := range rest {
		add(i)
	}
	slices.Sort(pool)
	return pool
}

// decoders returns the peers that may decode, those that can do it alone first, then by speed.
func (in *instance) decoders(usable []int) []int {
	var out []int
	alone := make(map[int]bool)
	for _, i := range usable {
		if !in.mayDecode(i) || !in.canDecode(i, in.model.Layers, false, false) {
			continue
		}
		alone[i] = in.canDecode(i, in.model.Layers, true, true)
		out = append(out, i)
	}
	speed := func(i int) float64 { return in.peers[i].DecodeBytesPerSec / (1 + in.peers[i].Load) }
	slices.SortStableFunc(out, func(a, b int) int {
		if alone[a] != alone[b] {
			if alone[a] {
				return -1
			}
			return 1
		}
		return cmp.Compare(speed(b), speed(a))
	})
	return out
}

// reach returns the furthest position up to which peer i can run layers from a on; a if it can't.
func (in *instance) reach(i, a int) int {
	p := &in.peers[i]
	if a < p.Holds.First || a == 0 && !p.Embed {
		return a
	}
	far := a
	for _, b := range in.bounds {
		if b > a && b <= p.Holds.Last && in.fits(p, a, b) {
			far = b
		}
	}
	return far
}

// chain covers the model from layer 0 on, taking at each position the peer with the best score and then going as far
// as it reaches. It stops where nobody unused goes on.
func (in *instance) chain(usable []int, used map[int]bool, score func(i, a int) float64) []int {
	var out []int
	for a := 0; a < in.model.Layers; {
		best := -1
		for _, i := range usable {
			if used[i] || slices.Contains(out, i) || in.reach(i, a) == a {
				continue
			}
			if best < 0 || score(i, a) > score(best, a) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		out = append(out, best)
		a = in.reach(best, a)
	}
	return out
}
