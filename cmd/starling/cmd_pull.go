package main

import (
	"context"
	"fmt"

	"github.com/starling-swarm/starling/node/control"
)

type pullCmd struct {
	Model  string `arg:"" placeholder:"ID|NAME" help:"Model: its ID, six or more digits of its start, or its name."`
	Layers layers `default:"all" placeholder:"A-B" help:"Layers to fetch, both ends included, such as 0-9. Default: all."`
	JSON   bool   `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (pullCmd) Help() string {
	return `Fetches a model from the nodes that hold it: only the bytes of the layers asked for, with the header and tokenizer.
Every piece is verified, an interrupted pull goes on where it stopped, and a larger range later fetches only what is
missing.

Examples:

  starling pull SmolLM2
  starling pull 3fa85f64c2d1 --layers 10-19`
}

// Run fetches the model.
func (c *pullCmd) Run(ctx context.Context, g *globals) error {
	s, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	p := newProgress()
	m, err := s.Pull(ctx, control.PullRequest{Model: c.Model, Layers: c.Layers.r}, p.event)
	p.done()
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(m)
	}
	fmt.Printf("%s, ID %s: %s of %d here, %s of %s on this disk\n%s\n",
		printable(m.Name), m.ID, layersText(m.Held), m.NumLayers, bytesText(m.Allocated), bytesText(m.Bytes), printable(m.Path))
	return nil
}
