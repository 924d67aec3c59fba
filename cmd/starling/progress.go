package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/starling-swarm/starling/node/control"
)

// plainInterval is how often progress is told where there is no terminal.
const plainInterval = 5 * time.Second

// slowPrefill is how long a verb runs before reading the prompt gets a bar.
const slowPrefill = time.Second

// slowLoad is how many bytes take long enough to load to be worth a line.
const slowLoad = 100e6

// phaseTitles say what is going on.
var phaseTitles = map[string]string{"hash": "hashing", "header": "fetching the header", "pull": "fetching", "load": "loading", "prefill": "reading the prompt", "wait": "waiting for room"}

// progress shows how far long work has come: bars on a terminal, now and then a
// line otherwise. Its methods may be called from any goroutine.
type progress struct {
	out      io.Writer
	terminal bool
	began    time.Time

	mu    sync.Mutex
	phase string
	told  time.Time
	bar   *progressbar.ProgressBar
}

// newProgress shows progress on stderr.
func newProgress() *progress {
	return &progress{out: os.Stderr, terminal: isTerminal(os.Stderr), began: time.Now()}
}

// isTerminal reports whether f is one.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// event shows a progress event; others clear the bar, since something is about
// to be printed.
func (p *progress) event(ev control.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ev.Kind != "progress" {
		p.clear()
		return
	}
	if ev.Phase != p.phase {
		p.clear()
		p.phase, p.told = ev.Phase, time.Now()
		if !p.terminal && ev.Phase == "load" && ev.Total >= slowLoad {
			fmt.Fprintf(p.out, "%s %s\n", title(ev.Phase), bytesText(ev.Total))
		}
	}
	if ev.Phase == "wait" { // the first time, then as often as there is something new to say
		fmt.Fprintf(p.out, "%s: %s\n", title(ev.Phase), oneLine(ev.Text))
		return
	}
	if ev.Phase == "prefill" && time.Since(p.began) < slowPrefill {
		return
	}
	if p.terminal {
		p.show(ev)
		return
	}
	if time.Since(p.told) >= plainInterval && ev.Total > 0 {
		p.told = time.Now()
		fmt.Fprintf(p.out, "%s: %s of %s (%d %%)\n", title(ev.Phase), amount(ev.Phase, ev.Done), amount(ev.Phase, ev.Total), 100*ev.Done/ev.Total)
	}
}

func (p *progress) show(ev control.Event) {
	if p.bar == nil {
		options := []progressbar.Option{progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(title(ev.Phase)),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100 * time.Millisecond)}
		if ev.Phase != "prefill" {
			options = append(options, progressbar.OptionShowBytes(true))
		} else {
			options = append(options, progressbar.OptionShowCount())
		}
		p.bar = progressbar.NewOptions64(max(ev.Total, 1), options...)
	}
	_ = p.bar.Set64(min(ev.Done, max(ev.Total, 1))) // a bar that can't be drawn is no loss
}

func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear() // as above
	}
	p.bar, p.phase = nil, ""
}

// done removes what is shown.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func title(phase string) string {
	if t, ok := phaseTitles[phase]; ok {
		return t
	}
	return printable(phase)
}

func amount(phase string, n int64) string {
	if phase == "prefill" {
		return fmt.Sprint(n)
	}
	return bytesText(n)
}
