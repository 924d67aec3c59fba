package runtime

import "slices"

// Architectures are the families that run, by general.architecture.
func Architectures() (names []string) {
	for _, f := range families {
		names = append(names, f.arch)
	}
	return names
}

// EmbedRow is what layer 0 gets for a token.
func (m *Model) EmbedRow(dst []float32, token int32) { m.embedRow(dst, int(token)) }

// Philox is philox.
var Philox = philox

// Order returns the ids of order.
func Order(logits []float32, k int) (ids []int32) {
	for _, c := range order(logits, k) {
		ids = append(ids, c.id)
	}
	return ids
}

// Typical returns the ids that the typical step leaves of a whole vocabulary.
func Typical(logits []float32, most float64) (ids []int32) {
	c := &choosing{logits: logits, largest: slices.Max(logits), t: 1}
	c.typical(most)
	for _, x := range c.list {
		ids = append(ids, x.id)
	}
	return ids
}

// Distribution returns what Sample draws from: probabilities by id, as it has them.
func Distribution(logits []float32, history []int32, position int, s Sampling) (map[int32]float64, error) {
	c, err := s.distribution(new([]float32), logits, history, position)
	if err != nil {
		return nil, err
	}
	out, sum := map[int32]float64{}, c.sum()
	for i := 0; c.has(i); i++ {
		out[c.at(i).id] = float64(c.at(i).p) / sum
	}
	return out, nil
}

// Uniform is uniform.
var Uniform = uniform

// BreakersOf returns breakers of token sequences.
func BreakersOf(sequences ...[]int32) *Breakers {
	b := &Breakers{tails: map[int32][][]int32{}}
	for _, s := range sequences {
		b.add(s[0], s[1:])
	}
	return b
}

// Sequences returns the token sequences that begin with a token.
func (b *Breakers) Sequences(first int32) [][]int32 { return b.tails[first] }

// PagesOf returns how many pages a layer of a sequence has memory for, given up ones that wait to be used again included.
func PagesOf(seq Sequence, layer int) int {
	s := seq.(*sequence)
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := len(s.windows[layer-s.layers.First].spare)
	for _, p := range s.pages[layer-s.layers.First] {
		if !p.empty() {
			n++
		}
	}
	return n
}
