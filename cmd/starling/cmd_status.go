package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

type statusCmd struct {
	JSON bool `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (statusCmd) Help() string {
	return `Shows the node that runs on the data folder: who it is, its swarm and peers, the models that it holds and serves, and
the sessions in which it takes part. Exit status 1 when none runs.`
}

// Run prints the status.
func (c *statusCmd) Run(ctx context.Context, g *globals) error {
	client, err := g.dialDaemon(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	st, err := client.Status(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(st)
	}
	return printStatus(os.Stdout, &st)
}

func printStatus(w io.Writer, st *control.Status) error {
	return table(w, func(w io.Writer) {
		fmt.Fprintf(w, "node\t%s, %s, starling %s, up %v\n", st.Role, st.Standing, printable(st.Version), st.Uptime.Round(time.Second))
		fmt.Fprintf(w, "peer\t%s\n", st.Peer)
		for _, a := range st.Addrs {
			fmt.Fprintf(w, "listens on\t%s\n", a)
		}
		fmt.Fprintf(w, "swarm\t%s (%s)\n", printable(st.Swarm.Name), st.Swarm.ID)
		fmt.Fprintf(w, "connected\t%d peers\n", len(st.Connected))
		fmt.Fprintf(w, "numerics\t%s\n", st.Profile)
		fmt.Fprintf(w, "kept\t%s of KV in memory, %s on disk; %d times used for %d positions\n", bytesText(st.Kept.Memory), bytesText(st.Kept.Disk), st.Kept.Hits, st.Kept.Positions)
		for _, p := range st.Problems {
			fmt.Fprintf(w, "problem\t%s\n", oneLine(p))
		}
		for _, m := range st.Models {
			fmt.Fprintf(w, "model\t%s (%s): holds %s, serves %s; %s of %s on this disk\n", printable(m.Name), shortID(m.ID),
				layersText(m.Held), layersText(m.Serving), bytesText(m.Allocated), bytesText(m.Bytes))
		}
		for _, s := range st.Sessions {
			fmt.Fprintf(w, "session\t%s as %s: %s, %d tokens, %s of KV, %v old\n", shortID(s.ID), s.Role, s.Layers, s.Tokens,
				bytesText(s.KVBytes), s.Age.Round(time.Second))
		}
	})
}
