package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

type doctorCmd struct {
	Wait time.Duration `default:"20s" placeholder:"TIME" help:"How long to look for others, and to wait for them to dial back, at most. Default: 20s."`
	JSON bool          `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (doctorCmd) Help() string {
	return `Looks for what keeps this machine from being of use in its swarm, and says what to do about it: the clock, the data
folder and its disk, memory, the processor and its numbers, the swarm and this node's membership, the port, who can
reach it, peers and the DHT. A node that runs on the data folder is asked; else one is started for some seconds, as a
client that offers nothing. Exit status 1 if a check fails; warnings are no failures.

Examples:

  starling doctor
  starling doctor --json
  starling doctor --listen /ip4/0.0.0.0/tcp/5000   # would that port do?`
}

// doctorReport is what "doctor --json" prints.
type doctorReport struct {
	Version  string    `json:"version"`
	OK       bool      `json:"ok"` // no check fails
	Findings []finding `json:"findings"`
}

// Run examines the machine.
func (c *doctorCmd) Run(ctx context.Context, g *globals) error {
	if c.Wait <= 0 {
		return usageError(fmt.Errorf("--wait %v: write a time such as 20s", c.Wait))
	}
	r := doctorReport{Version: version(), OK: true, Findings: judge(measure(ctx, g, c.Wait))}
	fails := 0
	for _, f := range r.Findings {
		if f.Verdict == failure {
			fails++
		}
	}
	r.OK = fails == 0
	var err error
	if c.JSON {
		err = printJSON(r)
	} else {
		err = printFindings(os.Stdout, r.Findings)
	}
	if err == nil && fails > 0 {
		err = fmt.Errorf("%d of %d checks fail", fails, len(r.Findings))
	}
	return err
}

// printFindings writes a line for each finding, and below it what to do.
func printFindings(w io.Writer, findings []finding) error {
	for _, f := range findings {
		if _, err := fmt.Fprintf(w, "%-4s  %-12s  %s\n", f.Verdict, f.Check, f.Text); err != nil {
			return err
		}
		if f.Next != "" {
			fmt.Fprintf(w, "%20s→ %s\n", "", f.Next)
		}
	}
	return nil
}
