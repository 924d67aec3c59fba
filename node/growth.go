package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
)

// grew takes the news that this node has got the layers that it lacked. If it has the rows of all of them, too, the session goes on
// alone: after the prompt, which is shared as planned, as soon as the chunk under way is back. It doesn't wait for the stages then
// but for the last rows, which are right behind the last seam.
func (d *decoding) grew() []action {
	if d.ended || d.grown || d.plan == nil || d.held != d.whole() {
		return nil
	}
	d.able, d.local, d.grown = d.held, true, true
	d.routeEnd = min(d.routeEnd, max(len(d.open.Tokens), d.announced+1))
	d.leave()
	return d.next()
}

// leave ends the route behind the newest chunk, if that is one of decoded tokens without guesses, and brings all tails. One with guesses isn't the last unless
// some of them were wrong: the stages keep its rows back until the next frame, a chunk or a rewind, tells them which were right.
func (d *decoding) leave() {
	tails := d.snapshotEvery() == 0 || d.tailed == d.announced
	if d.grown && tails && len(d.guesses)+d.void == 0 && d.announced >= len(d.open.Tokens) {
		d.routeEnd = min(d.routeEnd, d.announced)
	}
}

// Growth says for whose sessions a decoder gets the layers that it lacks.
type Growth int

const (
	GrowOwn Growth = iota // for this node's own runs: the default
	GrowAny               // for everybody's; what it has grown to is offered from then on
	GrowNo                // for nobody's
)

var growthNames = [...]string{GrowOwn: "own", GrowAny: "any", GrowNo: "no"}

// String returns "own", "any" or "no".
func (g Growth) String() string { return growthNames[g] }

// ParseGrowth is the inverse of String.
func ParseGrowth(s string) (Growth, error) {
	if i := slices.Index(growthNames[:], s); i >= 0 {
		return Growth(i), nil
	}
	return 0, fmt.Errorf("growth %q is not known (there are: %s)", s, strings.Join(growthNames[:], ", "))
}

// grows reports whether the sessions of a client may make a model grow.
func (n *Node) grows(client string) bool {
	return n.cfg.Grow == GrowAny || n.cfg.Grow == GrowOwn && client == n.ID()
}

// growth is what a model's sessions do for it to grow. They all want the same, so it is done once.
type growth struct {
	mu   sync.Mutex
	want int                // sessions that would go on alone
	stop context.CancelFunc // of the attempt under way; nil: there is none
}

// join counts a session in; the returned context is that of a new attempt, or nil.
func (g *growth) join(parent context.Context) context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want++
	if g.stop != nil {
		return nil
	}
	ctx, stop := context.WithCancel(parent)
	g.stop = stop
	return ctx
}

// leave counts a session out; what is done for nobody any more ends, and leaves what has been fetched.
func (g *growth) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.want--; g.want == 0 && g.stop != nil {
		g.stop()
	}
}

// end ends the attempt under way.
func (g *growth) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop != nil {
		g.stop()
		g.stop = nil
	}
}

// mayGrow reports whether the session may make its model grow: both its client and this node's settings let it leave its route.
func (s *decoderSession) mayGrow() bool {
	return s.m.open.Grow && !s.m.open.Route.DecodeLocal && s.n.grows(s.client) && s.served.growable()
}

// wantGrowthLocked has the model grow if the session could go on alone then. It may have grown since the client looked.
func (s *decoderSession) wantGrowthLocked() {
	switch {
	case s.m.ended || !s.m.open.Grow || s.m.open.Route.DecodeLocal:
	case s.m.local:
		s.do(s.m.grew())
	case s.m.held == s.m.whole() && s.mayGrow():
		s.growing = true
		if ctx := s.served.growth.join(s.n.ctx); ctx != nil {
			s.n.spawn(func() { s.n.grow(ctx, s.served) })
		}
	}
}

// whole is all layers of the model.
func (s *served) whole() runtime.Range { return runtime.Range{First: 0, Last: s.card.Layers} }

// growable reports whether the node lacks layers of the model and has memory for them.
func (s *served) growable() bool {
	return s.exec.Layers() != s.whole() && s.exec.CanGrow(s.whole()) == nil
}

// planReply is a plan with the words that explain it.
func (n *Node) planReply(id artifacts.ID, p route.Plan, k control.Constraints) *control.PlanReply {
	r := &control.PlanReply{Model: id.String(), Plan: p, Explain: p.Explain(), Sees: n.sights(p)}
	s := n.served(id)
	if s == nil || p.Decoder != n.ID() || p.Shape != route.Pipelined || planned(k) || !n.grows(n.ID()) || !s.growable() {
		return r
	}
	bytes := artifacts.SpanBytes(s.model.Missing(s.card.Spans(artifacts.LayerRange(s.whole()))))
	up, down := 0.0, 0.0 // bytes per second, as far as is known
	peers, _ := n.planPeers(id)
	for _, q := range peers {
		if q.Self {
			down = q.Down
		} else {
			up += q.Up
		}
	}
	took := ""
	if rate := min(up, down); rate > 0 {
		took = fmt.Sprintf(", about %.2g s", float64(bytes)/rate)
	}
	r.Explain += fmt.Sprintf("\nthe decoder grows: it fetches %v, %.3g MB%s, and decodes alone as soon as it has them\n",
		runtime.Range{First: 0, Last: s.exec.Layers().First}, float64(bytes)/1e6, took)
	return r
}

// grow fetches the layers that a model lacks and loads them; then its sessions go on alone. What goes wrong leaves everything as it is.
func (n *Node) grow(ctx context.Context, s *served) {
	defer s.growth.end()
	n.weights.RLock()
	defer n.weights.RUnlock()
	began, had := time.Now(), s.exec.Layers()
	spans := s.card.Spans(artifacts.LayerRange(s.whole()))
	log := n.log.With("model", s.id.Short(), "from", had.String())
	log.Info("growing", "fetch", artifacts.SpanBytes(s.model.Missing(spans)))
	err := n.torrents.Fetch(ctx, s.model, spans, func() []string { return n.holders(s.id) }, nil)
	fetched := time.Now()
	if err == nil {
		err = s.exec.Grow(ctx, s.whole())
	}
	if err != nil {
		log.Info("not grown", "error", err)
		return
	}
	log.Info("grown", "fetched_in", fetched.Sub(began), "loaded_in", time.Since(fetched))
	for _, d := range n.decoderList() {
		if d.served == s {
			d.grew()
		}
	}
	n.offer()
}

// grew tells the session's machine that the model has grown.
func (s *decoderSession) grew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.do(s.m.grew())
	}
}
