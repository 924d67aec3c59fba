package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/session"
)

// alone answers a prompt with a GGUF file in this process, without a swarm.
func (c *runCmd) alone(ctx context.Context, g *globals, p prompt, q session.Request) error {
	if c.Shape != "" && c.Shape != "local" || len(c.Cuts)+len(c.Assign) > 0 || c.Decoder != "" || c.Decode == "any" {
		return usageError(errors.New("-m names a file, which runs in this process alone: routes need a model of the swarm"))
	}
	if c.Draft != "" {
		return usageError(errors.New("--draft asks for a peer that has the model: -m names a file, which runs in this process alone"))
	}
	if c.Trace {
		return usageError(errors.New("--trace shows the peers of a swarm: -m names a file, which runs in this process alone"))
	}
	a := newAnswer(c.JSON, g.Verbose)
	if st, err := os.Stat(c.Model); err == nil {
		a.event(control.Event{Kind: "progress", Phase: "load", Total: st.Size()})
	}
	kv, seam, cuts, err := c.roundingFlags.alone()
	if err != nil {
		return usageError(err)
	}
	o := g.engine()
	o.Path = c.Model
	m, err := runtime.Open(o)
	if err != nil {
		return a.fail(err)
	}
	defer m.Close()
	tokens, err := p.tokens(m.Tokenizer())
	if err != nil {
		return a.fail(err)
	}
	sampling, err := node.Sampling(&q.Sampling, m.Tokenizer())
	if err != nil {
		return a.fail(err)
	}
	r, err := generate(ctx, m, m.Profile().Rounding(kv, seam, cuts), tokens, q, sampling, a.event)
	if err != nil {
		return a.fail(err)
	}
	return a.finish(r.account())
}

// alone returns what rounding means where nothing is cut: seams are rounded only where they are said to be, and no plan has a reason to.
func (f *roundingFlags) alone() (kv runtime.KVType, seam runtime.SeamType, cuts []int, err error) {
	if f.KV != "" && f.KV != "auto" {
		if kv, err = runtime.ParseKVType(f.KV); err != nil {
			return kv, seam, nil, err
		}
	}
	if f.Seam == "" || f.Seam == "auto" {
		return kv, seam, nil, nil
	}
	if seam, cuts, err = runtime.ParseSeam(f.Seam); err == nil && seam != runtime.SeamF32 && cuts == nil {
		err = fmt.Errorf("--seam %s: a file is computed in this process, which cuts nowhere: say before which layers, as in %s@10,20", f.Seam, f.Seam)
	}
	return kv, seam, cuts, err
}
