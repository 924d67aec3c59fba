package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/starling-swarm/starling/node/control"
)

type modelsCmd struct {
	Search *string `placeholder:"WORDS" help:"Find models that are listed in the swarm by words of name, family, quant and licence; a beginning of each word will do, and '' lists all."`
	JSON   bool    `name:"json" help:"Print a JSON list."`
}

// Help implements kong.HelpProvider.
func (modelsCmd) Help() string {
	return `Lists the models that are on this disk or offered by peers. COMPLETE says whether the peers that are reachable now
cover every layer, so that a prompt can run.

With --search it looks for listings, which publishers sign. COPIES is how many reachable peers hold the bytes of the layer that fewest
hold; 0: the model can't be pulled whole now. Anyone may list any model under any name: the ID alone says which bytes you get.

Examples:

  starling models
  starling models --search "smollm2 q4"
  starling models --search apache --json`
}

// Run lists the models.
func (c *modelsCmd) Run(ctx context.Context, g *globals) error {
	s, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if c.Search != nil {
		return c.search(ctx, s.Client)
	}
	list, err := s.Models(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(list)
	}
	if len(list) == 0 {
		fmt.Println("no model is held here or offered in the swarm: publish one with 'starling publish FILE.gguf'")
		return nil
	}
	return table(os.Stdout, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tID\tLAYERS\tSIZE\tON THIS DISK\tHELD\tSERVED HERE\tPEERS\tCOMPLETE")
		for _, m := range list {
			total, size, disk, complete := "–", "–", "–", "no"
			if m.NumLayers > 0 {
				total = fmt.Sprint(m.NumLayers)
			}
			if m.Bytes > 0 {
				size, disk = bytesText(m.Bytes), bytesText(m.Allocated)
			}
			if m.Covered {
				complete = "yes"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", printable(m.Name), shortID(m.ID), total, size, disk,
				layersText(m.Held), layersText(m.Serving), m.Peers, complete)
		}
	})
}

// search prints what is listed.
func (c *modelsCmd) search(ctx context.Context, client *control.Client) error {
	list, err := client.Search(ctx, control.SearchRequest{Words: *c.Search})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(list)
	}
	if len(list) == 0 {
		fmt.Printf("nothing is listed with the words %q: use fewer, or '' for everything\n", printable(*c.Search))
		return nil
	}
	return table(os.Stdout, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tFAMILY\tQUANT\tSIZE\tLICENCE\tPUBLISHER\tCOPIES\tID")
		or := func(text string) string {
			if text == "" {
				return "–"
			}
			return printable(text)
		}
		for _, l := range list {
			size, least := "–", "–"
			if l.Bytes > 0 {
				size = bytesText(l.Bytes)
			}
			if len(l.Copies) > 0 {
				least = fmt.Sprint(slices.Min(l.Copies))
			}
			publisher := "–"
			if l.Publisher != "" {
				publisher = shortPeer(l.Publisher)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", or(l.Name), or(l.Family), or(l.Quant), size, or(l.Licence), publisher, least, shortID(l.Model))
		}
	})
}
