package runtime

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/tokenizer"
)

// DRY ("don't repeat yourself", by p-e-w) makes a token less likely that would prolong a repetition: where the latest n
// tokens occur earlier, the token that followed them there loses Multiplier · Base^(n − AllowedLength), for the largest n
// that is at least AllowedLength. Multiplier 0, Base below 1 and LastN 0 turn it off.
type DRY struct {
	Multiplier    float32 // at most 100
	Base          float32 // at most 100
	AllowedLength int
	LastN         int       // how many of the latest tokens it looks at; −1 all
	Breakers      *Breakers // token sequences at which repetitions end; may be nil
}

// Limits of sequence breakers.
const (
	MaxBreakers     = 64 // texts
	MaxBreakerBytes = 40 // of each
	maxBreakerTail  = 20 // tokens after the first
)

// DefaultBreakers returns llama.cpp's.
func DefaultBreakers() []string { return []string{"\n", ":", "\"", "*"} }

// Breakers are sequence breakers, as a tokenizer spells them. They are immutable.
type Breakers struct {
	tails map[int32][][]int32 // by first token; an empty tail is a breaker of that one token
}

// NewBreakers returns all ways in which texts may begin within a token and go on in the following ones, as llama.cpp
// finds them: a token whose text contains the breaker, or ends in its beginning, the rest being tokenized on its own.
func NewBreakers(tok *tokenizer.Tokenizer, texts []string) (*Breakers, error) {
	if len(texts) > MaxBreakers {
		return nil, fmt.Errorf("runtime: %d DRY sequence breakers: at most %d", len(texts), MaxBreakers)
	}
	rests := map[string][]int32{} // of the texts, tokenized
	for _, text := range texts {
		if text == "" || len(text) > MaxBreakerBytes {
			return nil, fmt.Errorf("runtime: DRY sequence breaker %q: not of 1 to %d bytes", text, MaxBreakerBytes)
		}
		for i := 1; i < len(text); i++ {
			ids := tok.Encode(text[i:], tokenizer.EncodeOptions{})
			rests[text[i:]] = ids[:min(len(ids), maxBreakerTail)]
		}
	}
	b := &Breakers{tails: map[int32][][]int32{}}
	for id := range int32(tok.Size()) {
		piece := string(tok.Piece(id))
		for _, text := range texts {
			if strings.Contains(piece, text) {
				b.add(id, nil)
				continue
			}
			for n := min(len(text)-1, len(piece)); n > 0; n-- {
				if strings.HasSuffix(piece, text[:n]) {
					b.add(id, rests[text[n:]])
				}
			}
		}
	}
	return b, nil
}

// add adds a sequence unless it is there.
func (b *Breakers) add(first int32, tail []int32) {
	for _, other := range b.tails[first] {
		if slices.Equal(other, tail) {
			return
		}
	}
	b.tails[first] = append(b.tails[first], tail)
}

// single reports whether a token alone is a breaker.
func (b *Breakers) single(id int32) bool {
	if b == nil {
		return false
	}
	return slices.ContainsFunc(b.tails[id], func(tail []int32) bool { return len(tail) == 0 })
}

// after returns how many tokens follow the last breaker in history, len(history) where there is none. Of several breakers
// that begin at one token the longest counts.
func (b *Breakers) after(history []int32) int {
	if b == nil || len(b.tails) == 0 {
		return len(history)
	}
	for i := range history { // i tokens follow the one looked at
		at := len(history) - 1 - i
		longest := -1
		for _, tail := range b.tails[history[at]] {
			if n := len(tail); n > longest && n <= i && slices.Equal(history[at+1:at+1+n], tail) {
				longest = n
			}
		}
		if longest >= 0 {
			return i - longest
		}
	}
	return len(history)
}

// penalise subtracts the penalties from logits.
func (d *DRY) penalise(logits []float32, history []int32) {
	for id, n := range d.repeats(history) { // each token on its own, so the map's order does not matter
		if id >= 0 && int(id) < len(logits) {
			lower(&logits[id], d.penalty(n))
		}
	}
}

// repeats returns, for each token that would prolong a repetition, how many tokens the longest one has without it.
func (d *DRY) repeats(history []int32) map[int32]int {
	history = latest(history, d.LastN)
	if d.Multiplier == 0 || d.Base < 1 || len(history) <= d.AllowedLength {
		return nil
	}
	limit := d.Breakers.after(history)
	if limit < d.AllowedLength {
		return nil
	}
	longest := map[int32]int{}
	last := len(history) - 1
	for k, n := range suffixes(history) {
		n = min(n, limit)
		if next := history[last-k+1]; n >= d.AllowedLength && n >= longest[next] && !d.Breakers.single(next) {
			longest[next] = n
		}
	}
	return longest
}

// suffixes yields, for each k from 1 to len(history)−1, how many of the latest tokens also stand k tokens earlier. It is
// the Z algorithm on the reversed history: linear time.
func suffixes(history []int32) func(yield func(k, n int) bool) {
	at := func(i int) int32 { return history[len(history)-1-i] }
	return func(yield func(k, n int) bool) {
		z := make([]int, len(history))
		left, right := 0, 0 // [left, right) is the match that reaches furthest
		for k := 1; k < len(z); k++ {
			n := 0
			if k < right {
				n = min(z[k-left], right-k)
			}
			for k+n < len(z) && at(n) == at(k+n) {
				n++
			}
			if z[k] = n; k+n > right {
				left, right = k, k+n
			}
			if !yield(k, n) {
				return
			}
		}
	}
}

// penalty returns round(Multiplier · Base^(n − AllowedLength)), in float64 until rounded. The exponent is at most
// ⌊88.7228391 / log Base⌋, from where on the power would exceed a float32.
func (d *DRY) penalty(n int) float32 {
	exponent := float64(n - d.AllowedLength)
	if d.Base > 1.000001 {
		exponent = min(exponent, math.Floor(88.7228391/kernels.Log64(float64(d.Base))))
	}
	power := 1.0
	if d.Base > 1 && exponent > 0 {
		power = kernels.Pow64(float64(d.Base), exponent)
	}
	return float32(min(float64(float64(d.Multiplier)*power), math.MaxFloat32))
}
