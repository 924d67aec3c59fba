package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/swarm/wire"
)

// TestLegacy lets a decoder leave at any moment and another one go on, which takes over its cache: whatever layers they and the stages have, and
// whatever becomes of the one that leaves meanwhile, the answer is that of a run alone. What has been taken over, nobody computes again.
func TestLegacy(t *testing.T) {
	type kind struct {
		name        string
		whole, rows bool
		cuts        []int
		spares      int
	}
	kinds := []kind{{"all layers", true, false, nil, 0}, {"all rows", false, true, nil, 0}, {"its own", false, false, nil, 0}, {"more than its own", false, false, nil, 2}, {"more", false, false, []int{2}, 1}}
	upper := map[string]int{} // by kind of the heir: sessions that took over some of its layers
	kept := 0                 // … whose stages went on from there, too
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
				if i == 4 || u.model != "" && (i == 3 || j == 3 || i == 2 && j == 2 || i < 2 && j >= 2) { // little else happens to the models' layers then
					continue
				}
				t.Run(fmt.Sprint(name, ", ", from.name, " to ", to.name), func(t *testing.T) {
					for when := 1 + j; ; when += step {
						w := u
						w.whole, w.local, w.rows, w.spares = from.whole, from.whole && when%2 == 0, from.rows, from.spares
						w.session, w.decoder, w.caches = wire.SessionID{1}, simFormer, &simCaches{backend: u.backend(), peers: map[string]*prefixes{}}
						s := w.start(t, uint64(when))
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
						if s.done.Err == nil || s.d.generated == len(want) { // of a complete answer the client asks for no more
							continue
						}
						l := s.d.bequeath()
						v, has := w, len(l.tokens)
						v.prompt, v.maxNew, v.former, v.decoder = slices.Clone(s.d.tokens), u.maxNew-s.d.generated, &l, ""
						v.whole, v.local, v.rows, v.spares = to.whole, to.whole && when%3 == 0, to.rows, to.spares
						if to.cuts != nil {
							v.cuts = to.cuts
						}
						for at := range v.caches.peers { // the decoders' own are not what is tried here
							if strings.HasPrefix(at, simDecoder) {
								delete(v.caches.peers, at)
							}
						}
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
						if lacks := fate < 2 && next.d.reused != has; has >= minPrefix && lacks && (l.layers.Covers(next.d.held) || j == 2 || j == 3) {
							t.Errorf("left at %d: %d positions of %d were taken over", when, next.d.reused, has)
						}
						if next.d.upper.upto > 0 {
							upper[to.name]++
						}
						if at := slices.IndexFunc(next.ran, func(r simRun) bool { return r.start < has }); i > 1 && fate < 2 && has >= minPrefix && next.d.reused == has && at < 0 {
							kept++
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
	if upper["all layers"] == 0 || upper["more"] == 0 || upper["all rows"] > 0 || kept == 0 {
		t.Errorf("heirs took over some of their layers %v times, stages went on with theirs %d times", upper, kept)
	}
	t.Logf("heirs took over some of their layers %v times, stages went on with theirs %d times", upper, kept)
}
