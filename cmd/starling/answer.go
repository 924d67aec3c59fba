package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// answer prints a run: the text as it comes on stdout and a line of figures on
// stderr, or everything as JSON lines.
type answer struct {
	json, verbose bool
	progress      *progress
	trace         bool   // draw the timeline
	sees          string // who sees what, as last told
	written       string // the end of what was printed
}

func newAnswer(asJSON, verbose bool) *answer {
	return &answer{json: asJSON, verbose: verbose, progress: newProgress()}
}

// event prints one event of a run.
func (a *answer) event(ev control.Event) {
	if a.json {
		_ = json.NewEncoder(os.Stdout).Encode(ev) // a reader that has gone ends the process by SIGPIPE
		return
	}
	a.progress.event(ev)
	switch ev.Kind {
	case "plan":
		if a.verbose {
			fmt.Fprint(os.Stderr, printableLines(ev.Plan.Explain), "\n")
		}
		if text := seesText(ev.Plan.Sees); text != a.sees { // the route may change
			a.sees = text
			a.progress.done()
			if a.inLine() {
				fmt.Fprintln(os.Stderr) // not on standard output: the answer goes on
			}
			fmt.Fprintln(os.Stderr, text)
		}
	case "text":
		a.write(ev.Text)
	}
}

func (a *answer) write(text string) {
	if isTerminal(os.Stdout) {
		text = printableLines(text) // a model's text must not drive the terminal
	}
	fmt.Print(text)
	if text != "" {
		a.written = text
	}
}

// fail ends a run that failed.
func (a *answer) fail(err error) error {
	a.progress.done()
	if a.json {
		_ = json.NewEncoder(os.Stdout).Encode(control.Failed(err)) // as above
	}
	a.endLine()
	return err
}

// finish ends a run.
func (a *answer) finish(r *control.Account) error {
	a.progress.done()
	if a.json {
		return json.NewEncoder(os.Stdout).Encode(control.Event{Kind: "done", Run: r})
	}
	a.endLine()
	if a.verbose || isTerminal(os.Stderr) {
		fmt.Fprintln(os.Stderr, figures(r))
		for _, note := range r.Recovered {
			fmt.Fprintf(os.Stderr, "recovered: %s\n", oneLine(note))
		}
	}
	if a.verbose && r.LogitsHash != "" {
		fmt.Fprintf(os.Stderr, "logits %s\nKV     %s\n", r.LogitsHash, r.KVHash)
	}
	if a.trace {
		return printTimeline(os.Stderr, r, terminalWidth(os.Stderr))
	}
	return nil
}

// inLine reports whether the answer stands in the middle of a line.
func (a *answer) inLine() bool { return a.written != "" && !strings.HasSuffix(a.written, "\n") }

func (a *answer) endLine() {
	if a.inLine() {
		fmt.Println()
	}
	a.written = ""
}

// figures is a run's line of figures.
func figures(r *control.Account) string {
	end := ""
	if r.Reason == "length" {
		end = "; stopped at the limit of -n, or of the context"
	}
	who := "one peer"
	if n := len(r.Stages); n > 0 {
		who = fmt.Sprintf("%d peers", n+1)
	}
	reused, guesses := "", ""
	if r.Reused > 0 {
		reused = fmt.Sprintf(" (%d from an earlier session)", r.Reused)
	}
	if r.Guessed > 0 {
		guesses = fmt.Sprintf(", %d of %d guesses right", r.Accepted, r.Guessed)
	}
	if r.Switched > 0 {
		guesses += fmt.Sprintf(", from position %d on by one peer that had grown (longest wait there %s)", r.Switched, durationText(r.Switch.Round(time.Microsecond)))
	}
	return fmt.Sprintf("%d prompt tokens%s, the first new one after %s; %d new tokens at %.3g/s%s; %s%s",
		len(r.PromptTokens), reused, durationText(r.TTFT.Round(time.Microsecond)), len(r.NewTokens), r.DecodeTokensS, guesses, who, end)
}
