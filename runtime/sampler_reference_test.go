package runtime_test

import (
	"math"
	"slices"

	"github.com/starling-swarm/starling/runtime"
)

// reference is the definition of the chain in plain float64, from its parameters' meaning in llama.cpp: the probability of
// each token.
func reference(logits []float32, history []int32, position int, s runtime.Sampling, breakers ...[]int32) []float64 {
	l := make([]float64, len(logits))
	for id := range l {
		l[id] = float64(logits[id])
	}
	for _, b := range s.Bias {
		if int(b.ID) < len(l) {
			if l[b.ID] += float64(b.Bias); b.Bias == runtime.Ban {
				l[b.ID] = math.Inf(-1)
			}
		}
	}
	counts := map[int32]float64{}
	for _, id := range referenceLatest(history, s.PenaltyLastN) {
		counts[id]++
	}
	for id, n := range counts {
		if id < 0 || int(id) >= len(l) {
			continue
		}
		if r := float64(s.RepetitionPenalty); r != 0 {
			if l[id] > 0 {
				l[id] /= r
			} else {
				l[id] *= r
			}
		}
		l[id] -= n*float64(s.FrequencyPenalty) + float64(s.PresencePenalty)
	}
	for id, by := range referenceDRY(history, s.DRY, breakers) {
		if id >= 0 && int(id) < len(l) {
			l[id] -= by
		}
	}

	var ids []int // in order
	for id := range l {
		if !math.IsInf(l[id], -1) {
			ids = append(ids, id)
		}
	}
	slices.SortStableFunc(ids, func(a, b int) int { return compare(l[b], l[a]) })
	// probabilities at a temperature, of ids
	softmax := func(t float64) []float64 {
		p, sum := make([]float64, len(ids)), 0.0
		for i, id := range ids {
			p[i] = math.Exp((l[id] - l[ids[0]]) / t)
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	entropy := func(p []float64) (h float64) {
		for _, p := range p {
			if p > 0 {
				h -= p * math.Log(p)
			}
		}
		return h
	}
	out := make([]float64, len(logits))
	if s.Temperature == 0 && s.TemperatureRange == 0 {
		out[ids[0]] = 1
		return out
	}
	if s.TopK > 0 {
		ids = ids[:min(s.TopK, len(ids))]
	}
	if s.TypicalP > 0 && s.TypicalP < 1 {
		p := softmax(1)
		h := entropy(p)
		by := make([]int, len(ids))
		for i := range by {
			by[i] = i
		}
		off := func(i int) float64 { return math.Abs(-math.Log(p[i]) - h) }
		slices.SortStableFunc(by, func(a, b int) int { return compare(off(a), off(b)) })
		sum := 0.0
		for n, i := range by {
			if sum += p[i]; sum > float64(s.TypicalP) {
				by = by[:n+1]
				break
			}
		}
		slices.Sort(by)
		var kept []int
		for _, i := range by {
			kept = append(kept, ids[i])
		}
		ids = kept
	}
	if s.TopP > 0 && s.TopP < 1 {
		sum := 0.0
		for i, p := range softmax(1) {
			if sum += p; sum >= float64(s.TopP) {
				ids = ids[:i+1]
				break
			}
		}
	}
	if s.MinP > 0 {
		p := softmax(1)
		for p[len(ids)-1] < float64(s.MinP)*p[0] {
			ids = ids[:len(ids)-1]
		}
	}
	if s.XTCProbability > 0 && s.XTCThreshold <= 0.5 && runtime.Uniform(s.Seed, s.Choice, position, 1) < float64(s.XTCProbability) {
		n := 0
		for _, p := range softmax(1) {
			if p >= float64(s.XTCThreshold) {
				n++
			}
		}
		if n > 1 {
			ids = ids[n-1:]
		}
	}
	t := float64(s.Temperature)
	if s.TemperatureRange > 0 && len(ids) > 1 {
		low, high := max(0, t-float64(s.TemperatureRange)), t+float64(s.TemperatureRange)
		t = low + (high-low)*math.Pow(entropy(softmax(1))/math.Log(float64(len(ids))), float64(s.TemperatureExponent))
	}
	if t == 0 {
		out[ids[0]] = 1
		return out
	}
	for i, p := range softmax(t) {
		out[ids[i]] = p
	}
	return out
}

// referenceDRY looks at every earlier place by itself.
func referenceDRY(history []int32, d runtime.DRY, breakers [][]int32) map[int32]float64 {
	out := map[int32]float64{}
	h := referenceLatest(history, d.LastN)
	if d.Multiplier == 0 || d.Base < 1 || len(h) <= d.AllowedLength {
		return out
	}
	limit := len(h)
	for from := len(h) - 1; from >= 0 && limit == len(h); from-- {
		for _, b := range breakers {
			if from+len(b) <= len(h) && slices.Equal(h[from:from+len(b)], b) {
				limit = min(limit, len(h)-from-len(b))
			}
		}
	}
	for end := 1; end < len(h); end++ { // h[:end] ends as h does
		n := 0
		for n < end && h[end-1-n] == h[len(h)-1-n] {
			n++
		}
		n = min(n, limit)
		next := h[end]
		alone := slices.ContainsFunc(breakers, func(b []int32) bool { return len(b) == 1 && b[0] == next })
		if n >= d.AllowedLength && !alone {
			out[next] = max(out[next], float64(d.Multiplier)*math.Pow(float64(d.Base), float64(n-d.AllowedLength)))
		}
	}
	return out
}

func referenceLatest(history []int32, n int) []int32 {
	if n < 0 || n > len(history) {
		return history
	}
	return history[len(history)-n:]
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
