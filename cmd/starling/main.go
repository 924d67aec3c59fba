package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit statuses.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() { os.Exit(execute(os.Args[1:])) }

// execute runs one command line and returns its exit status.
func execute(args []string) int {
	var c cli
	parser, err := newParser(&c)
	if err != nil {
		panic(err) // the grammar is a constant
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := parser.Parse(args)
	if err != nil {
		var parse *kong.ParseError
		if errors.As(err, &parse) && parse.Context != nil {
			return complain(usageError(err), parse.Context.Command())
		}
		return complain(usageError(err), "")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	k.BindTo(ctx, (*context.Context)(nil))
	err = k.Run(&c.globals)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return complain(err, k.Command())
}

// usage is an error in the command line or the settings.
type usage struct{ error }

// usageError makes err one for which --help has the remedy.
func usageError(err error) error { return usage{err} }

// complain prints an error of a command on one line and returns the exit status.
func complain(err error, command string) int {
	if err == nil {
		return 0
	}
	text, status := oneLine(err.Error()), exitFailure
	var u usage
	if errors.As(err, &u) {
		status = exitUsage
		text += " (see " + strings.Join(append([]string{"starling"}, append(verb(command), "--help")...), " ") + ")"
	}
	fmt.Fprintf(os.Stderr, "starling: %s\n", text)
	return status
}

// verb returns the verbs of a command such as "swarm join <invite-or-id>".
func verb(command string) (words []string) {
	for _, w := range strings.Fields(command) {
		if strings.HasPrefix(w, "<") || strings.HasPrefix(w, "[") {
			break
		}
		words = append(words, w)
	}
	return words
}

// oneLine joins the lines of a text and drops what a terminal would obey:
// parts of it may come from other machines.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return printable(strings.Join(lines, "; "))
}

// printable replaces control characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, text)
}
