package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
)

// connection is a verb's connection to a node.
type connection struct {
	*control.Client
	daemon bool // it is the daemon's, not a node of our own
	node   *node.Node
}

// close ends the connection, and the node if it is our own.
func (s *connection) close() {
	s.Client.Close()
	if s.node != nil {
		_ = s.node.Close() // the verb is done; nothing of it is lost
	}
}

// connect returns a connection to the daemon that owns the data folder, or to
// an ephemeral client in this process when none runs.
func (g *globals) connect(ctx context.Context) (*connection, error) {
	return g.connectAs(ctx, func(c *node.Config) { c.Client = true })
}

// connectAs is connect with a say in what the node in this process is.
func (g *globals) connectAs(ctx context.Context, change func(*node.Config)) (*connection, error) {
	c, err := control.Dial(ctx, g.Data)
	if err == nil {
		return &connection{Client: c, daemon: true}, nil
	}
	if !errors.Is(err, control.ErrNoDaemon) {
		return nil, err
	}
	cfg, err := g.nodeConfig(slog.LevelWarn)
	if err != nil {
		return nil, err
	}
	change(&cfg)
	n, err := node.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &connection{Client: control.InProcess(n.Control()), node: n}, nil
}

// nodeConfig turns the settings into a node's.
func (g *globals) nodeConfig(level slog.Level) (node.Config, error) {
	info, err := g.chooseSwarm()
	if err != nil {
		return node.Config{}, err
	}
	c := node.Config{DataDir: g.Data, Listen: g.Listen, Swarm: info, Bootstrap: g.Bootstrap, LAN: g.LAN, Engine: g.engine(), KVDisk: int64(g.KVDisk),
		Version: version(), Log: g.logger(level)}
	if g.Reachability != "auto" {
		c.Reachability = swarm.Reachability(g.Reachability)
	}
	g.torrents(&c)
	return c, nil
}

// chooseSwarm returns the swarm that --swarm names, or the only one that the
// data folder knows.
func (g *globals) chooseSwarm() (*swarm.Info, error) {
	swarms := swarm.OpenSwarms(g.Data)
	if g.Swarm != "" {
		return swarms.Load(g.Swarm)
	}
	list, err := swarms.List()
	if err != nil {
		return nil, err
	}
	switch len(list) {
	case 1:
		return list[0], nil
	case 0:
		return nil, fmt.Errorf("data folder %s knows no swarm: make one with 'starling swarm create NAME', or join one with 'starling swarm join INVITE'", g.Data)
	}
	var names []string
	for _, i := range list {
		names = append(names, fmt.Sprintf("%s (%s)", i.Name, i.ID))
	}
	return nil, fmt.Errorf("data folder %s knows several swarms, say which with --swarm: %s", g.Data, strings.Join(names, ", "))
}
