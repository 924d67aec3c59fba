package route

import (
	"cmp"
	"math"
	"slices"
)

// rest is what the layers from one position on cost at least, in seconds added to a route: their share of the fill,
// and of every decoded token where those walk.
type rest struct {
	fastest float64 // every layer by its fastest holder

	// The same as a transport problem, tighter where nobody can take everything: bytes of cache rows are the
	// goods, and each peer takes some at a price. Not set where a layer has none.
	goods  float64
	order  []int8    // pool peers by price
	price  []float64 // per pool peer: least seconds per cache byte over the layers it holds
	room   []float64 // per pool peer: bytes of the layers it holds and has memory for
	effort float64   // least FLOPs per cache byte over all these layers
}

// rests returns the bounds for every position in f.ends.
func (f *frontier) rests() []rest {
	in := f.in
	layers := in.model.Layers
	out := make([]rest, len(f.ends))
	now := rest{effort: math.Inf(1), price: make([]float64, len(f.pool)), room: make([]float64, len(f.pool))}
	for i := range f.pool {
		now.price[i] = math.Inf(1)
	}
	dense := true // every layer so far has a cache
	at := len(f.ends) - 1
	for x := layers; x >= 0; x-- {
		if x < layers {
			kv := in.rows[x+1] - in.rows[x]
			dense = dense && kv > 0
			now.goods += kv
			now.effort = min(now.effort, in.model.LayerFlops[x]/kv)
			least := math.Inf(1)
			for i, p := range f.pool {
				if h := in.peers[p].Holds; h.First <= x && x < h.Last {
					cost := f.layerTime(i, x)
					least = min(least, cost)
					now.price[i] = min(now.price[i], cost/kv)
					now.room[i] += kv
				}
			}
			now.fastest += least
		}
		if at >= 0 && f.ends[at] == x {
			out[at] = rest{fastest: now.fastest}
			if dense {
				out[at] = f.transport(now)
			}
			at--
		}
	}
	return out
}

// layerTime returns the seconds that layer x adds to a route when pool peer i runs it, at least.
func (f *frontier) layerTime(i, x int) float64 {
	t := f.set.chunk * f.in.model.LayerFlops[x] / f.speed[i]
	if f.set.pipelined {
		t += f.in.steps * f.in.readTime(f.pool[i], float64(f.in.model.LayerWeightBytes[x]), f.in.read[x+1]-f.in.read[x], f.in.model.LayerFlops[x])
	}
	return t
}

// transport returns a copy of the sums so far with the peers in order of price and their rooms cut to their memory.
func (f *frontier) transport(now rest) rest {
	now.price, now.room = slices.Clone(now.price), slices.Clone(now.room)
	for i, p := range f.pool {
		now.room[i] = min(now.room[i], float64(f.in.peers[p].KVFreeBytes))
		now.order = append(now.order, int8(i))
	}
	slices.SortStableFunc(now.order, func(a, b int8) int { return cmp.Compare(now.price[a], now.price[b]) })
	return now
}

// lower fills in l's floor and bound.
func (f *frontier) lower(l *label) {
	in, s := f.in, &f.set
	may := func(i int) bool { // still compute: this peer, the unused, the decoder
		bit := uint64(1) << i
		return i == int(l.peer) || bit == f.decBit || l.used&bit == 0
	}
	var free float64
	for i, speed := range f.speed {
		if may(i) {
			free += speed
		}
	}
	a := f.ends[l.at]
	share := s.chunk * (in.flops[in.model.Layers] - in.flops[a]) / free
	l.floor = max(l.period, share*(1-epsilon), in.inflow(s, a))

	r := &f.rest[l.at]
	known := l.cost + l.tail + f.fixed
	l.bound = known + r.fastest + s.periods*l.floor
	limit := f.c.limit(s)
	if l.bound > limit || r.order == nil {
		return
	}
	// No route within the limit has a longer period than this, so nobody computes more than that per chunk.
	longest := math.Inf(1)
	if s.periods > 0 {
		longest = (limit - known - r.fastest) / s.periods
	}
	left, cost := r.goods*(1-epsilon), 0.0
	for _, i := range r.order {
		if left <= 0 {
			break
		}
		if may(int(i)) {
			take := min(left, r.room[i])
			if most := longest * f.speed[i] / (s.chunk * r.effort); most < take {
				take = most
			}
			left -= take
			cost += take * r.price[i]
		}
	}
	if left > 0 {
		l.bound = math.Inf(1) // the others can't take what is left
		return
	}
	l.bound = max(l.bound, known+cost*(1-epsilon)+s.periods*l.floor)
}
