package runtime

import (
	"math"

	"github.com/starling-swarm/starling/kernels"
)

// MaxLogprobs is the largest n of Logprobs.
const MaxLogprobs = 20

// Logprob is a token and the natural logarithm of its probability.
type Logprob struct {
	ID      int32
	Logprob float32 // at least −math.MaxFloat32
}

// Logprobs returns the log-probabilities of a chosen token and of the n likeliest, most likely first and ties by ascending
// id; n is cut at MaxLogprobs and the vocabulary. They are those of the logits as the model gives them, before any
// bias, penalty, temperature or cut: round(round(logit − largest) − log Σ Exp(round(logit − largest))), the sum as Sample
// takes it over the whole vocabulary. logits are finite, and there is at least one; chosen is an index of them.
func Logprobs(logits []float32, chosen int32, n int) (Logprob, []Logprob) {
	first := logits[kernels.ArgMax(logits)]
	log := kernels.Log64(wholeSum(logits, first, 1))
	of := func(id int32) Logprob {
		return Logprob{id, float32(max(float64(logits[id]-first)-log, -math.MaxFloat32))}
	}
	var top []Logprob
	if n = min(n, MaxLogprobs, len(logits)); n > 0 {
		for _, c := range order(logits, n) {
			top = append(top, of(c.id))
		}
	}
	return of(chosen), top
}
