package node

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm"
)

var (
	soak      = flag.Bool("soak", false, "run the long kill schedule (make soak)")
	schedules = flag.Int("schedules", 240, "with -soak: how many schedules")
	schedule  = flag.Int("schedule", -1, "run this one alone")
)

// killModels are what the swarms of the kill schedule run: rows of all positions, tails, windows.
var killModels = []string{"llama", "qwen35moe", "gemma3"}

const killLayers = 6

// TestKillSchedule breaks swarms at random and asks for the text of the unbroken run. Each schedule is made from its number, has
// one session or several at once, and one or two faults, each at some frame of some peer. What happens in between is up to the
// machine, as ever. After each, nobody holds anything, nobody has been blamed for another's fault, and the loss was noticed in time.
func TestKillSchedule(t *testing.T) {
	first, last := 0, 12
	if *soak {
		last = *schedules
	}
	if *schedule >= 0 {
		first, last = *schedule, *schedule+1
	}
	swarms := len(killModels)
	if *soak {
		swarms *= 2
	}
	var report killReport
	t.Run("swarms", func(t *testing.T) {
		for lane := range swarms {
			var seeds []uint64
			for seed := first; seed < last; seed++ {
				if seed%swarms == lane {
					seeds = append(seeds, uint64(seed))
				}
			}
			if len(seeds) == 0 {
				continue
			}
			arch := killModels[lane%len(killModels)]
			t.Run(fmt.Sprintf("%s-%d", arch, lane), func(t *testing.T) {
				t.Parallel()
				s := newKillNet(t, arch)
				for _, seed := range seeds {
					if t.Run(fmt.Sprint(seed), func(t *testing.T) { s.play(t, seed, &report) }); t.Failed() {
						t.Fatalf("run it again: go test ./node -run TestKillSchedule -schedule %d", seed)
					}
				}
			})
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // all nodes are closed
		g := nodeGoroutines()
		if g == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("goroutines are left:\n%s", g)
		}
	}
	report.log(t)
	if *soak && *schedule < 0 && report.recovered["handed to a successor"] == 0 {
		t.Error("no successor was handed the rows of a lost stage")
	}
}

// killReport is what many schedules came to.
type killReport struct {
	mu        sync.Mutex
	schedules int
	fallen    map[string]int      // faults that happened, by kind
	noticed   map[string][]notice // by kind
	freed     []time.Duration     // from the end of a client to that of its session
	recovered map[string]int      // what was done
	errors    map[string]int      // typed ends, where no plan was left
}

// notice says how long it took from a fault to the loss of the peer, and for how much of that some node didn't run.
type notice struct{ took, busy time.Duration }

func (n notice) String() string {
	if n.busy == 0 {
		return n.took.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%v (%v of them without a processor)", n.took.Round(time.Millisecond), n.busy.Round(time.Millisecond))
}

func (r *killReport) add(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fallen == nil {
		r.fallen, r.noticed, r.recovered, r.errors = map[string]int{}, map[string][]notice{}, map[string]int{}, map[string]int{}
	}
	f()
}

func (r *killReport) log(t *testing.T) {
	r.add(func() {})
	t.Logf("%d schedules; faults that happened: %v; what was done: %v; typed ends: %v", r.schedules, r.fallen, r.recovered, r.errors)
	for _, kind := range slices.Sorted(maps.Keys(r.noticed)) {
		list := r.noticed[kind]
		slices.SortFunc(list, func(a, b notice) int { return cmp.Compare(a.took-a.busy, b.took-b.busy) })
		t.Logf("%s: noticed %d times, in %v at the median, %v at most", kind, len(list), list[len(list)/2], list[len(list)-1])
	}
	if slices.Sort(r.freed); len(r.freed) > 0 {
		t.Logf("sessions of lost clients: %d freed in %v at the median, %v at most", len(r.freed), r.freed[len(r.freed)/2].Round(time.Millisecond), r.freed[len(r.freed)-1].Round(time.Millisecond))
	}
}

// killNet is a swarm in which every part of a route has somebody who can take its place.
type killNet struct {
	*testNet
	id      artifacts.ID
	x       *faults
	silence time.Duration
	slack   time.Duration // that a loss may take beyond it, and the end of what sessions hold
	byName  map[string]*Node
	config  map[string]func(*Config)
	dirs    map[string]string
	asks    []killAsk

	mu      sync.Mutex
	journal []string // of all nodes
	blamed  []blame
	lates   []late
	anew    map[string]time.Time // node and session → when that began there, or went on after a loss
	closing sync.WaitGroup
}

// late is a line of some node's log: it didn't run for a while.
type late struct {
	node string
	by   time.Duration
	at   time.Time
}

// blame is a line of some node's log: it has given up on a peer.
type blame struct {
	by, peer, role, why string
	since, at           time.Time // since when it had to do with the session's peers as they are
}

// killAsk is something to ask the swarm, and what an unbroken run answers.
type killAsk struct {
	name  string
	req   control.RunRequest
	first *control.RunRequest // asked before, so that there is a cache to go on from
	want  *control.Account
}

var killLayout = map[string][2]int{"whole": {0, 6}, "whole2": {0, 6}, "first": {0, 2}, "first2": {0, 2}, "second": {2, 4}, "second2": {2, 4}, "last": {4, 6}, "last2": {4, 6}}

func newKillNet(t *testing.T, arch string) *killNet {
	s := &killNet{testNet: newTestNet(t), x: &faults{}, byName: map[string]*Node{}, config: map[string]func(*Config){}, dirs: map[string]string{}, silence: 10 * time.Second, slack: 30 * time.Second, anew: map[string]time.Time{}}
	if *soak { // what is promised, on a machine that has the time
		s.silence, s.slack = DefaultSilence, 3*time.Second
	}
	s.x.fell = func(f *fault) {
		if f.kind == "kill" || f.kind == "close" {
			s.close(f.node)
		}
	}
	s.model = filepath.Join(t.TempDir(), arch+".gguf")
	if err := (runtimetest.TinyModel{Arch: arch, Layers: killLayers}).Write(s.model); err != nil {
		t.Fatal(err)
	}
	tracker := s.start(nil)
	s.id = s.publish(tracker)
	for _, name := range slices.Sorted(maps.Keys(killLayout)) {
		s.launch(name)
	}
	s.launch("client")
	s.ready()
	s.x.begin(0, nil)
	whole := s.byName["whole"].ID()
	across := control.Constraints{Shape: "across", Cuts: []int{2, 4}, Assign: []string{s.byName["first"].ID(), s.byName["second"].ID()}, Decoder: whole, Chunk: 4}
	pipelined := across
	pipelined.Shape, pipelined.Decoder = "pipelined", s.byName["last"].ID()
	base := control.RunRequest{Model: s.id.String(), MaxNew: 12, Sampling: control.Sampling{Temperature: 0.8, TopP: 0.95, Seed: 11}, Proof: true, Wait: patience}
	add := func(name string, tokens []int32, k control.Constraints, change func(*control.RunRequest)) {
		req := base
		req.Tokens, req.Constraints = tokens, k
		if change != nil {
			change(&req)
		}
		s.asks = append(s.asks, killAsk{name: name, req: req})
	}
	greedy := func(q *control.RunRequest) { q.Temperature = 0; q.MaxNew = 24 }
	add("across", turnTokens(1, 41), across, nil)
	add("pipelined", turnTokens(2, 37), pipelined, func(q *control.RunRequest) { q.NoGuess = true })
	cycle := slices.Repeat(turnTokens(3, 5), 8)
	add("pipelined, guesses", cycle, pipelined, greedy)
	add("across, greedy", cycle, across, greedy)
	add("second turn", nil, control.Constraints{Decoder: whole}, nil)
	add("any route", turnTokens(5, 50), control.Constraints{}, nil)
	for i := range s.asks {
		a := &s.asks[i]
		if a.name == "second turn" {
			first := s.asks[0]
			a.first = &first.req
			a.req.Tokens = slices.Concat(first.req.Tokens, first.want.NewTokens, turnTokens(4, 9))
		}
		alone := a.req
		alone.Fresh, alone.Constraints = true, control.Constraints{Shape: "local", Decoder: whole}
		want, err := s.byName["client"].run(testContext(t), alone, quiet)
		if err != nil {
			t.Fatal(err)
		}
		a.want = want
	}
	return s
}

// launch starts a node, or starts it again on its data folder.
func (s *killNet) launch(name string) {
	if s.dirs[name] == "" {
		s.dirs[name] = s.t.TempDir()
	}
	n := s.start(func(c *Config) {
		c.DataDir, c.Silence, c.Client = s.dirs[name], s.silence, name == "client"
		c.Log = slog.New(&blameLog{s: s, node: name})
		c.wrap = func(st stream) stream {
			real := st.(*swarm.Stream)
			return &faultyStream{stream: st, node: real.LocalAddr().String(), protocol: real.Protocol(), x: s.x}
		}
		if name == "whole" && strings.HasSuffix(s.model, "llama.gguf") { // for two sessions, so that a third one waits in line
			c.Engine.MaxKVBytes = 1 << 20
		}
	})
	s.mu.Lock()
	s.byName[name] = n
	s.mu.Unlock()
	if l, ok := killLayout[name]; ok {
		s.serve(n, s.id, l[0], l[1])
	}
}

// close closes nodes that a fault hit.
func (s *killNet) close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.byName {
		if n.ID() == id {
			s.closing.Go(func() { n.Close() })
		}
	}
}

// wake lets mute nodes speak again, on new streams.
func (s *killNet) wake() {
	for _, link := range s.x.wake() {
		for _, n := range s.byName {
			if n.ID() != link[0] || n.links == nil {
				continue
			}
			for _, to := range s.byName {
				if link[1] == "" || link[1] == to.ID() {
					n.links.renew(to.ID())
				}
			}
		}
	}
}

// name returns a node's name in the test.
func (s *killNet) name(id string) string {
	for name, n := range s.byName {
		if n.ID() == id {
			return name
		}
	}
	return id
}

// ready waits until everybody is known to those who plan; others ask when they need to.
func (s *killNet) ready() {
	s.t.Helper()
	for _, name := range []string{"client", "last", "whole"} {
		n := s.byName[name]
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			peers, _ := n.planPeers(s.id)
			if len(peers) == len(killLayout) {
				break
			}
			_ = n.host.Refresh(context.Background())
			if time.Now().After(end) {
				missing := ""
				for who, m := range s.byName {
					if !slices.ContainsFunc(peers, func(p route.Peer) bool { return p.ID == m.ID() }) {
						missing += fmt.Sprintf("%s (%v) ", who, m.problems())
					}
				}
				s.t.Fatalf("%s has no offers of %s", name, missing)
			}
		}
	}
}

// blameLog picks out of a node's log whom it blames.
type blameLog struct {
	s    *killNet
	node string
	with []slog.Attr
}

func (h *blameLog) Enabled(context.Context, slog.Level) bool { return true }
func (h *blameLog) WithGroup(string) slog.Handler            { return h }
func (h *blameLog) WithAttrs(list []slog.Attr) slog.Handler {
	c := *h
	c.with = slices.Concat(h.with, list)
	return &c
}

func (h *blameLog) Handle(_ context.Context, r slog.Record) error {
	b := blame{by: h.node, at: time.Now()}
	line, session := fmt.Sprintf("%s %s %s", b.at.Format("05.000"), h.node, r.Message), ""
	for _, a := range h.with {
		if a.Key == "session" {
			session = h.node + " " + a.Value.String()
		}
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	defer func() {
		h.s.mu.Lock()
		h.s.journal = append(h.s.journal, line)
		h.s.mu.Unlock()
	}()
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		switch a.Key {
		case "by":
			if r.Message == "late" {
				h.s.mu.Lock()
				h.s.lates = append(h.s.lates, late{h.node, a.Value.Duration(), b.at})
				h.s.mu.Unlock()
			}
		case "peer":
			b.peer = a.Value.String()
		case "error", "recovered":
			b.why = a.Value.String()
		}
		return true
	})
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	switch r.Message {
	case "session opened", "planned":
		h.s.anew[session] = b.at
	case "stage lost", "decoder lost":
		b.role, _, _ = strings.Cut(r.Message, " ")
		b.since, h.s.anew[session] = h.s.anew[session], b.at
		h.s.blamed = append(h.s.blamed, b)
	}
	return nil
}

// play makes a schedule of its number and lets it happen.
func (s *killNet) play(t *testing.T, seed uint64, report *killReport) {
	rng := rand.New(rand.NewPCG(seed, 1))
	began := time.Now()
	bare := rng.IntN(8) == 0 // nobody can take a stage's place
	var asks []killAsk
	for range []int{1, 1, 1, 1, 1, 2, 2, 3}[rng.IntN(8)] {
		asks = append(asks, s.asks[rng.IntN(len(s.asks))])
	}
	if bare {
		asks = []killAsk{s.asks[1+rng.IntN(2)]}
	}
	var list []*fault
	clientFault := ""
	for range []int{1, 1, 2}[rng.IntN(3)] {
		f := &fault{kind: faultKinds[rng.IntN(len(faultKinds))], role: []string{"stage", "stage", "decoder", "decoder", "client"}[rng.IntN(5)],
			phase: []string{"prefill", "decode"}[rng.IntN(2)], nth: 1 + rng.IntN(12)}
		if f.role == "client" {
			if f.phase == "decode" || f.kind == "kill" || f.kind == "close" || f.kind == "stall" { // hardly ever a frame of its comes then
				clientFault = []string{"kill", "close", "stall", "cancel"}[rng.IntN(4)]
				break
			}
			f.nth = 1
		}
		list = append(list, f)
	}
	after := 1 + rng.IntN(12) // frames that the client gets
	wakeEarly := rng.IntN(3) > 0

	for _, a := range asks {
		if a.first != nil {
			if _, err := s.byName["client"].run(testContext(t), *a.first, quiet); err != nil {
				t.Fatalf("the turn before: %v", err)
			}
		}
	}
	if bare {
		for name, n := range s.byName {
			if name != "first" && name != "second" && name != "last" && name != "client" {
				if _, err := n.Pause(testContext(t), patience); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, name := range []string{"client", "last"} {
			eventually(t, "the others' offers to be gone", func() bool { p, _ := s.byName[name].planPeers(s.id); return len(p) == 3 })
		}
	}
	s.mu.Lock()
	s.blamed, s.lates, s.journal, s.anew = nil, nil, nil, map[string]time.Time{}
	s.mu.Unlock()
	s.x.begin(seed, list)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	client := s.byName["client"]
	var (
		mu       sync.Mutex
		got      int
		clientAt time.Time
		runs     sync.WaitGroup
		accounts = make([]*control.Account, len(asks))
		errs     = make([]error, len(asks))
	)
	for i, a := range asks {
		runs.Go(func() {
			accounts[i], errs[i] = client.run(ctx, a.req, func(ev control.Event) error {
				mu.Lock()
				defer mu.Unlock()
				if got++; got != after || clientFault == "" {
					return nil
				}
				clientAt = time.Now()
				switch clientFault {
				case "cancel":
					cancel()
				case "stall":
					s.x.silence(client.ID())
				case "kill":
					s.x.silence(client.ID())
					s.close(client.ID())
				case "close":
					s.close(client.ID())
				}
				return nil
			})
		})
	}
	if clientFault == "stall" { // it never learns what happens; nobody else waits for it
		go func() {
			for ctx.Err() == nil {
				mu.Lock()
				hit := !clientAt.IsZero()
				mu.Unlock()
				if hit && s.free(client) {
					cancel()
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	runs.Wait()
	took := time.Since(began)
	fallen := s.x.end()
	s.closing.Wait()
	describe := func() string {
		b := fmt.Sprintf("after %v; bare: %v; ", took.Round(time.Millisecond), bare)
		for _, a := range asks {
			b += a.name + "; "
		}
		if clientFault != "" {
			b += fmt.Sprintf("client: %s after %d; ", clientFault, after)
		}
		for _, f := range fallen {
			b += fmt.Sprintf("%s at %s's frame %d in %s, type %d, %s to %s; ", f.kind, f.role, f.nth, f.phase, f.frame, s.name(f.node), s.name(f.peer))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, x := range s.blamed {
			b += fmt.Sprintf("%s blames the %s %s: %s; ", x.by, x.role, s.name(x.peer), x.why)
		}
		return b
	}
	defer func() {
		if t.Log(describe()); t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("what the nodes say:\n%s", strings.Join(s.journal, "\n"))
		}
	}()

	gone := map[string]bool{} // nodes that a fault has hit
	for _, f := range fallen {
		if f.kind == "kill" || f.kind == "close" {
			gone[f.node] = true
		}
	}
	if clientFault == "kill" || clientFault == "close" {
		gone[client.ID()] = !clientAt.IsZero()
	}
	for i, a := range asks {
		s.judge(t, a, accounts[i], errs[i], bare, gone[client.ID()] || !clientAt.IsZero(), report)
	}
	s.judgeBlame(t, fallen, len(asks), report)

	// Nobody holds anything. A stalled node is waited for until it wakes: its lease is longer.
	limit := s.slack
	if wakeEarly {
		s.wake()
	}
	if slices.ContainsFunc(fallen, func(f fault) bool { return slices.Contains([]string{"stall", "hole", "truncate"}, f.kind) }) {
		limit += leaseTimeout // words of goodbye were lost
	}
	idle := time.Now()
	for !s.free(nil) {
		if now := time.Now(); now.Sub(idle) > limit+s.late(idle, now) { // nodes that didn't run don't count that time
			t.Errorf("%v after the answer: %s", now.Sub(idle), s.held())
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !clientAt.IsZero() && clientFault != "stall" && len(fallen) == 0 && wakeEarly {
		report.add(func() { report.freed = append(report.freed, time.Since(clientAt)) })
	}
	s.wake()
	for id := range gone {
		if gone[id] {
			name := s.name(id)
			s.nodes = slices.DeleteFunc(s.nodes, func(n *Node) bool { return n.ID() == id })
			s.launch(name)
		}
	}
	if bare {
		for name, n := range s.byName {
			if name != "client" {
				if err := n.Resume(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	s.ready()
	report.add(func() {
		report.schedules++
		for _, f := range fallen {
			report.fallen[f.kind]++
		}
		if !clientAt.IsZero() {
			report.fallen["client "+clientFault]++
		}
	})
}
