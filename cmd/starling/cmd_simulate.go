package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/starling-swarm/starling/route/sim"
)

type simulateCmd struct {
	Scenario string  `arg:"" optional:"" help:"Name of a scenario that comes with the program, or a file. Without it: which there are."`
	Minutes  float64 `placeholder:"N" help:"Simulated minutes to count. Default: the scenario's."`
	Seed     uint64  `placeholder:"N" help:"Draw everything anew. Default: the scenario's."`
	JSON     bool    `name:"json" help:"Print the report as a JSON object, with a point for each minute."`
}

// Help implements kong.HelpProvider.
func (simulateCmd) Help() string {
	return `Plays a swarm in virtual time: machines of several kinds come and go, choose layers, and serve sessions. The planner and the rules by which volunteers
choose layers are the real ones, and control traffic is counted in the lengths of real frames; machines, lines and what sessions take are
modelled. No node is needed and nothing goes over the network. The same scenario and seed give the same report, but for the planner's own
time. What is modelled and what isn't is in docs/simulation.md. A scenario is a JSON file; take one from route/sim/scenarios as a start.

Examples:

  starling simulate                     # which scenarios there are
  starling simulate small               # seconds
  starling simulate public --json       # 10,000 peers, 500 sessions at any time: minutes
  starling simulate mine.json --minutes 600`
}

// Run plays a scenario.
func (c *simulateCmd) Run(ctx context.Context) error {
	if c.Scenario == "" {
		return c.list()
	}
	s, err := c.load()
	if err != nil {
		return usageError(err)
	}
	if c.Minutes > 0 {
		s.Minutes = c.Minutes
	}
	if c.Seed > 0 {
		s.Seed = c.Seed
	}
	began := time.Now()
	show := !c.JSON && isTerminal(os.Stderr)
	r, err := sim.Run(s, func() time.Duration { return time.Since(began) }, func(done float64) error {
		if show {
			fmt.Fprintf(os.Stderr, "\rsimulated: %.0f %%", 100*done)
		}
		return ctx.Err()
	})
	if show {
		fmt.Fprintln(os.Stderr)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printLine(r)
	}
	return c.print(r, time.Since(began))
}

// load finds the scenario: a file where there is one of that name or a path is given.
func (c *simulateCmd) load() (*sim.Scenario, error) {
	if slices.Contains(sim.BuiltinNames(), c.Scenario) {
		return sim.Builtin(c.Scenario)
	}
	data, err := os.ReadFile(c.Scenario)
	if err != nil {
		if filepath.Ext(c.Scenario) == "" && !strings.ContainsRune(c.Scenario, filepath.Separator) {
			_, err = sim.Builtin(c.Scenario)
		}
		return nil, err
	}
	return sim.ParseScenario(data)
}

func (c *simulateCmd) list() error {
	if c.JSON {
		return printLine(sim.BuiltinNames())
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SCENARIO\tPEERS\tSESSIONS\tMINUTES\tCHURN/H\tABOUT")
	for _, name := range sim.BuiltinNames() {
		s, err := sim.Builtin(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%g\t%g %%\t%s\n", name, s.Peers, s.Sessions, s.Minutes, 100*s.ChurnPerHour, s.About)
	}
	return w.Flush()
}

func (c *simulateCmd) print(r *sim.Report, took time.Duration) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("scenario", "%s: %d peers, %g minutes, simulated in %v", printable(r.Scenario), r.Peers, r.Minutes, took.Round(time.Second))
	row("sessions", "%d ended well, %d failed (%.3g %%); %d lost peers and went on", r.Sessions, r.Failed, r.FailedPct, r.Recovered)
	for _, why := range slices.Sorted(maps.Keys(r.Failures)) {
		row("", "%d: %s", r.Failures[why], why)
	}
	row("first token", "%.3g s median, %.3g s at 95 %%", r.FirstTokenSeconds.P50, r.FirstTokenSeconds.P95)
	row("tokens/s", "%.3g median, %.3g at 5 %%", r.TokensPerSec.P50, r.TokensPerSec.P5)
	row("peers in use", "%.3g %% on average", 100*r.Utilisation)
	row("moves", "%.3g an hour", r.MovesPerHour)
	row("coverage", "a layer had %d holders at worst; without any %.3g layer-seconds", r.WorstHolders, r.UncoveredLayerSeconds)
	row("planner", "%d plans, %.3g ms median, %.3g ms at 99 %%", r.Plans, 1000*r.PlanSeconds.P50, 1000*r.PlanSeconds.P99)
	row("control traffic", "%.3g B/s a peer on average, %.3g at 99 %%; a tracker %.3g kB/s; a client %.3g kB a session", r.PeerBytesPerSec.Mean, r.PeerBytesPerSec.P99, r.TrackerBytesPerSec.Mean/1000, r.SessionBytes/1000)
	return w.Flush()
}
