package artifacts

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"

	"github.com/anacrolix/torrent"
)

// The front is this node's share of the rarest pieces, up to what the library asks of one peer at once (1024 requests of 16 KiB); where its
// share is done, some of the others'.
const (
	mostInFront  = 16 << 20
	leastInFront = 1 << 20
)

// spreadEvery bounds how often a fetch looks at what its peers have.
const spreadEvery = 25 * time.Millisecond

// pieceAt names a piece of a model.
type pieceAt struct{ part, piece int }

// spread puts the pieces in front that this node should ask for first: the rarest ones among its peers, and of those its own share.
//
// Left alone, the library asks every peer for the rarest pieces first, equally rare ones in the order of their numbers. So nodes that
// begin together would all ask the only seed for the same pieces, and its uplink would carry some of them as often as there are nodes.
// Here every piece belongs to one of the nodes that fetch, the one of the highest rank for it, without a word between them. Pieces
// behind the front are still asked of whoever has them.
func (t *Torrents) spread(sm *swarmModel, runs []pieceRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(sm.spreadAt) < spreadEvery {
		return
	}
	if sm.isGone() {
		return
	}
	sm.spreadAt = now
	self := rankKey(t.client.PeerID())
	var all []candidate
	var holders []int
	var others []uint64
	part, alone := -1, true
	for _, r := range runs {
		if r.part != part {
			part = r.part
			holders, others = sm.holders(part)
			alone = alone && len(others) == 0
		}
		for i := r.first; i < r.last; i++ {
			if sm.wanted[part][i] > 0 && !sm.claimed[part][i] && !sm.model.hasPiece(part, i) {
				all = append(all, newCandidate(pieceAt{part, i}, holders[i], self, others))
			}
		}
	}
	if alone && sm.front != nil {
		return // nobody asks for the same: any order does
	}
	front := frontOf(sm.model.Manifest(), all)
	for _, c := range all {
		if front[c.pieceAt] != sm.front[c.pieceAt] {
			p := torrent.PiecePriorityNormal
			if front[c.pieceAt] {
				p = torrent.PiecePriorityHigh
			}
			sm.parts[c.part].Piece(c.piece).SetPriority(p)
		}
	}
	sm.front = front
}

// holders returns how many connected peers have each piece of a part, and the rank keys of those that lack some.
func (sm *swarmModel) holders(part int) (count []int, others []uint64) {
	count = make([]int, len(sm.model.Manifest().Parts[part].Pieces))
	for _, c := range sm.parts[part].PeerConns() {
		pieces := c.PeerPieces()
		if pieces.GetCardinality() < uint64(len(count)) {
			others = append(others, rankKey(c.PeerID))
		}
		for it := pieces.Iterator(); it.HasNext(); {
			if i := int(it.Next()); i < len(count) {
				count[i]++
			}
		}
	}
	return count, others
}

// frontOf chooses the front among missing pieces, which it sorts.
func frontOf(man *Manifest, all []candidate) map[pieceAt]bool {
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.had(), a.had()), cmp.Compare(a.holders, b.holders), cmp.Compare(a.other, b.other), cmp.Compare(a.rank, b.rank))
	})
	front := map[pieceAt]bool{}
	bytes := int64(0)
	for _, c := range all {
		own := c.holders == all[0].holders && c.other == 0
		if bytes >= leastInFront && !(own && bytes < mostInFront) {
			break
		}
		front[c.pieceAt] = true
		bytes += man.pieceSpan(c.part, c.piece).Length
	}
	return front
}

// candidate is a missing piece.
type candidate struct {
	pieceAt
	holders int // peers that have it
	other   int // 1: another node's share
	rank    uint64
}

func newCandidate(at pieceAt, holders int, self uint64, others []uint64) candidate {
	c := candidate{pieceAt: at, holders: holders, rank: rank(self, at)}
	for _, k := range others {
		if rank(k, at) > c.rank {
			c.other = 1
			break
		}
	}
	return c
}

// had is 1 for a piece that a peer has.
func (c candidate) had() int { return min(c.holders, 1) }

// rankKey is a peer's part of its ranks.
func rankKey(id torrent.PeerID) uint64 {
	h := fnv.New64a()
	h.Write(id[:])
	return h.Sum64()
}

// rank says how much a piece is a peer's: uniform in all bits, and the same for everybody (the finalizer of MurmurHash3).
func rank(key uint64, at pieceAt) uint64 {
	x := key ^ (uint64(at.part)<<32|uint64(at.piece))*0x9e3779b97f4a7c15
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
