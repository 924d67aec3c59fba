package main

import (
	"context"
	"errors"
	"os"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
)

// alone answers a request with a GGUF file in this process, without a swarm.
func (c *runCmd) alone(ctx context.Context, g *globals, q control.RunRequest) error {
	if c.Shape != "" && c.Shape != "local" || len(c.Cuts)+len(c.Assign) > 0 || c.Decoder != "" || c.Decode == "any" {
		return usageError(errors.New("-m names a file, which runs in this process alone: routes need a model of the swarm"))
	}
	if c.Trace {
		return usageError(errors.New("--trace shows the peers of a swarm: -m names a file, which runs in this process alone"))
	}
	a := newAnswer(c.JSON, g.Verbose)
	if st, err := os.Stat(c.Model); err == nil {
		a.event(control.Event{Kind: "progress", Phase: "load", Total: st.Size()})
	}
	o := g.engine()
	o.Path = c.Model
	m, err := runtime.Open(o)
	if err != nil {
		return a.fail(err)
	}
	defer m.Close()
	tokens, err := tokenize(m.Tokenizer(), &q)
	if err != nil {
		return a.fail(err)
	}
	sampling, err := node.Sampling(&q, m.Tokenizer())
	if err != nil {
		return a.fail(err)
	}
	r, err := generate(ctx, m, tokens, q.MaxNew, sampling, q.Logprobs, a.event)
	if err != nil {
		return a.fail(err)
	}
	return a.finish(r.account())
}
