//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
)

var (
	schedules = flag.Int("schedules", 120, "with -soak: how many schedules of lost processes for each model")
	schedule  = flag.Int("schedule", -1, "run this schedule of lost processes alone")
)

// TestLosses runs swarms of processes, breaks them at random and asks for the text of the unbroken run: processes are killed, stopped and
// asked to end, links cut, garbled and filled with silence, while a prompt is read and while it is answered, one after the other, too.
// Where a plan is left the answer is the same bytes; else the error says of what kind it is. After each nobody has a session any more. Each
// schedule is made from its number; what happens in between is up to the machine.
func TestLosses(t *testing.T) {
	first, last := 0, 10
	if *soak {
		last = *schedules
	}
	if *schedule >= 0 {
		first, last = *schedule, *schedule+1
	}
	for name, file := range map[string]func(*testing.T) string{"smoke": smokeFile, "SmolLM2": smolLM2} {
		t.Run(name, func(t *testing.T) {
			if name != "smoke" && !*soak {
				t.Skip("computes for minutes: make soak")
			}
			s := newLossNet(t, file(t))
			for seed := first; seed < last && !t.Failed(); seed++ {
				if !t.Run(fmt.Sprint(seed), func(t *testing.T) { s.play(t, uint64(seed)) }) {
					t.Errorf("run it again: go test ./cmd/starling -run 'TestLosses/%s' -schedule %d", name, seed)
				}
			}
			t.Logf("faults that happened: %v; what was done: %v; errors: %v; the slowest answer took %v", s.fallen, s.recovered, s.failed, s.slowest.Round(time.Millisecond))
		})
	}
}

// lossLayout are the processes: each part of a route is there twice. In thirds of the layers.
var lossLayout = map[string][2]int{"whole": {0, 3}, "whole2": {0, 3}, "first": {0, 1}, "first2": {0, 1}, "second": {1, 2}, "second2": {1, 2}, "last": {2, 3}, "last2": {2, 3}, "client": {}}

// lossNet is a private swarm of processes in which somebody can take every part of a route, but for the client's.
type lossNet struct {
	*demoSwarm
	file   string
	layers int
	byName map[string]*process
	links  map[[2]string]*link // by who dials and who is dialled
	asks   []lossAsk

	fallen, recovered, failed map[string]int
	slowest                   time.Duration
}

// lossAsk is something to ask the swarm, how many events an unbroken run has, and what it answers.
type lossAsk struct {
	name   string
	req    control.RunRequest
	events int
	want   *control.Account
}

func newLossNet(t *testing.T, file string) *lossNet {
	dir, err := os.MkdirTemp("", "losses") // short: there will be sockets in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	swarm, err := newDemoSwarm(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	if swarm.exe, err = exec.LookPath("starling"); err != nil {
		t.Fatal(err)
	}
	s := &lossNet{demoSwarm: swarm, file: file, byName: map[string]*process{}, links: map[[2]string]*link{}, fallen: map[string]int{}, recovered: map[string]int{}, failed: map[string]int{}}
	t.Cleanup(func() {
		s.close()
		for _, k := range s.links {
			k.close()
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.begin(ctx, file); err != nil {
		t.Fatal(err)
	}
	s.layers = s.model.NumLayers
	for _, name := range slices.Sorted(maps.Keys(lossLayout)) {
		invite, err := s.command(ctx, "tracker", "swarm", "invite", "--ttl", "5m")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.command(ctx, name, "swarm", "join", invite); err != nil {
			t.Fatal(err)
		}
		s.launch(t, name)
	}
	s.ready(t, workers()...)
	s.prepare(t)
	return s
}

// launch starts a process, or starts it again on its data folder. It reaches the others over links.
func (s *lossNet) launch(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var args []string
	if third := lossLayout[name]; third[1] > 0 {
		args = append(args, "--model", s.model.ID, "--layers", flagText(control.Layers{First: third[0] * s.layers / 3, Last: third[1]*s.layers/3 - 1}))
	}
	for _, other := range slices.Sorted(maps.Keys(s.byName)) {
		if other == name {
			continue
		}
		k := s.links[[2]string{name, other}]
		if k == nil {
			var err error
			if k, err = newLink(); err != nil {
				t.Fatal(err)
			}
			s.links[[2]string{name, other}] = k
		}
		k.lead(address(t, s.byName[other]))
		args = append(args, "--bootstrap", fmt.Sprintf("/ip4/127.0.0.1/tcp/%d/p2p/%s", k.port(), s.byName[other].peer()))
	}
	p, err := s.serve(ctx, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	s.byName[name] = p
	for between, k := range s.links {
		if between[1] == name {
			k.lead(address(t, p))
		}
	}
}

// address returns where a process listens, as HOST:PORT.
func address(t *testing.T, p *process) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.status.Addrs {
		if f := strings.Split(a, "/"); len(f) > 4 && f[3] == "tcp" {
			return f[2] + ":" + f[4]
		}
	}
	t.Fatalf("%s listens on %v", p.Name, p.status.Addrs)
	return ""
}

// ready waits until everybody who plans is connected with everybody and has heard who computes; nobody else does.
func (s *lossNet) ready(t *testing.T, computing ...string) {
	t.Helper()
	for _, name := range []string{"client", "whole", "whole2", "last", "last2"} {
		s.until(t, name+" hears of all", func(ctx context.Context) (string, bool) {
			p := s.byName[name]
			st, err := p.ctl.Status(ctx)
			if err != nil {
				return err.Error(), false
			}
			offers, err := p.ctl.Peers(ctx)
			if err != nil {
				return err.Error(), false
			}
			for who, other := range s.byName {
				if other != p && !slices.Contains(st.Connected, other.peer()) {
					return who + " isn't connected", false
				}
				offered := slices.ContainsFunc(offers, func(o control.Peer) bool {
					return o.Peer == other.peer() && o.Model == s.model.ID && o.Layers.Last >= o.Layers.First
				})
				if offered != slices.Contains(computing, who) {
					return fmt.Sprintf("%s is offered: %v", who, offered), false
				}
			}
			return "", true
		})
	}
}

// workers are the processes that compute.
func workers() (list []string) {
	for name, third := range lossLayout {
		if third[1] > 0 {
			list = append(list, name)
		}
	}
	return list
}

// until waits for what must happen.
func (s *lossNet) until(t *testing.T, what string, ok func(context.Context) (missing string, ok bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		missing, done := ok(ctx)
		if done {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%v and still not: %s: %s", patience, what, missing)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// prepare makes what is asked, and has it answered without faults.
func (s *lossNet) prepare(t *testing.T) {
	id := func(name string) string { return s.byName[name].peer() }
	cuts := []int{s.layers / 3, 2 * s.layers / 3}
	across := control.Constraints{Shape: "across", Cuts: cuts, Assign: []string{id("first"), id("second")}, Decoder: id("whole"), Chunk: 8}
	pipelined := across
	pipelined.Shape, pipelined.Decoder = "pipelined", id("last")
	tokens := func(seed, n int) (list []int32) {
		for i := range n {
			list = append(list, int32((i*i*31+i*7+seed*101)%250))
		}
		return list
	}
	n, most := 240, 48
	if s.layers > 6 { // a real model
		n, most = 80, 24
	}
	base := control.RunRequest{Model: s.model.ID, MaxNew: most, Sampling: control.Sampling{Temperature: 0.8, TopP: 0.95, Seed: 11}, Proof: true, Wait: patience}
	m, err := runtime.Open(runtime.Options{Path: s.file, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tok := m.Tokenizer()
	for id := range int32(tok.Size()) {
		if tok.IsEOG(id) { // the answer has its length
			base.LogitBias = append(base.LogitBias, control.LogitBias{Token: id, Ban: true})
		}
	}
	add := func(name string, prompt []int32, k control.Constraints, change func(*control.RunRequest)) {
		a := lossAsk{name: name, req: base}
		a.req.Tokens, a.req.Constraints, a.req.NoGuess = prompt, k, true
		if change != nil {
			change(&a.req)
		}
		s.asks = append(s.asks, a)
	}
	add("across", tokens(1, n), across, nil)
	add("pipelined", tokens(2, n), pipelined, nil)
	add("pipelined, guesses", slices.Repeat(tokens(3, 6), n/6), pipelined, func(q *control.RunRequest) { q.Temperature, q.NoGuess = 0, false })
	add("any route", tokens(4, n), control.Constraints{}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range s.asks {
		a := &s.asks[i]
		alone := a.req
		alone.Fresh, alone.Constraints = true, control.Constraints{Shape: "local", Decoder: id("whole")}
		if a.want, err = s.byName["client"].ctl.Run(ctx, alone, nil); err != nil {
			t.Fatalf("%s, alone: %v", a.name, err)
		}
		got, err := s.byName["client"].ctl.Run(ctx, a.req, func(control.Event) { a.events++ })
		if err != nil {
			t.Fatalf("%s: %v", a.name, err)
		}
		if got.Text != a.want.Text || got.LogitsHash != a.want.LogitsHash || len(got.NewTokens) != most {
			t.Fatalf("%s: %q, alone %q", a.name, got.Text, a.want.Text)
		}
	}
}

// loss is something that breaks.
type loss struct {
	kind  string
	role  string        // of whom it breaks, by the latest plan: stage, decoder, client, or anyone
	after time.Duration // that it comes behind the moment that it is for
	lasts time.Duration // of a stop

	who, with string // whom it hit; of a link, between whom
}

func (l loss) String() string {
	who := l.who
	if l.with != "" {
		who += " – " + l.with
	}
	return fmt.Sprintf("%s of %s (%s) after %v", l.kind, who, l.role, l.after)
}

// lossKinds are: a process is killed, is stopped and goes on later, is asked to end; the link between two processes is cut, has a bit
// changed, or brings nothing any more.
var lossKinds = []string{"kill", "kill", "stop", "end", "cut", "garble", "hole"}

// play makes a schedule of its number and lets it happen.
func (s *lossNet) play(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	a := s.asks[rng.IntN(len(s.asks))]
	bare := rng.IntN(8) == 0 // nobody can take a stage's place
	if bare {
		a = s.asks[1+rng.IntN(2)]
	}
	at := 1 + rng.IntN(a.events)
	var list []*loss
	for range []int{1, 1, 2}[rng.IntN(3)] {
		list = append(list, &loss{kind: lossKinds[rng.IntN(len(lossKinds))], role: []string{"stage", "stage", "decoder", "decoder", "client", "anyone"}[rng.IntN(6)],
			after: time.Duration(rng.IntN(5000)) * time.Microsecond, lasts: time.Duration(200+rng.IntN(4000)) * time.Millisecond})
	}
	if len(list) > 1 { // often before the first one has been noticed, or while others take the place of who was lost
		list[1].after += []time.Duration{0, 100 * time.Millisecond, time.Second, node.DefaultSilence}[rng.IntN(4)]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	spares := []string{"whole", "whole2", "first2", "second2", "last2"}
	if bare {
		for _, name := range spares {
			if _, err := s.byName[name].ctl.Pause(ctx, control.DrainRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		s.ready(t, "first", "second", "last")
	}
	before := map[*link]int64{}
	for _, k := range s.links {
		before[k] = k.passed()
	}
	var (
		mu     sync.Mutex
		plan   []string // who takes part, the decoder last
		events int
		over   bool
		broken sync.WaitGroup
	)
	breaks := func() {
		for _, l := range list {
			time.Sleep(l.after)
			mu.Lock()
			gone, who := over, slices.Clone(plan)
			mu.Unlock()
			if gone {
				return
			}
			s.lose(l, who, rng, before)
		}
	}
	began := time.Now()
	got, err := s.byName["client"].ctl.Run(ctx, a.req, func(ev control.Event) {
		mu.Lock()
		defer mu.Unlock()
		if p := ev.Plan; p != nil {
			plan = nil
			for _, st := range p.Plan.Stages {
				plan = append(plan, s.name(st.Peer))
			}
			plan = append(plan, s.name(p.Plan.Decoder))
		}
		if events++; events == at {
			broken.Go(breaks)
		}
	})
	took := time.Since(began)
	mu.Lock()
	over = true
	mu.Unlock()
	broken.Wait()

	words, clientLost := fmt.Sprintf("%s, bare: %v, from event %d of %d: ", a.name, bare, at, a.events), false
	for _, l := range list {
		if l.who != "" {
			s.fallen[l.kind]++
			words += l.String() + "; "
			clientLost = clientLost || l.who == "client" && (l.kind == "kill" || l.kind == "end")
		}
	}
	t.Logf("%sit took %v", words, took.Round(time.Millisecond))
	if took > s.slowest {
		s.slowest = took
	}
	defer func() {
		if t.Failed() {
			s.tell(t)
		}
	}()
	var known *control.Error
	switch {
	case err == nil:
		if got.Text != a.want.Text || !slices.Equal(got.NewTokens, a.want.NewTokens) || len(got.Recovered) == 0 && got.LogitsHash != a.want.LogitsHash {
			t.Errorf("%q, unbroken %q", got.Text, a.want.Text)
		}
		for _, r := range got.Recovered {
			t.Log(r)
			if did, _, ok := strings.Cut(r, " "); ok {
				s.recovered[did]++
			}
		}
	case clientLost:
	case bare && errors.As(err, &known):
		s.failed[string(known.Kind)]++
	default:
		t.Errorf("%v (of a kind that programs know: %v)", err, errors.As(err, &known))
	}
	s.mend(t, list)
	if bare {
		for _, name := range spares {
			if err := s.byName[name].ctl.Resume(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.ready(t, workers()...)
}

// lose breaks something, and notes what it hit. A link is broken only if the answer has used it.
func (s *lossNet) lose(l *loss, plan []string, rng *rand.Rand, before map[*link]int64) {
	victim := ""
	switch {
	case l.role == "client":
		victim = "client"
	case l.role == "stage" && len(plan) > 1:
		victim = plan[rng.IntN(len(plan)-1)]
	case l.role != "anyone" && len(plan) > 0:
		victim = plan[len(plan)-1]
	default:
		victim = slices.Sorted(maps.Keys(lossLayout))[rng.IntN(len(lossLayout))]
	}
	p := s.byName[victim]
	switch l.kind {
	case "kill":
		_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have been lost before
	case "end":
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	case "stop":
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		time.AfterFunc(l.lasts, func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) })
	default:
		var used []*link
		others := slices.DeleteFunc(append(slices.Clone(plan), "client"), func(o string) bool { return o == victim })
		rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		for _, o := range others {
			for _, between := range [][2]string{{victim, o}, {o, victim}} {
				if k := s.links[between]; k != nil && k.passed() > before[k] {
					used, l.with = append(used, k), o
				}
			}
			if len(used) > 0 {
				break
			}
		}
		for _, k := range used {
			map[string]func(){"cut": k.cut, "garble": k.garble, "hole": k.swallow}[l.kind]()
		}
		if len(used) == 0 {
			return
		}
	}
	l.who = victim
}

// mend waits until nobody has a session, and makes everything whole again.
func (s *lossNet) mend(t *testing.T, list []*loss) {
	t.Helper()
	lost := map[string]bool{}
	for _, l := range list {
		switch p := s.byName[l.who]; {
		case p == nil:
		case l.kind == "stop":
			_ = p.cmd.Process.Signal(syscall.SIGCONT) // as above
		case l.kind == "kill" || l.kind == "end":
			lost[l.who] = true
		}
	}
	for _, k := range s.links {
		k.mu.Lock()
		silent := k.hole
		k.mu.Unlock()
		if silent { // what it swallowed is missing
			k.cut()
		}
	}
	for name := range lost {
		s.until(t, name+" ends", func(ctx context.Context) (string, bool) {
			select {
			case <-s.byName[name].done:
				return "", true
			default:
				return "it lives", false
			}
		})
	}
	for name, p := range s.byName {
		if lost[name] {
			continue
		}
		s.until(t, name+" has no session any more", func(ctx context.Context) (string, bool) {
			st, err := p.ctl.Status(ctx)
			if err != nil {
				return err.Error(), false
			}
			return fmt.Sprintf("%+v", st.Sessions), len(st.Sessions) == 0
		})
	}
	for name := range lost {
		s.launch(t, name)
	}
}

// tell logs what the processes said of late.
func (s *lossNet) tell(t *testing.T) {
	for name := range s.byName {
		b, err := os.ReadFile(filepath.Join(s.folder(name), "log.txt"))
		if err != nil {
			t.Log(err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		t.Logf("%s says:\n%s", name, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}
