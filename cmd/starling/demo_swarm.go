package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// loopback is where the demo's nodes listen.
const loopback = "/ip4/127.0.0.1/tcp/0"

// meetLimit is how long the nodes may take to hear of each other.
const meetLimit = 30 * time.Second

// demoSwarm is the demo's private swarm: processes and their folders under dir.
type demoSwarm struct {
	exe     string
	dir     string
	env     []string
	threads int
	model   *control.Model

	mu        sync.Mutex
	processes []*process // in the order in which they are shown
}

// newDemoSwarm prepares a swarm under dir.
func newDemoSwarm(dir string, threads int) (*demoSwarm, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &demoSwarm{exe: exe, dir: dir, threads: threads, env: cleanEnv(os.Environ(), dir)}, nil
}

// cleanEnv drops the settings that the user's environment and settings file
// make for real nodes.
func cleanEnv(env []string, dir string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "STARLING_") || strings.HasPrefix(v, "XDG_")
	})
	return append(env, "XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "XDG_DATA_HOME="+filepath.Join(dir, "data"))
}

// folder returns the data folder of a process.
func (d *demoSwarm) folder(name string) string {
	return filepath.Join(d.dir, name)
}

// command runs a starling verb on a process's data folder and returns what it
// prints.
func (d *demoSwarm) command(ctx context.Context, name string, args ...string) (string, error) {
	args = append([]string{"--data", d.folder(name)}, args...)
	cmd := exec.CommandContext(ctx, d.exe, args...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = d.env, &stdout, &stderr, ownGroup()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		words := strings.TrimPrefix(strings.TrimSpace(stderr.String()), "starling: ")
		return "", fmt.Errorf("%s: starling %s: %s", name, args[2], words)
	}
	return strings.TrimSpace(stdout.String()), nil
}

// serve starts a process and waits until it is ready.
func (d *demoSwarm) serve(ctx context.Context, name string, args ...string) (*process, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	args = append([]string{"--data", d.folder(name), "--listen", loopback, "--threads", fmt.Sprint(d.threads), "serve", "--json", "--attached", "--drain", "0s"}, args...)
	p, err := startProcess(d.exe, name, d.folder(name), args, d.env)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.processes = append(d.processes, p)
	d.mu.Unlock()
	return p, p.await(ctx)
}

// begin makes the swarm and its first node, which publishes the model file.
func (d *demoSwarm) begin(ctx context.Context, file string) error {
	if _, err := d.command(ctx, "tracker", "swarm", "create", "demo"); err != nil {
		return err
	}
	if _, err := d.serve(ctx, "tracker"); err != nil {
		return err
	}
	out, err := d.command(ctx, "tracker", "publish", "--json", file)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), &d.model)
}

// join lets a node join the swarm with an invitation and serve layers of the
// model.
func (d *demoSwarm) join(ctx context.Context, name string, r control.Layers) (*process, error) {
	invite, err := d.command(ctx, "tracker", "swarm", "invite", "--ttl", "5m")
	if err != nil {
		return nil, err
	}
	if _, err := d.command(ctx, name, "swarm", "join", invite); err != nil {
		return nil, err
	}
	args := []string{"--model", d.model.ID, "--layers", flagText(r)}
	if strings.HasPrefix(name, "volunteer") {
		args = append(args, "--no-decode")
	}
	return d.serve(ctx, name, args...)
}

// member is a node that the demo wants.
type member struct {
	name string
	r    control.Layers
}

// gather starts all members at once; it returns when each serves its layers, in
// the members' order. The first failure ends the wait for the others.
func (d *demoSwarm) gather(ctx context.Context, members []member, joined func(*process)) ([]*process, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := make([]*process, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			p, err := d.join(ctx, m.name, m.r)
			if err != nil {
				cancel(err)
				return
			}
			all[i] = p
			joined(p)
		})
	}
	wg.Wait()
	return all, context.Cause(ctx)
}

// meet waits until the tracker has heard the offers of processes.
func (d *demoSwarm) meet(ctx context.Context, processes []*process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, meetLimit, errors.New("the nodes don't hear of each other"))
	defer cancel()
	for {
		offers, err := d.tracker().ctl.Peers(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(processes), func(p *process) bool {
			return slices.ContainsFunc(offers, func(o control.Peer) bool {
				return o.Peer == p.peer() && o.Model == d.model.ID && o.Layers == *p.serving.Serving
			})
		})
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the offer of %s: %w", missing[0].Name, context.Cause(ctx))
		case <-missing[0].done:
			return missing[0].failure()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (d *demoSwarm) tracker() *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.processes[0]
}

// name returns what the demo calls a peer.
func (d *demoSwarm) name(peer string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.processes {
		if p.peer() == peer {
			return p.Name
		}
	}
	return shortPeer(peer)
}

// close ends every process.
func (d *demoSwarm) close() {
	d.mu.Lock()
	all := slices.Clone(d.processes)
	d.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(p.stop)
	}
	wg.Wait()
}
