package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
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

// busiest is how many peers are shown with what they have.
const busiest = 5

func printStatus(w io.Writer, st *control.Status) error {
	return table(w, func(w io.Writer) {
		fmt.Fprintf(w, "node\t%s, %s, starling %s, up %v\n", st.Role, st.Standing, printable(st.Version), st.Uptime.Round(time.Second))
		fmt.Fprintf(w, "peer\t%s\n", st.Peer)
		for _, a := range st.Addrs {
			fmt.Fprintf(w, "listens on\t%s\n", a)
		}
		fmt.Fprintf(w, "swarm\t%s (%s)\n", printable(st.Swarm.Name), st.Swarm.ID)
		fmt.Fprintf(w, "reachable\t%s\n", reachableText(st.Reachable))
		fmt.Fprintf(w, "connected\t%d peers%s\n", len(st.Connected), lookingText(st.Looking))
		for _, r := range st.Relayed {
			fmt.Fprintf(w, "relayed\t%s, through %s\n", r.Peer, r.Relay)
		}
		fmt.Fprintf(w, "numerics\t%s\n", st.Profile)
		fmt.Fprintf(w, "kept\t%s of KV in memory, %s on disk; %d times used for %d positions\n", bytesText(st.Kept.Memory), bytesText(st.Kept.Disk), st.Kept.Hits, st.Kept.Positions)
		if m := st.Measured; m != nil {
			fmt.Fprintf(w, "measured\t%s\n", measuredText(m))
		}
		if t := st.Terms; t != nil {
			fmt.Fprintf(w, "terms\t%s\n", termsText(t))
			fmt.Fprintf(w, "given\t%s\n", givenText(t))
			fmt.Fprintf(w, "\t%s\n", memoryText(&t.Memory))
			for _, p := range t.Peers[:min(len(t.Peers), busiest)] {
				fmt.Fprintf(w, "\t%s: %d sessions, %d of %d streams, %s sent, %s received\n", p.Peer, p.Sessions, p.Streams, t.StreamsPerPeer, bytesText(p.Sent), bytesText(p.Received))
			}
			if more := len(t.Peers) - busiest; more > 0 {
				fmt.Fprintf(w, "\tand %d peers with less traffic\n", more)
			}
		}
		if s := st.Spare; s != nil {
			fmt.Fprintf(w, "spare disk\t%s of %s is seeded for the swarm\n", bytesText(s.Used), bytesText(s.Limit))
			for _, m := range s.Models {
				fmt.Fprintf(w, "\t%s (%s): %s, %s\n", printable(m.Name), shortID(m.Model), spareText(m), bytesText(m.Bytes))
			}
			if s.Problem != "" {
				fmt.Fprintf(w, "\tat the last attempt: %s\n", oneLine(s.Problem))
			}
		}
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

// lookingText says whom a node that has met nobody tries to meet.
func lookingText(all []control.Contact) string {
	if len(all) == 0 {
		return ""
	}
	text := fmt.Sprintf("; looking for the swarm through %d nodes", len(all))
	if i := slices.IndexFunc(all, func(c control.Contact) bool { return c.Error != "" }); i >= 0 {
		text += ", which are tried until one answers; " + contactText(all[i])
	}
	return text
}

// measuredText says what a machine does.
func measuredText(m *control.Measured) string {
	text := fmt.Sprintf("reads %s/s of weights with %d threads", bytesText(int64(m.DecodeBytesPerSec)), m.DecodeThreads)
	if len(m.Rates) > 0 {
		r := m.Rates[0]
		text += fmt.Sprintf("; %s at 1, 32, 512 rows: %.3g, %.3g, %.3g GFLOP/s with %d", printable(r.Type), r.Rows1/1e9, r.Rows32/1e9, r.Rows512/1e9, m.PrefillThreads)
	}
	if m.DiskSequential > 0 {
		text += fmt.Sprintf("; disk %s/s in order, %s/s anywhere", bytesText(int64(m.DiskSequential)), bytesText(int64(m.DiskRandom)))
	}
	return text
}

// termsText says when a node works for others, and why it doesn't now.
func termsText(t *control.Terms) string {
	parts := []string{"works always"}
	if t.Hours != "" {
		parts[0] = "works at " + t.Hours
	}
	if t.Battery {
		parts = append(parts, "not on battery")
	}
	if t.Metered {
		parts = append(parts, "not on a metered link")
	}
	if t.SessionsPerPeer > 0 {
		parts = append(parts, fmt.Sprintf("%d sessions a client", t.SessionsPerPeer))
	}
	if t.TokensPerMinute > 0 {
		parts = append(parts, fmt.Sprintf("%d tokens a minute and client", t.TokensPerMinute))
	}
	if t.Blocked > 0 {
		parts = append(parts, fmt.Sprintf("%d blocked", t.Blocked))
	}
	text := strings.Join(parts, ", ")
	if t.Away != "" {
		text += "; paused: " + oneLine(t.Away)
	}
	return text
}

// reachableText says what a node's reachability means for it.
func reachableText(r string) string {
	switch r {
	case "public":
		return "by everyone (public)"
	case "private":
		return "through relays and punched holes (private)"
	}
	return "from its own network; elsewhere unknown, nobody has dialled back"
}

// givenText says how much of what a node's owner gives is used.
func givenText(t *control.Terms) string {
	rate := func(most int64) string {
		if most == 0 {
			return ""
		}
		return fmt.Sprintf(", of at most %s/s", bytesText(most))
	}
	disk := ""
	if t.MaxDisk > 0 {
		disk = " of " + bytesText(t.MaxDisk)
	}
	return fmt.Sprintf("%s sent (sessions %s%s), %s received (sessions %s%s), %s%s of disk for fetched models", bytesText(t.Sent), bytesText(t.SessionSent),
		rate(t.MaxUpload), bytesText(t.Received), bytesText(t.SessionReceived), rate(t.MaxDownload), bytesText(t.Disk), disk)
}

// memoryText says what models take of the memory that a node's owner gives.
func memoryText(m *control.MemoryUse) string {
	text := fmt.Sprintf("memory: %s of packed weights, %s of weights in files, %s of %s of KV", bytesText(m.Packed), bytesText(m.Mapped), bytesText(m.KV), bytesText(m.MaxKV))
	if m.Max > 0 {
		text += fmt.Sprintf("; with buffers %s at most", bytesText(m.Max))
	}
	return text
}

// spareText says which portions of a model are spare copies: "layers 3, 7–9 and what no layer owns".
func spareText(m control.SpareModel) string {
	var runs []string
	for i := 0; i < len(m.Layers); {
		j := i + 1
		for j < len(m.Layers) && m.Layers[j] == m.Layers[j-1]+1 {
			j++
		}
		run := fmt.Sprint(m.Layers[i])
		if j > i+1 {
			run += fmt.Sprintf("–%d", m.Layers[j-1])
		}
		runs = append(runs, run)
		i = j
	}
	text := "layers " + strings.Join(runs, ", ")
	switch {
	case len(runs) == 0 && m.Rest:
		return "what no layer owns"
	case len(runs) == 0:
		return "nothing yet"
	case m.Rest:
		text += " and what no layer owns"
	}
	return text
}
