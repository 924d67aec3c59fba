package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

type modelsCmd struct {
	JSON bool `name:"json" help:"Print a JSON list."`
}

// Help implements kong.HelpProvider.
func (modelsCmd) Help() string {
	return `Lists the models that are on this disk or offered by peers. COMPLETE says whether the peers that are reachable now
cover every layer, so that a prompt can run.`
}

// Run lists the models.
func (c *modelsCmd) Run(ctx context.Context, g *globals) error {
	s, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
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
