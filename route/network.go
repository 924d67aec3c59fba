package route

import (
	"cmp"
	"math"
	"slices"
)

// network is what is known of the ways between an instance's peers, by their indexes.
type network struct {
	peers []Peer
	ways  map[[2]int32]way // measured ones, in both directions

	// The lines between the peers of the latest pool, as among returned them.
	table []line
	size  int     // peers in it
	place []int16 // by peer: where in the pool it is, from 1 on; 0: nowhere
}

// way is what was measured from one peer to another.
type way struct {
	rtt   float64 // s; 0: not measured
	rate  float64 // bytes/s; +Inf: not measured
	basis string  // what rate rests on, in words
}

// learn takes in the links between the given peers; with others, also those between one of them and anybody. Where a link is reported
// twice the slower figures count; impossible ones don't. Links taken in before may be there again.
func (n *network) learn(links []Link, peers []int, others bool) {
	if n.ways == nil {
		n.ways = make(map[[2]int32]way)
	}
	names := make(map[string]int32, len(peers))
	var some [1 << 12]bool // ends of names: most links of a crowd are between others
	end := func(id string) uint32 {
		if len(id) < 4 {
			return uint32(len(id))
		}
		id = id[len(id)-4:]
		return (uint32(id[0]) | uint32(id[1])<<8 | uint32(id[2])<<16 | uint32(id[3])<<24) * 0x9e3779b1 >> 20
	}
	for _, i := range peers {
		id := n.peers[i].ID
		names[id], some[end(id)] = int32(i), true
	}
	find := func(id string) (i int32, ok bool) {
		if some[end(id)] {
			i, ok = names[id]
		}
		return i, ok
	}
	n.forget()
	for k := range links {
		l := &links[k]
		i, from := find(l.From)
		if !from && !others {
			continue
		}
		j, to := find(l.To)
		switch {
		case from && to:
		case !others || !from && !to:
			continue
		case from:
			j = int32(n.index(l.To))
		default:
			i = int32(n.index(l.From))
		}
		if i == j || i < 0 || j < 0 {
			continue
		}
		w, ok := n.ways[[2]int32{i, j}]
		if !ok {
			w.rate = math.Inf(1)
		}
		if l.RTT > 0 && l.RTT <= maxRTT {
			w.rtt = max(w.rtt, l.RTT)
		}
		if r := l.BytesPerSec; r >= minSpeed && r <= maxSpeed && (r < w.rate || r == w.rate && l.Basis < w.basis) {
			w.rate, w.basis = r, l.Basis
		}
		n.ways[[2]int32{i, j}] = w
	}
}

// known returns the peers that have a measured way to or from one of the given ones.
func (n *network) known(peers []int) (out []int) {
	for w := range n.ways {
		for k, i := range w {
			if slices.Contains(peers, int(i)) {
				out = append(out, int(w[1-k]))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// index returns the index of a peer by name, or −1.
func (n *network) index(id string) int {
	i, ok := slices.BinarySearchFunc(n.peers, id, func(p Peer, id string) int { return cmp.Compare(p.ID, id) })
	if !ok {
		return -1
	}
	return i
}

// line is one direction between two peers, as reckoned with.
type line struct {
	rtt  float64 // s, both ways: as measured in this direction, in the other one, or [DefaultRTT]
	rate float64 // bytes/s: the least of the sender's uplink, the receiver's downlink and what was measured
}

// line returns the one from peer i to j.
func (n *network) line(i, j int) line {
	if n.size > 0 {
		if a, b := int(n.place[i]), int(n.place[j]); a > 0 && b > 0 {
			return n.table[(a-1)*n.size+b-1]
		}
	}
	l := line{DefaultRTT, min(n.peers[i].Up, n.peers[j].Down)}
	if len(n.ways) == 0 {
		return l
	}
	forth, ok := n.ways[[2]int32{int32(i), int32(j)}]
	if ok {
		l.rate = min(l.rate, forth.rate)
	}
	if forth.rtt > 0 {
		l.rtt = forth.rtt
	} else if back := n.ways[[2]int32{int32(j), int32(i)}]; back.rtt > 0 {
		l.rtt = back.rtt
	}
	return l
}

// forget makes line look at what was measured again.
func (n *network) forget() {
	n.table, n.size = nil, 0
	clear(n.place)
}

// among returns the lines between the peers of a pool, by sender and receiver: the one from pool[i] to pool[k] is at i·len(pool)+k.
func (n *network) among(pool []int) []line {
	n.forget()
	out := make([]line, len(pool)*len(pool))
	for i, p := range pool {
		up, row := n.peers[p].Up, out[i*len(pool):]
		for k, q := range pool {
			row[k] = line{DefaultRTT, min(up, n.peers[q].Down)}
		}
	}
	if n.place == nil {
		n.place = make([]int16, len(n.peers))
	}
	for i, p := range pool {
		n.place[p] = int16(i + 1)
	}
	for way := range n.ways {
		a, b := int(way[0]), int(way[1])
		if i, k := int(n.place[a])-1, int(n.place[b])-1; i >= 0 && k >= 0 {
			out[i*len(pool)+k], out[k*len(pool)+i] = n.line(a, b), n.line(b, a)
		}
	}
	n.table, n.size = out, len(pool)
	return out
}

// toward returns the lines from everybody to one peer, by sender.
func (n *network) toward(to int) []line {
	out, down := make([]line, len(n.peers)), n.peers[to].Down
	for i := range out {
		out[i] = line{DefaultRTT, min(n.peers[i].Up, down)}
	}
	for way := range n.ways {
		for k, i := range way {
			if int(i) == to {
				out[way[1-k]] = n.line(int(way[1-k]), to)
			}
		}
	}
	return out
}

// basis says in words what the rate from i to j rests on; "" where that is the peers' own lines.
func (n *network) basis(i, j int) string { return n.ways[[2]int32{int32(i), int32(j)}].basis }
