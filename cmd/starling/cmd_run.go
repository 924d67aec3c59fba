package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/session"
)

type runCmd struct {
	promptFlags
	Model string `short:"m" env:"STARLING_MODEL" placeholder:"ID|NAME|FILE" help:"Model: its ID, six or more digits of its start, its name; or a GGUF file to run in this process alone, without a swarm. Default: the only one known."`
	samplingFlags
	routeFlags
	Wait     time.Duration `default:"1m" placeholder:"TIME" help:"How long to wait for room where every peer that could answer is busy. Default: 1m; 0 fails at once."`
	Logprobs int           `placeholder:"N" help:"With --json: tell each token's log-probability, and those of the N likeliest (at most 20), by the model alone."`
	Stop     []string      `sep:"none" placeholder:"TEXT" help:"Text that ends the answer, which is printed without it. Give it again for more."`
	Fresh    bool          `help:"Compute the whole prompt, even where the decoder still has the cache of an earlier one of yours that begins alike. A given shape, cut or assignment does so, too."`
	Draft    string        `placeholder:"ID|NAME" help:"Small model that is to guess ahead where the answer is decoded: the route goes to a peer that was started with it (serve --draft). It changes no token, only how long they take. Default: whatever the decoder has."`
	NoGuess  bool          `help:"Compute every new token by itself, without guesses of what follows. Guessing changes no token, only how long they take."`
	Proof    bool          `help:"Account with hashes of logits, seams and KV."`
	Trace    bool          `help:"Show on stderr what each peer did when: chunk by chunk the waiting, the computing and the cache rows' way. With --json it is in the account."`
	JSON     bool          `name:"json" help:"Print events, one JSON object per line: plan, progress, text, done."`
}

// Help implements kong.HelpProvider.
func (runCmd) Help() string {
	return `Runs a prompt in the swarm and streams the answer. The running node on the data folder is the client, or an ephemeral
one in this process. With the same model, prompt, settings and seed the answer is the same bits whoever computes it.

Whoever computes layers for you can recover your prompt; "starling plan" shows who would see what.

Examples:

  starling run "Why is the sky blue?"
  starling run -m SmolLM2 --temperature 0.7 --seed 42 "Write a haiku."
  starling run --sampling llama.cpp --seed 42 --dry-multiplier 0.8 "Tell me a story."
  starling run --raw --stop "Q:" "Q: Why? A:"
  starling run --logit-bias ' the=-3' --logit-bias 42=ban "…"
  git diff | starling run --system "Summarise this change." -
  starling run --decode here "…"          # fetch the model and decode on this machine
  starling run -m model.gguf "…"          # one process, no swarm
  starling run --seam q8_0 --kv q8_0 "…"  # fewer bytes on slow links; see "starling plan --seam"
  starling run --draft SmolLM2-135M "…"   # let a small model guess ahead, if a peer has it
  starling run --trace "…"                # who did what when
  starling run --json "…" | jq -r 'select(.kind=="text").text'
  starling run --json --logprobs 3 "…" | jq -c 'select(.logprobs).logprobs'

The samplers are llama.cpp's, by its names: biases; repetition, frequency and presence penalties; DRY; top-k; typical; top-p;
min-p; XTC; temperature, in this order. Temperature comes last: it does not change what the others keep.`
}

// Run answers the prompt.
func (c *runCmd) Run(ctx context.Context, g *globals) error {
	p, q, err := c.read(os.Stdin)
	if err != nil {
		return err
	}
	if strings.HasSuffix(strings.ToLower(c.Model), ".gguf") {
		return c.alone(ctx, g, p, q)
	}
	conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer conn.close()
	a := newAnswer(c.JSON, g.Verbose)
	a.trace = c.Trace
	if c.Decode == "here" {
		if err := decodeHere(ctx, conn.Client, c.Model, a.event); err != nil {
			return a.fail(err)
		}
	}
	k := c.constraints()
	k.Draft = c.Draft
	s, err := session.Open(ctx, conn.Client, session.Options{Model: c.Model, Constraints: k, Wait: c.Wait, On: a.event})
	if err != nil {
		return a.fail(err)
	}
	account, err := p.answer(ctx, s, q)
	if err != nil {
		return a.fail(err)
	}
	return a.finish(account)
}

// read turns the flags, and standard input where they say so, into a prompt and what is asked for.
func (c *runCmd) read(stdin io.Reader) (p prompt, q session.Request, err error) {
	if p, err = c.promptFlags.read(stdin); err != nil {
		return p, q, err
	}
	q = c.request()
	q.Logprobs, q.Stop, q.Fresh, q.NoGuess, q.Proof, q.Timeline = c.Logprobs, c.Stop, c.Fresh, c.NoGuess, c.Proof, c.Trace
	switch {
	case c.MaxTokens < 0:
		err = usageError(fmt.Errorf("-n %d: ask for at least one new token", c.MaxTokens))
	case c.Wait < 0:
		err = usageError(fmt.Errorf("--wait %v: give a time such as 30s, or 0", c.Wait))
	case c.Draft != "" && c.NoGuess:
		err = usageError(errors.New("--draft says who guesses, --no-guess that nobody does: drop one of them"))
	case c.Logprobs != 0 && !c.JSON:
		err = usageError(errors.New("--logprobs are told by --json only"))
	}
	return p, q, err
}

// connect returns the running node or an ephemeral one; to decode here that
// must be a full node.
func (c *runCmd) connect(ctx context.Context, g *globals) (*connection, error) {
	return g.connectAs(ctx, func(cfg *node.Config) { cfg.Client = c.Decode != "here" })
}

// decodeHere makes the node serve the whole model, unless it decodes it already.
func decodeHere(ctx context.Context, client *control.Client, model string, on func(control.Event)) error {
	st, err := client.Status(ctx)
	if err != nil {
		return err
	}
	for _, m := range st.Models {
		if (model == "" || model == m.Name || len(model) >= 6 && strings.HasPrefix(m.ID, strings.ToLower(model))) && m.Decoder {
			return nil
		}
	}
	_, err = client.Serve(ctx, control.ServeRequest{Model: model}, on)
	return err
}
