package node

import (
	"fmt"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/swarm/wire"
)

// TestLegacy lets a decoder leave at any moment and another one go on, which takes over its cache: whatever layers they and the stages have, and
// whatever becomes of the one that leaves meanwhile, the answer is that of a run alone. What has been taken over, nobody computes again.
func TestLegacy(t *testing.T) {
	type kind struct {
		name        string
		whole, rows bool
	}
	kinds := []kind{{"all layers", true, false}, {"all rows", false, true}, {"its own", false, false}}
	for name, u := range handoverSetups(t) {
		step := 67
		if testing.Short() {
			step = 97
		}
		if u.model == "" {
			step = 11
			u.prompt = somePrompt(45) // else it wouldn't be worth keeping
		}
		want, _, _ := u.alone(t)
		u.guess = true
		tried, taken, lost, damaged := 0, 0, 0, 0
		for i, from := range kinds {
			for j, to := range kinds {
				if u.model != "" && (i == 2 || j == 2) { // little of it is of the models' layers
					continue
				}
				t.Run(fmt.Sprint(name, ", ", from.name, " to ", to.name), func(t *testing.T) {
					for when := 1 + j; ; when += step {
						u.whole, u.local, u.rows = from.whole, from.whole && when%2 == 0, from.rows
						s := u.start(t, uint64(when))
						for n := 0; n < when && s.step(); n++ {
						}
						if s.done != nil {
							break
						}
						s.decoderDo(s.d.depart(wire.Refuse(wire.CodeLeaving, "the node is about to close")))
						s.drain()
						if s.d.ended && s.done == nil { // all but the accounts was there
							continue
						}
						if s.done == nil || s.done.Err != nil && s.done.Err.Code != wire.CodeLeaving {
							t.Fatalf("left at %d: %+v", when, s.done)
						}
						if s.done.Err == nil {
							continue
						}
						l := s.d.bequeath()
						v, has := u, len(l.tokens)
						v.prompt, v.maxNew, v.former = slices.Clone(s.d.tokens), u.maxNew-s.d.generated, &l
						v.whole, v.local, v.rows = to.whole, to.whole && when%3 == 0, to.rows
						next := v.start(t, uint64(when))
						fate := tried % 4 // of the former decoder: 0, 1 it hands all on; 2 it is lost; 3 it sends something else
						if has >= minPrefix {
							tried++
						}
						sent, bad := 0, false
						next.onFrame = func(q simQueue, m wire.Message) {
							if m, ok := m.(*wire.KVSlice); ok && q.from == simFormer {
								if sent++; sent == 3 && fate == 3 {
									m.Rows[0] ^= 1
									bad = true
									damaged++
								}
							}
						}
						for fate == 2 && next.done == nil && sent < 2 && next.step() {
						}
						if fate == 2 && next.done == nil && next.d.heir != nil {
							next.kill(simFormer)
							lost++
						}
						next.drain()
						if next.done == nil && next.d.heir != nil { // as the driver does to who breaks the rules
							next.decoderDo(next.d.gone(simFormer, "it sent what it mustn't"))
						}
						next.run()
						if next.done.Err != nil {
							t.Fatalf("left at %d: %v", when, next.done.Err)
						}
						next.mustTell(want[s.d.generated:])
						if lacks := fate < 2 && next.d.reused != has; (from.whole || from.rows || from == to) && has >= minPrefix && lacks {
							t.Errorf("left at %d: %d positions of %d were taken over", when, next.d.reused, has)
						}
						if taken += next.d.reused; bad && next.d.reused > 0 {
							t.Errorf("left at %d: a damaged cache was taken over", when)
						}
						for _, r := range next.ran {
							if next.d.resume.Position > 0 && r.start < next.d.reused {
								t.Errorf("left at %d: %s computed positions from %d on once more", when, r.stage, r.start)
							}
						}
						if len(next.stages) > 0 {
							t.Errorf("%d stages were left open", len(next.stages))
						}
					}
				})
			}
		}
		if taken == 0 || lost == 0 || damaged == 0 {
			t.Errorf("%s: %d positions were taken over, %d decoders were lost meanwhile, %d sent something else", name, taken, lost, damaged)
		}
	}
}
