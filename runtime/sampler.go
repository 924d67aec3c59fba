package runtime

import (
	"fmt"
	"math"
	"slices"

	"github.com/starling-swarm/starling/kernels"
)

// Sampling says how to choose a token from logits. The zero value is greedy.
type Sampling struct {
	// Seed and Choice key the random numbers: the same key, position, history and logits give the same token,
	// everywhere and always. Choice tells apart several continuations of one prompt.
	Seed   uint64
	Choice uint32
	// Temperature divides the logits; 0 takes the largest, whatever the fields below. At most 100.
	Temperature float32
	// TopK keeps that many of the largest logits; 0 keeps all.
	TopK int
	// TopP keeps the fewest largest probabilities whose sum reaches it; 0 or 1 keep all.
	TopP float32
	// MinP keeps probabilities of at least MinP times the largest; 0 keeps all.
	MinP float32
	// FrequencyPenalty is subtracted from a token's logit for each time it is in the history, PresencePenalty once if
	// it is there at all. Greedy choice heeds them, too. Both within ±100.
	FrequencyPenalty, PresencePenalty float32
}

// Validate returns an error that names the first setting out of range.
func (s *Sampling) Validate() error {
	in := func(v, lo, hi float32) bool { return v >= lo && v <= hi } // false for NaN
	switch {
	case !in(s.Temperature, 0, 100):
		return fmt.Errorf("runtime: temperature %v: not within 0 to 100", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("runtime: top-k %d: negative", s.TopK)
	case !in(s.TopP, 0, 1):
		return fmt.Errorf("runtime: top-p %v: not within 0 to 1", s.TopP)
	case !in(s.MinP, 0, 1):
		return fmt.Errorf("runtime: min-p %v: not within 0 to 1", s.MinP)
	case !in(s.FrequencyPenalty, -100, 100):
		return fmt.Errorf("runtime: frequency penalty %v: not within ±100", s.FrequencyPenalty)
	case !in(s.PresencePenalty, -100, 100):
		return fmt.Errorf("runtime: presence penalty %v: not within ±100", s.PresencePenalty)
	}
	return nil
}

// candidate is a token that may be chosen.
type candidate struct {
	id    int32
	logit float32 // with penalties
	p     float32 // relative to the largest, which has 1
}

// Sample chooses the token at a position of a sequence (that of the chosen token itself) from the logits there. history
// is the tokens generated so far, which the penalties look at. It neither changes nor keeps its arguments. A NaN or
// infinite logit, of whatever token, is a *NonFiniteError; settings out of range are an error.
//
// The steps, in this order, every product and sum rounded on its own:
//
//  1. penalties: logit − round(count·FrequencyPenalty) − PresencePenalty, tokens with count > 0 only;
//  2. order: descending logit, ties by ascending id. Temperature 0 takes the first and ends here;
//  3. top-k: the first TopK;
//  4. weights: p = Exp(round(round(logit − largest)/Temperature)), float32, so the first has p = 1;
//  5. min-p: those before the first with p < MinP;
//  6. top-p: total = Σp, float64, in order; the shortest prefix whose running sum is ≥ TopP·total;
//  7. choice: u·total′ with total′ = Σp of what is left, float64, in order, u in [0, 1) the draw of (Seed, Choice,
//     position, 0); the first candidate whose running sum exceeds it, or the last one.
func Sample(logits []float32, history []int32, position int, s Sampling) (int32, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	if len(logits) == 0 {
		return 0, fmt.Errorf("runtime: no logits to sample from")
	}
	if kernels.CheckFinite(logits) >= 0 {
		return 0, &NonFiniteError{What: "logits", Pos: position}
	}
	penalised := s.penalise(logits, history)
	if s.Temperature == 0 {
		return int32(kernels.ArgMax(penalised)), nil
	}
	cands := s.weigh(order(penalised, s.TopK))
	total := 0.0
	for i := range cands {
		total += float64(cands[i].p)
	}
	if s.TopP > 0 && s.TopP < 1 {
		target, sum := float64(float64(s.TopP)*total), 0.0
		for i := range cands {
			if sum += float64(cands[i].p); sum >= target {
				cands, total = cands[:i+1], sum
				break
			}
		}
	}
	target, sum := float64(uniform(s.Seed, s.Choice, position, 0)*total), 0.0
	for i := range cands {
		if sum += float64(cands[i].p); sum > target {
			return cands[i].id, nil
		}
	}
	return cands[len(cands)-1].id, nil
}

// penalise returns the logits after step 1: the same slice where there is no penalty.
func (s *Sampling) penalise(logits []float32, history []int32) []float32 {
	if s.FrequencyPenalty == 0 && s.PresencePenalty == 0 || len(history) == 0 {
		return logits
	}
	counts := make(map[int32]int)
	for _, id := range history {
		counts[id]++
	}
	out := slices.Clone(logits)
	for id, n := range counts { // each token on its own, so the map's order does not matter
		if id >= 0 && int(id) < len(out) {
			out[id] = out[id] - float32(float32(n)*s.FrequencyPenalty) - s.PresencePenalty
		}
	}
	return out
}

// before is the order of step 2.
func (c candidate) before(o candidate) bool {
	return c.logit > o.logit || c.logit == o.logit && c.id < o.id
}

// order returns the first k tokens of step 2's order; all for k = 0. With a small k it keeps a heap of the k best, whose
// root is the last in order, and so looks closer only at logits that reach the root's, and sorts few.
func order(logits []float32, k int) []candidate {
	if k == 0 || k >= len(logits) {
		return orderAll(logits)
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

// orderAll returns all tokens in step 2's order, by a stable radix sort of 11 bits a pass: sorting a vocabulary by
// comparison would take as long as a small model takes for a token.
func orderAll(logits []float32) []candidate {
	const bits, mask = 11, 1<<11 - 1
	var at [3][mask + 1]int // how many have a digit, then where the next with it goes
	from, to := make([]uint64, len(logits)), make([]uint64, len(logits))
	for id, logit := range logits {
		key := descending(logit)
		from[id] = uint64(key)<<32 | uint64(id)
		at[0][key&mask]++
		at[1][key>>bits&mask]++
		at[2][key>>(2*bits)]++
	}
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
	cands := make([]candidate, len(logits))
	for i, k := range from {
		id := int32(uint32(k))
		cands[i] = candidate{id: id, logit: logits[id]}
	}
	return cands
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

// weigh does steps 4 and 5 on ordered candidates.
func (s *Sampling) weigh(cands []candidate) []candidate {
	var p [256]float32
	largest := cands[0].logit
	for at := 0; at < len(cands); at += len(p) {
		some := cands[at:min(at+len(p), len(cands))]
		for i := range some {
			p[i] = (some[i].logit - largest) / s.Temperature
		}
		kernels.Exps(p[:len(some)], p[:len(some)])
		for i := range some {
			if p[i] < s.MinP {
				return cands[:at+i]
			}
			some[i].p = p[i]
		}
	}
	return cands
}

// uniform returns the draw of a key as a multiple of 2^−53 in [0, 1).
func uniform(seed uint64, choice uint32, position int, draw uint32) float64 {
	r := philox([4]uint32{uint32(position), uint32(uint64(position) >> 32), choice, draw}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(r[1])<<32|uint64(r[0]))>>11) * 0x1p-53
}

// philox is Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): a keyed bijection
// of counters whose outputs pass as random. Integers only.
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		p0, p1 := 0xD2511F53*uint64(ctr[0]), 0xCD9E8D57*uint64(ctr[2])
		ctr = [4]uint32{uint32(p1>>32) ^ ctr[1] ^ key[0], uint32(p1), uint32(p0>>32) ^ ctr[3] ^ key[1], uint32(p0)}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return ctr
}
