package node

import (
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// rewindable says where the caches of a model's layers can go back to after a
// chunk with guesses: of so many rows at most, to any position of it (steady), or
// to its start alone, where a layer has a tail.
func rewindable(cfg runtime.Config) (steady bool, most int) {
	steady, most = true, maxGuessed
	for _, c := range cfg.Cache {
		if c.State > 0 {
			steady = false
		}
		if c.Window > 0 {
			most = min(most, c.Window-1)
		}
	}
	return steady, most
}

// guess makes the guesses that go with tokens [start, start+n), if those are the
// newest ones and nothing else is under way. A draft model may have to be asked
// first; if its tokens are awaited, there are no guesses yet.
func (d *decoding) guess(l load, start, n int) (asks []action) {
	d.guesses = nil
	if d.awaited || d.ngram == nil || d.grown && d.walks() || d.generated == 0 || d.reason != "" || start != d.computed || start+n != len(d.tokens) {
		return nil
	}
	d.ngram.load = l
	most := min(min(d.most, d.frameRows())-n, int(d.open.MaxNew)-d.generated-1)
	if stop := d.nextStop(start); stop > 0 && d.walks() {
		most = min(most, stop-start-n)
	}
	guesses := d.propose(d.tokens, most)
	if d.drafts {
		if asks = d.askDraft(most, d.load()); d.awaited {
			return asks
		}
		if d.drafted == len(d.tokens) {
			guesses = d.draft[:min(len(d.draft), max(most, 0))]
			d.ngram.run = classDraft
		}
	}
	d.guesses = guesses
	return asks
}

// walks reports whether the next positions walk the route.
func (d *decoding) walks() bool { return d.plan != nil && d.computed < d.routeEnd }

// timed takes how long the latest chunk has taken from its announcement on, its
// own step included, before that step's result.
func (d *decoding) timed(rows int, round time.Duration) {
	if d.ngram != nil && d.generated > 0 && d.reason == "" && !d.rewind && d.walks() {
		d.ngram.timed(rows, round)
	}
}

// withoutGuesses computes a step again that failed, the rows of its guesses left out: what a wrong guess leads to need not be a
// number, and is nobody's fault. If it was not that, the step fails again.
func (d *decoding) withoutGuesses(step *runtime.Step) action {
	d.guesses, d.void = nil, len(d.guesses)
	return d.run(cutGuesses(step, d.void, d.config.Width), forgets(d.seq, d.held))
}

// cutGuesses returns a step of seams or tokens without its last rows.
func cutGuesses(step *runtime.Step, guessed, width int) *runtime.Step {
	part := &runtime.Step{Seq: step.Seq, Layers: step.Layers, Start: step.Start, N: step.N - guessed, KeepHidden: step.KeepHidden, Probe: step.Probe}
	if step.Seam != nil {
		part.Seam = step.Seam[:part.N*width]
	}
	if step.Tokens != nil {
		part.Tokens = step.Tokens[:part.N]
	}
	return part
}

// verify samples from the logits after the newest token, and after each guess for as long as the
// guesses are what sampling gives: then their rows are the very same as without
// guessing. The others are forgotten, here and at every stage.
func (d *decoding) verify(step *runtime.Step, sampled [][]float32) []action {
	guesses, guessed := d.guesses, len(d.guesses)+d.void
	d.guesses, d.void = nil, 0
	var acts []action
	right := 0
	for i, logits := range sampled {
		told, refusal := d.sample(logits)
		if refusal != nil {
			d.computed = len(d.tokens) - 1
			return append(acts, d.fail(refusal)...)
		}
		acts = append(acts, emit{told})
		if i == len(guesses) || guesses[i] != told.ID {
			break
		}
		if right++; d.reason != "" {
			break
		}
	}
	d.stats.Guessed += uint32(guessed)
	d.stats.Accepted += uint32(right)
	if guessed > 0 {
		d.ngram.learn(right, guessed)
		acts = append(acts, d.correct(step)...)
	}
	d.stats.Decoder.Tokens += uint64(d.computed - step.Start)
	return append(acts, d.next()...)
}

// correct goes back to the last position that has been computed from right
// tokens, or further where a layer's cache can't be cut there.
func (d *decoding) correct(step *runtime.Step) (acts []action) {
	to, kept := len(d.tokens)-1, uint32(0)
	if to < d.computed || to < d.announced && step.Seam != nil {
		if !d.steady {
			to, d.plain = step.Start, step.Start+step.N
		}
		if n := d.seq.Truncate(to); n != to {
			return d.fail(wire.Refuse(wire.CodeInternal, "rewind to position %d: the layers go back to %d only", to, n))
		}
		d.computed = to
		if step.Seam == nil {
			return nil
		}
		d.announced, d.seamEnd = to, to
		d.prefix = d.baseHash.Extend(d.tokens[d.base:to])
		for _, s := range d.plan.Stages {
			acts = append(acts, send{s.Peer, &wire.Rewind{Head: d.head, Upto: uint32(to), Prefix: d.prefix}})
		}
		d.leave() // the stages know what was right
	} else {
		kept = uint32(to - d.base)
	}
	if step.Seam != nil && to > d.base {
		d.expect(&wire.Chunk{Start: uint32(d.base), Count: uint32(to - d.base), Prefix: d.prefix, Guessed: kept, Tails: d.tails})
	}
	return acts
}
