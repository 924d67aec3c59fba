package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
)

// closeLimit is how long a daemon may take to close before the process ends
// without ceremony.
const closeLimit = 10 * time.Second

// defaultDrain is how long sessions may go on when nobody says otherwise.
const defaultDrain = 30 * time.Second

// daemon is a node that owns the data folder and answers on its socket.
type daemon struct {
	node   *node.Node
	client *control.Client           // of the node, in this process
	ended  chan control.DrainRequest // what a local client asked for, or nothing: the socket failed
	drain  time.Duration             // how long sessions may go on at the end if nobody says
	served chan error
	stop   context.CancelFunc
}

// startDaemon starts a node on the data folder, with what change makes of its settings.
func (g *globals) startDaemon(ctx context.Context, change func(*node.Config)) (*daemon, error) {
	if c, err := control.Dial(ctx, g.Data); err == nil {
		defer c.Close()
		return nil, fmt.Errorf("a node runs already on data folder %s%s: stop it, or give this one another folder with --data", g.Data, whose(ctx, c))
	}
	cfg, err := g.nodeConfig(slog.LevelInfo)
	if err != nil {
		return nil, err
	}
	change(&cfg)
	n, err := node.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l, err := control.Listen(g.Data)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	d := &daemon{node: n, client: control.InProcess(n.Control()), ended: make(chan control.DrainRequest, 1), drain: cfg.Drain, served: make(chan error, 1)}
	serving, stop := context.WithCancel(context.Background())
	d.stop = stop
	end := func(q control.DrainRequest) {
		select {
		case d.ended <- q:
		default: // it is ending already
		}
	}
	go func() {
		d.served <- control.Serve(serving, l, n.Control(), end)
		l.Close()
		end(control.DrainRequest{})
	}()
	return d, nil
}

// whose says which peer a daemon is, if it answers.
func whose(ctx context.Context, c *control.Client) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := c.Status(ctx)
	if err != nil {
		return ""
	}
	return " (peer " + printable(s.Peer) + ")"
}

// wait returns when ctx ends, a local client asks to shut down, or the socket
// fails, with how long sessions may go on then.
func (d *daemon) wait(ctx context.Context) time.Duration {
	select {
	case <-ctx.Done():
	case q := <-d.ended:
		if q.Limit != nil {
			return *q.Limit
		}
	}
	return d.drain
}

// leave lets the node's sessions end within limit and hands over what is left
// then. Another signal ends the process meanwhile (see execute).
func (d *daemon) leave(limit time.Duration) {
	_, _ = d.node.Leave(context.Background(), limit) // close comes in any case
}

// close ends the node. It doesn't hang: what can't be closed in time is left to
// the end of the process.
func (d *daemon) close() error {
	late := time.AfterFunc(closeLimit, func() {
		fmt.Fprintf(os.Stderr, "starling: the node didn't close within %v; ending the process\n", closeLimit)
		os.Exit(exitFailure)
	})
	defer late.Stop()
	d.stop()
	d.client.Close()
	return errors.Join(<-d.served, d.node.Close())
}
