package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
)

// draft asks for the N tokens that a small model would say after Tokens, a copy; 0 lets it read them only. The answer goes to the machine's
// drafted.
type draft struct {
	Tokens []int32
	N      int
}

// draftModel is a small model that guesses for a larger one with the same vocabulary. Its guesses change no token.
type draftModel struct {
	id      artifacts.ID
	name    string
	exec    runtime.Executor
	batcher *batcher
	kvLimit int64 // bytes that sessions may reserve
}

// openDraft loads the model that want names, all of it, as a draft model for exec.
func (n *Node) openDraft(ctx context.Context, want string, exec runtime.Executor, emit func(control.Event) error) (*draftModel, error) {
	id, err := n.resolve(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("draft model: %w", err)
	}
	m, c, whole, err := n.pull(ctx, id, nil, emit)
	if err != nil {
		return nil, fmt.Errorf("draft model: %w", err)
	}
	if err := emit(control.Event{Kind: "progress", Phase: "load", Total: artifacts.SpanBytes(c.Spans(artifacts.LayerRange(whole)))}); err != nil {
		return nil, err
	}
	small, err := n.openModel(id, m.Path(), whole)
	if err != nil {
		return nil, fmt.Errorf("draft model: %w", err)
	}
	defer n.opened(id)
	name := n.name(m)
	switch steady, _ := rewindable(small.Config()); {
	case small.Tokenizer().Hash() != exec.Tokenizer().Hash():
		err = fmt.Errorf("draft model %s has another vocabulary than %s: guesses would mean other tokens; take a model of the same family", name, exec.Config().Name)
	case !steady:
		err = fmt.Errorf("draft model %s has layers whose state can't be undone, as after each wrong guess: take one with attention alone", name)
	}
	if err != nil {
		small.Close()
		return nil, err
	}
	return &draftModel{id: id, name: name, exec: small, kvLimit: small.FreeKVBytes(), batcher: newBatcher(small)}, nil
}

// close frees the model; sessions that use it go on without.
func (m *draftModel) close() error {
	if m == nil {
		return nil
	}
	return m.batcher.close()
}

// drafter follows one session with a draft model. Its methods may be called from any goroutine.
type drafter struct {
	model    *draftModel
	seat     *seat
	capacity int // positions of the session
	how      runtime.Sampling

	mu     sync.Mutex // held while it computes
	seq    runtime.Sequence
	held   []int32 // the tokens of seq
	closed bool
}

// errNoDraft says that a session has ended.
var errNoDraft = errors.New("the session has ended")

func (m *draftModel) follow(capacity int, how runtime.Sampling) *drafter {
	return &drafter{model: m, seat: m.batcher.sit(), capacity: capacity, how: how}
}

// ahead returns n tokens that the model would say after all, sampled as the session samples, or fewer where it ends the answer. It may
// append to all.
func (d *drafter) ahead(ctx context.Context, all []int32, n int) (list []int32, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.model.exec.Config()
	switch {
	case d.closed:
		return nil, errNoDraft
	case d.seq == nil:
		if d.seq, err = d.model.exec.NewSequence(min(d.capacity, c.Context), d.model.exec.Layers()); err != nil {
			return nil, err
		}
	}
	d.held = d.held[:d.seq.Truncate(min(common(d.held, all), len(all)-1))]
	for {
		step := &runtime.Step{Seq: d.seq, Layers: d.model.exec.Layers(), Start: len(d.held), N: len(all) - len(d.held), Tokens: all[len(d.held):]}
		if len(list) < n {
			step.LogitRows = []int{step.N - 1}
		}
		if _, err := d.seat.run(ctx, step, false); err != nil {
			return nil, err
		}
		if d.held = append(d.held, step.Tokens...); n == 0 {
			return nil, nil
		}
		token, err := runtime.Sample(step.Logits[0], all, len(all), d.how)
		if err != nil {
			return nil, err
		}
		list, all = append(list, token), append(all, token)
		if len(list) == n || d.model.exec.Tokenizer().IsEOG(token) || len(all) >= d.seq.Capacity() {
			return list, nil
		}
	}
}

// close frees what the drafter holds, once it is idle.
func (d *drafter) close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.seat.leave()
	if d.seq != nil {
		d.seq.Close()
	}
}

// ask lets the draft model guess.
func (s *decoderSession) ask(a draft) {
	began := time.Now()
	list, err := s.drafter.ahead(s.ctx, a.Tokens, a.N)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.do(s.m.haveDraft(len(a.Tokens), list, time.Since(began), err))
	}
}

// askDraft asks the draft model for up to most tokens, if that promises more than what else is guessed, or lets it read what there is
// if it hasn't read so far. The answer is waited for where it is asked for tokens.
// It has the processors to itself, or it isn't asked: while other sessions decode or a prompt is read, its work is theirs.
func (d *decoding) askDraft(most int, l load) []action {
	if d.drafting || d.drafted == len(d.tokens) || l.others > 0 || l.cost != nil && len(l.cost) < 2 {
		return nil
	}
	n := 0
	if d.caughtUp {
		if n = d.ngram.draftSize(most); n == 0 {
			return nil
		}
	}
	d.drafting, d.awaited = true, n > 0
	return []action{draft{slices.Clone(d.tokens), n}}
}

// haveDraft takes what the draft model says after the first asked tokens, and how long it took.
func (d *decoding) haveDraft(asked int, list []int32, took time.Duration, err error) []action {
	d.drafting, d.awaited = false, false
	switch {
	case err != nil: // no room for it, or its model is gone
		d.drafts = false
	case len(list) > 0:
		d.draft, d.drafted = list, asked
		d.ngram.draftedIn(took / time.Duration(len(list)))
	}
	d.caughtUp = err == nil
	if d.ended || d.rewind {
		return nil
	}
	return d.next()
}
