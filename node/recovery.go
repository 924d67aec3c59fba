package node

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/starling-swarm/starling/swarm/wire"
)

// behind returns the stage that the session waits for, "" if it waits for none,
// and how many positions its next word will be about; 0 if it must open. A stage
// may be held up by the one after it, so the last one with work is meant.
func (d *decoding) behind() (peer string, positions int) {
	if d.plan == nil || d.ended || d.rewind || d.released || d.running != nil || len(d.seams) > 0 {
		return "", 0
	}
	for i, st := range d.plan.Stages {
		if !d.opened[i] {
			return st.Peer, 0
		}
	}
	for i, h := range d.giving {
		if h != nil {
			return d.plan.Stages[i].Peer, h.step
		}
	}
	for i := len(d.plan.Stages) - 1; i >= 0; i-- {
		work := d.due[i]
		if i > 0 {
			work = work[:max(len(work)-len(d.due[i-1]), 0)]
		}
		if len(work) > 0 {
			return d.plan.Stages[i].Peer, int(work[0].Count)
		}
	}
	for i, st := range d.plan.Stages {
		for _, c := range d.pushed {
			if lack, _ := d.lacks(i, c); lack > 0 {
				return st.Peer, int(c.Count)
			}
		}
	}
	for _, st := range d.plan.Stages {
		if d.owed(st.Last) {
			return st.Peer, int(d.probed.asked.Last)
		}
	}
	return "", 0
}

// stageWork counts what a stage got done, and how often it has told that it is at work.
type stageWork struct{ moves, words int }

// moved notes that a stage got something done.
func (d *decoding) moved(stage int) {
	w := d.work[d.plan.Stages[stage].Peer]
	w.moves++
	d.work[d.plan.Stages[stage].Peer] = w
}

// told notes that a stage says that it is at work.
func (d *decoding) told(stage int) {
	w := d.work[d.plan.Stages[stage].Peer]
	w.words++
	d.work[d.plan.Stages[stage].Peer] = w
}

// onRefusal takes a stage's error. What another peer could do better is a loss,
// of the peer whose error it is; what would happen anywhere ends the session
// with the error as it came.
func (d *decoding) onRefusal(from string, m *wire.Refusal) ([]action, *wire.Refusal) {
	if m.Peer != from && d.stageOf(m.Peer) >= 0 && !blamesSender(m.Code) { // it reports a neighbour
		if m.Code == wire.CodeNonFinite { // and has ended by that: no account of it will come
			delete(d.closing, from)
		}
		return d.gone(m.Peer, m.Error()), nil
	}
	switch m.Code {
	case wire.CodeNonFinite, wire.CodeContext, wire.CodeBadRequest:
		return d.fail(m), nil
	case wire.CodeBusy:
		d.full = append(d.full, m)
	}
	return d.gone(from, m.Error()), nil
}

// blamesSender reports whether a refusal of a frame says that its sender, not
// the peer that refused it, is at fault.
func blamesSender(c wire.Code) bool {
	switch c {
	case wire.CodeBadFrame, wire.CodeWrongPeer, wire.CodePrefix, wire.CodeStaleEpoch:
		return true
	}
	return false
}

// breaks reports whether a refusal says that a peer of the session has sent what
// none that keeps to the protocol sends.
func breaks(c wire.Code) bool {
	return c == wire.CodeBadFrame || c == wire.CodePrefix || c == wire.CodeBadGrant
}

// gone gives up on a peer: everybody goes to a new epoch, from the last
// checkpoint (DESIGN §3, Failure).
func (d *decoding) gone(peer, why string) []action {
	delete(d.closing, peer)
	if d.ended {
		return d.settle()
	}
	if d.heir != nil && peer == d.open.Former {
		return d.disinherit()
	}
	if d.stageOf(peer) < 0 || slices.Contains(d.lost, peer) || d.released && !d.rewind {
		return nil
	}
	d.lost = append(d.lost, peer)
	var acts []action
	if !d.hands() { // else the others may go on
		acts = d.release()
	}
	acts = append(acts, send{peer, &wire.StageClose{Head: d.head}}) // if it lives, it need not wait for its lease to end
	if d.rewind {                                                   // recovery is under way and will see it
		return acts
	}
	d.stats.Recovered = append(d.stats.Recovered, fmt.Sprintf("lost the stage %s at position %d: %s", peer, d.computed, why))
	d.rewind = true
	if d.running != nil {
		return acts
	}
	return append(acts, d.recover()...)
}

// recover goes on alone from the checkpoint if every layer is held here, and
// asks for another route otherwise. Layers with a tail may have to go back
// further: to where all of them still have it, or to the first token.
func (d *decoding) recover() []action {
	if !d.local && d.generated > 0 && d.reason != "" && d.probed.done(all) { // only the proof will be missing
		return d.end()
	}
	if !d.local {
		return []action{replan{d.lost}}
	}
	acts := d.release()
	d.rewind, d.plan = false, nil
	d.chunks, d.seams, d.pushed, d.rows, d.guesses, d.void = nil, nil, nil, nil, nil, 0
	d.head.Epoch.Plan++
	d.stats.Epoch = d.head.Epoch
	d.computed = d.seq.Truncate(min(d.checkpoint(), len(d.tokens)-1, d.resumes()))
	d.routeEnd = d.computed
	d.stats.Decoder.First = 0
	d.note("went on alone from position %d", d.computed)
	return append(acts, d.next()...)
}

// resumes returns the position from which everything that a probe still asks for can be made.
func (d *decoding) resumes() int {
	if d.probed.done(all) {
		return len(d.tokens)
	}
	return int(d.probed.due(all))
}

// replanned takes the answer to replan: a route over other peers, on which the
// tokens so far are prefilled again.
func (d *decoding) replanned(r wire.Route, profile [32]byte, err error) []action {
	switch {
	case d.ended:
		return nil
	case d.local: // it has grown meanwhile
		return d.recover()
	}
	if err != nil && len(d.full) >= len(d.lost) { // nobody was lost, they have no room
		return d.fail(slices.MinFunc(d.full, func(a, b *wire.Refusal) int { return cmp.Compare(a.RetryAfter, b.RetryAfter) }))
	}
	if err != nil {
		return d.fail(wire.Refuse(wire.CodePeerLost, "%s, and no other route is left: %v", d.stats.Recovered[len(d.stats.Recovered)-1], err))
	}
	for _, s := range r.Stages {
		if slices.Contains(d.lost, s.Peer) { // lost while the route was made
			return []action{replan{d.lost}}
		}
	}
	if refusal := checkRoute(&r, d.self, d.config.Layers, d.able); refusal != nil {
		return d.fail(refusal)
	}
	d.rewind = false
	acts, from := d.dismiss(&r), 0
	if d.hands() {
		from = min(d.checkpoint(), len(d.tokens)-1, d.resumes())
	}
	from = d.seq.Truncate(from)
	d.open.Route, d.marks, d.resume, d.upper = r, nil, wire.Mark{}, upper{}
	if from > 0 {
		d.marks = d.holds(from)
		d.resume = d.marks[len(d.marks)-1]
		d.note("went on over other peers from position %d", from)
	} else {
		d.note("prefilled %d tokens again over other peers", len(d.tokens))
	}
	return append(acts, d.adopt(r, profile, from)...)
}

// dismiss closes the stages of the old plan that have no part in a route.
func (d *decoding) dismiss(r *wire.Route) (acts []action) {
	if d.released {
		return nil
	}
	for _, s := range d.plan.Stages {
		if _, ok := d.closing[s.Peer]; ok && !d.survives(s, r) {
			acts = append(acts, send{s.Peer, &wire.StageClose{Head: d.head}})
		}
	}
	return acts
}

func (d *decoding) note(format string, args ...any) {
	d.stats.Recovered = append(d.stats.Recovered, fmt.Sprintf(format, args...))
}

// checkpoint returns the position before which the decoder holds every layer.
func (d *decoding) checkpoint() int {
	n := len(d.tokens)
	for l := range d.config.Layers {
		n = min(n, d.seq.Len(l))
	}
	return n
}

// fail ends the session with an error; the stages are closed.
func (d *decoding) fail(r *wire.Refusal) []action {
	if d.ended {
		return nil
	}
	d.ended, d.reason = true, "" // of an answer that lacked rows only: it doesn't end a second time with its accounts
	return append(d.release(), finish{Err: r})
}
