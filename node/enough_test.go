package node

import (
	"reflect"
	"testing"

	"github.com/starling-swarm/starling/swarm/wire"
)

// TestEnough has a client that wants no more, at any moment of sessions of every shape, with guesses and without, some of which lose a
// stage: the answer ends with an account, in right tokens, and no stage has the session any more.
func TestEnough(t *testing.T) {
	cancelled, early := 0, 0
	for seed := range uint64(400) {
		u := simSetup{prompt: somePrompt(20 + int(seed%13)), maxNew: 30, chunk: 5, last: 3, cuts: []int{1, 2}, how: simSampling,
			local: seed%3 == 0, whole: seed%3 != 1, guess: seed%2 == 0, tails: seed%5 == 0}
		if seed%7 == 0 {
			u.cuts, u.local, u.whole = nil, true, true
		}
		s := u.start(t, seed)
		s.spare = []string{"S8", "S9"}
		when, loses := s.rng.IntN(300), seed%4 == 3 && len(u.cuts) > 0
		told := -1
		for i := 0; s.step(); i++ {
			if i == when && s.done == nil {
				told = len(s.told)
				s.decoderDo(s.d.enough())
				s.decoderDo(s.d.enough()) // once more changes nothing
				if loses && s.done == nil {
					s.kill("S0")
				}
			}
			if i > 200000 {
				t.Fatalf("seed %d: the session does not end", seed)
			}
		}
		switch {
		case s.done == nil:
			t.Fatalf("seed %d: the session stalled: computed %d, announced %d, tokens %d, refusals %v", seed, s.d.computed, s.d.announced, len(s.d.tokens), s.refused)
		case told == 0:
			if early++; s.done.Err == nil || s.done.Err.Code != wire.CodeCancelled {
				t.Errorf("seed %d: before the first token: %+v", seed, s.done)
			}
			continue
		case s.done.Err != nil:
			t.Errorf("seed %d: %v", seed, s.done.Err)
			continue
		case s.done.Reason == wire.ReasonCancel:
			cancelled++
		case told >= 0 && len(s.told) > told+maxGuessed+1:
			t.Errorf("seed %d: %d tokens more were made", seed, len(s.told)-told)
		}
		want, _, _ := u.alone(t)
		for i := range s.told {
			if s.told[i].Head = (wire.Head{}); i >= len(want) || !reflect.DeepEqual(s.told[i], want[i]) {
				t.Fatalf("seed %d: token %d is %v", seed, i, s.told[i])
			}
		}
		for name := range s.stages {
			if !s.dead[name] {
				t.Errorf("seed %d: stage %s has the session still", seed, name)
			}
		}
	}
	if t.Logf("%d answers ended early, %d before their first token", cancelled, early); cancelled < 50 || early < 20 {
		t.Errorf("%d answers ended early, %d before their first token", cancelled, early)
	}
}
