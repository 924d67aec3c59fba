package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
)

type blockCmd struct {
	What string `arg:"" optional:"" name:"peer-or-model" help:"Peer ID, or a model's ID or name. Without it: list what is blocked."`
	Undo bool   `help:"Deal with it again."`
	JSON bool   `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (blockCmd) Help() string {
	return `Keeps a list in the data folder of what its node has nothing to do with, effective at once. A blocked peer gets no
connection, no session and no bytes, also where another node decodes for it, and is in no plan of yours. A blocked model is not served,
fetched, seeded or run here; what is held of it stays on the disk until 'starling gc'. Nobody is told. Without a running
node, models are named by their whole ID.

Examples:

  starling block 12D3KooW…
  starling block SmolLM2
  starling block                 # list
  starling block --undo SmolLM2`
}

// Run changes the list, or prints it.
func (c *blockCmd) Run(ctx context.Context, g *globals) error {
	if c.Undo && c.What == "" {
		return usageError(errors.New("--undo given without a peer or model: say which"))
	}
	q := control.BlockRequest{What: c.What, Unblock: c.Undo}
	client, err := control.Dial(ctx, g.Data)
	var b control.Blocked
	switch {
	case err == nil:
		defer client.Close()
		b, err = client.Block(ctx, q)
	case errors.Is(err, control.ErrNoDaemon):
		var list *control.Blocked
		if list, err = node.Block(g.Data, q); err == nil {
			b = *list
		}
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(b)
	}
	for _, p := range b.Peers {
		fmt.Printf("peer   %s\n", p)
	}
	for _, m := range b.Models {
		fmt.Printf("model  %s\n", m)
	}
	if len(b.Peers)+len(b.Models) == 0 {
		fmt.Println("nothing is blocked")
	}
	return nil
}
