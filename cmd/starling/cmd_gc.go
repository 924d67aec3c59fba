package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/starling-swarm/starling/node/control"
)

type gcCmd struct {
	Model string `arg:"" optional:"" placeholder:"ID|NAME" help:"Model to look at alone. Default: all that were fetched."`
	Keep  layers `default:"auto" placeholder:"A-B" help:"Layers of it that stay this time, both ends included, beside those that are pinned or served."`
	Yes   bool   `short:"y" help:"Free it, without asking."`
	JSON  bool   `name:"json" help:"Print a JSON object; frees nothing without --yes."`
}

// Help implements kong.HelpProvider.
func (gcCmd) Help() string {
	return `Frees the disk space of what was fetched and nothing needs: every layer that is neither served, nor was served last by a node
that is down now, nor pinned. It says first what that is, and asks. A model of which some layers stay keeps its file, with holes; one of
which none stays is removed. Published files are never touched. What is needed again later is fetched again, and nothing else.

A node that is to serve fewer layers: serve them (starling serve --model NAME --layers A-B), then run this.

Examples:

  starling gc                          # what could go, and a question
  starling gc --yes
  starling gc SmolLM2 --keep 10-19     # of one model, all but these layers
  starling pin SmolLM2 --layers 0-9    # these stay, whatever gc frees`
}

// Run says what can go, and lets it go.
func (c *gcCmd) Run(ctx context.Context, g *globals) error {
	if c.Keep.r != nil && c.Model == "" {
		return usageError(errors.New("--keep given without a model: say of which"))
	}
	s, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	q := control.CollectRequest{Model: c.Model, Keep: c.Keep.r, Free: c.Yes}
	r, err := s.Collect(ctx, q)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(r); err != nil {
			return err
		}
		return collectProblems(r)
	}
	if len(r.Models) == 0 {
		fmt.Println("nothing to free: every fetched layer is served or pinned")
		return nil
	}
	err = table(os.Stdout, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tID\tON THIS DISK\tSTAYS\tGOES")
		for _, m := range r.Models {
			stays := "nothing"
			for i, k := range m.Keep {
				if i == 0 {
					stays = ""
				} else {
					stays += ", "
				}
				stays += fmt.Sprintf("%s: %s", printable(k.Why), layersText(&k.Layers))
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", printable(m.Name), shortID(m.ID), bytesText(m.Allocated), stays, bytesText(m.Free))
		}
	})
	if err != nil {
		return err
	}
	if !c.Yes {
		if !isTerminal(os.Stdin) {
			fmt.Printf("%s can be freed: --yes frees them\n", bytesText(r.Bytes))
			return nil
		}
		fmt.Printf("free %s? [y/N] ", bytesText(r.Bytes))
		answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // an end is a no
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			fmt.Println("nothing was freed")
			return nil
		}
		q.Free = true
		if r, err = s.Collect(ctx, q); err != nil {
			return err
		}
	}
	fmt.Printf("freed %s\n", bytesText(r.Bytes))
	return collectProblems(r)
}

// collectProblems returns the first model's reason for not being freed.
func collectProblems(r control.CollectReply) error {
	for _, m := range r.Models {
		if m.Problem != "" {
			return errors.New(m.Problem)
		}
	}
	return nil
}

type pinCmd struct {
	Model  string `arg:"" placeholder:"ID|NAME" help:"Model of which something is on this disk."`
	Layers layers `default:"all" placeholder:"A-B" help:"Layers that stay, both ends included, such as 0-9. Default: all."`
	JSON   bool   `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (pinCmd) Help() string {
	return `Has layers of a model stay on this disk, whatever gc frees; a later pin of the same model takes the place of this one. Layers that
are not here are not fetched: that is what pull is for.

Examples:

  starling pin SmolLM2
  starling pin SmolLM2 --layers 0-9`
}

// Run pins the layers.
func (c *pinCmd) Run(ctx context.Context, g *globals) error {
	return pin(ctx, g, control.PinRequest{Model: c.Model, Layers: c.Layers.r}, c.JSON)
}

type unpinCmd struct {
	Model string `arg:"" placeholder:"ID|NAME" help:"Model of which something is on this disk."`
	JSON  bool   `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (unpinCmd) Help() string {
	return `Forgets what pin said of a model, and what was served of it last, so that gc may free all of it that isn't served now.

Example:

  starling unpin SmolLM2`
}

// Run forgets the pins.
func (c *unpinCmd) Run(ctx context.Context, g *globals) error {
	return pin(ctx, g, control.PinRequest{Model: c.Model, Unpin: true}, c.JSON)
}

func pin(ctx context.Context, g *globals, q control.PinRequest, asJSON bool) error {
	s, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	m, err := s.Pin(ctx, q)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(m)
	}
	fmt.Printf("%s, ID %s: pinned %s of %d, on this disk %s\n", printable(m.Name), m.ID, layersText(m.Pinned), m.NumLayers, layersText(m.Held))
	return nil
}
