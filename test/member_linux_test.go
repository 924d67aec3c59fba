package test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm"
)

// memberEnv makes this binary a whole node.
const memberEnv = "STARLING_TEST_MEMBER"

// memberConfig says what a node is.
type memberConfig struct {
	Dir    string
	Listen []string
	Client bool

	// How it comes into its swarm; with none of these it makes a private one.
	Invite    string
	Public    *swarm.Info
	Bootstrap []string
}

// wish is what a test wants of a node, and outcome what came of it.
type wish struct {
	Do    string // "invite", "publish", "serve", "run", "revoke", "connected", "join"
	Text  string
	First int
	Last  int // inclusive
}

type outcome struct {
	Peer  string
	Text  string
	Peers []string
	Error string
}

// member runs a node until its standard input ends.
func member(text string) error {
	var cfg memberConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	id, err := swarm.LoadIdentity(cfg.Dir)
	if err != nil {
		return err
	}
	info := cfg.Public
	switch {
	case info != nil:
	case cfg.Invite != "":
		info, err = swarm.Join(ctx, id, cfg.Invite, cfg.Dir)
	default:
		info, err = swarm.CreateSwarm(cfg.Dir, "friends", false, nil)
	}
	if err != nil {
		return err
	}
	n, err := node.Start(ctx, node.Config{DataDir: cfg.Dir, Listen: cfg.Listen, Swarm: info, Bootstrap: cfg.Bootstrap, Tracker: cfg.Invite == "" && cfg.Public == nil, Client: cfg.Client,
		Engine: runtime.Options{Threads: 1, MaxKVBytes: 64 << 20}, Silence: 30 * time.Second, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	defer n.Close()
	c := control.InProcess(n.Control())
	defer c.Close()
	return listen(outcome{Peer: n.ID()}, func(w wish) outcome {
		o := outcome{Peer: n.ID()}
		if err := grant(ctx, c, id, w, &o); err != nil {
			o.Error = err.Error()
		}
		return o
	})
}

// grant does what is wished.
func grant(ctx context.Context, c *control.Client, id *swarm.Identity, w wish, o *outcome) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch w.Do {
	case "invite":
		r, err := c.Invite(ctx, control.InviteRequest{Role: w.Text})
		o.Text = r.Invite
		return err
	case "publish":
		m, err := c.Publish(ctx, control.PublishRequest{Path: w.Text}, nil)
		if err == nil {
			o.Text = m.ID
		}
		return err
	case "serve":
		_, err := c.Serve(ctx, control.ServeRequest{Model: w.Text, Layers: &control.Layers{First: w.First, Last: w.Last}}, nil)
		return err
	case "run":
		a, err := c.Run(ctx, control.RunRequest{Model: w.Text, Prompt: "The quick brown fox jumps over the lazy dog.", MaxNew: 8,
			Constraints: control.Constraints{Shape: "across", Cuts: []int{1}, Trust: "members"}}, nil)
		if err == nil {
			o.Text = a.Text
			for _, s := range a.Stages {
				o.Peers = append(o.Peers, s.Peer)
			}
		}
		return err
	case "revoke":
		return c.Revoke(ctx, control.RevokeRequest{Peer: w.Text})
	case "connected":
		st, err := c.Status(ctx)
		o.Peers = st.Connected
		return err
	}
	return fmt.Errorf("unknown wish %q", w.Do)
}
