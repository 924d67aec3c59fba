package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

type gatewayCmd struct {
	Addr string `default:"127.0.0.1:4078" env:"STARLING_GATEWAY" placeholder:"HOST:PORT" help:"Address to answer on. Beyond this machine it takes --keys and --tls-cert. Default: 127.0.0.1:4078."`
	frontFlags
	JSON bool `name:"json" help:"Print events, one JSON object per line."`
}

// Help implements kong.HelpProvider.
func (gatewayCmd) Help() string {
	return `Answers programs that speak OpenAI's API with what the swarm computes: /v1/models, /v1/chat/completions, /v1/completions and
/v1/embeddings, streamed or whole. The running node on the data folder asks the swarm, or an ephemeral one in this process. Ctrl-C ends it.

Whoever computes layers can recover prompts, whatever API they came by; "starling plan" shows who would see what, and the header
Starling-Peers of each answer who did. Keys and prompts never get into a log.

Examples:

  starling gateway
  OPENAI_BASE_URL=http://127.0.0.1:4078/v1 OPENAI_API_KEY=none python my_tool.py
  curl http://127.0.0.1:4078/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"model":"SmolLM2","messages":[{"role":"user","content":"Why is the sky blue?"}]}'
  starling gateway --addr 0.0.0.0:4078 --keys keys.txt --tls-cert cert.pem --tls-key key.pem
  starling serve --model SmolLM2 --gateway 127.0.0.1:4078   # in a volunteer's process`
}

// gatewayEvent is a line of "gateway --json".
type gatewayEvent struct {
	Kind string `json:"kind"` // "ready", "closing"
	URL  string `json:"url,omitempty"`
}

// lastAnswers is how long answers under way may go on when a gateway ends.
const lastAnswers = 10 * time.Second

// Run answers until ctx ends.
func (c *gatewayCmd) Run(ctx context.Context, g *globals) error {
	conn, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	log := g.logger(slog.LevelWarn).With("pkg", "gateway")
	f, err := c.start("--addr", c.Addr, conn.Client, log)
	if err != nil {
		return err
	}
	defer f.close(lastAnswers)
	if c.JSON {
		_ = printLine(gatewayEvent{Kind: "ready", URL: f.url()}) // it goes on without a reader
	} else {
		fmt.Printf("answering on %s\n", f.url())
		c.models(ctx, conn.Client)
		fmt.Println("ready; Ctrl-C ends the gateway")
	}
	select {
	case <-ctx.Done():
	case err := <-f.ended:
		if !errors.Is(err, http.ErrServerClosed) {
			return err
		}
	}
	if c.JSON {
		_ = printLine(gatewayEvent{Kind: "closing"}) // as above
	}
	return nil
}

// models says which models can be asked, or that none can yet.
func (c *gatewayCmd) models(ctx context.Context, client *control.Client) {
	known, err := client.Models(ctx)
	n := 0
	for i := range known {
		if err == nil && known[i].Covered {
			fmt.Printf("model %s\n", printable(known[i].Name))
			n++
		}
	}
	if n == 0 {
		fmt.Println(`no model is offered whole yet: "starling models" shows what there is`)
	}
}
