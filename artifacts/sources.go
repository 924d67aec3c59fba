package artifacts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// source is somewhere that pieces can be had beside the swarm's torrents. It gets pieces to fetch
// that nobody else fetches meanwhile, and stores each once it is verified: no unverified byte of a
// source gets into a model's file.
type source interface {
	name() string
	has(part, piece int) bool

	// reach returns how many bytes the source is given at a time, and whether there may be gaps
	// between them.
	reach() (most int64, gaps bool)

	// fetch fetches runs, of one part, ascending. An error ends the use of the source for the
	// present fetch, except errNothing.
	fetch(ctx context.Context, m *Model, runs []pieceRun) error
}

// errNothing says that a source has nothing of what it was asked for, and may have it later.
var errNothing = errors.New("nothing came")

// sourcePoll is how often a source without work looks for some.
const sourcePoll = 500 * time.Millisecond

// sourcing is the work of sources for one fetch.
type sourcing struct {
	engage chan struct{} // closed when the swarm alone doesn't get on
	some   bool          // there are sources
	failed chan error    // why sources were given up; has room for all
	stop   context.CancelFunc
	done   chan struct{} // closed when all have ended
}

// rest is how long a source without work waits before it looks for some, or until ctx ends.
func rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(sourcePoll):
	}
}

// startSources has the sources of a model fetch what is missing of spans, from when begin is called
// until end is.
func (t *Torrents) startSources(ctx context.Context, sm *swarmModel, spans []Span) *sourcing {
	ctx, stop := context.WithCancel(ctx)
	list := t.sourcesOf(sm)
	g := &sourcing{engage: make(chan struct{}), some: len(list) > 0, failed: make(chan error, len(list)), stop: stop, done: make(chan struct{})}
	ended := make(chan struct{}, len(list))
	for _, s := range list {
		go func() {
			t.routineSource(ctx, sm, spans, s, g)
			ended <- struct{}{}
		}()
	}
	go func() {
		for range list {
			<-ended
		}
		close(g.done)
	}()
	return g
}

// begin sets the sources to work; further calls do nothing.
func (g *sourcing) begin() {
	select {
	case <-g.engage:
	default:
		close(g.engage)
	}
}

// end stops the sources and waits for them.
func (g *sourcing) end() {
	g.stop()
	<-g.done
}

// over reports whether there were sources and all of them were given up.
func (g *sourcing) over() bool {
	select {
	case <-g.done:
		return g.some
	default:
		return false
	}
}

// complaints returns what sources were given up for, for the end of an error.
func (g *sourcing) complaints() (text string) {
	for {
		select {
		case err := <-g.failed:
			text += "; " + err.Error()
		default:
			return text
		}
	}
}

func (t *Torrents) routineSource(ctx context.Context, sm *swarmModel, spans []Span, s source, g *sourcing) {
	select {
	case <-g.engage:
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		err := errNothing
		if runs := t.claim(sm, spans, s); len(runs) > 0 {
			err = s.fetch(ctx, sm.model, runs)
			t.release(sm, runs)
		}
		switch {
		case ctx.Err() != nil || err == nil:
		case errors.Is(err, errNothing):
			rest(ctx)
		default:
			t.giveUp(sm, s, err)
			g.failed <- fmt.Errorf("%s: %w", s.name(), err)
			return
		}
	}
}

// claim takes missing pieces of one part away from the swarm's torrents, and gives them to s: of
// those that it has the last ones, since a fetch that comes first to the beginning of a model does
// most with it.
func (t *Torrents) claim(sm *swarmModel, spans []Span, s source) (taken []pieceRun) {
	man := sm.model.Manifest()
	runs := man.pieceRuns(sm.model.Missing(spans))
	t.mu.Lock()
	defer t.mu.Unlock()
	if sm.isGone() {
		return nil
	}
	most, gaps := s.reach()
	part, pieces := -1, []int(nil) // descending
	for k := len(runs) - 1; k >= 0 && (part < 0 || runs[k].part == part); k-- {
		for i := runs[k].last - 1; i >= runs[k].first; i-- {
			if sm.claimed[runs[k].part][i] || !s.has(runs[k].part, i) {
				continue
			}
			if n := len(pieces); n > 0 && (most <= 0 || !gaps && i != pieces[n-1]-1) {
				break
			}
			part, pieces = runs[k].part, append(pieces, i)
			most -= man.pieceSpan(part, i).Length
		}
	}
	for _, i := range slices.Backward(pieces) {
		sm.claimed[part][i] = true
		taken = appendPiece(taken, part, i)
	}
	for _, r := range taken {
		setWanted(sm.parts[part], r.first, r.last, false)
	}
	return taken
}

// release gives pieces back to the swarm's torrents: those that came to be served, the others to be
// fetched.
func (t *Torrents) release(sm *swarmModel, runs []pieceRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sm.isGone() {
		return
	}
	sm.refreshRuns(runs)
	var left []pieceRun
	for _, r := range runs {
		for i := r.first; i < r.last; i++ {
			sm.claimed[r.part][i] = false
			if sm.wanted[r.part][i] > 0 && !sm.model.hasPiece(r.part, i) {
				left = appendPiece(left, r.part, i)
			}
		}
	}
	for _, r := range left {
		setWanted(sm.parts[r.part], r.first, r.last, true)
	}
}

// namedSeed is a web server that a person named.
type namedSeed struct {
	url string
	web *webClient
}

// UseRemote names a web server that has a model, to fetch from when its peers don't get on. Its user vouches for it: it may be anywhere, and sees
// what it saw when it was opened. Nobody else is told of it.
func (t *Torrents) UseRemote(m *Model, r *Remote) error {
	if _, err := partURL(r.first, 0, len(m.parts)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.DeleteFunc(t.named[m.id], func(s namedSeed) bool { return s.url == r.first })
	t.named[m.id] = append(list[max(0, len(list)-MaxWebSeeds+1):], namedSeed{r.first, r.web})
	return nil
}

// sourcesOf returns the sources of a model that were not given up for wrong bytes.
func (t *Torrents) sourcesOf(sm *swarmModel) (list []source) {
	hints := sm.model.Bundle().WebSeeds
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(url string, web *webClient) {
		if !t.banned[url] {
			list = append(list, newWebSeed(url, web))
		}
	}
	named := t.named[sm.model.id]
	for _, s := range named {
		add(s.url, s.web)
	}
	if t.hintWeb != nil {
		for _, u := range hints {
			if !slices.ContainsFunc(named, func(s namedSeed) bool { return s.url == u }) {
				add(u, t.hintWeb)
			}
		}
	}
	if t.public != nil {
		p := &publicSource{public: t.public}
		for i := range sm.public {
			p.parts = append(p.parts, sm.public[i].Load())
		}
		list = append(list, p)
	}
	return list
}

// giveUp bans a web seed that sent wrong bytes.
func (t *Torrents) giveUp(sm *swarmModel, s source, err error) {
	if w, ok := s.(*webSeed); ok && errors.Is(err, errWrong) {
		t.mu.Lock()
		t.banned[w.url] = true
		t.mu.Unlock()
	}
	t.log.Warn("a source was given up", "model", sm.model.id.Short(), "source", s.name(), "error", err)
}
