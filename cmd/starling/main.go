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
		return complain(usageError(err))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	k.BindTo(ctx, (*context.Context)(nil))
	err = k.Run(&c.globals)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return complain(err)
}

// usage is an error in the command line or the settings.
type usage struct{ error }

// usageError adds where to find help.
func usageError(err error) error {
	hint := "see starling --help"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Command() != "" {
		path := strings.Fields(parse.Context.Command())
		words := []string{path[0]}
		if path[0] == "swarm" && len(path) > 1 {
			words = path[:2]
		}
		hint = "see starling " + strings.Join(words, " ") + " --help"
	}
	return usage{fmt.Errorf("%w (%s)", err, hint)}
}

// complain prints an error on one line and returns the exit status.
func complain(err error) int {
	if err == nil {
		return 0
	}
	if text := oneLine(err.Error()); text != "" {
		fmt.Fprintf(os.Stderr, "starling: %s\n", text)
	}
	var u usage
	if errors.As(err, &u) {
		return exitUsage
	}
	return exitFailure
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
