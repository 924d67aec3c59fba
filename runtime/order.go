package runtime

import (
	"math"
	"slices"

	"github.com/starling-swarm/starling/kernels"
)

// candidate is a token that may be chosen.
type candidate struct {
	id    int32
	logit float32 // as bias and penalties left it
	p     float32 // relative to the largest, which has 1
}

// before is the order of step 4.
func (c candidate) before(o candidate) bool {
	return c.logit > o.logit || c.logit == o.logit && c.id < o.id
}

// order returns the first k tokens of the order of step 4; all for k = 0. With a small k it keeps a heap of the k best, whose
// root is the last in order, and so looks closer only at logits that reach the root's, and sorts few.
func order(logits []float32, k int) []candidate {
	if k == 0 || k >= len(logits) {
		return orderAll(logits)
	}
	if k > len(logits)/8 {
		return orderAll(logits)[:k]
	}
	heap := make([]candidate, k)
	for id := range heap {
		heap[id] = candidate{id: int32(id), logit: logits[id]}
	}
	for i := k/2 - 1; i >= 0; i-- {
		sift(heap, i)
	}
	for id := k; id < len(logits); id++ {
		next := kernels.IndexAtLeast(logits[id:], heap[0].logit)
		if next < 0 {
			break
		}
		id += next
		if c := (candidate{id: int32(id), logit: logits[id]}); c.before(heap[0]) {
			heap[0] = c
			sift(heap, 0)
		}
	}
	slices.SortFunc(heap, func(a, b candidate) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	return heap
}

// orderAll returns all tokens in step 4's order.
func orderAll(logits []float32) []candidate {
	keys := make([]uint64, len(logits))
	for id, logit := range logits {
		keys[id] = orderKey(id, logit)
	}
	return candidates(logits, sortKeys(keys))
}

// orderAtLeast returns the tokens whose logit is at least least, in step 4's order.
func orderAtLeast(logits []float32, least float32) []candidate {
	var keys []uint64
	for id := 0; id < len(logits); id++ {
		next := kernels.IndexAtLeast(logits[id:], least)
		if next < 0 {
			break
		}
		id += next
		keys = append(keys, orderKey(id, logits[id]))
	}
	return candidates(logits, sortKeys(keys))
}

// orderKey returns a number that ascends in step 4's order. Its low half is the id.
func orderKey(id int, logit float32) uint64 { return uint64(descending(logit))<<32 | uint64(id) }

// candidates returns the tokens of keys.
func candidates(logits []float32, keys []uint64) []candidate {
	cands := make([]candidate, len(keys))
	for i, k := range keys {
		id := int32(uint32(k))
		cands[i] = candidate{id: id, logit: logits[id]}
	}
	return cands
}

// sortKeys sorts keys whose ids ascend; it may return another slice. Many are sorted by a stable radix sort of 11 bits a
// pass: sorting a vocabulary by comparison would take as long as a small model takes for a token.
func sortKeys(keys []uint64) []uint64 {
	const few = 512
	if len(keys) < few {
		slices.Sort(keys)
		return keys
	}
	const bits, mask = 11, 1<<11 - 1
	var at [3][mask + 1]int // how many have a digit, then where the next with it goes
	for _, k := range keys {
		at[0][k>>32&mask]++
		at[1][k>>(32+bits)&mask]++
		at[2][k>>(32+2*bits)]++
	}
	from, to := keys, make([]uint64, len(keys))
	for pass := range at {
		digits, start := &at[pass], 0
		for d, n := range digits {
			digits[d], start = start, start+n
		}
		for _, k := range from {
			d := k >> (32 + bits*pass) & mask
			to[digits[d]] = k
			digits[d]++
		}
		from, to = to, from
	}
	return from
}

// descending returns an integer that is smaller for larger f, and the same for both zeros.
func descending(f float32) uint32 {
	if f == 0 {
		return 1<<31 - 1
	}
	b := math.Float32bits(f)
	if b>>31 != 0 {
		return b
	}
	return 1<<31 - 1 - b
}

// sift moves element i down until neither child comes after it in order.
func sift(heap []candidate, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && heap[child].before(heap[child+1]) {
			child++
		}
		if !heap[i].before(heap[child]) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
