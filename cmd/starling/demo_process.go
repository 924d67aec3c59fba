package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// stopLimit is how long a node of the demo may take to close before it is
// killed.
const stopLimit = 5 * time.Second

// process is a "starling serve" of the demo: a real process with a data folder
// of its own. It ends when its standard input does, so that none outlives the
// demo, however that ends; stop makes sure of it earlier.
type process struct {
	Name string // "tracker", "volunteer-1", "decoder"
	dir  string // data folder
	cmd  *exec.Cmd
	in   io.Closer
	ctl  *control.Client
	done chan struct{} // closed when the process has ended and err is set
	err  error

	mu      sync.Mutex
	status  *control.Status // once started
	serving *control.Model  // once served
	ready   bool
	fetched [2]int64 // of bytes to fetch: done, total
	changed chan struct{}
}

// startProcess starts the command with args and makes it a node of the demo.
// Its output goes to log.txt in its data folder.
func startProcess(exe, name, dir string, args, env []string) (*process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log.txt"))
	if err != nil {
		return nil, err
	}
	p := &process{Name: name, dir: dir, done: make(chan struct{}), changed: make(chan struct{})}
	p.cmd = exec.Command(exe, args...)
	p.cmd.Env, p.cmd.Stderr, p.cmd.SysProcAttr = env, log, ownGroup()
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), log.Close())
	}
	go func() {
		defer log.Close()
		p.follow(io.TeeReader(out, log))
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// follow reads the process's events until it ends.
func (p *process) follow(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var ev serveEvent
		if json.Unmarshal(lines.Bytes(), &ev) != nil {
			continue // not an event; the log has it
		}
		p.mu.Lock()
		switch ev.Kind {
		case "started":
			p.status = ev.Status
		case "progress":
			if ev.Phase == "pull" {
				p.fetched = [2]int64{ev.Done, ev.Total}
			}
		case "serving":
			p.serving = ev.Model
		case "ready":
			p.ready = true
		}
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, r) // a line too long to be an event must not block the process
}

// await waits until the process is ready.
func (p *process) await(ctx context.Context) error {
	for {
		p.mu.Lock()
		ready, changed := p.ready, p.changed
		p.mu.Unlock()
		if ready {
			break
		}
		select {
		case <-changed:
		case <-p.done:
			return p.failure()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ctl, err := control.Dial(ctx, p.dir)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	p.ctl = ctl
	return nil
}

// failure says how a process ended that shouldn't have: with its last words.
func (p *process) failure() error {
	last := "no message"
	if b, err := os.ReadFile(filepath.Join(p.dir, "log.txt")); err == nil {
		for _, line := range strings.Split(string(b), "\n") {
			if words, ok := strings.CutPrefix(line, "starling: "); ok {
				last = words
			}
		}
	}
	return fmt.Errorf("%s ended (%v): %s", p.Name, p.err, last)
}

// peer returns the process's peer ID; it has started.
func (p *process) peer() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status == nil {
		return ""
	}
	return p.status.Peer
}

// stop ends the process and waits for its end.
func (p *process) stop() {
	if p.ctl != nil {
		p.ctl.Close()
	}
	p.in.Close()
	late := time.AfterFunc(stopLimit, func() { killGroup(p.cmd.Process) })
	defer late.Stop()
	<-p.done
}
