package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/session"
)

type demoCmd struct {
	Model  string `type:"existingfile" placeholder:"FILE" help:"GGUF model to use. Default: the smoke model that is built in."`
	Prompt string `placeholder:"TEXT" help:"The prompt. Default: a question that the smoke model was trained on."`
	System string `placeholder:"TEXT" help:"System message before the prompt. Default with --model: ${demosystem}"`
	Cuts   []int  `placeholder:"A" help:"Where the layers are cut: each cut makes a volunteer, the rest is the decoder's. Default: in three."`
	Chunk  int    `placeholder:"N" help:"Prompt tokens that travel together. Default: the planner's choice."`
	samplingFlags
	Keep bool `help:"Leave the swarm running for play until Ctrl-C, and its folders after that."`
	JSON bool `name:"json" help:"Print one JSON object at the end instead of text."`
}

// Help implements kong.HelpProvider.
func (demoCmd) Help() string {
	return `Starts a private swarm of real processes on this machine: a tracker that publishes a model, volunteers that fetch only
their layers by torrent, and decoders. It plans, runs a prompt across them, then again with a decoder that holds only
its own layers, and compares tokens, logits and KV with a run of the whole model in one process: bit for bit. Exit
status 1 if anything differs. It downloads nothing and leaves nothing behind.

Examples:

  starling demo
  starling demo --cuts 1,2,4 --chunk 7
  starling demo --model SmolLM2-135M-Instruct-Q4_1.gguf --prompt "What is the capital of France?"
  starling demo --keep`
}

// demoTokens is how long the demo's answers are at most, unless -n says
// otherwise.
const demoTokens = 48

// demoSystem keeps answers of models that weren't made for the demo short.
const demoSystem = "Answer in one sentence."

// errDiffers makes the demo's exit status 1.
var errDiffers = errors.New("the swarm's answer differs from the single-process run's")

// Run shows everything at work.
func (c *demoCmd) Run(ctx context.Context, g *globals) (err error) {
	dir, err := os.MkdirTemp("", "starling-demo-")
	if err != nil {
		return err
	}
	defer func() {
		if !c.Keep || err != nil {
			os.RemoveAll(dir)
		}
	}()
	file, err := c.prepare(dir)
	if err != nil {
		return err
	}
	cfg, err := runtime.Inspect(file)
	if err != nil {
		return err
	}
	if c.Cuts, err = chooseCuts(c.Cuts, cfg.Layers); err != nil {
		return err
	}
	if g.Threads == 0 { // the nodes share this machine's processors, as if each had its own
		g.Threads = max(1, goruntime.NumCPU()/(len(c.Cuts)+1))
	}
	swarm, err := newDemoSwarm(dir, g.Threads)
	if err != nil {
		return err
	}
	defer swarm.close()
	show := newShow(c.JSON, swarm)
	if err := c.show(ctx, g, swarm, show, file, cfg.Layers); err != nil {
		return err
	}
	if err := show.finish(); err != nil {
		return err
	}
	if c.Keep {
		show.play()
		<-ctx.Done()
	}
	return nil
}

// prepare fills in what wasn't asked for and returns the model's file.
func (c *demoCmd) prepare(dir string) (file string, err error) {
	if c.MaxTokens == 0 {
		c.MaxTokens = demoTokens
	}
	if c.Model == "" {
		if c.Prompt == "" {
			c.Prompt = smokePrompt
		}
		return writeSmoke(dir)
	}
	if c.Prompt == "" {
		c.Prompt = "What can you do?"
	}
	if c.System == "" {
		c.System = demoSystem
	}
	return c.Model, nil
}

// chooseCuts returns the cuts to use: those asked for, or thirds.
func chooseCuts(cuts []int, numLayers int) ([]int, error) {
	if len(cuts) == 0 {
		for i := 1; i <= 2; i++ {
			if cut := i * numLayers / 3; cut > 0 && !slices.Contains(cuts, cut) {
				cuts = append(cuts, cut)
			}
		}
		if len(cuts) == 0 {
			cuts = []int{numLayers}
		}
		return cuts, nil
	}
	last := 0
	for _, cut := range cuts {
		if cut <= last || cut > numLayers {
			return nil, usageError(fmt.Errorf("cuts %s: they must ascend and lie within 1 and the model's %d layers", joinInts(cuts), numLayers))
		}
		last = cut
	}
	return cuts, nil
}

func joinInts(list []int) string {
	var words []string
	for _, n := range list {
		words = append(words, fmt.Sprint(n))
	}
	return strings.Join(words, ",")
}

// members returns the nodes that the demo wants: a volunteer for each cut, a
// decoder with all layers, and one with only the last range.
func members(cuts []int, numLayers int) (all []member) {
	first := 0
	for i, cut := range cuts {
		all = append(all, member{fmt.Sprintf("volunteer-%d", i+1), control.Layers{First: first, Last: cut - 1}})
		first = cut
	}
	return append(all, member{"decoder", control.Layers{First: 0, Last: numLayers - 1}},
		member{"decoder-2", control.Layers{First: first, Last: numLayers - 1}})
}

// show runs the demo's parts in order.
func (c *demoCmd) show(ctx context.Context, g *globals, swarm *demoSwarm, show *show, file string, numLayers int) error {
	if err := swarm.begin(ctx, file); err != nil {
		return err
	}
	show.began(swarm.model)
	processes, err := swarm.gather(ctx, members(c.Cuts, numLayers), show.joined)
	if err != nil {
		return err
	}
	if err := swarm.meet(ctx, processes); err != nil {
		return err
	}
	volunteers, decoder, small := processes[:len(c.Cuts)], processes[len(c.Cuts)], processes[len(c.Cuts)+1]
	p, q := prompt{text: c.Prompt, system: c.System}, c.request()
	q.Proof = true
	show.asks(c.Prompt)
	for _, part := range []struct {
		title, shape string
		decoder      *process
	}{
		{"prefill across, decode local: the decoder holds all layers", "across", decoder},
		{"pipelined: the decoder holds only its own layers", "pipelined", small},
	} {
		k := session.Constraints{Shape: part.shape, Cuts: c.Cuts, Chunk: c.Chunk, Decoder: part.decoder.peer()}
		for _, v := range append(slices.Clone(volunteers), part.decoder) {
			k.Assign = append(k.Assign, v.peer())
		}
		show.begins(part.title)
		s, err := session.Open(ctx, swarm.tracker().ctl, session.Options{Model: swarm.model.ID, Constraints: k, On: show.event})
		if err != nil {
			return err
		}
		account, err := p.answer(ctx, s, q)
		if err != nil {
			return err
		}
		if err := show.ran(ctx, part.shape, account); err != nil {
			return err
		}
		if show.reference == nil {
			if show.reference, err = c.reference(ctx, g, file, p, q); err != nil {
				return fmt.Errorf("single-process run: %w", err)
			}
		}
		show.compared()
	}
	return nil
}

// reference answers p with the whole model in this process.
func (c *demoCmd) reference(ctx context.Context, g *globals, file string, p prompt, q session.Request) (*reference, error) {
	o := g.engine()
	o.Path, o.MaxKVBytes = file, 0
	m, err := runtime.Open(o)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	tokens, err := p.tokens(m.Tokenizer())
	if err != nil {
		return nil, err
	}
	sampling, err := node.Sampling(&q.Sampling, m.Tokenizer())
	if err != nil {
		return nil, err
	}
	return generate(ctx, m, m.Profile(), tokens, q, sampling, nil)
}
