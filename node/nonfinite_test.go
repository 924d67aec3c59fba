package node

import (
	"slices"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// What a wrong guess leads to need not be a number: nobody fails for it, and the answer is the same.
func TestGuessesThatAreNoNumbers(t *testing.T) {
	type place struct{ layer, pos int }
	for _, tails := range []bool{false, true} {
		for _, whole := range []bool{false, true} {
			for layer := range 6 {
				u := simSetup{prompt: somePrompt(13), maxNew: 24, chunk: 5, cuts: []int{2, 4}, whole: whole, tails: tails, how: simSampling}
				right := map[place][]float32{}
				u.fail = func(l, pos int, h []float32) error { right[place{l, pos}] = slices.Clone(h); return nil }
				u.alone(t)
				failed := 0
				u.fail = func(l, pos int, h []float32) error {
					if l != layer || slices.Equal(h, right[place{l, pos}]) {
						return nil
					}
					failed++
					return &runtime.NonFiniteError{What: "activations", Layer: l, Pos: pos}
				}
				for seed := range uint64(8) {
					s := guessing(t, u, seed)
					s.run()
					s.mustEqual()
					if len(s.refused) > 0 {
						t.Errorf("frames of an honest session were refused: %v", s.refused)
					}
					if t.Failed() {
						t.Fatalf("layer %d, seed %d, tails %v", layer, seed, tails)
					}
				}
				if failed == 0 {
					t.Error("no guess was without a number: the test did not reach its frames")
				}
			}
		}
	}
}

// Where the answer's own rows are no numbers, the session fails with the same error as without guesses, where they were guessed
// and where they weren't.
func TestAnswersThatAreNoNumbers(t *testing.T) {
	for _, tails := range []bool{false, true} {
		for layer := range 6 {
			u := simSetup{prompt: somePrompt(13), maxNew: 24, chunk: 5, cuts: []int{2, 4}, whole: layer%2 == 0, tails: tails, how: simSampling}
			told, _, _ := u.alone(t)
			u.guess = true
			u.fail = func(l, pos int, _ []float32) error {
				if l == layer && pos == 25 {
					return &runtime.NonFiniteError{What: "activations", Layer: l, Pos: pos}
				}
				return nil
			}
			for seed := range uint64(16) {
				s := u.start(t, seed)
				s.d.propose = func(tokens []int32, most int) (list []int32) {
					from := len(tokens) - len(u.prompt)
					for _, m := range told[from:min(from+most, from+int(seed), len(told))] {
						list = append(list, m.ID)
					}
					return list
				}
				s.run()
				if s.done.Err == nil || s.done.Err.Code != wire.CodeNonFinite || len(s.told) != 13 {
					t.Errorf("layer %d, %d guesses, tails %v: %d tokens, then %v", layer, seed, tails, len(s.told), s.done.Err)
				}
			}
		}
	}
}
