package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// drainFlags say how long a node's sessions may go on.
type drainFlags struct {
	Limit *time.Duration `placeholder:"DURATION" help:"How long running sessions may go on, such as 5m. Default: what serve was started with, 30s."`
	Now   bool           `help:"Hand running sessions over at once: --limit 0s."`
}

func (f *drainFlags) request() (control.DrainRequest, error) {
	limit := f.Limit
	switch {
	case f.Now && limit != nil:
		return control.DrainRequest{}, usageError(errors.New("--now and --limit: give one of them"))
	case f.Now:
		limit = new(time.Duration)
	case limit != nil && *limit < 0:
		return control.DrainRequest{}, usageError(fmt.Errorf("--limit %v: write 0s or more", *limit))
	}
	return control.DrainRequest{Limit: limit}, nil
}

// open returns the request, and a client of the node that it is for.
func (f *drainFlags) open(ctx context.Context, g *globals) (*control.Client, control.DrainRequest, error) {
	q, err := f.request()
	if err != nil {
		return nil, q, err
	}
	client, err := g.dialDaemon(ctx)
	return client, q, err
}

// dialDaemon returns a client of the node that runs on the data folder.
func (g *globals) dialDaemon(ctx context.Context) (*control.Client, error) {
	c, err := control.Dial(ctx, g.Data)
	if errors.Is(err, control.ErrNoDaemon) {
		return nil, fmt.Errorf("no node runs on data folder %s: start one with 'starling serve'", g.Data)
	}
	return c, err
}

type stopCmd struct {
	drainFlags
}

// Help implements kong.HelpProvider.
func (stopCmd) Help() string {
	return `Ends the node that runs on the data folder, politely, and waits for its end: it takes no new work and withdraws its
offers, lets running sessions end within a limit, and hands over what is left then: others go on from where they are,
with the same answers. SIGTERM and Ctrl-C do the same; a second one ends the node at once.

Examples:

  starling stop
  starling stop --limit 10m
  starling stop --now`
}

// Run ends the node.
func (c *stopCmd) Run(ctx context.Context, g *globals) error {
	client, q, err := c.open(ctx, g)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Shutdown(ctx, q); err != nil {
		return err
	}
	if isTerminal(os.Stderr) {
		fmt.Fprintln(os.Stderr, "the node takes no new work and ends when its sessions have ended")
	}
	for {
		again, err := control.Dial(ctx, g.Data)
		if errors.Is(err, control.ErrNoDaemon) {
			return nil
		}
		if err == nil {
			again.Close()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

type pauseCmd struct {
	drainFlags
}

// Help implements kong.HelpProvider.
func (pauseCmd) Help() string {
	return `Makes the node that runs on the data folder take no new work of others, and waits until none is left, as 'starling stop'
does; Ctrl-C ends the waiting, not the pause. The node goes on: it holds its models, seeds their bytes and runs your
prompts, and 'starling resume' makes it serve again.

Examples:

  starling pause
  starling pause --now
  starling resume`
}

// Run pauses the node.
func (c *pauseCmd) Run(ctx context.Context, g *globals) error {
	client, q, err := c.open(ctx, g)
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := client.Pause(ctx, q)
	if err != nil {
		return err
	}
	if r.HandedOver > 0 {
		fmt.Printf("paused; %d sessions were handed over\n", r.HandedOver)
	} else {
		fmt.Println("paused")
	}
	return nil
}

type resumeCmd struct{}

// Help implements kong.HelpProvider.
func (resumeCmd) Help() string {
	return `Makes the node that runs on the data folder serve again after 'starling pause': its offers are back at once.`
}

// Run resumes the node.
func (c *resumeCmd) Run(ctx context.Context, g *globals) error {
	client, err := g.dialDaemon(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Resume(ctx); err != nil {
		return err
	}
	fmt.Println("resumed")
	return nil
}
