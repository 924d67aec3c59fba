package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/starling-swarm/starling/node/control"
)

// demoReport is what "demo --json" prints.
type demoReport struct {
	Model     *control.Model   `json:"model"`
	Processes []demoProcess    `json:"processes"`
	Runs      []demoRun        `json:"runs"`
	Reference *control.Account `json:"single_process"`
}

// demoProcess is one node of the demo.
type demoProcess struct {
	Name      string          `json:"name"`
	PID       int             `json:"pid"`
	Peer      string          `json:"peer"`
	Layers    *control.Layers `json:"layers,omitempty"`
	Allocated int64           `json:"allocated_bytes"`
}

// demoRun is one shape's run.
type demoRun struct {
	Shape     string             `json:"shape"`
	Plan      *control.PlanReply `json:"plan"`
	Account   *control.Account   `json:"account"`
	Links     []demoLink         `json:"links"`
	Tokens    bool               `json:"tokens_identical"`
	Logits    bool               `json:"logits_identical"`
	KV        bool               `json:"kv_identical"`
	Identical bool               `json:"identical"`
}

// demoLink is what crossed the link from one process to another.
type demoLink struct {
	From      string `json:"from"`
	To        string `json:"to"`
	SeamBytes int64  `json:"seam_bytes"`
	KVBytes   int64  `json:"kv_bytes"`
}

// show tells what the demo does, in words or as JSON at the end.
type show struct {
	json      bool
	out       io.Writer
	swarm     *demoSwarm
	reference *reference
	progress  *progress

	mu     sync.Mutex
	report demoReport
	plan   *control.PlanReply // of the run in progress
	lineOn bool               // the text's last line is open
}

func newShow(asJSON bool, swarm *demoSwarm) *show {
	s := &show{json: asJSON, swarm: swarm, out: os.Stdout, progress: newProgress()}
	if asJSON {
		s.out = io.Discard
	}
	return s
}

func (s *show) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// began tells of the tracker.
func (s *show) began(m *control.Model) {
	p := s.swarm.tracker()
	s.report.Model = m
	s.report.Processes = append(s.report.Processes, demoProcess{Name: p.Name, PID: p.cmd.Process.Pid, Peer: p.peer(), Allocated: m.Allocated})
	s.printf("a private swarm of processes on this machine, in %s\n\n", s.swarm.dir)
	s.printf("%-12s pid %-7d %s  publishes %s: %d layers, %s\n", p.Name, p.cmd.Process.Pid, shortPeer(p.peer()), printable(m.Name), m.NumLayers, bytesText(m.Bytes))
}

// joined tells of a node that has fetched its layers and serves them.
func (s *show) joined(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := p.serving
	s.report.Processes = append(s.report.Processes, demoProcess{Name: p.Name, PID: p.cmd.Process.Pid, Peer: p.peer(), Layers: m.Serving, Allocated: m.Allocated})
	s.printf("%-12s pid %-7d %s  fetched %s by torrent: %s\n", p.Name, p.cmd.Process.Pid, shortPeer(p.peer()), layersText(m.Serving), disk(m))
}

// disk says how much of a model is on a node's disk.
func disk(m *control.Model) string {
	return fmt.Sprintf("%s of %s on disk (%d %%)", bytesText(m.Allocated), bytesText(m.Bytes), 100*m.Allocated/max(m.Bytes, 1))
}

func (s *show) asks(prompt string) { s.printf("\nprompt: %s\n", printableLines(prompt)) }

func (s *show) begins(title string) { s.printf("\n── %s\n\n", title) }

// event shows a run's events.
func (s *show) event(ev control.Event) {
	if !s.json {
		s.progress.event(ev)
	}
	switch ev.Kind {
	case "plan":
		s.plan = ev.Plan
		s.printf("%s\n", s.explain(ev.Plan))
	case "text":
		s.printf("%s", printableLines(ev.Text))
		s.lineOn = s.lineOn && ev.Text == "" || ev.Text != "" && !strings.HasSuffix(ev.Text, "\n")
	}
}

// explain is a plan in words, with the processes' names for their peer IDs.
func (s *show) explain(p *control.PlanReply) string {
	b, err := json.Marshal(p.Plan)
	if err != nil {
		return p.Explain
	}
	text := string(b)
	for _, x := range s.report.Processes {
		text = strings.ReplaceAll(text, x.Peer, x.Name)
	}
	named := p.Plan
	if json.Unmarshal([]byte(text), &named) != nil {
		return p.Explain
	}
	return printableLines(named.Explain())
}

// ran tells how a run went.
func (s *show) ran(ctx context.Context, shape string, a *control.Account) error {
	s.progress.done()
	if s.lineOn {
		s.printf("\n")
		s.lineOn = false
	}
	run := demoRun{Shape: shape, Plan: s.plan, Account: a, Links: s.links(a)}
	s.report.Runs = append(s.report.Runs, run)
	stages := append(slices.Clone(a.Stages), a.Decoder)
	disks := make([]string, len(stages))
	for i, x := range stages {
		var err error
		if disks[i], err = s.diskOf(ctx, x.Peer); err != nil {
			return err
		}
	}
	s.printf("\n")
	return table(s.out, func(w io.Writer) {
		fmt.Fprintln(w, "STAGE\tLAYERS\tROWS\tROWS/S\tON DISK\tSEAMS SENT (BLAKE3)")
		for i, x := range stages {
			hash := "–"
			if x.SeamHash != "" {
				hash = x.SeamHash[:min(len(x.SeamHash), 32)]
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%.3g\t%s\t%s\n", s.swarm.name(x.Peer), layersText(&x.Layers), x.Tokens, x.TokensS, disks[i], hash)
		}
		fmt.Fprintln(w, "\nLINK\t\t\t\tSEAMS\tKV")
		for _, l := range run.Links {
			fmt.Fprintf(w, "%s → %s\t\t\t\t%s\t%s\n", l.From, l.To, bytesText(l.SeamBytes), bytesText(l.KVBytes))
		}
	})
}

// diskOf says how much of the model is on a process's disk now.
func (s *show) diskOf(ctx context.Context, peer string) (string, error) {
	for _, p := range s.swarm.processes {
		if p.peer() != peer {
			continue
		}
		st, err := p.ctl.Status(ctx)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.Name, err)
		}
		for i := range st.Models {
			if st.Models[i].ID == s.swarm.model.ID {
				return disk(&st.Models[i]), nil
			}
		}
	}
	return "–", nil
}

// links adds up what crossed each link.
func (s *show) links(a *control.Account) []demoLink {
	var all []demoLink
	add := func(from, to string, seams, kv int64) {
		i := slices.IndexFunc(all, func(l demoLink) bool { return l.From == from && l.To == to })
		if i < 0 {
			i, all = len(all), append(all, demoLink{From: from, To: to})
		}
		all[i].SeamBytes += seams
		all[i].KVBytes += kv
	}
	for _, x := range a.Stages {
		add(s.swarm.name(x.Peer), s.swarm.name(x.To), x.SeamBytes, 0)
		add(s.swarm.name(x.Peer), s.swarm.name(a.Decoder.Peer), 0, x.KVBytes)
	}
	return slices.DeleteFunc(all, func(l demoLink) bool { return l.SeamBytes == 0 && l.KVBytes == 0 })
}

// compared compares the last run with the single-process one.
func (s *show) compared() {
	r := &s.report.Runs[len(s.report.Runs)-1]
	a, ref := r.Account, s.reference
	r.Tokens = slices.Equal(a.PromptTokens, ref.Prompt) && slices.Equal(a.NewTokens, ref.New) && a.Text == ref.Text
	r.Logits, r.KV = a.LogitsHash == ref.LogitsHash, a.KVHash == ref.KVHash
	r.Identical = r.Tokens && r.Logits && r.KV
	s.printf("\nfirst token after %s, then %.3g tokens/s (in one process: %s, %.3g tokens/s)\n", durationText(a.TTFT), a.DecodeTokensS,
		durationText(ref.TTFT), rate(len(ref.New)-1, ref.Decode))
	for _, note := range a.Recovered {
		s.printf("recovered: %s\n", oneLine(note))
	}
	s.printf("logits %s\nKV     %s\n", a.LogitsHash, a.KVHash)
	if !r.Identical {
		s.printf("tokens identical: %s, logits: %s, KV: %s\n", yes(r.Tokens), yes(r.Logits), yes(r.KV))
		s.printf("single process: logits %s\n                KV     %s\n", ref.LogitsHash, ref.KVHash)
	}
	s.printf("identical to single-process run: %s\n", yes(r.Identical))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// finish prints the summary.
func (s *show) finish() error {
	s.report.Reference = s.reference.account()
	same := !slices.ContainsFunc(s.report.Runs, func(r demoRun) bool { return !r.Identical })
	if s.json {
		if err := printJSON(s.report); err != nil {
			return err
		}
	}
	s.printf("\n── summary\n\n")
	err := table(s.out, func(w io.Writer) {
		fmt.Fprintln(w, "SHAPE\tFIRST TOKEN\tTOKENS/S\tSEAMS\tKV\tIDENTICAL")
		fmt.Fprintf(w, "single process\t%s\t%.3g\t–\t–\t–\n", durationText(s.reference.TTFT), rate(len(s.reference.New)-1, s.reference.Decode))
		for _, r := range s.report.Runs {
			var seams, kv int64
			for _, l := range r.Links {
				seams, kv = seams+l.SeamBytes, kv+l.KVBytes
			}
			fmt.Fprintf(w, "%s\t%s\t%.3g\t%s\t%s\t%s\n", r.Shape, durationText(r.Account.TTFT), r.Account.DecodeTokensS, bytesText(seams), bytesText(kv), yes(r.Identical))
		}
	})
	if err != nil {
		return err
	}
	if !same {
		return errDiffers
	}
	s.printf("\nnext: starling demo --cuts 1,2,4 --chunk 7; starling demo --model FILE.gguf --prompt \"…\"; starling demo --keep\n" +
		"or a swarm of your own: starling swarm create --help\n")
	return nil
}

// play says how to use the swarm that keeps running.
func (s *show) play() {
	exe, data := s.swarm.exe, s.swarm.folder("tracker")
	s.printf("\nthe swarm keeps running until Ctrl-C; try\n\n")
	s.printf("  %s --data %s run -v \"%s\"\n", exe, data, smokePrompt)
	s.printf("  %s --data %s plan %s --prompt-tokens 200 --new-tokens 50\n", exe, data, shortID(s.swarm.model.ID))
	s.printf("  %s --data %s models\n", exe, data)
	for _, p := range s.swarm.processes {
		s.printf("  %s --data %s status   # %s, pid %d, log.txt there\n", exe, p.dir, p.Name, p.cmd.Process.Pid)
	}
}
